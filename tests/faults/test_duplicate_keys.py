"""Two visible rows with one primary key, as LOAD DATA of the upstream leaves them, and a target with that key."""

import re
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pyarrow.compute as pc
import pytest

from tests.support.shop import DATABASE, Shop, shop

__all__ = ["shop"]


def load(shop: Shop, rows: dict[int, str], table: str = "a") -> None:
    """As LOAD DATA: keys are not checked."""
    engine = "ccpr_emulator.engine.transaction"
    with (
        patch(f"{engine}.unique_keys", return_value=[]),
        patch(f"{engine}.FEW_ROWS", 0),
        shop.storage.begin() as change,
    ):
        change.insert(DATABASE, table, {"n": list(rows), "v": list(rows.values())})


def delete(shop: Shop, value: str) -> None:
    with shop.storage.begin() as transaction:
        transaction.delete(DATABASE, "a", pc.field("v") == value)


def rows(shop: Shop) -> dict[int, str]:
    return dict(shop.place.query("SELECT n, v FROM a"))


FIRST = {number: f"v{number}" for number in range(100)}


def _at_the_load(shop: Shop) -> None:
    load(shop, {5: "again"})


def _with_an_old_row(shop: Shop) -> None:
    shop.command("run", "shop")
    load(shop, {5: "again"})


def _both_new(shop: Shop) -> None:
    shop.command("run", "shop")
    load(shop, {500: "one"})
    load(shop, {500: "two"})


CASES: dict[str, tuple[Callable[[Shop], Any], int, dict[int, str]]] = {
    "at the load": (_at_the_load, 5, {5: "again"}),
    "with a row that the target has": (_with_an_old_row, 5, {5: "again"}),
    "both new": (_both_new, 500, {500: "two"}),
}


@pytest.mark.parametrize("case", CASES)
def test_two_rows_of_one_key_are_an_error_that_names_both_and_the_other_tables_go_on(case: str, shop: Shop) -> None:
    shop.add()
    make, key, _ = CASES[case]
    make(shop)
    before = rows(shop) if "a" in shop.tables() else None
    shop.insert("still", 900)
    for _ in range(2):
        (entry,) = shop.run(code=3)["behind"]
        failure = entry["failure"]
        assert (entry["table"], failure["code"]) == (f"{DATABASE}.a", "TARGET_DUPLICATE_KEYS")
        assert f"n = {key}" in failure["message"]
        objects = re.findall(r"row \d+ of block \d+ of object ([0-9a-f-]+_\d+)", failure["message"])
        assert len(objects) == 2
        assert "--duplicate-keys last" in failure["remedy"]
        assert (900,) in shop.place.query("SELECT n FROM still")
        assert before is None or rows(shop) == before
    delete(shop, "again" if key == 5 else "two")
    assert shop.run()["behind"] == []
    assert rows(shop) == (FIRST if key == 5 else {**FIRST, 500: "one"})


@pytest.mark.parametrize("case", CASES)
def test_of_two_rows_of_one_key_the_later_counts_if_that_is_wanted(case: str, shop: Shop) -> None:
    shop.add("--duplicate-keys", "last")
    make, key, changed = CASES[case]
    make(shop)
    expected = {**FIRST, **changed}
    assert shop.run()["behind"] == []
    assert rows(shop) == expected
    load(shop, {key: "third", 7: "seven"})
    assert shop.run()["behind"] == []
    assert rows(shop) == {**expected, key: "third", 7: "seven"}
    shop.storage.flush(DATABASE, "a")
    shop.storage.merge(DATABASE, "a")
    delete(shop, "seven")
    assert shop.run()["behind"] == []
    assert rows(shop) == {**expected, key: "third"}, "the earlier row counts again"
    delete(shop, "third")
    assert shop.run()["behind"] == []
    assert rows(shop) == expected
    load(shop, {7: "v7"})
    delete(shop, "v7")
    assert shop.run()["behind"] == []
    assert rows(shop) == {number: text for number, text in expected.items() if number != 7}


def test_last_can_be_set_when_a_table_waits_and_not_be_taken_back(shop: Shop) -> None:
    shop.add()
    _with_an_old_row(shop)
    assert [entry["table"] for entry in shop.run(code=3)["behind"]] == [f"{DATABASE}.a"]
    altered = shop.command("target", "alter", "shop", "db", "--duplicate-keys", "last")
    assert altered["duplicate_keys"] == "last"
    assert shop.run()["behind"] == []
    assert rows(shop) == {**FIRST, 5: "again"}
    error = shop.command("target", "alter", "shop", "db", "--duplicate-keys", "error", code=2)["error"]
    assert error["code"] == "BAD_SETTING"


def test_rows_that_somebody_wrote_to_the_target_are_overwritten_as_before(shop: Shop) -> None:
    shop.add()
    shop.run()
    shop.place.query("INSERT INTO a VALUES (700, 'theirs')")
    shop.place.query("COMMIT")
    shop.insert("a", 700)
    assert shop.run()["behind"] == []
    assert rows(shop)[700] == "v700"


def test_verify_says_which_keys_the_source_has_twice_and_that_the_replica_is_right(shop: Shop) -> None:
    shop.command("run", "shop")
    assert shop.command("verify", "shop", "--deep")["source_defects"] == []
    load(shop, {5: "again", 7: "again"})
    shop.command("run", "shop")
    found = shop.command("verify", "shop", "--deep")
    assert found["sound"]
    assert [(one["table"], one["keys"]) for one in found["source_defects"]] == [(f"{DATABASE}.a", 2)]
    assert found["source_defects"][0]["example"] in ({"n": "5"}, {"n": "7"})
    assert "source_defects" not in shop.command("verify", "shop")
