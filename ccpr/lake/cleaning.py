"""Checkpoints of a table, and which of its files leave.

A file leaves when no version that shows a kept point names it, and not before an hour after the commit that removed it:
a reader may have begun before. Times are the upstream's, as those of the mirror's retention. A file that no version
names is of a failed attempt; it leaves after a commit of ours, so that an attempt that still runs cannot commit it.
Source: decision lake-cleaning.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from ccpr.lake.changed_rows import changes_version
from ccpr.lake.commit import Lake, files_of_adds, removed_at
from ccpr.lake.errors import LakeChanged
from ccpr.lake.iceberg_deletes import deletes_of
from ccpr.lake.lake_log import LakeLog, LakeTableState
from ccpr.state.settings import GRACE_SECONDS

_SECOND = 10**9  # nanoseconds
_COMMITS, _MOST_COMMITS, _SHARE = 10, 100, 4
_LOG_FILE = re.compile(r"_delta_log/([0-9]{20})\.(json|checkpoint\.parquet)")
_DATA = re.compile(
    r"(?:data/[^/]+\.parquet|deletion_vector_[0-9a-f-]{36}\.bin|deletes/[0-9a-f]{32}\.(?:puffin|parquet))"
)


@dataclass(frozen=True, slots=True)
class Horizon:
    """What is not needed any more.

    Attributes
    ----------
    at : versions that were replaced by then are not read any more: a point's time, nanoseconds by the upstream's clock.
        None = all are kept.
    """

    at: int | None = None

    @classmethod
    def of(cls, oldest_at: int | None, watermark: int) -> "Horizon":
        """For the oldest point that is kept, and the time up to which the replica is complete."""
        return cls(None if oldest_at is None else min(oldest_at, watermark - GRACE_SECONDS * _SECOND))

    def is_past(self, at: int | None) -> bool:
        return self.at is not None and at is not None and at <= self.at


def is_checkpoint_due(state: LakeTableState) -> bool:
    """After some commits, if they are not few against what a checkpoint writes."""
    commits = state.version - state.checkpoint
    return commits >= _MOST_COMMITS or (commits >= _COMMITS and state.tail * _SHARE >= len(state.live))


def oldest_removal(state: LakeTableState) -> int | None:
    """When the first file was removed that is still there: the time of a point. None if there is none."""
    return min((removed_at(one) for one in state.removed.values()), default=None)


def clean(
    lake: Lake,
    log: LakeLog,
    state: LakeTableState,
    horizon: Horizon,
    oldest: int,
    *,
    committed: bool,
    held: Collection[str] = frozenset(),
) -> int:
    """Write a checkpoint and delete what has to go. Returns how many files went.

    Parameters
    ----------
    oldest : the version that shows the oldest kept point; -1 = all are kept.
    committed : the newest version was just written here; only then files go that nothing names.
    held : files that Iceberg's snapshots of held points show.

    Raises LakeChanged if a file of the newest version is missing; StoreFailed.
    """
    past = [
        key
        for key, one in state.removed.items()
        if horizon.is_past(removed_at(one)) and not (deletes_of([one]) or {one["path"]}).intersection(held)
    ]
    leaving = files_of_adds(state.removed[key] for key in past) | deletes_of(state.removed[key] for key in past)
    for key in past:
        del state.removed[key]
    log.write_checkpoint(state)
    live = files_of_adds(state.live.values())
    named = live.union(files_of_adds(state.removed.values()), held)
    named |= deletes_of([*state.live.values(), *state.removed.values()])
    stored, logs, checkpoints = set[str](), dict[str, int](), list[int]()
    for name in lake.store.files.names(log.folder):
        below = name.removeprefix(f"{log.folder}/")
        if (found := _LOG_FILE.fullmatch(below)) is not None:
            logs[below] = int(found[1])
            checkpoints += [int(found[1])] if found[2] != "json" else []
        elif (version := changes_version(below)) is not None:
            logs[below] = version
        elif _DATA.fullmatch(below):
            stored.add(below)
    if missing := sorted(live - stored):
        raise LakeChanged(f"{len(missing)} of its files are missing, {missing[0]} is one", subject=log.subject)
    first = max((version for version in checkpoints if version <= oldest), default=-1)
    gone = sorted(stored - named if committed else (stored & leaving) - named)
    gone += sorted(below for below, version in logs.items() if version < first)
    lake.confirm()
    for below in gone:
        lake.store.files.delete(f"{log.folder}/{below}")
    return len(gone)
