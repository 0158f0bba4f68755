"""What changed between two definitions of a table."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.ddl.definition import (
    CheckConstraint,
    ColumnDefinition,
    ColumnType,
    CreateTable,
    ForeignKey,
    Index,
    IndexKind,
    KeyPart,
)
from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.schema import Column, Kind, SqlType, Table
from ccpr.schema.table_diff import (
    ColumnAdded,
    ColumnAltered,
    ColumnCommentChanged,
    ColumnDefaultChanged,
    ColumnDropped,
    ColumnMoved,
    ColumnNullabilityChanged,
    ColumnRenamed,
    ColumnRetyped,
    ConstraintAdded,
    ConstraintDropped,
    DefinitionChange,
    IndexAdded,
    IndexDropped,
    PrimaryKeyChanged,
    TableCommentChanged,
    TableOptionsChanged,
    TableRenamed,
    can_be_altered,
    diff_tables,
    is_wider,
)
from tests.matrixone.ddl.strategies import NAMES, column_definitions, create_tables, indexes
from tests.support.recorded import Snapshot

INT, BIGINT = ColumnType("int"), ColumnType("bigint")
A, B, C = (ColumnDefinition(name, INT) for name in "abc")


def _left(
    before: CreateTable, changes: tuple[DefinitionChange, ...]
) -> tuple[list[Index], list[ForeignKey | CheckConstraint]]:
    """The indexes and constraints that are not dropped."""
    indexes_, constraints = list(before.indexes), [*before.foreign_keys, *before.checks]
    for change in changes:
        match change:
            case IndexDropped(index):
                indexes_.remove(index)
            case ConstraintDropped(constraint):
                constraints.remove(constraint)
    return indexes_, constraints


def applied(before: CreateTable, changes: tuple[DefinitionChange, ...]) -> CreateTable:
    """An oracle that knows what each change says, and nothing of how it was found."""
    columns, table = list(before.columns), before
    renames = {change.before: change.after for change in changes if isinstance(change, ColumnRenamed)}
    gone = {change.column.name for change in changes if isinstance(change, ColumnDropped)}
    indexes_, constraints = _left(before, changes)

    def renamed(name: str) -> str:
        return renames.get(name, name)

    columns = [replace(column, name=renamed(column.name)) for column in columns if column.name not in gone]
    indexes_ = [
        replace(i, parts=tuple(replace(part, column=renamed(part.column)) for part in i.parts)) for i in indexes_
    ]
    constraints = [
        c if isinstance(c, CheckConstraint) else replace(c, columns=tuple(map(renamed, c.columns))) for c in constraints
    ]
    table = replace(
        table, primary_key=tuple(map(renamed, table.primary_key)), cluster_by=tuple(map(renamed, table.cluster_by))
    )

    def put(column: ColumnDefinition, after: str | None) -> None:
        columns.insert(0 if after is None else [c.name for c in columns].index(after) + 1, column)

    for change in changes:
        match change:
            case TableRenamed(_, (database, name)):
                table = replace(table, database=database, name=name)
            case TableCommentChanged(_, comment):
                table = replace(table, comment=comment)
            case TableOptionsChanged(_, after):
                table = replace(table, **{name: getattr(after, name) for name in change.fields})
            case ColumnAdded(column, after):
                put(column, after)
            case ColumnMoved(name, after):
                (moved,) = [column for column in columns if column.name == name]
                columns.remove(moved)
                put(moved, after)
            case ColumnAltered(_, after):
                columns = [
                    replace(c, **{name: getattr(after, name) for name in change.fields}) if c.name == after.name else c
                    for c in columns
                ]
            case PrimaryKeyChanged(_, key):
                table = replace(table, primary_key=key)
            case IndexAdded(index):
                indexes_.append(index)
            case ConstraintAdded(constraint):
                constraints.append(constraint)
    checks = tuple(c for c in constraints if isinstance(c, CheckConstraint))
    keys = tuple(c for c in constraints if not isinstance(c, CheckConstraint))
    return replace(table, columns=tuple(columns), indexes=tuple(indexes_), checks=checks, foreign_keys=keys)


def unordered(table: CreateTable) -> CreateTable:
    return replace(
        table,
        indexes=tuple(sorted(set(table.indexes), key=repr)),
        checks=tuple(sorted(set(table.checks), key=repr)),
        foreign_keys=tuple(sorted(set(table.foreign_keys), key=repr)),
    )


def as_table(ddl: CreateTable, number: int = 1, seqnums: dict[str, int] | None = None) -> Table:
    columns = tuple(
        Column(column.name, place if seqnums is None else seqnums[column.name], SqlType(22))
        for place, column in enumerate(ddl.columns)
    )
    return Table(number, 1, ddl.database, ddl.name, Kind.TABLE, columns)


def diff(
    before: CreateTable, after: CreateTable, renames: dict[str, str] | None = None
) -> tuple[DefinitionChange, ...]:
    """Of a table that keeps its id; `renames` says which new name was which."""
    seqnums = {column.name: place for place, column in enumerate(before.columns)}
    now = {new: seqnums[old] for old, new in (renames or {}).items()}
    later = {
        c.name: now.get(c.name, 100 + place if c.name not in seqnums else seqnums[c.name])
        for place, c in enumerate(after.columns)
    }
    return diff_tables(as_table(before, seqnums=seqnums), as_table(after, seqnums=later), before, after)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(create_tables(), create_tables())
def test_changes_between_any_two_tables_lead_from_one_to_the_other(before: CreateTable, after: CreateTable):
    changes = diff_tables(as_table(before, 1), as_table(after, 2), before, after)
    assert unordered(applied(before, changes)) == unordered(after)


@settings(max_examples=150, deadline=None)
@given(create_tables(max_columns=7), st.data())
def test_changes_of_a_table_that_keeps_its_id_lead_to_what_it_became(before: CreateTable, data: st.DataObject):
    seqnums = {column.name: place for place, column in enumerate(before.columns)}
    stays = [column for column in before.columns if column.name in before.primary_key or data.draw(st.booleans())] or [
        before.columns[0]
    ]
    names = data.draw(st.lists(NAMES, min_size=len(stays), max_size=len(stays), unique_by=str.lower))
    if data.draw(st.booleans()):
        names = data.draw(st.permutations([column.name for column in stays]))  # names that were swapped
    renames = {column.name: name for column, name in zip(stays, names, strict=True)}
    columns = [replace(column, name=renames[column.name]) for column in stays]
    if data.draw(st.booleans()):
        columns = [data.draw(column_definitions(column.name)) for column in columns]
    later = {column.name: seqnums[old.name] for column, old in zip(columns, stays, strict=True)}
    added = data.draw(NAMES.filter(lambda name: name.lower() not in {column.name.lower() for column in columns}))
    later[added] = 99
    columns = data.draw(st.permutations([*columns, ColumnDefinition(added, INT)]))
    after = CreateTable(
        before.name,
        tuple(columns),
        before.database,
        tuple(renames[name] for name in before.primary_key),
        tuple(data.draw(st.lists(indexes("i", [column.name for column in columns]), max_size=1))),
    )
    changes = diff_tables(as_table(before, 1, seqnums), as_table(after, 1, later), before, after)
    assert unordered(applied(before, changes)) == unordered(after)
    assert {change.column.name for change in changes if isinstance(change, ColumnDropped)} == {*seqnums} - {*renames}
    assert not any(isinstance(change, PrimaryKeyChanged) for change in changes)


@given(create_tables())
def test_a_table_does_not_differ_from_itself(table: CreateTable):
    assert diff(table, table) == ()
    shuffled = replace(table, indexes=table.indexes[::-1], checks=table.checks[::-1])
    assert diff(table, shuffled) == ()


def test_a_rename_applies_to_keys_and_indexes():
    before = CreateTable(
        "t", (A, B), primary_key=("a",), indexes=(Index(IndexKind.KEY, "i", (KeyPart("a"), KeyPart("b", 3))),)
    )
    after = CreateTable(
        "t",
        (replace(A, name="b"), replace(B, name="a")),
        primary_key=("b",),
        indexes=(Index(IndexKind.KEY, "i", (KeyPart("b"), KeyPart("a", 3))),),
    )
    assert diff(before, after, {"a": "b", "b": "a"}) == (ColumnRenamed("a", "b"), ColumnRenamed("b", "a"))


def test_the_fewest_columns_move():
    columns = tuple(ColumnDefinition(name, INT) for name in "abcdef")
    moved = (*columns[1:5], columns[0], columns[5])
    assert diff(CreateTable("t", columns), CreateTable("t", moved)) == (ColumnMoved("a", "e"),)
    assert diff(CreateTable("t", columns), CreateTable("t", (columns[5], *columns[:5]))) == (ColumnMoved("f", None),)


def test_each_change_says_what_it_costs():
    wide = replace(A, type=BIGINT)
    unique, ordinary = (Index(kind, "i", (KeyPart("a"),)) for kind in (IndexKind.UNIQUE, IndexKind.KEY))
    free, bound = replace(A, nullable=True), replace(A, nullable=False)
    costs = {
        ColumnAdded(A, None): (True, False, False),
        ColumnDropped(A): (True, False, True),
        ColumnRenamed("a", "b"): (True, False, False),
        ColumnMoved("a", "b"): (True, False, False),
        ColumnRetyped(A, wide): (True, False, False),
        ColumnRetyped(wide, A): (False, False, True),
        ColumnNullabilityChanged(bound, free): (True, False, False),
        ColumnNullabilityChanged(free, bound): (True, True, False),
        ColumnDefaultChanged(A, replace(A, default="1")): (True, False, False),
        PrimaryKeyChanged((), ("a",)): (False, False, False),
        IndexAdded(ordinary): (True, False, False),
        IndexAdded(unique): (True, True, False),
        IndexDropped(unique): (True, False, False),
        TableRenamed(("d", "a"), ("d", "b")): (True, False, False),
    }
    assert {change: (change.in_place, change.after_rows, change.destructive) for change in costs} == costs
    assert can_be_altered([ColumnAdded(A, None), ColumnRetyped(A, wide)])
    assert not can_be_altered([ColumnAdded(A, None), ColumnRetyped(wide, A)])


@pytest.mark.parametrize(
    ("before", "after", "wider"),
    [
        (INT, BIGINT, True),
        (BIGINT, INT, False),
        (ColumnType("int", unsigned=True), BIGINT, True),
        (ColumnType("int", unsigned=True), INT, False),
        (INT, ColumnType("bigint", unsigned=True), False),
        (ColumnType("varchar", (10,)), ColumnType("varchar", (20,)), True),
        (ColumnType("varchar", (20,)), ColumnType("varchar", (10,)), False),
        (ColumnType("char", (3,)), ColumnType("varchar", (3,)), True),
        (ColumnType("varchar", (3,)), ColumnType("varbinary", (9,)), False),
        (ColumnType("decimal", (10, 2)), ColumnType("decimal", (12, 2)), True),
        (ColumnType("decimal", (10, 2)), ColumnType("decimal", (12, 3)), False),
        (ColumnType("enum", members=("a",)), ColumnType("enum", members=("a", "b")), True),
        (ColumnType("enum", members=("a", "b")), ColumnType("enum", members=("b", "a")), False),
        (ColumnType("datetime"), ColumnType("datetime", (6,)), True),
        (ColumnType("time", (6,)), ColumnType("time", (3,)), False),
        (ColumnType("decimal"), ColumnType("decimal", (10,)), False),
        (ColumnType("vecf32", (3,)), ColumnType("vecf32", (4,)), False),
        (ColumnType("geometry"), ColumnType("geometry", srid=1), False),
        (ColumnType("tinytext"), ColumnType("text"), True),
        (ColumnType("varchar", (20,)), ColumnType("longtext"), True),
        (ColumnType("longtext"), ColumnType("varchar", (20,)), False),
        (ColumnType("varbinary", (20,)), ColumnType("longtext"), False),
        (ColumnType("float"), ColumnType("double"), False),
    ],
)
def test_a_type_is_wider_only_if_it_has_every_value(before: ColumnType, after: ColumnType, wider: bool):
    assert is_wider(before, after) is wider


@pytest.mark.recordings
def test_the_recorded_changes_are_described(recordings: Path):
    def described(first: int, second: int, name: str, later: str | None = None) -> list[str]:
        before = Snapshot(recordings / "ddl" / f"snapshot-{first:03}").tables[name]
        after = Snapshot(recordings / "ddl" / f"snapshot-{second:03}").tables[later or name]
        return [
            change.describe() for change in diff_tables(before, after, create_table_of(before), create_table_of(after))
        ]

    assert described(1, 2, "t1") == ["column c added"]
    assert described(2, 3, "t1") == ["column a dropped"]
    assert described(3, 4, "t1") == [
        "column c renamed to price",
        "column b: varchar(20) becomes varchar(80)",
        "another comment",
    ]
    assert described(4, 5, "t1") == ["column d added", "index ix added"]
    assert described(3, 4, "born", "reborn") == ["renamed from gd_schema.born to gd_schema.reborn"]
    assert described(4, 5, "reborn")[:2] == ["column k dropped", "column v dropped"]


def test_a_column_that_loses_letters_is_not_altered_in_place():
    ascii_only = replace(A, type=ColumnType("varchar", (9,)), charset="ascii")
    every = replace(ascii_only, charset="")
    assert ColumnRetyped(ascii_only, every).in_place
    assert not ColumnRetyped(every, ascii_only).in_place


def test_every_change_can_be_described():
    before = CreateTable("t", (A, B, C), "d", ("a",), comment="x", checks=(CheckConstraint("k", "a > 0"),))
    after = CreateTable(
        "u",
        (replace(C, comment="c"), replace(A, default="1", nullable=False, invisible=True)),
        "e",
        ("c",),
        (Index(IndexKind.KEY, "i", (KeyPart("c"),)),),
        cluster_by=("c",),
    )
    changes = diff(before, after)
    assert [change.describe() for change in changes] == [
        "renamed from d.t to e.u",
        "dropped CONSTRAINT `k` CHECK (a > 0)",
        "column b dropped",
        "column c moved to the front",
        "column c: another comment",
        "column a: NOT NULL",
        "column a: another default",
        "column a: another visibility",
        "primary key (a) becomes (c)",
        "index i added",
        "another comment",
        "other cluster_by",
    ]
    assert ColumnCommentChanged(C, replace(C, comment="c")) in changes
