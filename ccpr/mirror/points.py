"""A mirror's points as values, and how users name a point."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from ccpr.base.wording import meant
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind, integer_of, text_of
from ccpr.mirror.errors import PointNotReached, TableMissingInMirror
from ccpr.mirror.kept_points import HOLD_NAME

FIRST_INSTANT = 10**15  # a whole number from here on is nanoseconds since 1970, one below is an lsn
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = {kind.value: kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table as a point names it.

    Attributes
    ----------
    lsn : the iteration that wrote the manifest; less than the point's if its files are the same since.
    manifest : its path in the mirror.
    objects, rows, bytes : of the live objects, tombstones included; rows as stored, before deletes.
    parts : paths of the files that the manifest goes on from, oldest first (`ccpr.mirror.manifests`).
    same_since : the point that changed its rows or definition last, where the manifest was written later, because the
        upstream flushed or merged objects (`ccpr.pipeline.changed_tables`).
    """

    table_id: int
    database: str
    name: str
    kind: Kind
    lsn: int
    manifest: str
    objects: int
    rows: int
    bytes: int
    parts: tuple[str, ...] = ()
    same_since: int | None = None

    @property
    def qualified_name(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def changed_lsn(self) -> int:
        """The point that changed rows or definition last."""
        return self.lsn if self.same_since is None else self.same_since

    @property
    def files(self) -> tuple[str, ...]:
        """The manifest and its parts: what the mirror needs to say which objects the table has."""
        return (self.manifest, *self.parts)

    def to_json(self) -> dict[str, Any]:
        return {
            "database": self.database,
            "name": self.name,
            "kind": self.kind.value,
            "lsn": self.lsn,
            "manifest": self.manifest,
            "objects": self.objects,
            "rows": self.rows,
            "bytes": self.bytes,
            **({"parts": list(self.parts)} if self.parts else {}),
            **({} if self.same_since is None else {"same_since": self.same_since}),
        }

    @classmethod
    def from_json(cls, table_id: int, value: Mapping[str, Any]) -> "TableRef":
        """Raises ValueError, KeyError or TypeError for what `to_json` would not have written."""
        # Written out: a point may have a hundred thousand tables, and loops over the keys take twice as long.
        return cls(
            integer_of(table_id),
            text_of(value["database"]),
            text_of(value["name"]),
            _KINDS[value["kind"]],
            integer_of(value["lsn"]),
            text_of(value["manifest"]),
            integer_of(value["objects"]),
            integer_of(value["rows"]),
            integer_of(value["bytes"]),
            parts_of(table_id, value["parts"]) if "parts" in value else (),
            integer_of(value["same_since"]) if "same_since" in value else None,
        )


@dataclass(frozen=True, slots=True)
class LaggingTable:
    """A table that a point does not show, because it failed while the others went on.

    Attributes
    ----------
    database, name : its names upstream at the point.
    lsn : the newest point that shows it; None = none does.
    """

    database: str
    name: str
    lsn: int | None

    @property
    def qualified_name(self) -> str:
        return f"{self.database}.{self.name}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "LaggingTable":
        """Raises ValueError, KeyError or TypeError for what `to_json` would not have written."""
        return cls(
            text_of(value["database"]),
            text_of(value["name"]),
            None if value["lsn"] is None else integer_of(value["lsn"]),
        )


@dataclass(frozen=True)
class Point:
    """A state of the whole subscription that can be read, with all its tables.

    Attributes
    ----------
    lsn : the iteration that made it.
    at : time of its snapshot, by the upstream's clock.
    snapshot : the snapshot's name.
    committed_at : time of its commit, by our clock, UTC.
    ledger : path of the list of objects that it brought; empty if there are none.
    tables : by table id; what can be read at the point.
    behind : by table id; tables that have not reached the point.
    definitions : path of what the database has besides tables; empty if that was not read.
    """

    lsn: int
    at: Timestamp
    snapshot: str
    committed_at: datetime
    ledger: str
    tables: Mapping[int, TableRef] = field(default_factory=dict)
    behind: Mapping[int, LaggingTable] = field(default_factory=dict)
    definitions: str = ""

    @property
    def consistent(self) -> bool:
        """Whether all tables together are a state that the upstream had: no table lags."""
        return not self.behind

    def table(self, qualified_name: str) -> TableRef:
        """The table `db.t`; letter case counts. Raises TableMissingInMirror, PointNotReached for a table that is
        behind."""
        refs = self._by_name.get(qualified_name, ())
        late = next((entry for entry in self.behind.values() if entry.qualified_name == qualified_name), None)
        if late is not None and not refs:
            state = "has no point yet" if late.lsn is None else f"is at point {late.lsn}"
            raise PointNotReached(
                f"the table is in quarantine and {state}",
                subject=f"table {qualified_name} at point {self.lsn}",
                remedy="`ccpr points NAME` shows which tables lag; each iteration tries them again."
                + ("" if late.lsn is None else f" It can be read with --at {late.lsn}."),
            )
        subject = f"table {qualified_name} at point {self.lsn}"
        if not refs:
            remedy = meant(qualified_name, self.names(), "tables")
            raise TableMissingInMirror("no such table in the point", subject=subject, remedy=remedy)
        if len(refs) > 1:
            text = "several tables are written this way; a dot in a name makes it ambiguous"
            raise TableMissingInMirror(text, subject=subject)
        return refs[0]

    def knows(self, qualified_name: str) -> bool:
        """Whether a table has that name, be it one of an index, or one that lags."""
        return qualified_name in self._by_name or any(
            late.qualified_name == qualified_name for late in self.behind.values()
        )

    def names(self) -> set[str]:
        """`db.t` of all tables but those of indexes, lagging ones too."""
        shown = {ref.qualified_name for ref in self.tables.values() if ref.kind is not Kind.INDEX}
        return shown | {late.qualified_name for late in self.behind.values()}

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[TableRef]]:
        found: dict[str, list[TableRef]] = {}
        for ref in self.tables.values():
            found.setdefault(ref.qualified_name, []).append(ref)
        return found


def parts_of(table_id: int, value: object) -> tuple[str, ...]:
    """The paths of a manifest's parts out of JSON. Raises ValueError or TypeError for what is not one."""
    if not isinstance(value, list | tuple):
        raise TypeError("the parts of a manifest are not a list")
    if not value:
        return ()
    from ccpr.mirror.layout import table_of_manifest  # it imports Arrow, which who asks for a status does not need

    if any(table_of_manifest(text_of(path)) != table_id for path in value):
        raise ValueError("a part is not a manifest of the same table")
    return tuple(value)


def instant_text(nanoseconds: int) -> str:
    """A time since 1970 as ISO 8601, UTC."""
    if not 0 <= nanoseconds < 2**63:  # not a time of the calendar
        return f"{nanoseconds} ns"
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat(timespec="milliseconds")


def parse_at(text: str) -> int | datetime | str:
    """Parse what users write for a point: an lsn, nanoseconds since 1970, an ISO time (UTC without a zone), or the name
    of a held point, which begins with a letter.

    Raises ValueError.
    """
    if text.isdecimal():
        return int(text)
    return text if HOLD_NAME.fullmatch(text) else as_utc(datetime.fromisoformat(text))


def nanoseconds_of(instant: datetime) -> int:
    """Nanoseconds since 1970, to the microsecond; a time without a zone is UTC."""
    return (as_utc(instant) - _EPOCH) // timedelta(microseconds=1) * 1_000


def as_utc(instant: datetime) -> datetime:
    """A time without a zone is UTC, whatever the zone of this machine."""
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
