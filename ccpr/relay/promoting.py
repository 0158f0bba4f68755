"""A follower becomes a database of its own: for when the source is gone.

The last whole point is loaded as `restore` does, under a fresh name, while the read-only copy stays. Only when the new
one is whole and compared does the other go (`TRANSITIONS`). MatrixOne has no RENAME DATABASE, and no table leaves its
database by RENAME: so the new one gets its name by CLONE, which is one transaction there and copies no objects; or it
keeps a name of the caller's choice. Each stage is recorded before what cannot be told from the outside, so that the
same command, typed again, goes on (decision promoted-by-clone). A database is dropped only if it has the number that
was recorded before: one that others made meanwhile under that name is left, and is an error where the name is needed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ccpr.matrixone.client.errors import UpstreamError
from ccpr.matrixone.errors import Transient
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.lag import LagMeter
from ccpr.relay.client_port import Listen
from ccpr.relay.comparison import CompareBy, compare
from ccpr.relay.downstream import Downstream, is_refusal
from ccpr.relay.errors import CopyDiffers, DownstreamHasDatabase, DownstreamRefused, FollowUnfit
from ccpr.relay.following import drop_pins, find_task, open_downstream
from ccpr.relay.loading import LoadedDatabase, LoadProgress, Source, load, publication_name
from ccpr.relay.served_points import ServedPoints
from ccpr.service.follower_status import age
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.errors import BadSetting
from ccpr.state.followers import PROMOTING, Follower, FollowerRecords, FollowerStage
from ccpr.state.log_rows import LogRow
from ccpr.state.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Relaying:
    """How the other cluster reaches the relay that serves the copy; see `ccpr.relay.loading.load`."""

    listen: Listen
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Promoted:
    """What was done.

    Attributes
    ----------
    database : that can be written to now.
    lsn, at : its point; its time in nanoseconds by the source's clock.
    age_seconds : how old the data is; None if that is not known.
    points_missed : points after it, at which tables lagged.
    loaded : of the copy; None if it was whole already when the command was typed again.
    """

    follower: str
    database: str
    lsn: int
    at: int
    age_seconds: float | None
    points_missed: int
    loaded: LoadedDatabase | None


@dataclass(frozen=True, slots=True)
class Promotion:
    """What one command works with.

    Attributes
    ----------
    name : of the follower.
    source, lsn : the point that it becomes.
    final : name of the database in the end.
    copy : name under which the point is loaded; `final`, unless what follows still has that name.
    """

    workspace: Workspace
    row: LogRow
    records: FollowerRecords
    name: str
    source: Source
    lsn: int
    final: str
    copy: str
    relaying: Relaying
    check: CompareBy
    progress: Callable[[LoadProgress], None]

    @property
    def publication(self) -> str:
        """Of the copy while it is loaded."""
        return publication_name(self.source, self.lsn, self.copy)


class Brought(NamedTuple):
    """What a stage's work brought: columns of the follower's row, to be recorded with the next stage."""

    columns: Mapping[str, int | None] = MappingProxyType({})
    loaded: LoadedDatabase | None = None


Work = Callable[[Promotion, Downstream, Follower], Brought]
Look = Callable[[Promotion, Downstream, Follower], None]


class Transition(NamedTuple):
    """What a promotion does at a stage.

    Attributes
    ----------
    work : cut off anywhere and begun again it gives the same result.
    then : the stage that is recorded after it; None: the follower's row is removed.
    first : what a command looks up that begins at this stage, since the one before it was cut off here.
    """

    work: Work
    then: FollowerStage | None
    first: Look


def promote(
    workspace: Workspace,
    name: str,
    follower_name: str,
    relaying: Relaying,
    *,
    database: str | None = None,
    check: CompareBy = CompareBy.COUNT,
    progress: Callable[[LoadProgress], None] = lambda _: None,
) -> Promoted:
    """Make a follower a writable database. `database`: a name of its own for it, instead of the follower's. Typed
    again, it goes on where it was.

    Raises FollowerMissing, FollowUnfit, BadSetting, DownstreamRefused, what `load` raises, and errors of the session.
    """
    row = workspace.log.row(name)
    records, pins = workspace.of(row).followers, workspace.of(row).pins
    mirror = workspace.mirror(name)
    follower, lsn = _begin(records, mirror, follower_name)
    source = Source(name, mirror, Subscription.from_row(row).database, lsn, (), pins)
    final = database or follower.database
    copy = final if final != follower.database else f"{final}_promoted"
    promotion = Promotion(workspace, row, records, follower_name, source, lsn, final, copy, relaying, check, progress)
    with open_downstream(workspace, follower) as downstream:
        follower = _with_database_id(promotion, downstream, follower)
        loaded = _go_on(promotion, downstream, follower)
    done = _described(promotion, loaded)
    records.remove(follower_name)
    return done


def _begin(records: FollowerRecords, mirror: Mirror, name: str) -> tuple[Follower, int]:
    """The follower and the point that it becomes: the last whole one when the command was typed first, recorded."""
    follower = records.get(name)
    subject = f"follower {name}"
    if follower.stage not in (FollowerStage.FOLLOWING, *PROMOTING) or follower.downstream_task is None:
        raise FollowUnfit(
            f"it is {follower.stage}",
            subject=subject,
            remedy="Type `ccpr follower add` or `ccpr follower remove` again, so that it comes to its end. "
            "`ccpr restore` makes a database of a point without a follower.",
        )
    if follower.stage is not FollowerStage.FOLLOWING and follower.promoted_lsn is not None:
        return follower, follower.promoted_lsn
    lsn = next((one for one in reversed(mirror.lsns()) if mirror.point(one).consistent), None)
    if lsn is None:
        raise FollowUnfit(
            "tables lag at each point of the mirror",
            subject=subject,
            remedy="Choose with `ccpr points NAME`, and load tables with `ccpr restore NAME --at LSN --table T`.",
        )
    records.change(name, stage=FollowerStage.LOADING.value, promoted_lsn=lsn)
    return records.get(name), lsn


def _with_database_id(promotion: Promotion, downstream: Downstream, follower: Follower) -> Follower:
    """A `follow` that was killed has not recorded the number of its database. The task says that it is ours."""
    if follower.database_id is None and find_task(downstream, follower.publication) is not None:
        number = downstream.database_id(follower.database)
        promotion.records.change(promotion.name, database_id=number)
        return promotion.records.get(promotion.name)
    return follower


def _go_on(promotion: Promotion, downstream: Downstream, follower: Follower) -> LoadedDatabase | None:
    """From the follower's stage to the end. What was loaded; None if the copy was whole before."""
    loaded: LoadedDatabase | None = None
    stage: FollowerStage | None = follower.stage
    TRANSITIONS[follower.stage].first(promotion, downstream, follower)
    while stage is not None:
        work, stage, _ = TRANSITIONS[stage]
        brought = work(promotion, downstream, follower)
        loaded = brought.loaded or loaded
        if stage is not None:
            promotion.records.change(promotion.name, stage=stage.value, **brought.columns)
            follower = promotion.records.get(promotion.name)
    return loaded


# ---- what is done at each stage


def _load(promotion: Promotion, downstream: Downstream, follower: Follower) -> Brought:
    loaded = load(
        promotion.source,
        downstream.session,
        promotion.copy,
        promotion.relaying.listen,
        address=promotion.relaying.address,
        check=promotion.check,
        progress=promotion.progress,
        release=False,
        clock=promotion.workspace.clock,
    )
    return Brought({"copy_id": downstream.database_id(promotion.copy)}, loaded)


def _clear(promotion: Promotion, downstream: Downstream, follower: Follower) -> Brought:
    """From here on the copy can be written to, and what followed is gone."""
    for publication in (promotion.publication, follower.publication):
        task = find_task(downstream, publication)
        if task is not None:
            downstream.unsubscribe(task.id)
    downstream.drop_own_database(follower.database, follower.database_id)
    return Brought()


def _place(promotion: Promotion, downstream: Downstream, follower: Follower) -> Brought:
    """Clone the copy under its name. One that is there is the clone of an attempt before if it has the same rows."""
    if promotion.copy != promotion.final:
        if downstream.has_database(promotion.final):
            _check_clone(promotion, downstream)
        else:
            _clone(promotion, downstream)
    return Brought()


def _tidy(promotion: Promotion, downstream: Downstream, follower: Follower) -> Brought:
    """Drop the copy, and pins: `load` keeps the point by one, and may have been killed."""
    if promotion.copy != promotion.final and downstream.has_database(promotion.final):
        downstream.drop_own_database(promotion.copy, follower.copy_id)
    pins = promotion.source.pins
    pins.drop(promotion.publication)
    drop_pins(pins, follower)
    return Brought()


# ---- what is looked up first


def _nothing(promotion: Promotion, downstream: Downstream, follower: Follower) -> None:
    """The work itself finds what it left."""


def _check_copy(promotion: Promotion, downstream: Downstream, follower: Follower) -> None:
    """What is called as the copy would be is the one that was loaded. Raises BadSetting."""
    if downstream.database_id(promotion.copy) != follower.copy_id:
        raise BadSetting(
            f"the copy that was loaded is not database {promotion.copy}",
            subject="--as",
            remedy="Type the same again as the first time.",
        )


TRANSITIONS: Mapping[FollowerStage, Transition] = MappingProxyType(
    {
        FollowerStage.LOADING: Transition(_load, FollowerStage.LOADED, _nothing),
        FollowerStage.LOADED: Transition(_clear, FollowerStage.CLEARED, _check_copy),
        FollowerStage.CLEARED: Transition(_place, FollowerStage.PLACED, _check_copy),
        FollowerStage.PLACED: Transition(_tidy, None, _nothing),
    }
)


def _check_clone(promotion: Promotion, downstream: Downstream) -> None:
    """Raises DownstreamHasDatabase."""
    mirror, final, copy = promotion.source.mirror, promotion.final, promotion.copy
    try:
        compare(mirror, ServedPoints(mirror).at(promotion.lsn), downstream, final, CompareBy.SUM)
    except (CopyDiffers, UpstreamError) as error:
        if isinstance(error, Transient):
            raise
        raise DownstreamHasDatabase(
            f"there is a database {final}, which is not the one that follows, nor the copy that was loaded",
            subject=downstream.session.endpoint.masked(),
            remedy=f"Database {copy} is whole and can be written to. Drop {final} if it is not needed, and type the "
            f"same again, or leave the copy under this name: {_as_copy(promotion)}",
        ) from error


def _clone(promotion: Promotion, downstream: Downstream) -> None:
    """Raises DownstreamRefused."""
    try:
        downstream.clone_database(promotion.final, promotion.copy)
    except UpstreamError as error:
        if not is_refusal(error):
            raise
        raise DownstreamRefused(
            f"CREATE DATABASE … CLONE: {error.text or error.message}",
            subject=downstream.session.endpoint.masked(),
            remedy=f"Database {promotion.copy} is whole and can be written to. Type the same again, or leave it under "
            f"this name: {_as_copy(promotion)}",
        ) from error


def _as_copy(promotion: Promotion) -> str:
    return f"ccpr follower promote {promotion.source.name} {promotion.name} --as {promotion.copy}"


def _described(promotion: Promotion, loaded: LoadedDatabase | None) -> Promoted:
    row, mirror, lsn = promotion.row, promotion.source.mirror, promotion.lsn
    newest, at = promotion.workspace.of(row).history.newest(), mirror.point(lsn).at.physical
    lag = LagMeter(promotion.workspace.clock).read(row.task_id, Context.from_text(row.context))
    missed = sum(other > lsn for other in mirror.lsns())
    return Promoted(promotion.name, promotion.final, lsn, at, age(at, newest, row, lag), missed, loaded)
