"""Several changes of definitions between two points of a simulated upstream, in MariaDB: what is run, what is
reloaded, what waits."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import typer.testing

from ccpr.cli.main import app
from ccpr.pipeline import known_catalog as known_catalogs
from ccpr_emulator.engine import catalog as simulated_catalog
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.storage import Storage
from tests.support.shop import DATABASE, NAME, TARGET, Shop, shop, source_tables

__all__ = ["shop"]
COLUMNS = {"n": "int not null", "v": "varchar(20)"}


def table_ids(shop: Shop) -> dict[str, int]:
    """The server's own ids: another one means that the rows were written again."""
    query = "SELECT name, table_id FROM information_schema.innodb_sys_tables WHERE name LIKE %s"
    found = {name.partition("/")[2]: number for name, number in shop.place.query(query, [f"{shop.place.database}/%"])}
    return {name: number for name, number in found.items() if not name.startswith("ccpr")}


def untouched(shop: Shop) -> list[tuple[Any, ...]]:
    """When rows were last written to two tables, and the server's ids of them."""
    query = (
        "SELECT table_name, update_time FROM information_schema.tables "
        "WHERE table_schema = DATABASE() AND table_name IN ('b', 'still')"
    )
    ids = table_ids(shop)
    return sorted((name, when, ids[name]) for name, when in shop.place.query(query))


def written(shop: Shop) -> list[tuple[str, str, int]]:
    """What a run has done, by name, action and rows; nothing may be behind."""
    outcome = shop.run()
    assert (outcome["error"], outcome["behind"]) == (None, [])
    return sorted((table["table"].partition(".")[2], table["action"], table["upserted"]) for table in outcome["tables"])


def statements_of(shop: Shop, work: Callable[[], Any]) -> list[str]:
    """The statements that change definitions of a user's tables, as the server got them meanwhile."""
    shop.place.query("SET GLOBAL log_output = 'TABLE'")
    shop.place.query("TRUNCATE mysql.general_log")
    shop.place.query("SET GLOBAL general_log = 1")
    try:
        work()
    finally:
        shop.place.query("SET GLOBAL general_log = 0")
    rows = shop.place.query("SELECT argument FROM mysql.general_log WHERE command_type = 'Query' ORDER BY event_time")
    texts = [argument.decode() if isinstance(argument, bytes) else argument for (argument,) in rows]
    ours = f"`{shop.place.database}`."
    return [
        text for text in texts if text.startswith(("CREATE TABLE", "ALTER", "RENAME", "DROP TABLE")) and ours in text
    ]


def test_all_kinds_of_changes_at_once(shop: Shop) -> None:
    for name in ("c", "d", "e", "f"):
        shop.storage.create_table(DATABASE, name, COLUMNS, primary_key=["n"])
        shop.insert(name, *range(100))
    shop.add()
    shop.run()
    before = table_ids(shop)
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        shop.storage.rename_table(DATABASE, old, new)
    shop.storage.drop_table(DATABASE, "c")
    shop.storage.create_table(DATABASE, "c", {"k": "bigint not null", "w": "text"}, primary_key=["k"])
    shop.storage.truncate(DATABASE, "d")
    shop.storage.rename_table(DATABASE, "d", "d2")
    shop.storage.add_column(DATABASE, "e", "w", "int")
    shop.storage.modify_column(DATABASE, "e", "v", "text")
    shop.storage.rename_table(DATABASE, "e", "d")
    shop.storage.rename_column(DATABASE, "f", "v", "u")
    shop.storage.add_column(DATABASE, "f", "v", "varchar(9)", in_place=True)
    shop.storage.rename_table(DATABASE, "f", "e")
    assert written(shop) == [
        ("a", "altered", 0),
        ("b", "altered", 0),
        ("c", "created", 0),
        ("c", "dropped", 0),
        ("d", "rebuilt", 100),
        ("d2", "rebuilt", 0),
        ("e", "altered", 0),
    ]
    shop.assert_equal()
    after = table_ids(shop)
    assert (after["a"], after["b"], after["still"], after["e"]) == (
        before["b"],
        before["a"],
        before["still"],
        before["f"],
    )
    shadows = [name for (name,) in shop.place.query("SHOW TABLES") if name.startswith("ccpr_") and name[-1].isdecimal()]
    assert shadows == []


def _renamed_and_added(storage: Storage) -> None:
    """Another column under the old name of one, in place."""
    storage.rename_column(DATABASE, "a", "v", "w")
    storage.add_column(DATABASE, "a", "v", "varchar(20)", in_place=True)


def _swapped_columns(storage: Storage) -> None:
    storage.add_column(DATABASE, "a", "w", "varchar(20)", in_place=True)
    for old, new in (("v", "x"), ("w", "v"), ("x", "w")):
        storage.rename_column(DATABASE, "a", old, new)


def _moved_and_wider(storage: Storage) -> None:
    entry = storage.table(DATABASE, "a")

    def moved(old):
        columns = old.user_columns
        return replace(old, columns=(columns[1], columns[0], *(column for column in old.columns if column.hidden)))

    storage._redefine(entry, moved)
    storage.modify_column(DATABASE, "a", "v", "varchar(40)")


def _other_index(storage: Storage) -> None:
    storage.drop_index(DATABASE, "a", "i")
    storage.create_index(DATABASE, "a", "i", ["v", "n"], unique=True)


ALTERATIONS: dict[str, Callable[[Storage], None]] = {
    "a column renamed, another added under its old name": _renamed_and_added,
    "a column added, and its name swapped with another's": _swapped_columns,
    "a column moved and made wider": _moved_and_wider,
    "an index of other columns": _other_index,
}


@pytest.mark.parametrize("change", ALTERATIONS)
def test_a_change_in_place_writes_no_row_again(change: str, shop: Shop) -> None:
    if change.startswith("an index"):
        shop.storage.create_index(DATABASE, "a", "i", ["v"])
    shop.add()
    shop.run()
    before = untouched(shop)
    ALTERATIONS[change](shop.storage)
    assert written(shop) == [("a", "altered", 0)]
    shop.assert_equal()
    assert untouched(shop) == before
    if change.startswith("an index"):
        assert "UNIQUE KEY `i` (`v`,`n`)" in shop.create_text("a")
    shop.insert("still", 900)
    assert written(shop) == [("still", "changed", 1)]


def _destructive(storage: Storage) -> None:
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        storage.rename_table(DATABASE, old, new)
    storage.truncate(DATABASE, "a")
    storage.create_index(DATABASE, "b", "i", ["v"])
    storage.drop_table(DATABASE, "gone")
    storage.drop_table(DATABASE, "left")
    storage.rename_table(DATABASE, "kept", "left")
    storage.modify_column(DATABASE, "cast", "v", "varchar(5)")


def test_the_plan_shows_the_statements_as_they_are_run(shop: Shop) -> None:
    for name in ("gone", "left", "kept", "cast"):
        shop.storage.create_table(DATABASE, name, COLUMNS, primary_key=["n"])
        shop.insert(name, 1, 2)
    shop.add()
    shop.run()
    _destructive(shop.storage)
    shop.insert("still", 300)
    plan = shop.command("plan", NAME)["targets"][TARGET]
    planned = [*plan["renames"], *(statement for step in plan["steps"] for statement in step["statements"])]
    assert {step["table"] for step in plan["steps"] if step["destructive"]} == {"d.a", "d.gone", "d.left", "d.cast"}
    text = (
        typer.testing.CliRunner().invoke(app, ["plan", NAME, "--ddl"], catch_exceptions=False).stdout.replace("\n", "")
    )
    assert [statement for statement in planned if statement.replace("\n", "") + ";" not in text] == []
    ran = statements_of(shop, shop.run)
    assert sorted(ran) == sorted(planned)
    assert ran[0] == planned[0]
    assert ran[0].startswith("RENAME TABLE")
    shop.assert_equal()


def test_a_waiting_table_is_shown_with_what_will_be_run_and_catches_up(shop: Shop) -> None:
    shop.add(policy="additive")
    shop.run()
    shop.storage.truncate(DATABASE, "a")
    shop.storage.comment_table(DATABASE, "a", "emptied")
    shop.insert("a", 7)
    shop.insert("still", 300)
    outcome = shop.run()
    (waiting,) = outcome["behind"]
    assert waiting["failure"]["code"] == "TARGET_DDL_WAITS"
    assert len(shop.place.rows("a")) == 100, "its rows stay those of its point"
    assert len(shop.place.rows("still")) == 101
    shop.insert("b", 300)
    shop.run()
    assert len(shop.place.rows("b")) == 101
    (behind,) = shop.status(code=1)["behind"]
    assert behind["statements"] == waiting["statements"]
    shop.command("target", "alter", NAME, TARGET, "--ddl-policy", "full")
    assert statements_of(shop, lambda: written(shop)) == waiting["statements"]
    shop.assert_equal()


def test_a_view_and_a_table_of_another_subscription_are_not_touched(shop: Shop) -> None:
    shop.place.query("CREATE VIEW a AS SELECT 7 AS mine")
    shop.add()
    (behind,) = shop.run()["behind"]
    assert behind["failure"]["code"] == "TARGET_TABLE_FOREIGN"
    assert shop.place.rows("a") == [(7,)]
    shop.place.query("DROP TABLE b")
    shop.place.query("CREATE VIEW b AS SELECT 8 AS mine")
    shop.insert("b", 200)
    assert {table["failure"]["code"] for table in shop.run()["behind"]} == {"TARGET_TABLE_FOREIGN", "SYNC_MARK_EDITED"}
    shop.storage.drop_table(DATABASE, "b")
    shop.run()
    assert shop.place.rows("b") == [(8,)]


def test_a_ddl_text_that_cannot_be_read_concerns_its_table_in_the_target_and_nothing_else(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = simulated_catalog.create_table

    def garbled(definition: Definition, *, published: bool = False) -> str:
        if definition.name == "a":
            return "CREATE TABLE `a` (what 'is' this"
        return original(definition, published=published)

    monkeypatch.setattr(known_catalogs, "catalog_checksum", lambda *_: None)  # which follows from rows, and these stay
    shop.add()
    with monkeypatch.context() as patch:
        patch.setattr(simulated_catalog, "create_table", garbled)
        for number in (300, 301):
            shop.insert("a", number)
            outcome = shop.run()
            assert outcome["error"] is None
            assert [(table["table"], table["failure"]["code"]) for table in outcome["behind"]] == [
                ("d.a", "DDL_UNREADABLE")
            ]
    assert len(shop.command("points", NAME)) == 2, "the mirror has newer points"
    assert shop.tables() == {"b", "still"}
    shop.insert("a", 302)
    assert ("a", "created", 103) in written(shop)
    shop.assert_equal()


def test_what_an_upgrade_of_the_upstream_adds_to_texts_alters_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, collation = simulated_catalog.create_table, {"v": "utf8mb4_bin"}

    def later(definition: Definition, *, published: bool = False) -> str:
        text = original(definition, published=published).replace('"', "'").replace("\n)", "\n) COLLATE=utf8mb4_bin")
        if definition.name == "a":
            text = text.replace("varchar(20)", f"varchar(20) COLLATE {collation['v']}")
        return text

    monkeypatch.setattr(known_catalogs, "catalog_checksum", lambda *_: None)  # which follows from rows, and these stay
    shop.add()
    while shop.command("run", NAME)["point"]:
        pass
    points, ids, known = len(shop.command("points", NAME)), table_ids(shop), source_tables(NAME)["a"].ddl
    monkeypatch.setattr(simulated_catalog, "create_table", later)
    assert shop.command("plan", NAME)["changes"] == []
    assert not shop.command("run", NAME)["point"], "nothing has changed"
    assert len(shop.command("points", NAME)) == points
    shop.insert("a", 300)
    statements = statements_of(shop, lambda: shop.run())
    assert (statements, table_ids(shop), source_tables(NAME)["a"].ddl) == ([], ids, known)
    shop.storage.rename_column(DATABASE, "a", "v", "w")
    statements = statements_of(shop, lambda: shop.run())
    assert [text.partition("RENAME COLUMN")[2] for text in statements] == [" `v` TO `w`"]
    collation["v"] = "utf8mb4_general_ci"
    (change,) = shop.command("plan", NAME)["changes"]
    assert (change["kind"], change["table"]) == ("altered", "d.a")
    assert table_ids(shop) == ids
    shop.run()
    shop.assert_equal()
