"""Any objects and tombstones, of every kind that the format knows, against a model of plain Python: which rows exist
at a time."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject, count_deletions, deleted_rows
from ccpr.matrixone.schema import Column, SqlType
from tests.matrixone.objects.building import column_entry, object_file, stats_bytes
from tests.support.recorded import visible_batches

A = Column("a", 0, SqlType(23, 64, -1))
APPENDABLE, CN = 0x01, 0x04
TIMES = st.tuples(st.integers(1, 6), st.integers(0, 2)).map(lambda time: Timestamp(*time))
LATER = Timestamp(1000)
EVERY_TIME = [Timestamp(physical, logical) for physical in range(8) for logical in range(3)]


@dataclass(frozen=True)
class Data:
    """A data object: rows of each block, with their commit times if the file has that column."""

    number: int
    blocks: list[list[Timestamp]]
    created: Timestamp
    deleted: Timestamp | None
    kind: str  # "appendable"; "merged" and "from a CN" with a column of times that say nothing; "plain" without one

    @property
    def id(self) -> bytes:
        return (
            bytes(15) + bytes([self.number % 2]) + (255 + self.number // 2).to_bytes(2, "little")
        )  # not in the order of bytes

    def value(self, block: int, row: int) -> int:
        return self.number << 32 | block << 16 | row


@dataclass(frozen=True)
class Tombstone:
    """A tombstone object: (target object, block, row, commit time) of each row of each block."""

    number: int
    blocks: list[list[tuple[int, int, int, Timestamp]]]
    created: Timestamp
    deleted: Timestamp | None
    # "appendable", "merged", "four columns" as older releases had it; "from a CN", with times that say nothing or
    # without
    kind: str


def ended(draw: st.DrawFn, created: Timestamp) -> Timestamp | None:
    return draw(st.none() | TIMES.filter(lambda time: time > created))


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Data], list[Tombstone]]:
    data = []
    for number in range(draw(st.integers(1, 4))):
        kind, created = draw(st.sampled_from(["appendable", "merged", "from a CN", "plain"])), draw(TIMES)
        count = 1 if kind == "appendable" else draw(st.integers(1, 3))
        blocks = [draw(st.lists(TIMES, max_size=4)) for _ in range(count)]
        data.append(Data(number, blocks, created, ended(draw, created), kind))
    places = [(d.number, block, row) for d in data for block, times in enumerate(d.blocks) for row in range(len(times))]
    places += [(9, 0, 0), (9, 70, 1)]  # of an object that nobody lists
    tombstones = []
    for number in range(draw(st.integers(0, 4))):
        kind, created = (
            draw(st.sampled_from(["appendable", "merged", "four columns", "from a CN", "plain from a CN"])),
            draw(TIMES),
        )
        rows = draw(st.lists(st.tuples(st.sampled_from(places), TIMES), min_size=1, max_size=8))
        ordered = sorted(
            ((*place, time) for place, time in rows), key=lambda row: (row[0] % 2, row[0] // 2, row[1], row[2])
        )
        cut = len(ordered) if kind == "appendable" else draw(st.integers(0, len(ordered)))
        blocks = [ordered[:cut], ordered[cut:]] if kind != "appendable" else [ordered]
        tombstones.append(Tombstone(number, blocks, created, ended(draw, created), kind))
    return data, tombstones


def takes_part(thing: Data | Tombstone, at: Timestamp) -> bool:
    return thing.created <= at and (thing.deleted is None or at < thing.deleted)


def expected(data: Sequence[Data], tombstones: Sequence[Tombstone], at: Timestamp) -> list[int]:
    dead = {
        row[:3]
        for tombstone in tombstones
        if takes_part(tombstone, at)
        for block in tombstone.blocks
        for row in block
        if "CN" in tombstone.kind or row[3] <= at
    }
    return sorted(
        d.value(block, row)
        for d in data
        if takes_part(d, at)
        for block, times in enumerate(d.blocks)
        for row, time in enumerate(times)
        if (d.kind != "appendable" or time <= at) and (d.number, block, row) not in dead
    )


def times_entry(times: Sequence[Timestamp]) -> tuple[int, bytes]:
    return 100, column_entry(
        100, b"".join(struct.pack("<Iq", time.logical, time.physical) for time in times), len(times)
    )


class Files:
    def __init__(self, data: Sequence[Data], tombstones: Sequence[Tombstone]) -> None:
        self.files: dict[str, bytes] = {}
        self.ids = {d.number: d.id for d in data} | {9: b"\xff" * 18}
        self.listed = [self._data(d) for d in data] + [self._tombstone(t) for t in tombstones]

    def _data(self, data: Data) -> ListedObject:
        blocks = []
        for block, times in enumerate(data.blocks):
            values = [data.value(block, row) for row in range(len(times))]
            columns = {0: (23, column_entry(23, struct.pack(f"<{len(values)}q", *values), len(values)))}
            if data.kind == "appendable":  # a rowid column in between, which nobody may look at
                columns |= {1: (101, column_entry(101, b"\xee" * 24 * len(times), len(times))), 2: times_entry(times)}
            elif data.kind != "plain":
                columns[1] = times_entry([LATER] * len(times) if data.kind == "from a CN" else times)
            blocks.append((len(times), columns))
        flags = {"appendable": APPENDABLE, "from a CN": CN}.get(data.kind, 0)
        return self._listed(data.id, blocks, data, flags, tombstone=False)

    def _tombstone(self, tombstone: Tombstone) -> ListedObject:
        blocks = []
        for rows in tombstone.blocks:
            rowids = [self.ids[target] + struct.pack("<HI", block, row) for target, block, row, _ in rows]
            columns = {
                0: (101, column_entry(101, b"".join(rowids), len(rows))),
                1: (23, column_entry(23, bytes(8 * len(rows)), len(rows))),
            }
            if tombstone.kind == "four columns":
                columns |= {2: columns[0], 3: times_entry([time for *_, time in rows])}
            elif tombstone.kind != "plain from a CN":
                columns[2] = times_entry([LATER if "CN" in tombstone.kind else time for *_, time in rows])
            blocks.append((len(rows), columns))
        flags = APPENDABLE if tombstone.kind == "appendable" else CN if "CN" in tombstone.kind else 0
        return self._listed(
            b"T" * 16 + tombstone.number.to_bytes(2, "little"), blocks, tombstone, flags, tombstone=True
        )

    def _listed(
        self, object_id: bytes, blocks: list, thing: Data | Tombstone, flags: int, *, tombstone: bool
    ) -> ListedObject:
        file = object_file(blocks, object_id=object_id, appendable=bool(flags & APPENDABLE))
        stats = ObjectStats.parse(
            stats_bytes(
                file, rows=sum(rows for rows, _ in blocks), blocks=len(blocks), flags=flags, object_id=object_id
            )
        )
        self.files[stats.name] = file
        return ListedObject(stats, thing.created, thing.deleted, tombstone)

    def open(self, name: str, sums: bytes | None = None) -> ObjectFile:
        return ObjectFile(self.files[name])


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(tables())
def test_the_rows_of_any_table_at_any_time_are_those_of_the_model(table: tuple[list[Data], list[Tombstone]]) -> None:
    data, tombstones = table
    files = Files(data, tombstones)
    for at in EVERY_TIME:
        wanted = expected(data, tombstones, at)
        batches = visible_batches(files.listed, files.open, [A], at)
        assert sorted(value for batch in batches for value in batch.column(0).to_pylist()) == wanted
        parts = [[one for one in files.listed if one.tombstone or one.stats.object_id == d.id] for d in data]
        shares = [visible_batches(part, files.open, [A], at) for part in parts]
        assert sorted(value for share in shares for batch in share for value in batch.column(0).to_pylist()) == wanted


@settings(deadline=None, max_examples=60)
@given(tables(), TIMES)
def test_deletions_are_counted_as_they_are_found(table: tuple[list[Data], list[Tombstone]], since: Timestamp) -> None:
    """Of one moment: how many tombstone rows there are; since an earlier one: those that came later."""
    data, tombstones = table
    files = Files(data, [tombstone for tombstone in tombstones if tombstone.deleted is None])
    ids = [d.id for d in data]
    listed = [entry for entry in files.listed if entry.tombstone and entry.takes_part(LATER)]
    everything = count_deletions(listed, files.open, LATER, of=ids)
    before = count_deletions([entry for entry in listed if entry.takes_part(since)], files.open, since, of=ids)
    after = count_deletions(listed, files.open, LATER, of=ids, since=since)
    # A merged tombstone keeps its rows' own times, which may be older than the object: what it had before it was there
    # counts as before.
    assert all(everything.get(id_, 0) >= after.get(id_, 0) for id_ in ids)
    assert all(before.get(id_, 0) + after.get(id_, 0) <= everything.get(id_, 0) for id_ in ids)
    dead = deleted_rows(listed, files.open, LATER, of=ids)
    assert all(len(rows) <= everything[id_] for id_, rows in dead.items())
