"""Rows in the program's own tables of a target that another user wrote: nothing that they ask for is run."""

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from ccpr.matrixone.errors import CcprError
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.intents import Intents
from tests.targets.history import FIRST, RENAMED, WIDER, keys, rows
from tests.targets.target_database import Part, Place, load_part

pytestmark = pytest.mark.integration

_EVIL = "DROP TABLE precious"


@pytest.fixture
def begun(place: Place, live: DatabaseTarget) -> Place:
    """A change that was begun and cut: `t` gets the column `w`. And a table that is not ours."""
    place.query("CREATE TABLE precious (a int)")
    cut(lambda: live.alter([place.table(WIDER)]))
    live.close()
    return place


def cut(act: Callable[[], Any]) -> None:
    with patch.object(Intents, "_continue", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        act()


def edit_intent(place: Place, edit: Callable[[dict[str, Any]], Any]) -> None:
    ((text,),) = place.query("SELECT `change` FROM ccpr_intents")
    value = json.loads(text)
    edit(value)
    place.query("UPDATE ccpr_intents SET `change` = %s", [json.dumps(value)])
    place.query("COMMIT")


def definitions(place: Place) -> list[Any]:
    return [place.query(f"SHOW CREATE TABLE `{name}`") for name in ("t", "precious")]


def code_of(act: Callable[[], Any]) -> str:
    with pytest.raises(CcprError) as raised:
        act()
    return raised.value.code


def _created(text: str) -> Callable[[dict[str, Any]], None]:
    """The definition and the statement are edited alike."""

    def edit(change: dict[str, Any]) -> None:
        table = change["tables"][0]
        assert "`w` int(11)" in table["create"] or "`w` int" in table["create"]
        table["create"] = table["create"].replace("`w` int DEFAULT NULL", f"`w` {text}")
        change["statements"] = [one.replace("`w` int DEFAULT NULL", f"`w` {text}") for one in change["statements"]]

    return edit


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a statement is added": lambda change: change["statements"].append(_EVIL),
    "a statement is another": lambda change: change.update(statements=[_EVIL]),
    "a drop by name": lambda change: change.update(
        kind="drop", statements=["DROP TABLE IF EXISTS precious"], tables=[], gone=[1], loaded=[1]
    ),
    "an unknown kind": lambda change: change.update(kind="run"),
    "a default that is an expression": _created("int DEFAULT (sleep(0))"),
    "a type that our definition does not have": _created("bigint DEFAULT NULL"),
    "another table's id": lambda change: change["tables"][0]["source"].update(id=77),
    "another database": lambda change: change["tables"][0].update(database="mysql"),
    "names that are not text": lambda change: change.update(names=[[1, 2]]),
    "too many statements have run": lambda change: change.update(statements=[]),
    "it may fail": lambda change: change.update(optional=[0]),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_intent_that_is_not_ours_is_an_error_and_nothing_of_it_runs(begun: Place, name: str) -> None:
    edit_intent(begun, EDITS[name])
    before = definitions(begun)
    assert code_of(begun.target().open) in ("TARGET_REGISTRY_EDITED", "STATE_UNREADABLE")
    assert definitions(begun) == before
    begun.query("DELETE FROM ccpr_intents")  # as the remedy says
    begun.query("COMMIT")
    with begun.target() as target:
        target.alter([begun.table(WIDER)])
        assert target.apply(1, [Part(rows([3], ["c"], [3]), keys())], Location(1, 20)).upserted == 1


def test_an_intent_that_somebody_inserts_is_an_error(place: Place, live: DatabaseTarget) -> None:
    place.query("CREATE TABLE precious (a int)")
    live.close()
    forged = {"kind": "drop", "statements": [_EVIL], "state": "live"}
    forged |= {key: [] for key in ("names", "tables", "points", "gone", "loaded")}
    place.query(
        "INSERT INTO ccpr_intents VALUES ('x', 'task', %s, 0, '', '')",
        [json.dumps(forged)],
    )
    place.query("COMMIT")
    assert code_of(live.open) == "TARGET_REGISTRY_EDITED"
    assert place.query("SHOW TABLES LIKE 'precious'") == [("precious",)]


def _alter(place: Place, target: DatabaseTarget) -> None:
    target.alter([place.table(RENAMED)])


def _replace(place: Place, target: DatabaseTarget) -> None:
    target.create(place.table(FIRST.replace("`t`", "`t2`"), 2), [load_part([9], ["z"])], Location(1, 20), replaces=[1])


CHANGES: dict[str, Callable[[Place, DatabaseTarget], Any]] = {
    "alter": _alter,
    "replace": _replace,
    "create": lambda place, target: target.create(
        place.table(FIRST.replace("`t`", "`s`"), 3), [load_part([9], ["z"])], Location(1, 20)
    ),
    "drop": lambda _, target: target.drop([1]),
    "release": lambda _, target: target.release(1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_was_begun_is_made_again_from_our_own_data_and_completed(
    place: Place, live: DatabaseTarget, change: str
) -> None:
    cut(lambda: CHANGES[change](place, live))
    live.close()
    live.open()
    assert place.query("SELECT * FROM ccpr_intents") == []
    assert live.stuck() == {}
    tables = {name for (name,) in place.query("SHOW TABLES") if not name.startswith("ccpr_")}
    assert tables == {"alter": {"t2"}, "replace": {"t2"}, "create": {"t", "s"}, "drop": set()}.get(change, {"t"})


def _registered(place: Place, column: str, value: str) -> None:
    place.query(f"UPDATE ccpr_registry SET `{column}` = %s", [value])
    place.query("COMMIT")


@pytest.mark.parametrize("name", ["precious", "nobody_has_it"])
def test_a_name_in_the_registry_that_no_point_of_ours_has_is_not_touched(
    place: Place, live: DatabaseTarget, name: str
) -> None:
    place.query(f"CREATE TABLE `{name}` (id int primary key) COMMENT '[ccpr: is_being_synced]'")
    live.close()
    ((text,),) = place.query("SELECT create_text FROM ccpr_registry")
    _registered(place, "create_text", text.replace("`t` (", f"`{name}` ("))
    _registered(place, "table_name", name)
    with place.target() as target:
        for act in (
            lambda: target.drop([1]),
            lambda: target.release(1),
            lambda: target.apply(1, [], Location(1, 20)),
            lambda: target.alter([place.table(WIDER)]),
        ):
            assert code_of(act) == "TARGET_REGISTRY_EDITED"
    assert place.query(f"SHOW TABLES LIKE '{name}'") == [(name,)]


def test_an_expression_in_the_registry_is_not_run_at_the_release(place: Place, live: DatabaseTarget) -> None:
    live.close()
    _registered(place, "suspended", json.dumps({"checks": [["evil", "`id` < 0 OR sleep(0) = 0"]]}))
    with place.target() as target:
        target.release(1)
    assert "evil" not in place.query("SHOW CREATE TABLE t")[0][1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ENGINE=InnoDB", "ENGINE=MyISAM"),
        ("ENGINE=InnoDB", "ENGINE=FEDERATED CONNECTION='mysql://x@127.0.0.1:1/a/b'"),
        ("COLLATE=utf8mb4_nopad_bin", "COLLATE=`utf8mb4_bin ROW_FORMAT=COMPRESSED`"),
        ("`v` varchar(20)", "`v` varchar(20) COLLATE `utf8mb4_bin NOT NULL`"),
        ("DEFAULT NULL", "GENERATED ALWAYS AS (sleep(0)) VIRTUAL"),
    ],
)
def test_a_definition_in_the_registry_that_no_synced_table_has_is_an_error(
    place: Place, live: DatabaseTarget, old: str, new: str
) -> None:
    live.close()
    ((text,),) = place.query("SELECT create_text FROM ccpr_registry")
    assert old in text, text
    _registered(place, "create_text", text.replace(old, new))
    assert code_of(live.open) == "STATE_UNREADABLE"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("source", "[" * 100_000),
        ("source", "{}"),
        ("source", "null"),
        ("erased", "[]"),
        ("suspended", '"x"'),
        ("state", "gone"),
        ("table_schema", "mysql"),
        ("columns_there", "[1]"),
    ],
)
def test_values_of_the_registry_that_this_program_does_not_write_are_an_error(
    place: Place, live: DatabaseTarget, column: str, value: str
) -> None:
    live.close()
    _registered(place, column, value)

    def use() -> None:
        live.open()
        live.apply(1, [], Location(1, 20))

    assert code_of(use) in ("STATE_UNREADABLE", "TARGET_REGISTRY_EDITED")
