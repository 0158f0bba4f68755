"""Dropping points, wherever they are, and changing what is held. The points between which nothing was dropped are a
chain up to the newest; a point that stays before a dropped one leaves the chain: it gets a complete file, and a place
in the list that the head names (decision kept-points-are-listed)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from ccpr.mirror.errors import PointGone
from ccpr.mirror.kept_points import Hold
from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.point_files import PointFile
from ccpr.mirror.points import Point
from ccpr.retention.retention import PointInventory
from ccpr.state.database import transaction
from ccpr.state.history import GlobalPoint
from ccpr.state.kept_records import KeptChanged, KeptState
from ccpr.state.log import SubscriptionRecords
from ccpr.state.pins import any_pinned
from ccpr.state.publishing import write_alone
from ccpr.state.tables import points as point_rows


class Replica(SubscriptionRecords):
    """A mirror, and what the catalog database knows of it."""

    def __init__(self, engine: sa.Engine, task_id: str, mirror: Mirror) -> None:
        super().__init__(engine, task_id)
        self.mirror = mirror

    def named(self) -> set[str]:
        """The files of all points, and the list of those that stay outside the chain."""
        return {self.kept.state().file, *(file.path for file in self.history.files())}


@dataclass(frozen=True, slots=True)
class _Gap:
    """Dropped points that came one after the other: the lsn of the points around them that stay; -1 before all."""

    after: int
    until: int


@dataclass(frozen=True, slots=True)
class _Rest:
    """What stays once points are dropped. `points`: all, oldest first; those that leave the chain have their new files.
    `chain_from`: lsn of the first point of the chain. `leaving`: the files of points that leave the chain, by lsn."""

    points: Sequence[GlobalPoint]
    chain_from: int
    leaving: Mapping[int, PointFile]


def drop_points(
    replica: Replica,
    inventory: PointInventory,
    dropped: Collection[int],
    holds: tuple[Hold, ...],
    due_at: int,
    still: Point | None = None,
) -> bool:
    """Drop points, put other holds in the place of those that there are, and record for deletion what nothing names any
    more. Whoever drops points holds the lease; the caller publishes the head afterwards.

    Parameters
    ----------
    inventory : as it was read.
    dropped : lsn of those that go; the newest is not among them.
    due_at : from when files may be deleted, in seconds since 1970 by the upstream's clock.
    still : one that must still be there.

    Returns whether anything has changed. Raises KeptChanged, and changes nothing, if a point has been pinned, held or
    released meanwhile; PointGone for `still`.
    """
    if not inventory.points:
        return False
    rest = _rest(replica, inventory, dropped)
    before, after = inventory.kept, _kept(replica, inventory, rest, holds)
    unneeded = _unneeded(replica, inventory, dropped, rest)
    with transaction(replica.engine) as connection:
        _check_unchanged(connection, replica, before, dropped, still)
        for gap in _gaps(inventory.points, dropped):
            unneeded += _drop_between(connection, replica, gap)
        if after.revision != before.revision:
            replica.kept.write(connection, before, after)
            unneeded += filter(None, [before.file])
        replica.kept.write_nexts(connection, {lsn: after.nexts[lsn] for lsn in rest.leaving})
        replica.history.set_files(connection, rest.leaving.values())
        replica.ledger.schedule_deletion(connection, unneeded, due_at)
    return bool(dropped) or after.revision != before.revision


def _rest(replica: Replica, inventory: PointInventory, dropped: Collection[int]) -> _Rest:
    """The chain begins after the last of its points that goes; what stays before that gets a complete file."""
    was_from = inventory.kept.chain_from
    last = max((lsn for lsn in dropped if lsn >= was_from), default=-1)
    staying = [point for point in inventory.points if point.lsn not in dropped]
    chain_from = next(point.lsn for point in staying if point.lsn > last and point.lsn >= was_from)
    alone = {
        point.lsn: write_alone(replica.history, replica.mirror, point)
        for point in staying
        if was_from <= point.lsn < chain_from
    }
    staying = [replace(point, file=alone.get(point.lsn, point.file)) for point in staying]
    files = {point.lsn: PointFile(point.file, point.lsn, point.at.physical) for point in staying if point.lsn in alone}
    return _Rest(staying, chain_from, files)


def _kept(replica: Replica, inventory: PointInventory, rest: _Rest, holds: tuple[Hold, ...]) -> KeptState:
    """What is kept outside the chain afterwards. Its file has the next revision if it says anything else."""
    before, ends = inventory.kept, inventory.kept.ends(inventory.points)
    after = replace(before, holds=holds, nexts={**before.nexts, **{lsn: ends[lsn] for lsn in rest.leaving}})
    content = after.content(rest.points)
    if content == before.content(inventory.points):
        return after
    file = replica.mirror.write_kept(content, before.revision + 1)
    chain_from = rest.chain_from if rest.leaving else before.chain_from
    return replace(after, revision=before.revision + 1, file=file, chain_from=chain_from)


def _unneeded(replica: Replica, inventory: PointInventory, dropped: Collection[int], rest: _Rest) -> list[str]:
    """The files of points and ledgers that nothing needs of what stays."""
    if not dropped:
        return []
    ledgers = [point.ledger for point in inventory.points if point.lsn in dropped and point.ledger]
    named = {point.file for point in rest.points}
    return ledgers + [path for path in replica.mirror.points_not_needed(rest.chain_from) if path not in named]


def _check_unchanged(
    connection: sa.Connection, replica: Replica, kept: KeptState, dropped: Collection[int], still: Point | None
) -> None:
    """Raises KeptChanged, PointGone. Until the end of the transaction nobody pins or holds what is dropped."""
    if still is not None:
        mine = (point_rows.c.task_id == replica.task_id, point_rows.c.lsn == still.lsn)
        at = connection.scalar(sa.select(point_rows.c.snapshot_ts).where(*mine).with_for_update())
        if at != still.at.physical:
            raise PointGone(f"point {still.lsn} has been dropped", subject=replica.mirror.store.url)
    if dropped and any_pinned(connection, replica.task_id, dropped):
        raise KeptChanged
    replica.kept.check(connection, kept)


def _gaps(points: Sequence[GlobalPoint], dropped: Collection[int]) -> Iterator[_Gap]:
    after, dropping = -1, False
    for point in points:
        if point.lsn in dropped:
            dropping = True
            continue
        if dropping:
            yield _Gap(after, point.lsn)
        after, dropping = point.lsn, False


def _drop_between(connection: sa.Connection, replica: Replica, gap: _Gap) -> list[str]:
    """The files that nothing names any more."""
    paths = replica.history.drop_between(connection, gap.until, gap.after)
    replica.quarantine.drop_between(connection, gap.until, gap.after)
    return paths + [object_path(name) for name in replica.ledger.end_references(connection, gap.until, gap.after)]
