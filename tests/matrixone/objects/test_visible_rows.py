"""Visible rows of several blocks together are what they are by block."""

from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.objects import types, visibility
from ccpr.matrixone.objects.errors import ObjectDamaged, ValueRefused
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.types import arrow_schema, arrow_type
from ccpr.matrixone.objects.visibility import VisibleRows, in_runs
from ccpr.matrixone.schema import Column, SqlType
from tests.matrixone.objects.building import column_entry, nulls_bytes, object_file, varlena_entry

NUMBER, TEXT, DAY = Column("n", 0, SqlType(22)), Column("t", 1, SqlType(61, 100)), Column("d", 2, SqlType(50))
LATE = Column("late", 3, SqlType(23))
COLUMNS = (NUMBER, TEXT, DAY, LATE)
BEFORE_ALL = -(2**31)  # a day that cannot be counted from 1970
CELLS = st.tuples(
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text("aé ", max_size=30),
    st.integers(0, 3_000_000),
)


def stored(blocks: list[list[tuple[int | None, str | None, int]]], *, constant: bool = False) -> ObjectFile:
    """A file of these blocks; with `constant` the numbers of each are a constant vector of the first."""
    written = []
    for rows in blocks:
        numbers, texts, days = ([row[place] for row in rows] for place in range(3))
        slots = b"".join((number or 0).to_bytes(4, "little", signed=True) for number in numbers)
        nulls = nulls_bytes([number is None for number in numbers])
        if constant:
            slots, nulls = slots[:4], nulls_bytes([numbers[0] is None])
        entry = column_entry(22, slots, len(rows), nulls=nulls, constant=constant)
        words = varlena_entry(61, [None if text is None else text.encode() for text in texts])
        dates = column_entry(50, b"".join(day.to_bytes(4, "little", signed=True) for day in days), len(rows))
        written.append((len(rows), {0: (22, entry), 1: (61, words), 2: (50, dates)}))
    return ObjectFile(object_file(written))


def by_block(file: ObjectFile, masks: list[list[bool]]) -> Iterator[VisibleRows]:
    for block, mask in zip(file.blocks, masks, strict=True):
        if all(mask):
            yield VisibleRows(file, (block,), None)
        elif any(mask):
            yield VisibleRows(file, (block,), np.flatnonzero(mask))


@st.composite
def masked(draw: st.DrawFn) -> tuple[list[list[tuple[int | None, str | None, int]]], list[list[bool]]]:
    blocks = draw(st.lists(st.lists(CELLS, min_size=1, max_size=20), min_size=1, max_size=8))
    kinds = draw(st.lists(st.sampled_from(("all", "none", "some")), min_size=len(blocks), max_size=len(blocks)))
    masks = [
        [kind == "all"] * len(rows)
        if kind != "some"
        else draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
        for rows, kind in zip(blocks, kinds, strict=True)
    ]
    return blocks, masks


@given(
    drawn=masked(),
    together=st.sampled_from(((NUMBER, DAY, LATE), COLUMNS)),
    run_bytes=st.sampled_from((1, 300, 5000, 1 << 20)),
    constant=st.booleans(),
    data=st.data(),
)
def test_runs_hold_the_rows_of_their_blocks(
    drawn: tuple[list[list[tuple[int | None, str | None, int]]], list[list[bool]]],
    together: tuple[Column, ...],
    run_bytes: int,
    constant: bool,
    data: st.DataObject,
) -> None:
    blocks, masks = drawn
    if constant:
        blocks = [[(rows[0][0], *row[1:]) for row in rows] for rows in blocks]
    file, schema = stored(blocks, constant=constant), arrow_schema(COLUMNS)
    expected = [
        row for rows, mask in zip(blocks, masks, strict=True) for row, shown in zip(rows, mask, strict=True) if shown
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(visibility, "_RUN_BYTES", run_bytes)
        runs = list(in_runs(by_block(file, masks), together))
    counts = [len(run.blocks) for run in runs]
    assert all(count <= 2**number for number, count in enumerate(counts))
    if run_bytes == 1 or TEXT in together:
        assert set(counts) <= {1}
    found, chosen = [], []
    wanted = data.draw(st.lists(st.booleans(), min_size=len(expected), max_size=len(expected)))
    for run, end in zip(runs, accumulate(run.count for run in runs), strict=True):
        batch = run.batch(COLUMNS, schema)
        batch.validate(full=True)
        found += batch.to_pylist()
        some = run.where(np.array(wanted[end - run.count : end], bool))
        if some is not None:
            assert some.count > 0
            assert all(block in run.blocks for block in some.blocks)
            chosen += some.batch(COLUMNS, schema).to_pylist()
    assert [(row["n"], row["t"], row["late"]) for row in found] == [(*row[:2], None) for row in expected]
    assert [row["d"].toordinal() - 1 for row in found] == [row[2] for row in expected]
    assert chosen == [row for row, shown in zip(found, wanted, strict=True) if shown]


@pytest.mark.parametrize("dead", [True, False])
def test_a_value_that_cannot_be_read_is_an_error_only_where_it_is_visible(dead: bool) -> None:
    rows = [[(row, "x", BEFORE_ALL if (block, row) == (1, 3) else 7) for row in range(9)] for block in range(3)]
    file = stored(rows)
    masks = [[not (dead and (block, row) == (1, 3)) for row in range(9)] for block in range(3)]
    shown = VisibleRows(file, file.blocks, np.flatnonzero(np.concatenate(masks)))
    if dead:
        assert len(shown.column(DAY)) == 26
        assert shown.column(NUMBER).to_pylist() == [row for block in range(3) for row in range(9) if masks[block][row]]
    else:
        for rows_of in (shown, VisibleRows(file, file.blocks, None)):
            with pytest.raises(ValueRefused, match="row 3 "):
                rows_of.column(DAY)


def test_a_block_of_another_length_than_it_says_is_named() -> None:
    good = column_entry(22, bytes(4 * 5), 5)
    file = ObjectFile(object_file([(5, {0: (22, good)}), (5, {0: (22, column_entry(22, bytes(4 * 4), 4))})]))
    with pytest.raises(ObjectDamaged, match="4 rows in a block of 5"):
        file.values([0, 1], NUMBER)
    assert file.values([0, 0], NUMBER).to_pylist() == [0] * 10


def test_memory_is_bounded_where_blocks_say_more_rows_than_they_store() -> None:
    rows = 1 << 16
    constant = column_entry(22, bytes(4), rows, constant=True)
    file = ObjectFile(object_file([(rows, {0: (22, constant)})] * 40))
    runs = list(in_runs((VisibleRows(file, (block,), None) for block in file.blocks), [NUMBER]))
    assert [len(run.blocks) for run in runs] == [1, 2, 4, 8, 12, 12, 1]
    assert max(run.column(NUMBER).nbytes for run in runs) <= 4 << 20


@pytest.mark.parametrize(
    "column",
    [
        Column("c", 0, SqlType(types.VARCHAR, 100)),
        Column("c", 0, SqlType(types.VARBINARY, 100)),
        Column("c", 0, SqlType(types.JSON)),
        Column("c", 0, SqlType(types.VECF32, 3)),
        Column("c", 0, SqlType(types.UUID)),
        Column("c", 0, SqlType(types.ENUM), labels=("a", "b")),
        Column("c", 0, SqlType(types.UINT64), labels=("a", "b")),
        Column("c", 0, SqlType(types.DECIMAL256, 60, 2)),
    ],
    ids=lambda column: str(arrow_type(column)),
)
def test_blocks_stay_apart_where_values_have_any_length(column: Column) -> None:
    file = stored([[(1, "x", 1)]] * 5)
    runs = in_runs((VisibleRows(file, (block,), None) for block in file.blocks), [NUMBER, column])
    assert [len(run.blocks) for run in runs] == [1] * 5
