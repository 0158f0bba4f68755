"""What a destination (`ccpr.targets.database_target`) promises. `ccpr.targets.sync` relies on it, and
`tests/targets/contract.py` tests it.

A destination holds tables of one subscription. Each table has a *location*: the last point whose rows it has. The
mirror comes first (decision mirror-is-the-first-destination). Destinations are synced from it, table by table, from a
table's location directly to a newer point.

The promises, for every destination (N, B and D are of docs/requirements.md):

1. **A location says which rows are there.** It moves together with the rows, in one commit, or not at all. After a kill
   at any moment `points()` of a new session says which rows the tables have.
2. **Twice is once.** `apply` or `create` of a location that the table has reached does nothing and says so; an older
   one is refused (PointTooOld). A caller that does not know whether an apply has happened may repeat it.
3. **Nothing foreign is touched.** Only tables in the destination's own registry are altered, written to or dropped. A
   name that a foreign table has is TargetTableForeign. A table of ours that was dropped or renamed by hand is
   TargetTableDropped from then on, and its checkpoint stays (N5). One whose mark was edited is MarkEdited (D5).
4. **Readers never see less.** A table becomes visible when it is complete, in one step with what it replaces.
5. **An unknown outcome is looked up, never guessed** (B10). If it cannot be, the error is of kind Unknown.
6. **One writer.** A second session of the same subscription gets TargetBusy.
7. **A table's failure concerns that table.** After an error of one table the session can go on with the next, unless
   the error is TargetUnavailable or TargetOutcomeUnknown: then `close` and `open`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from ccpr.matrixone.schema import Reading, Table
from ccpr.mirror.delta.change_rows import readable_part
from ccpr.mirror.delta.delta import run_split
from ccpr.mirror.delta.split import DeltaPart, DeltaSplit
from ccpr.mirror.row_sums import RowSum
from ccpr.state.checkpoint.checkpoint_store import Location


class MoreRowsThere(Exception):
    """The table has rows with keys that are new by the change. Nothing was applied. Either two visible rows of the
    source have one key, or another user has written to the table."""


@dataclass(frozen=True, slots=True)
class SplitRows:
    """The rows of one split of a load or a change, to be read in another process."""

    store_url: str
    split: DeltaSplit
    reading: Reading

    @property
    def size(self) -> int:
        """Stored bytes."""
        return self.split.bytes

    def parts(self, on_read: Callable[[pa.Table], None] = lambda upserts: None) -> Iterator[DeltaPart]:
        """`on_read` is called with the upserts as they are stored."""
        for part in run_split(self.store_url, self.split):
            on_read(part.upserts)
            yield readable_part(part, self.split.shape, self.reading)


@dataclass(frozen=True, slots=True)
class LoadPart:
    """A piece of an initial load, which is one transaction.

    Attributes
    ----------
    key : identifies the rows: at one location the same key always means the same rows. At most 64 characters.
    read : the rows, as tables or batches of bounded size. Called once for a piece that is not there yet, in a thread
        of its own.
    rows : the same for another process.
    """

    key: str
    read: Callable[[], Iterable[pa.Table | pa.RecordBatch]]
    rows: SplitRows | None = None


class TableState(StrEnum):
    LOADING = "loading"  # not visible yet
    LIVE = "live"
    DROPPED = "dropped"  # by another user
    RELEASED = "released"  # an ordinary table now, not ours any more


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table as the destination is to have it.

    Attributes
    ----------
    source : the table at the point whose rows it gets; its id identifies the table here, too.
    database, name : in the destination.
    create : CREATE TABLE as `ccpr.schema.sync_mark.for_sync` gave it, for that database and name. Empty if the
        destination has no SQL.
    stripped, disabled : what was removed from the statement, for the release (D5).
    remarks : what differs from the source, for the plan.
    """

    source: Table
    database: str
    name: str
    create: str = ""
    stripped: Mapping[str, Any] | None = None
    disabled: Mapping[str, Any] | None = None
    remarks: tuple[str, ...] = ()

    @property
    def id(self) -> int:
        return self.source.id

    @property
    def qualified_name(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class Registered:
    """A table in the destination's registry.

    Attributes
    ----------
    location : the last point whose rows it has; None while it is loading.
    loading : the location whose rows are being loaded; None unless it is loading. A load of the same location keeps
        what is there.
    """

    table: TargetTable
    state: TableState
    location: Location | None
    loading: Location | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply or a create has done.

    Attributes
    ----------
    skipped : the table had reached the location before; then the numbers are 0.
    upserted, deleted : rows written, and keys that were to be deleted.
    missing : keys to be deleted that were not there. If it is not 0, another user wrote to the table. Not counted in
        safe mode.
    parts, parts_skipped : of a create: pieces loaded now, and pieces that an earlier attempt had loaded.
    unseen : of a create: whether rows got there that this process has not read.
    row_sum : of a create: of all rows, if tasks have read each of them now.
    remarks : of a create: what the destination refused, so that the table is without it.
    """

    skipped: bool = False
    upserted: int = 0
    deleted: int = 0
    missing: int = 0
    parts: int = 0
    parts_skipped: int = 0
    unseen: bool = False
    row_sum: RowSum | None = None
    remarks: tuple[str, ...] = ()
