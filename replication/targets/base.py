"""What a destination promises: whoever carries points into one relies on this, and
`tests/replication/targets/contract.py` tests it.

A destination holds tables of one subscription. Each stands at a *location*: the last point whose rows it has. The
mirror is the first destination; the others are fed from it, table by table, from the location where they stand
straight to a newer point.

The promises, for every destination:

1. **A location is the truth about the rows.** It moves with the rows, in one commit, or not at all. After a kill at
   any moment `points()` of a new session tells what the rows are.
2. **Twice is once.** `apply` or `create` of a location that the table has reached does nothing and says so; an older
   one is refused (PointTooOld). A caller that does not know whether an apply has happened may repeat it.
3. **Nothing foreign is touched.** Only tables in the destination's own registry are altered, written to or dropped; a
   name that somebody else has is TargetTableForeign. One of ours that was dropped or renamed by hand is
   TargetTableDropped, now and ever after, and its checkpoint stays (N5). One whose mark was edited is MarkEdited (D5).
4. **Readers never see less.** A table becomes visible when it is complete, in one step with what it replaces.
5. **An unknown outcome is looked up, never guessed** (B10); if it cannot be, the error is of kind Unknown.
6. **One writer.** A second session of the same subscription gets TargetBusy.
7. **A table's failure is the table's own.** After an error of one table the session can go on with the next, unless
   the error is TargetUnavailable or TargetOutcomeUnknown: then `close` and `open`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa

from matrixone.schema import Table
from replication.checkpoint.store import Location


class Rows(Protocol):
    """A part of a change (`replication.delta.delta.DeltaPart`).

    Attributes
    ----------
    upserts : rows that are new or changed: the user's columns, and the hidden key column for a table without a key.
    deletes : keys of rows that are gone: the key columns only. A key stands in one of the two.
    """

    @property
    def upserts(self) -> pa.Table: ...

    @property
    def deletes(self) -> pa.Table: ...


@dataclass(frozen=True, slots=True)
class LoadPart:
    """A piece of an initial load, which is one transaction.

    Attributes
    ----------
    key : names the rows: at one location the same key always means the same rows. At most 64 characters.
    read : the rows, as tables or batches of bounded size; called once for a piece that is not there yet, in a thread
        of its own.
    former_key : the key that an earlier release stored for the same rows; asked only where a load of such a release
        goes on.
    """

    key: str
    read: Callable[[], Iterable[pa.Table | pa.RecordBatch]]
    former_key: Callable[[], str] | None = None


class TableState(StrEnum):
    LOADING = "loading"  # not visible yet
    LIVE = "live"
    DROPPED = "dropped"  # by somebody else
    RELEASED = "released"  # an ordinary table now, no longer ours


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table as the destination is to have it.

    Attributes
    ----------
    source : the table at the point whose rows it gets; its id is the table's identity here, too.
    database, name : in the destination.
    create : CREATE TABLE as `synced_table.for_sync` gave it, for that database and name. Empty where a destination has
        no SQL.
    stripped, disabled : what the statement lacks, for the release (D5).
    remarks : what is different from the source, for the plan.
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
    location : up to where it has the rows; None while it is loading.
    loading : the location whose rows are being loaded; None unless it is loading. To go on with the same one spares
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
    skipped : the table had reached the location before; the numbers are 0 then.
    upserted, deleted : rows written, and keys that were to be deleted.
    missing : keys to be deleted that were not there. Somebody else wrote to the table, if this is not 0. Not counted
        in safe mode.
    parts, parts_skipped : of a create: pieces loaded now, and those that an earlier attempt had loaded.
    """

    skipped: bool = False
    upserted: int = 0
    deleted: int = 0
    missing: int = 0
    parts: int = 0
    parts_skipped: int = 0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a destination can do beyond the promises; what it cannot do is said here, and its tests ask here.

    Attributes
    ----------
    kind : a word for people.
    takes_rows : `create` and `apply` take rows; false where it takes objects instead (the mirror).
    alters : definitions change in place with `alter`.
    releases : tables can become ordinary ones.
    resumes_load : an interrupted `create` goes on with the pieces that are missing.
    reads_old_points : rows at an older location can still be read.
    shares_its_place : others may have tables there, so that a registry tells which are ours. The mirror has its place
        for itself; one that is not empty is refused when a subscription is made.
    consistent_across_tables : all tables move in one commit; else each has its own, and the global point follows when
        all are there.
    """

    kind: str
    takes_rows: bool
    alters: bool
    releases: bool
    resumes_load: bool
    reads_old_points: bool
    shares_its_place: bool
    consistent_across_tables: bool


class Destination(Protocol):
    """A session with a destination, for one subscription. One thread at a time."""

    @property
    def capabilities(self) -> Capabilities: ...

    def open(self) -> None:
        """Connect, become the one writer, settle what an interrupted session has left (definitions half changed are
        brought to their end; what cannot be is told by `stuck`). Raises TargetUnavailable, TargetDenied, TargetBusy,
        TargetUnsupported.
        """
        ...

    def close(self) -> None:
        """Let go. What was not committed is undone. May be called twice, and after any error."""
        ...

    def tables(self) -> dict[int, Registered]:
        """The registry, by table id."""
        ...

    def points(self) -> dict[int, Location]:
        """Up to where each live table has the rows, by table id."""
        ...

    def global_point(self) -> Location:
        """Up to where all tables together are; `NOWHERE` before the first."""
        ...

    def stuck(self) -> dict[int, str]:
        """Tables whose change of definition cannot go on, by id, with the reason; rows for them are refused
        (TargetChangeStuck)."""
        ...

    def begin(self, location: Location) -> None:
        """Say that everything is going to be carried to a location. If the session ends before `advance` has reached
        it, the next one is in safe mode up to there (C7).
        """
        ...

    def create(
        self,
        table: TargetTable,
        parts: Sequence[LoadPart],
        location: Location,
        *,
        replaces: Sequence[int] = (),
        again: bool = False,
    ) -> Applied:
        """Make a table with all its rows at a location, and show it when it is complete.

        `replaces` names tables (ids) that go in the step in which it comes: the one whose name it takes, as after a
        TRUNCATE, or one that is rebuilt under the same id. Loaded aside meanwhile; an attempt that was interrupted
        goes on if location and definition are the same, and begins anew otherwise. `again`: though the table is at the
        location; somebody has told that its rows are not the source's.
        """
        ...

    def apply(self, table_id: int, parts: Iterable[Rows], location: Location) -> Applied:
        """Bring a live table to a location: new values replace old ones, keys that are gone go. All of it or nothing.

        Columns are matched by name with the definition in the registry: `alter` comes first where it has changed.
        """
        ...

    def alter(self, tables: Sequence[TargetTable], statements: Sequence[str]) -> None:
        """Run statements that make of the live tables with these ids what is given here (new columns, new names);
        locations do not move.

        Before each statement stands in the destination what it is and how to tell whether it has run, so that after a
        kill the next `open` runs what is missing, and nothing twice. `tables` are all whose definition or name
        changes.
        """
        ...

    def drop(self, table_ids: Sequence[int]) -> None:
        """Drop tables that are gone upstream, with their points."""
        ...

    def forget(self, table_ids: Sequence[int]) -> None:
        """Take tables that somebody else dropped, or that were released, out of the registry with their points: they
        may come again."""
        ...

    def release(self, table_id: int) -> tuple[str, ...]:
        """Make the table an ordinary one (D5) and leave it alone from now on. Returns what could not be brought back,
        as text."""
        ...

    def advance(self, location: Location, behind: Sequence[int] = ()) -> Location:
        """All tables but those `behind` have reached the location: move the global point, as far as the ones behind
        let it. Returns it."""
        ...
