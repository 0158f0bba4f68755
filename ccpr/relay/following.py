"""Followers: databases of other clusters that take their points from the relay of this state folder.

`follow` records the follower, then has its cluster create the database, which is one transaction there; the
publication, whose name is the follower's alone, tells the same command, typed again, whether that has happened.
`unfollow` undoes it in the other order (decision followers-are-rows).
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ccpr.matrixone.client.endpoint import SYS_ACCOUNT, Endpoint, Tls, format_uri, parse_uri
from ccpr.matrixone.client.errors import AccessDenied, TlsFailed, UpstreamError, UpstreamUnreachable
from ccpr.matrixone.client.retry import NO_RETRY
from ccpr.matrixone.client.upstream_session import Session, text
from ccpr.matrixone.errors import CcprError, Transient
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr.pipeline.options import DEFAULT_OPTIONS, Timeouts
from ccpr.relay.client_port import Listen
from ccpr.relay.downstream import Downstream, Task, TaskState, is_refusal
from ccpr.relay.errors import DownstreamHasDatabase, DownstreamRefused, DownstreamUnfit, FollowUnfit, RelayAddress
from ccpr.relay.relay_server import DEFAULT_ADDRESS
from ccpr.retention.pinning import PinStore
from ccpr.service.errors import SeveralDatabases
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.errors import FollowerExists, FollowerLoginLost
from ccpr.state.followers import (
    PROMOTING,
    Follower,
    FollowerRecords,
    FollowerStage,
    open_login,
    open_password,
    publication_of,
    seal_login,
)
from ccpr.state.subscription import Subscription, check_subscription_name

PROBE_SECONDS = 5.0
_LEGACY = "db_"  # a MatrixOne loses what it knows of tables there (docs/upstream.md, "A MatrixOne behind the relay")


@dataclass(frozen=True, slots=True)
class FollowerDestination:
    """Where a copy is to be.

    Attributes
    ----------
    endpoint, password : of the other cluster.
    database : its name there; None = the source's.
    relay_address : where that cluster reaches the relay; None = on the same machine.
    """

    endpoint: Endpoint
    password: str
    database: str | None = None
    relay_address: str | None = None


@dataclass(frozen=True, slots=True)
class Followed:
    """What `follow` did. `relay_tried`: whether the relay was reached at that address from here, too."""

    follower: Follower
    task: Task
    relay_tried: bool


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """What `unfollow` did.

    Attributes
    ----------
    database_left : its name if it is there still, read-only.
    pins_dropped : snapshots that it had taken.
    asked : whether its cluster was asked at all.
    """

    follower: Follower
    database_left: str | None
    pins_dropped: int
    asked: bool


def follow(
    workspace: Workspace, name: str, follower_name: str, place: FollowerDestination, *, new_login: bool = False
) -> Followed:
    """Check both sides, and let the other cluster follow. Typed again, it goes on where it was; a follower that has
    stopped is resumed. With `new_login` its subscription and its database there are dropped first, and it begins anew
    with another login at the relay.

    Raises SubscriptionMissing, BadName, SeveralDatabases, FollowUnfit, FollowerExists, FollowerLoginLost,
    DownstreamUnfit, DownstreamHasDatabase, DownstreamRefused, RelayAddress, and errors of the session.
    """
    with _asked(workspace, name, follower_name, place) as asked:
        downstream, records, known, task = asked.downstream, asked.records, asked.known, asked.task
        database = asked.database
        if new_login:
            known = _ended(workspace, downstream, records, known, task, database)
            task = None
        else:
            _check_login(workspace, follower_name, asked)
        if task is None:
            _check_free(asked, place)
        follower = _recorded(workspace, records, known, follower_name, place, database, asked.address)
        tried = False
        if task is None:
            try:
                tried = _try_relay(workspace, follower)
                task = _create(workspace, downstream, follower)
            except CcprError as error:
                if known is None and not isinstance(error, Transient):
                    records.remove(follower_name)  # nothing was made there
                raise
        elif task.state in (TaskState.ERROR, TaskState.PAUSED):
            downstream.resume(task.id)
        number = downstream.database_id(database)
        records.change(follower_name, stage=FollowerStage.FOLLOWING.value, downstream_task=task.id, database_id=number)
    return Followed(records.get(follower_name), task, tried)


def check(workspace: Workspace, name: str, follower_name: str, place: FollowerDestination) -> None:
    """Ask both sides, as `follow` does, whether it can begin. Nothing is written. Raises what `follow` raises."""
    with _asked(workspace, name, follower_name, place) as asked:
        _check_login(workspace, follower_name, asked)
        if asked.task is None:
            _check_free(asked, place)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Both sides before anything is changed. `known` is the follower's row, `task` what its cluster has of it."""

    downstream: Downstream
    records: FollowerRecords
    known: Follower | None
    task: Task | None
    database: str
    address: str


@contextmanager
def _asked(workspace: Workspace, name: str, follower_name: str, place: FollowerDestination) -> Iterator[_Asked]:
    check_subscription_name(follower_name)
    row = workspace.log.row(name)
    subscription = Subscription.from_row(row)
    database = place.database or subscription.database
    _check_subscription(workspace, subscription, database)
    records = workspace.of(row).followers
    address = place.relay_address or _own_address(place.endpoint)
    Listen.parse(address)
    known = records.find(follower_name)
    if known is not None:
        _check_same(known, place.endpoint, database)
    if place.endpoint.account != SYS_ACCOUNT:
        raise DownstreamUnfit("only account sys may subscribe", subject=place.endpoint.masked())
    with Session(place.endpoint, place.password) as session:
        downstream = Downstream(session)
        downstream.check()
        capabilities = Context.from_text(row.context).capabilities
        if capabilities is not None and capabilities.abort_column:
            downstream.check_reads_abort_column()
        task = find_task(downstream, publication_of(row.task_id, follower_name))
        yield _Asked(downstream, records, known, task, database, address)


def _check_login(workspace: Workspace, follower_name: str, asked: _Asked) -> None:
    """Raises FollowerLoginLost."""
    if asked.known is not None:
        open_login(workspace.vault, asked.known)
    elif asked.task is not None:
        raise FollowerLoginLost(
            "its cluster has a subscription whose login is not known here", subject=f"follower {follower_name}"
        )


def _check_free(asked: _Asked, place: FollowerDestination) -> None:
    if asked.downstream.has_database(asked.database):
        raise DownstreamHasDatabase(f"there is a database {asked.database}", subject=place.endpoint.masked())


def _ended(
    workspace: Workspace,
    downstream: Downstream,
    records: FollowerRecords,
    known: Follower | None,
    task: Task | None,
    database: str,
) -> Follower | None:
    """End what a follower has there, which is loaded again. Its row first gets another login, and keeps what is about
    to be dropped: typed again, the same goes on."""
    number = downstream.database_id(database) if task is not None else known and known.database_id
    if known is not None:
        task_id = known.downstream_task if task is None else task.id
        login = seal_login(workspace.vault, known.publication, secrets.token_urlsafe(24))
        values = {"stage": FollowerStage.STARTING.value, "downstream_task": task_id, "database_id": number}
        records.change(known.name, sealed_login=login, **values)
        known = records.get(known.name)
    if task is not None:
        downstream.unsubscribe(task.id)
    downstream.drop_own_database(database, number)
    if known is not None:
        drop_pins(workspace.of(records).pins, known)
    return known


def unfollow(
    workspace: Workspace, name: str, follower_name: str, *, drop_database: bool = False, force: bool = False
) -> Unfollowed:
    """End a follower: its subscription there, its login here, its snapshots. Typed again, it goes on where it was.

    Parameters
    ----------
    drop_database : drop its database, too.
    force : do not ask its cluster, which is gone for good.

    Raises FollowerMissing, FollowUnfit if it is being promoted, and errors of the session.
    """
    row = workspace.log.row(name)
    records = workspace.of(row).followers
    follower = records.get(follower_name)
    if follower.stage in PROMOTING and not force:
        raise FollowUnfit(
            "it is being promoted",
            subject=f"follower {follower_name}",
            remedy=f"Type `ccpr follower promote {name} {follower_name}` again, so that it comes to its end. "
            "`--force` forgets it, and leaves everything there as it is.",
        )
    records.change(follower_name, stage=FollowerStage.LEAVING.value)  # from now on the relay does not know it
    left: str | None = None
    if not force:
        with open_downstream(workspace, follower) as downstream:
            task = find_task(downstream, follower.publication)
            if task is not None:
                number = downstream.database_id(follower.database)
                records.change(follower_name, downstream_task=task.id, database_id=number)
                follower = replace(follower, downstream_task=task.id, database_id=number)
                downstream.unsubscribe(task.id)
            if drop_database:
                downstream.drop_own_database(follower.database, follower.database_id)
            there = downstream.database_id(follower.database)
            if there is not None and there == follower.database_id:
                left = follower.database
    dropped = drop_pins(workspace.of(row).pins, follower)
    records.remove(follower_name)
    return Unfollowed(follower, left, dropped, not force)


def drop_pins(pins: PinStore, follower: Follower) -> int:
    """Drop the snapshots that a follower has taken. Returns their number."""
    return sum(pins.drop(pin.name) for pin in pins.all() if follower.has_taken(pin.name))


def find_task(downstream: Downstream, publication: str) -> Task | None:
    return next((task for task in downstream.tasks() if task.publication == publication), None)


@contextmanager
def open_downstream(workspace: Workspace, follower: Follower, timeouts: Timeouts | None = None) -> Iterator[Downstream]:
    """A session with a follower's cluster. Raises what `Session` does."""
    endpoint, _ = parse_uri(follower.uri)
    password = open_password(workspace.vault, follower)
    waits = timeouts or DEFAULT_OPTIONS.timeouts
    with Session(
        endpoint, password, connect_timeout=waits.connect, read_timeout=waits.read, retry=waits.retry
    ) as session:
        yield Downstream(session)


def _check_subscription(workspace: Workspace, subscription: Subscription, database: str) -> None:
    """Raises SeveralDatabases, FollowUnfit."""
    subject = f"subscription {subscription.name}"
    if subscription.of_account:
        raise SeveralDatabases("the relay serves single databases", subject=subject)
    if not subscription.settings.with_indexes:
        raise FollowUnfit(
            "its mirror does not have the tables of indexes, which a MatrixOne needs",
            subject=subject,
            remedy=f"Copy its rows there: ccpr target add {subscription.name} NAME --to mysql://…"
            if subscription.is_logical
            else "Make another subscription with `ccpr subscribe … --with-indexes`, and follow that one.",
        )
    if workspace.of(subscription).history.newest() is None:
        raise FollowUnfit("it has no point yet", subject=subject, remedy=f"Run it first: ccpr run {subscription.name}")
    if database.lower().startswith(_LEGACY) or "." in database:
        raise FollowUnfit(
            f"a MatrixOne stops for good in a database whose name begins with {_LEGACY} or has a dot",
            subject=f"database {database}",
        )


def _own_address(endpoint: Endpoint) -> str:
    """Raises RelayAddress."""
    if not Listen(endpoint.host).is_loopback:
        raise RelayAddress(
            "it is another machine",
            subject=endpoint.masked(),
            remedy="Say where it reaches the relay: --relay-address HOST:PORT.",
        )
    return DEFAULT_ADDRESS


def _check_same(known: Follower, endpoint: Endpoint, database: str) -> None:
    before, _ = parse_uri(known.uri)
    if known.stage not in (
        FollowerStage.STARTING,
        FollowerStage.FOLLOWING,
        FollowerStage.LOADING,
    ):  # a promotion may be given up until then
        raise FollowerExists(
            f"it is {known.stage}",
            subject=f"follower {known.name}",
            remedy="Let that command come to its end first: type it again.",
        )
    if (before.host.lower(), before.port, known.database) != (endpoint.host.lower(), endpoint.port, database):
        raise FollowerExists(f"it is database {known.database} at {before.masked()}", subject=f"follower {known.name}")


def _recorded(
    workspace: Workspace,
    records: FollowerRecords,
    known: Follower | None,
    name: str,
    place: FollowerDestination,
    database: str,
    address: str,
) -> Follower:
    """The follower's row. One that is there keeps its login at the relay, which its cluster may know already."""
    sealed = workspace.vault.seal(place.password, place.endpoint)
    if known is not None:
        records.change(name, uri=format_uri(place.endpoint), sealed_password=sealed, relay_address=address)
        return records.get(name)
    publication = publication_of(records.task_id, name)
    follower = Follower(
        records.task_id,
        name,
        format_uri(place.endpoint),
        sealed,
        seal_login(workspace.vault, publication, secrets.token_urlsafe(24)),
        database,
        address,
        workspace.now(),
    )
    records.add(follower)
    return follower


def _try_relay(workspace: Workspace, follower: Follower) -> bool:
    """Log in at the relay as the other cluster will, from here. False if it is not reached, which from there it may be
    all the same. Raises RelayAddress if what answers is not the relay of this state folder."""
    where = Listen.parse(follower.relay_address)
    endpoint = Endpoint(where.host, where.port, SYS_ACCOUNT, follower.publication, tls=Tls("disabled"))
    subject = f"address {follower.relay_address}"
    try:
        password = open_login(workspace.vault, follower)
        with Session(endpoint, password, connect_timeout=PROBE_SECONDS, retry=NO_RETRY) as session:
            rows = session.read(f"SHOW PUBLICATION COVERAGE {in_backquotes(follower.publication)}").rows
    except UpstreamUnreachable as error:
        there, _ = parse_uri(follower.uri)
        if where.is_loopback and Listen(there.host).is_loopback:
            raise RelayAddress(
                "no relay answers there",
                subject=subject,
                remedy="Start it: `ccpr serve --relay`, or `ccpr relay serve`",
            ) from error
        return False
    except (AccessDenied, TlsFailed) as error:
        raise RelayAddress(
            f"the server there does not take this login: {error.text or error.message}",
            subject=subject,
            remedy="It must be the relay of this state folder, without TLS, which no MatrixOne uses: "
            "with --insecure, or on 127.0.0.1 behind a tunnel.",
        ) from error
    except Transient:
        return False
    if (follower.database, "*") not in [(text(row[0], "database"), text(row[1], "table")) for row in rows]:
        raise RelayAddress("the server there does not serve the subscription", subject=subject)
    return True


def _create(workspace: Workspace, downstream: Downstream, follower: Follower) -> Task:
    password = open_login(workspace.vault, follower)
    publication = follower.publication
    refusal: UpstreamError | None = None
    try:
        downstream.subscribe(follower.database, publication, password, follower.relay_address, publication)
    except UpstreamError as error:
        if not is_refusal(error):
            raise
        refusal = error
    task = find_task(downstream, publication)
    if task is not None:  # also if an attempt before this one was still under way there
        return task
    said = "it has no such subscription" if refusal is None else refusal.text or refusal.message
    raise DownstreamRefused(said.replace(password, "***"), subject=downstream.session.endpoint.masked()) from refusal
