"""Object stats, one and many; and object lists, from an answer of the upstream to a difference."""

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import numpy as np
import pyarrow as pa

from ccpr.matrixone.client.column_stream import AnswerColumns
from ccpr.matrixone.client.object_answers import object_list
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.errors import ObjectDamaged
from ccpr.matrixone.objects.stats import STATS_SIZE, ObjectStats, check_object_name, stats_columns
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.zonemap import parse_zonemap
from ccpr.mirror.object_rows import LISTED_SCHEMA, as_listed, as_manifest, with_checksums
from ccpr.pipeline.copying import COPY_OUTPUT
from ccpr.pipeline.list_check import check_list
from ccpr.pipeline.object_list import deduplicate, diff_objects, read_list
from tests.hostile.mutate import mutated, packed, set_number, unpacked
from tests.support.recorded import Snapshot
from tests.support.recordings_location import SAMPLE

_FIELDS = (
    (16, 2),
    (60, 1),
    (61, 4),
    (65, 4),
    (69, 4),
    (73, 4),
    (77, 4),
    (143, 1),
    (144, 1),
    (145, 4),
    (149, 4),
    (153, 1),
)
_COLUMNS = ("db name", "table name", "stats", "create_at", "delete_at", "is_tombstone")
_MOST_ROWS = 30


def _recorded() -> list[list[tuple[bytes | None, ...]]]:
    lists = []
    for path in sorted(SAMPLE.glob("*/snapshot-*/object_list*.json")):
        rows = list(Snapshot(path.parent).answer(path.stem).select(*_COLUMNS))
        if rows:
            lists.append(rows[:_MOST_ROWS])
    return lists


class Stats:
    """An input is the concatenation of some stats, which is cut by their length."""

    name = "stats"
    decoded_bytes = 0

    def __init__(self) -> None:
        self._seeds = sorted({cell for rows in _recorded() for row in rows if (cell := row[2]) is not None})

    def make(self, chance: random.Random) -> bytes:
        stats = bytearray(chance.choice(self._seeds))
        for _ in range(chance.choice((0, 1, 1, 2))):
            set_number(stats, *chance.choice(_FIELDS), chance)
        if chance.random() < 0.6:
            return mutated(bytes(stats), chance, self._seeds, gentle=chance.random() < 0.7)
        if chance.random() < 0.5:  # an extent and a size that agree
            end = int.from_bytes(stats[61:65], "little") + int.from_bytes(stats[65:69], "little")
            stats[145:149] = ((end + 64) % 2**32).to_bytes(4, "little")
        return bytes(stats) * chance.choice((1, 1, 2, 5))

    def run(self, data: bytes) -> str:
        pieces = [data[at : at + STATS_SIZE] for at in range(0, len(data), STATS_SIZE)]
        first = "rows"
        try:
            batch = stats_columns(pa.array(pieces, pa.binary()).slice(len(pieces) // 3))
            batch.validate(full=True)
            width = len(pieces[0]) if pieces else 0
            stats_columns(pa.array([piece for piece in pieces if len(piece) == width], pa.binary(width or 1)).slice(1))
        except CcprError as error:
            first = error.code
        for piece in pieces:
            stats = ObjectStats.parse(piece)
            check_object_name(stats.name)
            parse_zonemap(stats.sort_key_zonemap)
        return first

    def close(self) -> None:
        pass


class _Upstream:
    """Stands in for a session: `stream` gives the hostile rows, in two pieces."""

    def __init__(self, columns: list[str], rows: list[tuple[bytes | None, ...]]) -> None:
        self._columns, self._rows = tuple(columns), rows

    def stream(self, sql: str, **_options: object) -> Iterator[AnswerColumns]:
        middle = len(self._rows) // 2
        for part in (self._rows[:middle], self._rows[middle:]):
            cells = ([row[place] for row in part] for place in range(len(self._columns)))
            yield AnswerColumns(self._columns, tuple(pa.array(column, pa.binary()) for column in cells))


class ObjectLists:
    """An input: the column names as JSON, then the cells row by row; a cell's first byte says whether it is NULL."""

    name = "lists"
    decoded_bytes = 0

    def __init__(self) -> None:
        self._lists = _recorded()
        self._cells = sorted({cell for rows in self._lists for row in rows for cell in row if cell is not None})
        names: dict[str, dict[str, int | None]] = {}
        for row in (row for rows in self._lists for row in rows):
            assert row[0] is not None
            assert row[1] is not None
            of = names.setdefault(row[0].decode(), {})
            of[row[1].decode()] = None if len(of) % 7 == 6 else 1000 + len(of)
        names["a\0b"] = {"..": 7, "x\ny": 8}
        self._names = names

    def make(self, chance: random.Random) -> bytes:
        rows = [list(row) for row in chance.choice(self._lists)]
        columns: list[str] = list(_COLUMNS)
        for _ in range(chance.choice((1, 1, 2, 6))):
            edit = chance.randrange(10)
            row = chance.choice(rows)
            if edit == 0:
                columns[chance.randrange(6)] = chance.choice(("", "stats", "db name", "\0"))
            elif edit == 1:
                rows.append(list(row))
            elif edit == 2:
                again = list(row)
                again[4] = chance.choice((b"0-0", b"9223372036854775807-0", again[3]))
                rows.insert(chance.randrange(len(rows)), again)
            elif edit == 3:
                stats = bytearray(row[2] or b"")
                set_number(stats, *chance.choice(_FIELDS), chance)
                row[2] = bytes(stats)
            else:
                place = chance.randrange(6)
                row[place] = self._cell(row[place], place, chance)
        cells = [b"\0" if cell is None else b"\1" + cell for row in rows for cell in row]
        return packed([json.dumps(columns).encode(), *cells])

    def _cell(self, cell: bytes | None, place: int, chance: random.Random) -> bytes | None:
        if cell and chance.random() < 0.4:
            return mutated(cell, chance, gentle=chance.random() < 0.5)
        names = (b"..", b"a\0b", b"x\ny", b"/etc/passwd", b"\xff\xfe", "é".encode() * 40)
        times = (
            b"0-0",
            b"1-1",
            b"-1-0",
            b"9223372036854775807-4294967295",
            b"9999999999999999999-0",
            b"1-9999999999",
            b"1-0\n",
            "١-٢".encode(),
            b"0-5",
        )
        flags = (b"0", b"1", b"2", b"true", b"\0", b" 1")
        pools = (names, names, (bytes(154), b"\xff" * 154, bytes(153)), times, times, flags)
        return chance.choice((None, b"", chance.choice(self._cells), *pools[place]))

    def run(self, data: bytes) -> str:
        first, *cells = unpacked(data)
        columns = json.loads(first)
        values = [None if cell == b"\0" else cell[1:] for cell in cells]
        values += [None] * (-len(values) % len(columns))
        rows = [tuple(values[at : at + len(columns)]) for at in range(0, len(values), len(columns))]
        session = cast(Session, _Upstream(columns, rows))
        batches = list(object_list(session, "xr_a_1_0", Publication("p", "sys", 0), against=None))
        listed = read_list(batches, self._names, "list")
        unique = deduplicate(listed, "list")
        check_list(unique, Timestamp(2**62), "list")
        self._differences(unique)
        return "rows"

    def _differences(self, listed: pa.Table) -> None:
        """A list that has been checked may break nothing in later steps."""
        listed.validate(full=True)
        for name, stats in zip(listed.column("name").to_pylist(), listed.column("stats").to_pylist(), strict=True):
            check_object_name(name)
            with suppress(ObjectDamaged):  # which `copy_objects` raises before it fetches anything
                ObjectStats.parse(stats)
        ids: set[Any] = set(listed.column("table_id").to_pylist())
        known = listed.slice(0, listed.num_rows // 2)
        diff = diff_objects(listed, known, complete=ids)
        alive = listed.filter(np.equal(listed.column("delete_physical").is_null().to_numpy(zero_copy_only=False), True))
        assert set(diff.added.column("name").to_pylist()) <= set(alive.column("name").to_pylist())
        assert diff.removed.schema == LISTED_SCHEMA
        for table_id in ids:
            as_listed(table_id, as_manifest(with_checksums(listed, COPY_OUTPUT.empty_table())))

    def close(self) -> None:
        pass
