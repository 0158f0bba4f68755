import pytest

from ccpr.matrixone.definitions import (
    Definitions,
    RowRule,
    SequenceState,
    View,
    definitions_json,
    definitions_of,
    runnable,
    views_in_order,
)


def test_views_come_after_those_that_they_need() -> None:
    views = [View("a", "select * from c"), View("b", "select 1"), View("c", "select * from `B` join shop.b")]
    assert [view.name for view in views_in_order(views)] == ["b", "c", "a"]
    circle = [View("a", "select b from t"), View("b", "select a from t")]  # columns may be called like views
    assert [view.name for view in views_in_order(circle)] == ["a", "b"]


def test_a_sequence_is_made_with_its_value() -> None:
    called = SequenceState("s", "bigint", 12, 1, 99, 10, 2, cycle=False, called=True)
    assert called.statements() == (
        "CREATE SEQUENCE `s` AS bigint INCREMENT BY 2 MINVALUE 1 MAXVALUE 99 START WITH 10 NO CYCLE",
        "SELECT setval('s', 12, false)",
        "SELECT nextval('s')",
    )
    assert SequenceState("s", "int", 7, 1, 9, 1, 1, cycle=True, called=False).statements()[1:] == (
        "SELECT setval('s', 7, false)",
    )
    assert len(SequenceState("s", "int", 1, 1, 9, 1, 1, cycle=True, called=False).statements()) == 1
    assert len(SequenceState("s q'", "int", 7, 1, 9, 1, 1, cycle=True, called=True).statements()) == 1
    assert all(map(runnable, called.statements()))


def test_definitions_are_the_same_after_json_and_others_are_refused() -> None:
    sequence = SequenceState("s", "bigint unsigned", 2**64 - 1, 1, 2**64 - 1, 1, 1, cycle=False, called=True)
    rules = (RowRule("r", "t", "select 1"),)
    made = Definitions("shop", (View("v", "select 1", ("a",), "shop"),), (sequence,), row_rules=rules)
    value = made.to_json()
    assert definitions_of(value | {"of a later release": []}) == (made,)
    several = (made, Definitions("crm", (View("w", "select 2"),)))
    assert definitions_of(definitions_json(several)) == several
    assert not Definitions.from_json(definitions_json(several))  # as an earlier release reads it
    for bad in (7, [7], ["x"], {"shop": value}):
        with pytest.raises((TypeError, ValueError)):
            definitions_of(definitions_json(several) | {"databases": bad})
    for key, bad in {"last": 2**64, "cycle": 1, "type": "int; drop", "name": 7}.items():
        with pytest.raises((TypeError, ValueError)):
            Definitions.from_json(value | {"sequences": [value["sequences"][0] | {key: bad}]})
