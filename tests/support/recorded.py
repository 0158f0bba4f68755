"""A recording as values: tables, object lists, objects, expected rows. Its files: tests/recordings/README.md."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ccpr.matrixone.client.table_catalog import tables_from_rows
from ccpr.matrixone.client.upstream_session import Answer
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats, check_object_name
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import arrow_schema
from ccpr.matrixone.objects.visibility import ListedObject, Opener, in_runs, visible_blocks
from ccpr.matrixone.schema import Column, Table
from tests.support.recordings_location import folder_of_4_2


def cell(value: Any) -> bytes | None:
    """A cell as it came over the wire. A recording has it as text if it is UTF-8, else as hexadecimal digits."""
    if value is None:
        return None
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else str(value).encode()


def opened(path: Path) -> ObjectFile:
    """The object in a file, as it is or framed by the DISK backend."""
    return ObjectFile(path.read_bytes(), subject=f"object {path.name}")


def timestamp_of(text: bytes) -> Timestamp | None:
    """`physical-logical` as object lists print it; `0-0` means none."""
    physical, logical = map(int, text.decode().split("-"))
    return Timestamp(physical, logical) if physical or logical else None


def _known(value: bytes | None) -> bytes:
    assert value is not None
    return value


def visible_batches(
    objects: Sequence[ListedObject],
    open_object: Opener,
    columns: Sequence[Column],
    at: Timestamp,
) -> Iterator[pa.RecordBatch]:
    """The rows of a table at a time, a run of blocks a batch (`in_runs`), columns in the order given. `objects` as of
    `visible_blocks`."""
    schema = arrow_schema(columns)
    for run in in_runs(visible_blocks(objects, open_object, at), columns):
        yield run.batch(columns, schema)


@dataclass(frozen=True)
class Snapshot:
    """One snapshot of a recording; `folder` is its snapshot-NNN."""

    folder: Path

    def answer(self, name: str) -> Answer:
        stored = json.loads((self.folder / f"{name}.json").read_text())
        rows = [tuple(cell(value) for value in row) for row in stored["rows"]]
        return Answer(tuple(stored["columns"]), tuple(stored["mysql_types"]), rows)

    @property
    def listed(self) -> bool:
        """Whether the upstream gave an object list (it does not if a table is partitioned)."""
        return (self.folder / "object_list.json").exists()

    @cached_property
    def at(self) -> Timestamp:
        ((value,),) = self.answer("snapshot_ts").rows
        return Timestamp(int(_known(value)))

    @cached_property
    def tables(self) -> dict[str, Table]:
        catalog = tables_from_rows(
            self.answer("mo_database"),
            self.answer("mo_tables"),
            self.answer("mo_columns"),
            self.answer("ddl"),
            at=self.at,
        )
        return {table.name: table for table in catalog.tables}

    @cached_property
    def objects(self) -> dict[str, list[ListedObject]]:
        """By table name."""
        lists: dict[str, list[ListedObject]] = {}
        names = ("table name", "stats", "create_at", "delete_at", "is_tombstone")
        for table, stats, created, deleted, tombstone in self.answer("object_list").select(*names):
            start = timestamp_of(_known(created))
            assert start is not None
            listed = ListedObject(
                ObjectStats.parse(_known(stats)), start, timestamp_of(_known(deleted)), tombstone == b"1"
            )
            lists.setdefault(_known(table).decode(), []).append(listed)
        return lists

    def open_object(self, name: str, sums: bytes | None = None) -> ObjectFile:
        return opened(self.folder.parent / "objects" / check_object_name(name))

    def expected_tables(self) -> list[str]:
        return sorted(path.stem.split(".", 1)[1] for path in (self.folder / "expected").glob("*.parquet"))

    def expected(self, table: str) -> pa.Table:
        (path,) = [path for path in (self.folder / "expected").glob("*.parquet") if path.stem.split(".", 1)[1] == table]
        return pq.read_table(path)

    def read(self, table: str, columns: tuple[Column, ...] | None = None) -> pa.Table:
        """The visible rows of a table, read by the object reader alone; the user's columns if none are named."""
        columns = self.tables[table].user_columns if columns is None else columns
        batches = visible_batches(self.objects.get(table, []), self.open_object, columns, self.at)
        return pa.Table.from_batches(batches, schema=arrow_schema(columns))


def every_snapshot(recordings: Path) -> Iterator[Snapshot]:
    """Every snapshot of every recording of both releases."""
    yield from snapshots(recordings)
    if (newer := folder_of_4_2(recordings)) is not None:
        yield from snapshots(newer)


def snapshots(recordings: Path) -> Iterator[Snapshot]:
    """Every snapshot of every recording, in order."""
    for folder in sorted(recordings.glob("*/snapshot-*")):
        yield Snapshot(folder)
