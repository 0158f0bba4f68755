"""Which changes of a definition each DDL policy applies."""

from dataclasses import replace

import pytest

from ccpr.matrixone.ddl.definition import ColumnDefinition, ColumnType, CreateTable, Index, IndexKind, KeyPart
from ccpr.matrixone.schema import Kind, Table
from ccpr.schema import table_diff
from ccpr.schema.choices import DdlPolicy
from ccpr.schema.policy import decide
from ccpr.schema.table_changes import CatalogChange, ChangeKind
from ccpr.schema.table_diff import (
    ColumnAdded,
    ColumnAltered,
    ColumnDropped,
    ColumnMoved,
    ColumnNullabilityChanged,
    ColumnRenamed,
    ColumnRetyped,
    DefinitionChange,
    IndexAdded,
    IndexDropped,
    PrimaryKeyChanged,
    TableCommentChanged,
    TableOptionsChanged,
    TableRenamed,
)

A = ColumnDefinition("a", ColumnType("int"))
WIDE = replace(A, type=ColumnType("bigint"))
INDEX = Index(IndexKind.KEY, "i", (KeyPart("a"),))
TABLE = Table(1, 1, "d", "t", Kind.TABLE, ())
ALTERED = CatalogChange(ChangeKind.ALTERED, TABLE, TABLE)


@pytest.mark.parametrize(
    ("step", "additive", "destructive"),
    [
        (ColumnAdded(A, None), True, False),
        (ColumnRetyped(A, WIDE), True, False),
        (ColumnRetyped(WIDE, A), False, True),
        (ColumnNullabilityChanged(A, replace(A, nullable=False)), True, False),
        (IndexAdded(INDEX), True, False),
        (IndexDropped(INDEX), True, False),
        (TableCommentChanged("", "x"), True, False),
        (TableOptionsChanged(CreateTable("t", ()), CreateTable("t", (), cluster_by=("a",))), True, False),
        (ColumnDropped(A), False, True),
        (ColumnRenamed("a", "b"), False, False),
        (ColumnMoved("a", None), False, False),
        (PrimaryKeyChanged((), ("a",)), False, False),
        (TableRenamed(("d", "t"), ("d", "u")), False, False),
    ],
)
def test_each_change_is_applied_or_waits(step: DefinitionChange, additive: bool, destructive: bool):
    found = {policy: decide(policy, ALTERED, [step]) for policy in DdlPolicy}
    assert {policy: decision.applies for policy, decision in found.items()} == {
        DdlPolicy.ADDITIVE: additive,
        DdlPolicy.FULL: True,
        DdlPolicy.MANUAL: False,
    }
    assert all(bool(decision.destructive) is destructive for decision in found.values())
    assert found[DdlPolicy.MANUAL].waiting == (step.describe(),)


@pytest.mark.parametrize(
    ("kind", "additive", "destructive"),
    [(ChangeKind.CREATED, True, False), (ChangeKind.DROPPED, False, True), (ChangeKind.REPLACED, False, True)],
)
def test_each_change_of_a_whole_table_is_applied_or_waits(kind: ChangeKind, additive: bool, destructive: bool):
    change = CatalogChange(kind, TABLE, TABLE)
    assert [decide(policy, change, []).applies for policy in DdlPolicy] == [additive, True, False]
    assert bool(decide(DdlPolicy.FULL, change, []).destructive) is destructive


def test_an_alter_that_copied_the_table_is_not_a_truncate():
    copied = CatalogChange(ChangeKind.REPLACED, TABLE, TABLE)
    decision = decide(DdlPolicy.ADDITIVE, copied, [ColumnAdded(A, None)])
    assert (decision.applies, decision.destructive) == (True, ())


def test_a_truncate_with_a_change_that_copies_nothing_is_still_a_truncate():
    longer = ColumnDefinition("v", ColumnType("varchar", (5,))), ColumnDefinition("v", ColumnType("varchar", (9,)))
    text = longer[0], ColumnDefinition("v", ColumnType("text"))
    change = CatalogChange(ChangeKind.REPLACED, TABLE, replace(TABLE, id=TABLE.id + 1))
    for step in (TableCommentChanged("", "new"), ColumnRetyped(*longer)):
        assert decide(DdlPolicy.ADDITIVE, change, (step,)).waiting, step
        assert decide(DdlPolicy.FULL, change, (step,)).destructive == ("d.t truncated",)
    for step in (ColumnRetyped(*text), ColumnAdded(longer[0], None)):
        assert decide(DdlPolicy.ADDITIVE, change, (TableCommentChanged("", "new"), step)).applies, step


def test_a_table_waits_as_a_whole():
    decision = decide(DdlPolicy.ADDITIVE, ALTERED, [ColumnAdded(A, None), ColumnDropped(A)])
    assert not decision.applies
    assert (decision.waiting, decision.destructive) == (("column a dropped",), ("column a dropped",))


def test_every_change_has_a_place_in_the_policies():
    changes = [
        kind for kind in vars(table_diff).values() if isinstance(kind, type) and issubclass(kind, DefinitionChange)
    ]
    kinds = set(changes) - {DefinitionChange, ColumnAltered}
    assert len(kinds) == 17
    assert all(isinstance(kind.destructive, bool | property) for kind in kinds)
