"""The table of points, `ccpr.points` in the lake: which version of which table shows which point.

It is a Delta table, so that every engine can read it. A point has a row of its own, and one for each table that changed
in it: a table shows a point in the version of its newest row up to that point. A row without a version says that the
table does not show the points from there on. It is also what publishing knows of the lake. Source: decision
lake-every-point.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ccpr.lake.commit import Lake, PointToPublish
from ccpr.lake.delta_table import commit_info
from ccpr.lake.errors import LakeChanged
from ccpr.lake.lake_log import Action, CommitMark, LakeLog, LakeTableState
from ccpr.lake.log_checkpoint import read_whole
from ccpr.lake.statistics import statistics_of, stats_text
from ccpr.lake.stores import LakeStore
from ccpr.matrixone.objects.timestamp import Timestamp

_TIME = pa.timestamp("us", "UTC")
POINTS = "ccpr.points"  # the table of points; a database of that name is given way to
_PLAIN = re.compile(r"[A-Za-z0-9_-]")
_LONGEST = 200  # bytes of a folder's name; file systems allow 255
SCHEMA = pa.schema(
    [
        pa.field("point", pa.int64()),  # the lsn
        pa.field("time", _TIME),  # of the point, by the upstream's clock
        pa.field("table", pa.string()),  # `db.t` at the point; null: the row is the point's own
        pa.field("change", pa.string()),
        pa.field("path", pa.string()),  # of the table, below the lake
        pa.field("version", pa.int64()),  # that shows the point; null: none does
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("at", pa.int64()),  # the time in nanoseconds
        pa.field("snapshot", pa.string()),
        pa.field("table_id", pa.int64()),
        pa.field("logical_id", pa.int64()),
        pa.field("manifest", pa.string()),  # in the mirror
        pa.field("pending", pa.bool_()),  # a later point may show other rows, although the manifest is the same
        pa.field("reading", pa.string()),  # how values were read that Arrow does not hold
        pa.field("removed_since", pa.int64()),  # when the first file was removed that is still there: as `at`
    ]
)
_DELTA = {"int64": "long", "string": "string", "bool": "boolean", "timestamp[us, tz=UTC]": "timestamp"}
_MERGED_FILES, _MERGED_ROWS = 16, 4096
_LOG_POINTS = 200
CREATED, CHANGED, DROPPED, BEHIND = "created", "changed", "dropped", "behind"
CLEANED, REMOVED = "cleaned", "removed"  # old files went; all of a dropped table went


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A table of the lake, as the row of its last version says.

    Attributes
    ----------
    name : `db.t`.
    at : of the point, nanoseconds.
    dropped : it is gone upstream; its folder keeps the versions before.
    behind : it has changed since, and could not be published.
    """

    logical_id: int
    table_id: int
    name: str
    folder: str
    version: int
    lsn: int
    at: int
    rows: int
    size: int
    manifest: str
    pending: bool
    reading: str
    removed_since: int | None = None
    dropped: bool = False
    behind: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """What a point means for one table. `version` None: it is behind."""

    change: str
    table: str
    table_id: int
    logical_id: int
    path: str
    version: int | None
    rows: int = 0
    bytes: int = 0
    manifest: str = ""
    pending: bool = False
    reading: str = ""
    removed_since: int | None = None


@dataclass
class LakeContents:
    """
    Attributes
    ----------
    points : that the lake shows, oldest first.
    tables : by logical id; dropped ones too, as long as a kept point shows them.
    """

    points: list[PointToPublish] = field(default_factory=list)
    tables: dict[int, CatalogEntry] = field(default_factory=dict)

    @property
    def newest(self) -> PointToPublish | None:
        return self.points[-1] if self.points else None

    def folder_versions(self) -> dict[str, int]:
        """The newest version that was published in each folder."""
        return {entry.folder: entry.version for entry in sorted(self.tables.values(), key=lambda entry: entry.at)}


class LakeCatalog:
    """The table of points of one lake."""

    FOLDER = POINTS

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.log = LakeLog(lake.store, POINTS, lake.task)
        self.state: LakeTableState | None = None
        self.contents = LakeContents()
        self._rows = SCHEMA.empty_table()

    def read(self) -> LakeContents:
        """Raises LakeChanged, LakeForeign, StoreFailed."""
        self.state = self.log.read()
        self._rows = _stored_rows(self.log, self.state.live.values())
        self.contents = contents_of(self._rows)
        return self.contents

    @property
    def rows(self) -> pa.Table:
        """All rows (SCHEMA), in the order in which they were published. After `read`."""
        return self._rows.sort_by("at")

    def version_at(self, folder: str, at: int | None) -> int:
        """The version of the table in a folder at a time; -1 if none is known, or for None."""
        if at is None:
            return -1
        mine = pc.and_(pc.equal(self._rows.column("path"), folder), pc.less_equal(self._rows.column("at"), at))
        return pc.max(self._rows.filter(mine).column("version")).as_py() or -1

    def own_oldest_version(self, before: int) -> int:
        """A version of this table that is older than a time, nanoseconds; -1 if none is known."""
        points = self.contents.points
        settled = len(points) > _LOG_POINTS and points[-_LOG_POINTS].at.physical <= before
        return self.state.version - _LOG_POINTS if self.state is not None and settled else -1

    def record(
        self,
        point: PointToPublish,
        tables: Sequence[TableRow],
        *,
        oldest_at: int | None = None,
        held: Collection[int] = (),
    ) -> LakeContents:
        """Add the rows of a point, in one commit; the point's own only if it has none. `oldest_at`: of the oldest point
        that is kept; rows that tell of older ones only may go, but for what tables showed at the times `held`. Raises
        LakeConflict, StoreFailed."""
        state = self.state
        assert state is not None
        known = bool(pc.any(pc.equal(self._rows.column("at"), point.at.physical)).as_py())
        new = _table(point, tables, own=not known)
        if not new.num_rows:
            return self.contents
        small = [add for add in state.live.values() if json.loads(add["stats"])["numRecords"] < _MERGED_ROWS]
        merged: list[Action] = small if len(small) >= _MERGED_FILES else []
        if (
            merged
            and oldest_at is not None
            and 2 * (kept := needed_rows(self.rows, oldest_at, held)).num_rows < len(self._rows)
        ):
            merged, content = list(state.live.values()), pa.concat_tables([kept, new])
            self._rows = content
        else:
            content = pa.concat_tables([_stored_rows(self.log, merged), new])
            self._rows = pa.concat_tables([self._rows, new])
        self._commit(point, state, content, merged)
        add_rows(self.contents, new.to_pylist())
        return self.contents

    def _commit(
        self, point: PointToPublish, state: LakeTableState, content: pa.Table, merged: Sequence[Action]
    ) -> None:
        timestamp = max(point.milliseconds, state.timestamp + 1)
        mark = CommitMark(self.lake.task, point.lsn, point.at.physical)
        sink, footers = pa.BufferOutputStream(), []
        with pq.ParquetWriter(sink, SCHEMA, compression="zstd", metadata_collector=footers, store_schema=False) as file:
            file.write_table(content)
        data, path = sink.getvalue().to_pybytes(), f"data/{uuid.uuid4()}.parquet"
        self.lake.store.files.put(f"{POINTS}/{path}", [data])
        self.lake.store.files.sync(f"{POINTS}/data")
        add = {
            "path": path,
            "partitionValues": {},
            "size": len(data),
            "modificationTime": timestamp,
            "dataChange": True,
            "stats": stats_text(statistics_of(footers[0], SCHEMA)),
            "tags": {},
        }
        removes = [
            {
                "path": one["path"],
                "deletionTimestamp": timestamp,
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": {},
                "size": one["size"],
                "tags": {"ccpr.at": str(point.at.physical)},
            }
            for one in merged
        ]
        actions: list[Action] = [
            {"commitInfo": commit_info("WRITE", timestamp, point.lsn, point.snapshot, mark.to_json())},
            *(_head(self.lake.task, timestamp) if state.version < 0 else ()),
            *({"remove": one} for one in removes),
            {"add": add},
        ]
        self.lake.confirm()
        self.log.commit(state, actions, mark, timestamp)


def read_points(store: LakeStore, task: str) -> pa.Table:
    """All rows of the table of points of a lake. Raises LakeChanged, LakeForeign, StoreFailed."""
    log = LakeLog(store, POINTS, task)
    return _stored_rows(log, log.read().live.values())


def _stored_rows(log: LakeLog, live: Iterable[Action]) -> pa.Table:
    parts = [SCHEMA.empty_table()]
    for path in (add["path"] for add in live):
        content = log.store.read(f"{POINTS}/{path}")
        if content is None:
            raise LakeChanged(f"its file {path} is missing", subject=log.subject)
        try:
            parts.append(read_whole(content).select(SCHEMA.names).cast(SCHEMA))
        except (pa.ArrowException, KeyError) as error:
            raise LakeChanged(f"its file {path} cannot be read: {error}", subject=log.subject) from error
    return pa.concat_tables(parts)


def needed_rows(rows: pa.Table, oldest_at: int, held: Collection[int] = ()) -> pa.Table:
    """Those that tell of a point that is kept, or of a table at the oldest of them, or at a time that is held."""
    last: dict[int, list[int]] = {}  # what says what a table shows: its version, and that it is behind or dropped
    keep, times = set[int](), sorted({*held, oldest_at})
    columns = (rows.column(name).to_pylist() for name in ("logical_id", "at", "change"))
    for number, (logical_id, at, change) in enumerate(zip(*columns, strict=True)):
        while times and times[0] < at:
            times.pop(0)
            keep.update(*last.values())
        if at >= oldest_at:
            keep.add(number)
        if change == REMOVED:
            last.pop(logical_id, None)
        elif logical_id is not None:
            former = last.get(logical_id, [])[:1] if change in (BEHIND, DROPPED) else []
            last[logical_id] = [*former, number]
    if times:
        keep.update(*last.values())
    return rows.take(pa.array(sorted(keep), pa.int64()))


def _head(task: str, timestamp: int) -> list[Action]:
    fields = [{"name": one.name, "type": _DELTA[str(one.type)], "nullable": True, "metadata": {}} for one in SCHEMA]
    metadata = {
        "id": str(uuid.uuid4()),
        "name": "points",
        "description": "which version of which table shows which point",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {"delta.enableInCommitTimestamps": "true", "ccpr.task": task},
        "createdTime": timestamp,
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
    return [{"protocol": protocol}, {"metaData": metadata}]


def _table(point: PointToPublish, tables: Sequence[TableRow], *, own: bool) -> pa.Table:
    common = {
        "point": point.lsn,
        "time": point.at.physical // 1_000,
        "at": point.at.physical,
        "snapshot": point.snapshot,
    }
    rows = [{**common, "change": "point"}] if own else []
    rows += [{**common, **asdict(table)} for table in tables]
    return pa.Table.from_pylist(rows, SCHEMA)


def contents_of(rows: pa.Table, at: int | None = None) -> LakeContents:
    """What all rows together say, or those up to a point's time. A loop over points and changes of tables."""
    found = LakeContents()
    told = rows if at is None else rows.filter(pc.less_equal(rows.column("at"), at))
    add_rows(found, told.sort_by("at").to_pylist())
    return found


def times_of(rows: pa.Table) -> dict[int, int]:
    """The lsn of each point that has a row, by its time in nanoseconds, oldest first."""
    own = rows.filter(pc.is_null(rows.column("table"))).sort_by("at")
    return dict(zip(own.column("at").to_pylist(), own.column("point").to_pylist(), strict=True))


def each_point(rows: pa.Table) -> Iterator[LakeContents]:
    """What the rows say at each point, oldest first; the same value changes from point to point."""
    found, at = LakeContents(), None
    for row in rows.sort_by("at").to_pylist():
        if at is not None and row["at"] != at and found.points:
            yield found
        at = row["at"]
        add_rows(found, [row])
    if found.points:
        yield found


def add_rows(found: LakeContents, rows: Iterable[Mapping[str, Any]]) -> None:
    """In the order in which they were published."""
    for row in rows:
        number, before = row["logical_id"], found.tables.get(row["logical_id"])
        if row["table"] is None:
            found.points.append(PointToPublish(row["point"], Timestamp(row["at"]), row["snapshot"]))
        elif row["change"] == REMOVED:
            found.tables.pop(number, None)
        elif row["change"] == DROPPED and before is not None:
            version = before.version if row["version"] is None else row["version"]
            gone = replace(before, version=version, lsn=row["point"], at=row["at"], rows=0, size=0)
            found.tables[number] = replace(gone, dropped=True, behind=False)
        elif row["version"] is not None:
            found.tables[number] = _entry(row)
        elif before is not None:
            found.tables[number] = replace(before, behind=True)


def _entry(row: Mapping[str, Any]) -> CatalogEntry:
    return CatalogEntry(
        row["logical_id"],
        row["table_id"],
        row["table"],
        row["path"],
        row["version"],
        row["point"],
        row["at"],
        row["rows"],
        row["bytes"],
        row["manifest"],
        row["pending"],
        row["reading"],
        row["removed_since"],
    )


def new_folder(database: str, name: str, table_id: int, taken: Collection[str]) -> str:
    """The folder of a table that has none yet: `<database>.<table>`, as the table is called when it comes. `taken`
    are the folders of tables that are there.

    A rename keeps the folder. A table gets the folder of its name also where a dropped one had it before. In names
    everything but letters, digits, `_` and `-` is written as `=` and the bytes in hex. Source: decision lake-folders.
    """
    wanted = f"{_escaped(database)}.{_escaped(name)}"
    if len(wanted) > _LONGEST:
        wanted = f"{wanted[: _LONGEST - 33]}.{hashlib.sha256(wanted.encode()).hexdigest()[:32]}"
    given = {folder.lower() for folder in (*taken, POINTS)}  # a file system may not tell letter case apart
    return f"{wanted}.{table_id}" if wanted.lower() in given else wanted


def _escaped(name: str) -> str:
    return "".join(
        letter if _PLAIN.fullmatch(letter) else "".join(f"={byte:02X}" for byte in letter.encode()) for letter in name
    )
