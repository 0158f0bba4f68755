"""A follower becomes a database of its own: for when the source is gone.

The last whole point is loaded as `restore` does, under a fresh name, while the read-only copy stays. Only when the new
one is whole and compared does the other go. MatrixOne has no RENAME DATABASE, and no table leaves its database by
RENAME: so the new one gets its name by CLONE, which is one transaction there and copies no objects; or it keeps a name
of the caller's choice. Each stage is recorded before what cannot be told from the outside, so that the same command,
typed again, goes on (decision promoted-by-clone). A database is dropped only if it has the number that was recorded
before: one that somebody made meanwhile under that name is left, and is an error where the name is needed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ccpr.base.errors import BadSetting
from ccpr.matrixone.client.errors import UpstreamError
from ccpr.matrixone.errors import Transient
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.lag import LagMeter
from ccpr.relay.comparison import Check, compare
from ccpr.relay.downstream import Downstream, is_refusal
from ccpr.relay.errors import CopyDiffers, DownstreamHasDatabase, DownstreamRefused, FollowUnfit
from ccpr.relay.following import find_task, open_downstream
from ccpr.relay.loading import Loaded, Progress, Source, load, publication_name
from ccpr.relay.server import Listen
from ccpr.relay.states import States
from ccpr.service.follower_status import age
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.followers import PROMOTING, Follower, FollowerRecords, Stage
from ccpr.state.history import PointHistory
from ccpr.state.log_rows import LogRow
from ccpr.state.pins import Pins
from ccpr.state.subscription import Subscription

_STAGES = (Stage.FOLLOWING, *PROMOTING)


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
    points_missed : points after it, at which tables were behind.
    loaded : of the copy; None if it was whole already when the command was typed again.
    """

    follower: str
    database: str
    lsn: int
    at: int
    age_seconds: float | None
    points_missed: int
    loaded: Loaded | None


def promote(
    workspace: Workspace,
    name: str,
    follower_name: str,
    relaying: Relaying,
    *,
    database: str | None = None,
    check: Check = Check.COUNT,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Promoted:
    """Make a follower a writable database. `database`: a name of its own for it, instead of the follower's. Typed
    again, it goes on where it was.

    Raises FollowerMissing, FollowUnfit, BadSetting, DownstreamRefused, what `load` raises, and errors of the session.
    """
    row = workspace.log.row(name)
    records = FollowerRecords(workspace.log.engine, row.task_id)
    mirror = workspace.mirror(name)
    follower, lsn = _begin(records, mirror, follower_name)
    final = database or follower.database
    copy = final if final != follower.database else f"{final}_promoted"
    pins = Pins(workspace.log.engine, row.task_id)
    source = Source(name, mirror, Subscription.from_row(row).database, lsn, (), pins)
    loaded: Loaded | None = None
    with open_downstream(workspace, follower) as downstream:
        if follower.database_id is None and find_task(downstream, follower.publication) is not None:
            records.change(follower_name, database_id=downstream.database_id(follower.database))
            follower = records.get(follower_name)
        if follower.stage is Stage.LOADING:
            loaded = load(
                source,
                downstream.session,
                copy,
                relaying.listen,
                address=relaying.address,
                check=check,
                progress=progress,
                whole=lambda: records.change(
                    follower_name, stage=Stage.LOADED.value, copy_id=downstream.database_id(copy)
                ),
                clock=workspace.clock,
            )
            follower = records.get(follower_name)
        elif follower.stage is not Stage.PLACED and downstream.database_id(copy) != follower.copy_id:
            raise BadSetting(
                f"the copy that was loaded is not database {copy}",
                subject="--as",
                remedy="Type the same again as the first time.",
            )
        if follower.stage is Stage.LOADED:
            _release_copy(downstream, publication_name(source, lsn, copy))
            _drop_follower(downstream, follower)
            follower = _reached(records, follower_name, Stage.CLEARED)
        if follower.stage is Stage.CLEARED:
            if copy != final:
                _place(downstream, mirror, source, final, copy, follower_name)
            follower = _reached(records, follower_name, Stage.PLACED)
        if copy != final and downstream.has_database(final):
            downstream.drop_own_database(copy, follower.copy_id)
    pins.drop(publication_name(source, lsn, copy))  # `load` keeps the point under it, and may have been killed
    for pin in pins.all():
        if follower.has_taken(pin.name):
            pins.drop(pin.name)
    done = _described(workspace, row, mirror, follower_name, final, lsn, loaded)
    records.remove(follower_name)
    return done


def _begin(records: FollowerRecords, mirror: Mirror, name: str) -> tuple[Follower, int]:
    """The follower and the point that it becomes, which is recorded."""
    follower = records.get(name)
    subject = f"follower {name}"
    if follower.stage not in _STAGES or follower.downstream_task is None:
        raise FollowUnfit(
            f"it is {follower.stage}",
            subject=subject,
            remedy="Type `ccpr follower add` or `ccpr follower remove` again, so that it comes to its end. "
            "`ccpr restore` makes a database of a point without a follower.",
        )
    if follower.stage is not Stage.FOLLOWING and follower.promoted_lsn is not None:
        return follower, follower.promoted_lsn
    lsn = next((one for one in reversed(mirror.lsns()) if mirror.point(one).consistent), None)
    if lsn is None:
        raise FollowUnfit(
            "at each point of the mirror tables are behind",
            subject=subject,
            remedy="Choose with `ccpr points NAME`, and load tables with `ccpr restore NAME --at LSN --table T`.",
        )
    records.change(name, stage=Stage.LOADING.value, promoted_lsn=lsn)
    return records.get(name), lsn


def _reached(records: FollowerRecords, name: str, stage: Stage) -> Follower:
    records.change(name, stage=stage.value)
    return records.get(name)


def _release_copy(downstream: Downstream, publication: str) -> None:
    """The last statement of `load`, if it did not come to it."""
    task = find_task(downstream, publication)
    if task is not None:
        downstream.unsubscribe(task.id)


def _drop_follower(downstream: Downstream, follower: Follower) -> None:
    task = find_task(downstream, follower.publication)
    if task is not None:
        downstream.unsubscribe(task.id)
    downstream.drop_own_database(follower.database, follower.database_id)


def _place(downstream: Downstream, mirror: Mirror, source: Source, final: str, copy: str, follower: str) -> None:
    """Clone the copy under its name. One that is there is the clone of an attempt before if it has the same rows."""
    if not downstream.has_database(final):
        _clone(downstream, final, copy, source.name, follower)
        return
    try:
        compare(mirror, States(mirror).at(source.at), downstream, final, Check.SUM)
    except (CopyDiffers, UpstreamError) as error:
        if isinstance(error, Transient):
            raise
        raise DownstreamHasDatabase(
            f"there is a database {final}, which is not the one that follows, nor the copy that was loaded",
            subject=downstream.session.endpoint.masked(),
            remedy=f"Database {copy} is whole and can be written to. Drop {final} if it is not needed, and type the "
            f"same again, or leave the copy under this name: ccpr follower promote {source.name} {follower} --as "
            f"{copy}",
        ) from error


def _clone(downstream: Downstream, database: str, copy: str, name: str, follower: str) -> None:
    try:
        downstream.clone_database(database, copy)
    except UpstreamError as error:
        if not is_refusal(error):
            raise
        raise DownstreamRefused(
            f"CREATE DATABASE … CLONE: {error.text or error.message}",
            subject=downstream.session.endpoint.masked(),
            remedy=f"Database {copy} is whole and can be written to. Type the same again, or leave it under this name: "
            f"ccpr follower promote {name} {follower} --as {copy}",
        ) from error


def _described(
    workspace: Workspace, row: LogRow, mirror: Mirror, follower: str, database: str, lsn: int, loaded: Loaded | None
) -> Promoted:
    newest, at = PointHistory(workspace.log.engine, row.task_id).newest(), mirror.point(lsn).at.physical
    lag = LagMeter(workspace.clock).read(row.task_id, Context.from_text(row.context))
    missed = sum(other > lsn for other in mirror.lsns())
    return Promoted(follower, database, lsn, at, age(at, newest, row, lag), missed, loaded)
