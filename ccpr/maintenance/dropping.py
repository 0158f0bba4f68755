"""Dropping points, wherever they are. Those between which nothing was dropped are a chain up to the newest; a point
that stays before a dropped one leaves the chain: it gets a complete file, and a place in the list that the head names
(decision kept-points-are-listed)."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from ccpr.mirror.holds import Hold
from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.point_files import PointFile
from ccpr.state.database import transaction
from ccpr.state.history import GlobalPoint, PointHistory, as_mirror_point
from ccpr.state.kept import KeptChanged, KeptRecords, KeptState
from ccpr.state.ledger import Ledger
from ccpr.state.pins import any_pinned
from ccpr.state.quarantine import Quarantine


@dataclass(frozen=True, slots=True)
class Replica:
    """A mirror, and what the catalog database knows of it."""

    mirror: Mirror
    history: PointHistory
    ledger: Ledger
    quarantine: Quarantine
    kept: KeptRecords

    @classmethod
    def of(cls, engine: sa.Engine, task_id: str, mirror: Mirror) -> "Replica":
        history, ledger = PointHistory(engine, task_id), Ledger(engine, task_id)
        return cls(mirror, history, ledger, Quarantine(engine, task_id), KeptRecords(engine, task_id))

    def named(self) -> set[str]:
        """The files of all points, and the list of those that stay by themselves."""
        return {self.kept.state().file, *(file.path for file in self.history.files())}


@dataclass(frozen=True, slots=True)
class _Run:
    """Dropped points that came one after the other: the lsn of the points around them that stay; -1 before all."""

    after: int
    until: int


def drop_points(
    replica: Replica,
    points: Sequence[GlobalPoint],
    kept: KeptState,
    dropped: Collection[int],
    holds: tuple[Hold, ...],
    due_at: int,
) -> bool:
    """Drop points and ended holds, and record for deletion what nothing names any more. The caller holds the lease,
    and publishes the head afterwards.

    Parameters
    ----------
    points : all, oldest first.
    kept : as it was read.
    dropped : lsn of those that go; the newest is not among them.
    holds : that stay.
    due_at : from when files may be deleted, in seconds since 1970 by the upstream's clock.

    Raises KeptChanged, and changes nothing, if a point has been pinned, held or released meanwhile.
    """
    if not points:
        return False
    remaining = [point for point in points if point.lsn not in dropped]
    last = max((lsn for lsn in dropped if lsn >= kept.chain_from), default=-1)
    oldest = next(point.lsn for point in remaining if point.lsn > last and point.lsn >= kept.chain_from)
    leaving = [point for point in remaining if kept.chain_from <= point.lsn < oldest]
    runs = list(_runs(points, dropped))
    ends = kept.ends(points)
    nexts = {point.lsn: ends[point.lsn] for point in leaving}
    moved = {point.lsn: _write_alone(replica, point) for point in leaving}
    remaining = [replace(point, file=moved[point.lsn]) if point.lsn in moved else point for point in remaining]
    after = replace(kept, holds=holds, nexts={**kept.nexts, **nexts})
    if leaving:
        after = replace(after, chain_from=oldest)
    content = after.content(remaining)
    renewed = bool(leaving) or content != kept.content(points)
    if renewed:
        revision = kept.revision + 1
        after = replace(after, revision=revision, file=replica.mirror.write_kept(content, revision))
    listed = {point.path for point in content.points}
    paths = [path for path in replica.mirror.points_not_needed(oldest) if path not in listed] if runs else []
    paths += [point.ledger for point in points if point.lsn in dropped and point.ledger]
    paths += [kept.file] if renewed and kept.file else []
    with transaction(replica.history.engine) as connection:
        if dropped and any_pinned(connection, replica.history.task_id, dropped):
            raise KeptChanged
        replica.kept.check(connection, kept)
        for run in runs:
            paths += _drop(connection, replica, run)
        if renewed:
            replica.kept.write(connection, kept, after)
        replica.kept.write_nexts(connection, nexts)
        files = [PointFile(moved[point.lsn], point.lsn, point.at.physical) for point in leaving]
        replica.history.set_files(connection, files)
        replica.ledger.schedule_deletion(connection, paths, due_at)
    return bool(dropped) or renewed


def _runs(points: Sequence[GlobalPoint], dropped: Collection[int]) -> Iterator[_Run]:
    after, found = -1, False
    for point in points:
        if point.lsn in dropped:
            found = True
            continue
        if found:
            yield _Run(after, point.lsn)
        after, found = point.lsn, False


def _drop(connection: sa.Connection, replica: Replica, run: _Run) -> list[str]:
    """The files that nothing names any more."""
    paths = replica.history.drop_between(connection, run.until, run.after)
    replica.quarantine.drop_between(connection, run.until, run.after)
    return paths + [object_path(name) for name in replica.ledger.end_references(connection, run.until, run.after)]


def _write_alone(replica: Replica, point: GlobalPoint) -> str:
    """Write a point's file anew, with all its tables."""
    history = replica.history
    behind, definitions = replica.quarantine.behind(point.lsn), history.definitions_of(point.lsn)
    shown = as_mirror_point(point, history.refs(point.lsn)[0], behind, definitions)
    return replica.mirror.write_point(shown, {}, [])
