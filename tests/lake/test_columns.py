"""Numbers of columns are never used again, and a file is written again where a name would get another meaning."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.lake.errors import LakeTableRefused
from ccpr.lake.lake_columns import LakeColumns, delta_schema, next_columns
from ccpr.lake.lake_options import Mapped
from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import DEFAULT_READING, Column, Kind, SqlType, Table

INT, TEXT = SqlType(types.INT32), SqlType(types.VARCHAR, 20)


def table(*columns: tuple[str, int, SqlType], table_id: int = 1) -> Table:
    return Table(table_id, 1, "d", "t", Kind.TABLE, tuple(Column(*column) for column in columns))


def following(first: LakeColumns | None, *tables: Table, mapped: Mapped = Mapped.NONE) -> LakeColumns:
    for one in tables:
        first = next_columns(one, DEFAULT_READING, mapped, first)
    assert first is not None
    return first


A, B = ("a", 0, INT), ("b", 1, TEXT)


def test_an_unchanged_table_keeps_everything() -> None:
    one = following(None, table(A, B))
    assert following(one, table(A, B)) == one
    assert [column.id for column in one.columns] == [1, 2]


def test_an_added_column_needs_no_file_written_again() -> None:
    found = following(None, table(A), table(A, B))
    assert (found.generation, [column.id for column in found.columns]) == (0, [1, 2])


def test_a_dropped_columns_name_gets_another_meaning_with_new_files_only() -> None:
    found = following(None, table(A, B), table(A), table(A, ("b", 2, TEXT)))
    assert (found.generation, [column.id for column in found.columns]) == (1, [1, 3])
    by_number = following(None, table(A, B), table(A), table(A, ("b", 2, TEXT)), mapped=Mapped.NAME)
    assert (by_number.generation, by_number.columns[1].physical) == (0, "c3")


def test_a_renamed_column_keeps_its_number() -> None:
    found = following(None, table(A, B), table(("z", 0, INT), B))
    assert (found.generation, found.columns[0].id, found.columns[0].physical) == (1, 1, "z")
    by_number = following(None, table(A, B), table(("z", 0, INT), B), mapped=Mapped.NAME)
    assert (by_number.generation, by_number.columns[0].physical, by_number.columns[0].name) == (0, "c1", "z")


def test_names_that_change_places_are_no_other_columns() -> None:
    found = following(None, table(A, ("b", 1, INT)), table(("b", 0, INT), ("a", 1, INT)))
    assert found.generation == 1
    assert {column.name: column.id for column in found.columns} == {"b": 1, "a": 2}


def test_a_copied_table_keeps_the_numbers_of_columns_of_the_same_name_and_type() -> None:
    found = following(None, table(A, B), table(("b", 0, TEXT), ("a", 1, TEXT), table_id=2))
    assert (found.generation, {column.name: column.id for column in found.columns}) == (1, {"b": 2, "a": 3})


def test_other_labels_of_an_enum_write_the_files_again() -> None:
    enum = Column("e", 0, SqlType(types.ENUM), labels=("x", "y"))
    first = Table(1, 1, "d", "t", Kind.TABLE, (enum,))
    found = following(None, first, replace(first, columns=(replace(enum, labels=("y", "x")),)))
    assert (found.generation, found.columns[0].id) == (1, 2)


def test_more_digits_within_the_room_change_nothing() -> None:
    decimal = Column("d", 0, SqlType(types.DECIMAL64, 4, 2))
    first = Table(1, 1, "d", "t", Kind.TABLE, (decimal,))
    one = following(None, first)
    assert following(one, replace(first, columns=(replace(decimal, digits=9),))) == one
    wider = following(one, replace(first, columns=(replace(decimal, digits=19),)))
    assert wider.generation == 1


def test_columns_that_differ_by_letter_case_only_are_refused() -> None:
    with pytest.raises(LakeTableRefused):
        following(None, table(("a", 0, INT), ("A", 1, INT)))


def test_the_schema_maps_columns_by_number_only_if_asked() -> None:
    one = table(A)
    plain = delta_schema(one, following(None, one), DEFAULT_READING, Mapped.NONE)
    assert plain["fields"][0]["metadata"] == {}
    mapped = delta_schema(one, following(None, one, mapped=Mapped.NAME), DEFAULT_READING, Mapped.NAME)
    assert mapped["fields"][0]["metadata"] == {
        "delta.columnMapping.id": 1,
        "delta.columnMapping.physicalName": "c1",
    }


tables = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 5), st.sampled_from((INT, TEXT))),
    min_size=1,
    max_size=4,
    unique_by=(lambda one: one[0], lambda one: one[1]),
)


@given(st.lists(st.tuples(tables, st.integers(1, 2)), min_size=1, max_size=8), st.sampled_from(Mapped))
def test_within_a_generation_a_name_in_the_files_has_one_meaning(
    history: list[tuple[list[tuple[str, int, SqlType]], int]], mapped: Mapped
) -> None:
    found: LakeColumns | None = None
    meaning: dict[tuple[int, str], tuple[int, int, str]] = {}
    told: dict[int, set[tuple[int, int]]] = {}
    for columns, table_id in history:
        before = found
        found = next_columns(table(*columns, table_id=table_id), DEFAULT_READING, mapped, before)
        assert LakeColumns.from_json(found.to_json()) == found
        assert found.top >= max(column.id for column in found.columns)
        assert len({column.id for column in found.columns}) == len(found.columns)
        for column in found.columns:
            one = (column.id, column.seqnum, column.form)
            assert meaning.setdefault((found.generation, column.physical), one) == one
            told.setdefault(column.id, set()).add((found.generation, column.seqnum))
    for generations in told.values():  # within a generation a number is one column of the upstream's
        assert len({generation for generation, _ in generations}) == len(generations)
