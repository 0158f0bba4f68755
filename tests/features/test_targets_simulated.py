"""A simulated upstream synced to MariaDB: each kind of DDL by itself, and what an operator or another user does with a
target."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import typer.testing

from ccpr.base.errors import Failure
from ccpr.base.progress import Progress
from ccpr.cli.main import app
from ccpr.matrixone.objects.invalid_text import escaped
from ccpr.pipeline.copying import copy_in_process
from ccpr.pipeline.driver import drive
from ccpr.pipeline.options import IterationOptions
from ccpr.schema.sync_mark import MARK
from ccpr.service.target_sync import sync_targets
from ccpr.service.workspace import Workspace
from ccpr.state.database import transaction
from ccpr.state.tables import targets
from ccpr_emulator.engine.storage import Storage
from tests.support.mariadb import uri_from
from tests.support.shop import DATABASE, NAME, TARGET, Shop, shop

pytestmark = pytest.mark.long

__all__ = ["shop"]


def _swap(storage: Storage) -> None:
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        storage.rename_table(DATABASE, old, new)


def _replace_swapped(storage: Storage) -> None:
    """Two tables change places, and one of them is truncated."""
    _swap(storage)
    storage.truncate(DATABASE, "a")


def _onto_the_dropped(storage: Storage) -> None:
    storage.drop_table(DATABASE, "b")
    storage.rename_table(DATABASE, "a", "b")


def _recreated(storage: Storage) -> None:
    storage.drop_table(DATABASE, "a")
    storage.create_table(DATABASE, "a", {"k": "bigint not null", "w": "text"}, primary_key=["k"])


CHANGES: dict[str, tuple[Callable[[Storage], Any], dict[str, tuple[str, int]]]] = {
    "truncate": (lambda s: s.truncate(DATABASE, "a"), {"a": ("rebuilt", 0)}),
    "rename": (lambda s: s.rename_table(DATABASE, "a", "renamed"), {"renamed": ("altered", 0)}),
    "copying alter": (lambda s: s.add_column(DATABASE, "a", "c", "int"), {"a": ("rebuilt", 100)}),
    "column added in place": (lambda s: s.add_column(DATABASE, "a", "c", "int", in_place=True), {"a": ("altered", 0)}),
    "column dropped in place": (lambda s: s.drop_column(DATABASE, "b", "v", in_place=True), {"b": ("altered", 0)}),
    "column renamed": (lambda s: s.rename_column(DATABASE, "a", "v", "w"), {"a": ("altered", 0)}),
    "comment": (lambda s: s.comment_table(DATABASE, "a", "it's new"), {"a": ("altered", 0)}),
    "two names swapped": (_swap, {"a": ("altered", 0), "b": ("altered", 0)}),
    "swapped and truncated": (_replace_swapped, {"a": ("rebuilt", 0), "b": ("altered", 0)}),
    "renamed to a dropped one's name": (_onto_the_dropped, {"b": ("dropped", 0)}),
    "dropped and created again": (_recreated, {"a": ("dropped", 0)}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_reaches_the_target_without_a_row_lost_or_an_unaffected_table_reloaded(
    change: str, shop: Shop
) -> None:
    shop.add()
    assert shop.actions() == dict.fromkeys(("a", "b", "still"), ("created", 100))
    apply, expected = CHANGES[change]
    apply(shop.storage)
    assert shop.actions().items() >= expected.items()
    shop.assert_equal()
    assert not any(name.startswith(("ccpr_gone", "ccpr_between")) for (name,) in shop.place.query("SHOW TABLES"))
    shop.insert("still", 500)
    assert shop.actions() == {"still": ("changed", 1)}
    shop.assert_equal()


def test_rows_and_a_new_column_come_together(shop: Shop) -> None:
    shop.add()
    shop.run()
    shop.storage.add_column(DATABASE, "a", "c", "int", in_place=True)
    shop.insert("a", 200, 201, c=[1, None])
    assert shop.actions() == {"a": ("altered", 2)}
    shop.assert_equal()


def test_progress_is_called_with_each_target_and_with_the_rows_that_are_read(shop: Shop) -> None:
    steps, named, read, copied = [], [], [], []
    progress = Progress(
        on_step=lambda step: steps.append(step.label),
        on_target=named.append,
        on_rows=lambda rows, size: read.append((rows, size)),
        on_bytes=copied.append,
    )
    shop.add()
    with Workspace() as workspace, workspace.iteration(NAME, IterationOptions(progress=progress)) as iteration:
        outcome = drive(iteration, partial(copy_in_process, on_progress=progress.on_bytes)).ended
        sync_targets(workspace, iteration, progress=progress)
    assert steps[0] == "init"
    assert "outcome" in steps
    assert sum(copied) == outcome.bytes_copied
    assert named == [TARGET]
    assert sum(rows for rows, _ in read) == 300
    assert all(size > 0 for _, size in read)
    shop.assert_equal()


def test_the_password_is_sealed_and_shown_nowhere(shop: Shop) -> None:
    password = shop.place.server.password
    assert password not in str(shop.add())
    shop.run()
    assert password not in str(shop.command("target", "list", NAME)) + str(shop.command("status", NAME))
    with Workspace() as workspace, transaction(workspace.log.engine) as connection:
        stored = str(connection.execute(targets.select()).all())
    assert "sealed" not in stored
    assert password not in stored


def test_a_target_is_shown_and_synced_by_its_name(shop: Shop) -> None:
    shop.add()
    assert shop.command("target", "sync", NAME, TARGET)["lsn"] is None, "there is no point yet"
    shop.run()
    (known,) = shop.command("target", "status", NAME)
    assert (known["target"], known["kind"], known["lsn"], known["last_error"]) == (TARGET, "database", 0, None)
    assert known["lag_seconds"] is not None
    shop.insert("a", 700)
    assert shop.command("target", "sync", NAME, TARGET)["lsn"] in (0, None), "the upstream is not asked"
    assert shop.command("target", "status", NAME, "nothing", code=1)["error"]["code"] == "TARGET_MISSING"


def test_a_target_at_the_newest_point_is_not_asked(shop: Shop) -> None:
    shop.add()
    while (document := shop.command("run", NAME))["point"]:  # what was flushed for the first is the second
        pass
    (outcome,) = document["targets"]
    assert (outcome["lsn"], outcome["error"]) == (None, None)
    assert shop.status()["lsn"] == shop.command("points", NAME)[-1]["lsn"]


def test_a_target_that_is_away_stops_nothing_and_is_synced_later(shop: Shop) -> None:
    shop.add()
    shop.run()
    shop.insert("a", 200)
    shop.place.server.kill()
    try:
        assert shop.run(code=1)["error"]["code"] == "TARGET_UNAVAILABLE"
        assert shop.command("points", NAME)[-1]["lsn"] == 1, "the mirror's point is committed"
        assert shop.run(code=1)["error"]["code"] == "TARGET_UNAVAILABLE", (
            "tried again, though nothing has changed upstream"
        )
        status = shop.status(code=1)
        error = status["last_error"]
        assert (error["code"], error["attempts"], status["lsn"]) == ("TARGET_UNAVAILABLE", 2, 0)
        assert status["lag_seconds"] > shop.command("status", NAME, code=1)["lag_seconds"] - 1
        (listed,) = shop.command("subscriptions")[0]["targets"]
        assert (listed["name"], listed["state"], listed["lsn"]) == (TARGET, "failing", 0)
        assert listed["lag_seconds"] == pytest.approx(status["lag_seconds"], abs=30)
        assert listed["last_error"]["code"] == "TARGET_UNAVAILABLE"
        assert listed["next_attempt"] is not None
        shown = " ".join(typer.testing.CliRunner().invoke(app, ["subscriptions"]).stdout.split())
        assert "failing" in shown
    finally:
        shop.place.server.start()
    assert shop.actions() == {"a": ("changed", 1)}
    shop.assert_equal()
    assert shop.status()["last_error"] is None


@pytest.mark.parametrize("change", ["row", "rename"])
def test_a_table_that_was_dropped_in_the_target_is_reported_and_not_touched(change: str, shop: Shop) -> None:
    shop.add()
    shop.run()
    shop.place.query("DROP TABLE a")
    shop.insert("a", 200)
    if change == "rename":
        shop.storage.rename_table(DATABASE, "a", "c")
        shop.storage.rename_table(DATABASE, "b", "e")
    shop.insert("still", 200)
    for _ in range(2):
        (behind,) = shop.run()["behind"]
        assert behind["failure"]["code"] == "TARGET_TABLE_DROPPED"
        assert shop.tables() == {"b" if change == "row" else "e", "still"}, "it is not made again by itself"
    assert len(shop.place.rows("still")) == 101
    assert [table["failure"]["code"] for table in shop.status(code=1)["behind"]] == ["TARGET_TABLE_DROPPED"]


def test_a_foreign_table_of_that_name_is_not_touched(shop: Shop) -> None:
    shop.place.query("CREATE TABLE a (mine int)")
    shop.place.query("INSERT INTO a VALUES (7)")
    shop.add()
    (behind,) = shop.run()["behind"]
    assert (behind["table"], behind["failure"]["code"]) == ("d.a", "TARGET_TABLE_FOREIGN")
    assert shop.place.rows("a") == [(7,)]
    shop.assert_equal(but=("a",))


def test_a_table_waits_for_a_name_that_a_waiting_table_has(shop: Shop) -> None:
    shop.add(policy="additive")
    shop.run()
    shop.storage.drop_table(DATABASE, "a")
    shop.storage.create_table(DATABASE, "a", {"n": "int not null", "v": "text"}, primary_key=["n"])
    shop.insert("still", 300)
    codes = sorted(table["failure"]["code"] for table in shop.run()["behind"])
    assert codes == ["TARGET_DDL_WAITS", "TARGET_NAME_TAKEN"]
    assert len(shop.place.rows("a")) == 100
    shop.command("target", "alter", NAME, TARGET, "--ddl-policy", "full")
    shop.run()
    shop.assert_equal()


def test_a_released_table_is_an_ordinary_one_and_stays_as_it_is(shop: Shop) -> None:
    shop.add()
    shop.run()
    assert MARK in shop.create_text("a")
    assert (
        shop.command("target", "release", NAME, "--table", "d.nothing", code=1)["error"]["code"]
        == "TARGET_TABLE_UNKNOWN"
    )
    (released,) = shop.command("target", "release", NAME, "--table", "d.a")
    assert released == {"target": TARGET, "table": f"{shop.place.database}.a", "left_out": []}
    assert MARK not in shop.create_text("a")
    shop.place.query("INSERT INTO a VALUES (-1, 'mine')")
    shop.insert("a", 200)
    shop.insert("b", 200)
    assert shop.actions() == {"b": ("changed", 1)}
    shop.storage.truncate(DATABASE, "a")  # by which it gets another id
    assert shop.actions() == {}
    assert len(shop.place.rows("a")) == 101
    shop.assert_equal(but=("a",))
    shop.status()


def test_a_target_whose_tables_are_synced_is_not_forgotten_by_mistake(shop: Shop) -> None:
    shop.add()
    assert shop.add(code=1)["error"]["code"] == "TARGET_EXISTS"
    shop.run()
    assert shop.command("target", "remove", NAME, TARGET, code=1)["error"]["code"] == "TARGET_IN_USE"
    assert shop.command("drop", NAME, code=1)["error"]["code"] == "TARGET_IN_USE"
    assert len(shop.command("target", "release", NAME)) == 3
    shop.insert("a", 200)
    assert shop.command("run", NAME)["targets"] == [], "nothing is synced there any more"
    assert len(shop.place.rows("a")) == 100
    shop.command("target", "remove", NAME, TARGET)
    assert shop.command("target", "list", NAME) == []
    shop.command("drop", NAME)


def test_the_points_from_which_a_target_continues_are_retained(shop: Shop) -> None:
    shop.command("alter", NAME, "--retain", "1")
    shop.add(policy="additive")
    shop.run()
    shop.storage.rename_table(DATABASE, "a", "c")
    for number in range(3):
        shop.insert("c", 200 + number)
        shop.insert("still", 200 + number)
        shop.run()
    assert [point["lsn"] for point in shop.command("points", NAME)] == [0, 1, 2, 3], "a waits there"
    shop.command("target", "alter", NAME, TARGET, "--ddl-policy", "full")
    assert shop.actions() == {"c": ("altered", 3)}
    shop.assert_equal()
    shop.insert("b", 200)
    shop.run()
    shop.insert("b", 201)
    shop.run()
    assert [point["lsn"] for point in shop.command("points", NAME)] == [5, 6], (
        "the newest, and the one at which the target was before"
    )
    shop.insert("still", 300)  # was changed last before what is kept
    shop.run()
    shop.assert_equal()


def test_a_targets_decimal_is_widened_when_a_longer_value_comes(shop: Shop) -> None:
    columns = {"n": "int not null", "e": "decimal(4,2)", "v": "varchar(20)"}
    shop.storage.create_table(DATABASE, "c", columns, primary_key=["n"], unchecked=["e"])
    shop.insert("c", 1, e=[Decimal("1.5")])
    shop.add(policy="additive")
    assert shop.run()["behind"] == []
    assert "`e` decimal(4,2)" in shop.create_text("c")
    shop.insert("c", 2, e=[Decimal("-123456.78")])
    assert shop.run()["behind"] == []
    assert "`e` decimal(8,2)" in shop.create_text("c")
    assert shop.place.query("SELECT n, e FROM c ORDER BY n") == [(1, Decimal("1.50")), (2, Decimal("-123456.78"))]


@pytest.mark.parametrize(("how", "found"), [("escape", escaped(b"\xff\x00\xfe")), ("replace", "\ufffd\x00\ufffd")])
def test_a_target_gets_text_that_is_not_utf8_as_the_subscription_says(shop: Shop, how: str, found: str) -> None:
    with shop.storage.begin() as transaction:
        transaction.insert(DATABASE, "a", {"n": [1000], "v": [escaped(b"\xff\x00\xfe")]})
    shop.command("alter", NAME, "--invalid-text", how)
    shop.add()
    shop.run()
    assert shop.place.query("SELECT v FROM a WHERE n = 1000") == [(found,)]


def test_a_table_with_text_that_is_refused_stays_behind_in_the_target_alone(shop: Shop) -> None:
    with shop.storage.begin() as transaction:
        transaction.insert(DATABASE, "a", {"n": [1000], "v": [escaped(b"\xff")]})
    shop.command("alter", NAME, "--invalid-text", "error")
    shop.add()
    (late,) = shop.run(code=3)["behind"]
    assert "VALUE_REFUSED" in json.dumps(late)
    assert shop.tables() >= {"b", "still"}


def test_a_negative_zero_is_a_zero_in_the_target(shop: Shop) -> None:
    shop.add()
    shop.storage.create_table(DATABASE, "z", {"n": "int not null", "d": "double"}, primary_key=["n"])
    with shop.storage.begin() as transaction:
        transaction.insert(DATABASE, "z", {"n": [1, 2], "d": [-0.0, 0.0]})
    shop.run()
    shop.assert_equal()
    assert shop.place.query("SELECT n, CAST(d AS CHAR) FROM z ORDER BY n") == [(1, "0"), (2, "0")]
    with shop.storage.begin() as transaction:
        transaction.update(DATABASE, "z", {"d": -0.0})
    shop.run()
    shop.assert_equal()


def test_a_run_whose_target_has_tables_behind_ends_with_an_exit_code_of_its_own(shop: Shop) -> None:
    shop.add()
    shop.run(code=0)
    shop.place.query("DROP TABLE a")
    shop.insert("a", 500)
    assert [table["table"] for table in shop.run(code=3)["behind"]] == [f"{DATABASE}.a"]
    assert [table["table"] for table in shop.run(code=3)["behind"]] == [f"{DATABASE}.a"], "idle iterations, too"
    shop.command("target", "rebuild", NAME, TARGET, "a", code=0)
    shop.run(code=0)


def test_a_failing_target_that_gets_another_address_is_not_waited_for(shop: Shop) -> None:
    shop.add()
    with Workspace() as workspace:
        records = workspace.of(NAME).targets
        records.record_failure(records.get(TARGET), Failure("X", "it fails", "target", "look"), datetime.now(UTC))
        assert not records.lagging(datetime.now(UTC), 3600)
        to = uri_from(shop.place.uri, "TARGET_PASSWORD")
        shop.command("target", "alter", NAME, TARGET, "--to", to)
        assert records.lagging(datetime.now(UTC), 3600)


def test_a_target_has_zero_dates_as_they_are(shop: Shop) -> None:
    columns = {"d": "date not null", "dt": "datetime(6)", "ts": "timestamp"}
    shop.storage.create_table(DATABASE, "z", columns, primary_key=["d"])
    moments = pa.array([-62_135_596_800_000_001, None], pa.int64())
    with shop.storage.begin() as transaction:
        rows = {
            "d": pa.array([-719_163, 0], pa.int32()).view(pa.date32()),
            "dt": moments.view(pa.timestamp("us")),
            "ts": moments.view(pa.timestamp("us", "UTC")),
        }
        transaction.insert(DATABASE, "z", rows)
    shop.add()
    assert shop.run()["behind"] == []
    found = shop.place.query("SELECT CAST(d AS CHAR), CAST(dt AS CHAR), CAST(ts AS CHAR) FROM z ORDER BY d")
    zero = "0000-00-00 00:00:00.000000"
    assert found == [("0000-00-00", zero, zero), ("1970-01-01", None, None)]


def test_a_target_follows_changes_of_rows_whose_key_has_zero_dates(shop: Shop) -> None:
    columns = {"d": "date not null", "ts": "timestamp(6) not null", "n": "int"}
    shop.storage.create_table(DATABASE, "z", columns, primary_key=["d", "ts"])
    zero_day, zero_moment = -719_163, -62_135_596_800_000_001

    def insert(days: list[int], moments: list[int], numbers: list[int]) -> None:
        with shop.storage.begin() as transaction:
            rows = {
                "d": pa.array(days, pa.int32()).view(pa.date32()),
                "ts": pa.array(moments, pa.int64()).view(pa.timestamp("us", "UTC")),
                "n": numbers,
            }
            transaction.insert(DATABASE, "z", rows)

    insert([zero_day, zero_day, 0, 0], [zero_moment, 0, zero_moment, 0], [1, 2, 3, 4])
    shop.add()
    assert shop.run()["behind"] == []
    insert([1], [zero_moment], [5])
    with shop.storage.begin() as transaction:
        transaction.delete(DATABASE, "z", pc.field("n") == 1)
        transaction.update(DATABASE, "z", {"n": 30}, pc.field("n") == 3)
    assert shop.run()["behind"] == []
    found = shop.place.query("SELECT CAST(d AS CHAR), CAST(ts AS CHAR), n FROM z ORDER BY n")
    zero, epoch = "0000-00-00 00:00:00.000000", "1970-01-01 00:00:00.000000"
    assert found == [
        ("0000-00-00", epoch, 2),
        ("1970-01-01", epoch, 4),
        ("1970-01-02", zero, 5),
        ("1970-01-01", zero, 30),
    ]


def test_a_target_keeps_its_tables_if_all_are_gone_at_once_until_that_is_approved(shop: Shop) -> None:
    shop.add()
    shop.run()
    rows = {name: shop.place.rows(name) for name in ("a", "b", "still")}
    for name in rows:
        shop.storage.drop_table(DATABASE, name)
    shop.storage.create_table(DATABASE, "new", {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])
    shop.insert("new", 1, 2)
    for code in (3, 3):  # with the point, and with an idle iteration
        behind = shop.run(code=code)["behind"]
        assert {one["table"]: one["failure"]["code"] for one in behind} == dict.fromkeys(
            ("d.a", "d.b", "d.still"), "TARGET_DROPS_HELD"
        )
    assert "3 of the target's 4 tables" in behind[0]["failure"]["message"]
    assert "ccpr target approve" in behind[0]["failure"]["remedy"]
    assert not shop.status(code=1)["next_attempt"], "nothing is tried again"
    assert {name: shop.place.rows(name) for name in rows} == rows
    assert len(shop.place.rows("new")) == 2, "rows of other tables go on"
    done = shop.command("target", "approve", NAME, TARGET)
    assert {table["table"] for table in done["tables"] if table["action"] == "dropped"} == {"d.a", "d.b", "d.still"}
    shop.assert_equal()
    assert shop.status()["behind"] == []
    error = shop.command("target", "approve", NAME, TARGET, code=1)["error"]
    assert error["code"] == "TARGET_TABLE_UNKNOWN"


def test_the_limit_of_drops_is_a_setting_of_the_target(shop: Shop) -> None:
    assert shop.add("--max-drop", "0")["max_drop"] == 0
    shop.run()
    shop.storage.drop_table(DATABASE, "a")
    assert [one["failure"]["code"] for one in shop.run(code=3)["behind"]] == ["TARGET_DROPS_HELD"]
    (step,) = shop.command("plan", NAME)["targets"][TARGET]["steps"]
    assert (step["action"], step["failure"]["code"]) == ("wait", "TARGET_DROPS_HELD")
    assert shop.command("target", "alter", NAME, TARGET, "--max-drop", "1")["max_drop"] == 1
    assert shop.run(code=0)["behind"] == []
    shop.assert_equal()
    assert shop.command("target", "alter", NAME, TARGET, "--max-drop", "many", code=2)["error"]["code"] == "BAD_SETTING"
    assert shop.command("target", "alter", NAME, TARGET, "--max-drop", "half")["max_drop"] == "half"
    shop.command("target", "alter", NAME, TARGET, "--max-drop", "100")
    for name in ("b", "still"):
        shop.storage.drop_table(DATABASE, name)
    assert shop.run(code=0)["behind"] == []
    shop.assert_equal()
