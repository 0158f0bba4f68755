"""What a database has besides tables: in each point, shown, and written as a script."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ccpr.cli.main import app
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.serving.faults import FailStatement
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command
from tests.support.simulated import SimulatedSource, asked_when_idle, run_sql


class Source(SimulatedSource):
    """Database `shop` with table `t`."""

    def run(self, *statements: str, user: str = "dump") -> list[Any]:
        return run_sql(self.emulator.port, "shop", *statements, user=user)


@pytest.fixture
def source(home: Path) -> Iterator[Source]:
    storage = Storage()
    storage.create_database("shop")
    storage.create_table("shop", "t", {"id": "int not null", "a": "varchar(10)"}, primary_key=["id"])
    storage.create_publication("p", "shop")
    with SimulatedUpstream(storage, password="111") as emulator:
        made = Source(storage, emulator, home, "shop")
        made.run("insert into t values (1, 'x')")
        yield made


def checked(what: str, name: str = "s") -> tuple[str, str]:
    """What the doctor finds upstream."""
    found = {one["what"]: one for one in command("doctor", name)["checks"]}
    return found[what]["result"], found[what]["told"]


def schema(*words: str) -> Any:
    return command("tables", "s", "--ddl", *words)


def test_views_and_sequences_are_in_each_point_as_they_were_at_its_time(source: Source) -> None:
    source.run("create view v1 as select id from t", "create sequence sq start with 10 increment by 2")
    source.run("select nextval('sq')", "select nextval('sq')")
    source.subscribe()
    assert command("run", "s")["point"]
    first = schema()
    assert [view["statements"] for view in first["views"]] == [["CREATE VIEW `shop`.`v1` AS select id from t"]]
    (sequence,) = first["sequences"]
    assert (sequence["last"], sequence["called"], sequence["increment"]) == (12, True, 2)
    assert sequence["statements"][1:] == ["SELECT setval('sq', 12, false)", "SELECT nextval('sq')"]
    source.run("create or replace view v1 as select a from t", "select nextval('sq')", "insert into t values (2, 'y')")
    assert command("run", "s")["point"]
    (view,), (sequence,) = schema()["views"], schema()["sequences"]
    assert (view["query"], sequence["last"]) == ("select a from t", 14)
    assert schema("--at", str(first["lsn"])) == first
    assert schema("v1")["views"] == [view]
    assert schema("sq")["tables"] == []


def test_the_value_of_a_sequence_is_followed_while_nothing_else_changes(source: Source) -> None:
    source.run("create sequence sq", "create sequence other")
    source.subscribe()
    until_idle()
    plain = asked_when_idle(source.emulator)
    for number in (1, 2):
        source.run("select nextval('sq')")
        assert command("run", "s")["point"], "by itself"
        assert not command("run", "s")["point"], "its objects were only merged"
        source.run(f"insert into t values ({10 + number}, 'y')", "select nextval('sq')")
        assert command("run", "s")["point"], "of a catalog that is known to be the last point's"
        values = {one["name"]: (one["type"], one["last"], one["called"]) for one in schema()["sequences"]}
        assert values == {"sq": ("bigint", 2 * number, True), "other": ("bigint", 1, False)}
        assert schema()["unreadable"] == []
        until_idle()
        assert asked_when_idle(source.emulator) == plain
    source.run("select setval('other', 70)")
    assert command("run", "s")["point"]
    assert {one["name"]: one["last"] for one in schema()["sequences"]} == {"sq": 4, "other": 70}
    for one in (source.mirror_folder() / "definitions").iterdir():
        one.chmod(0o600)
        one.write_bytes(b"{")
    source.run("select nextval('other')")
    assert command("run", "s")["point"], "what was is not known"
    assert {one["name"]: one["last"] for one in schema()["sequences"]} == {"sq": 4, "other": 70}


def test_the_values_of_sequences_are_followed_beside_partitions_and_in_several_databases(source: Source) -> None:
    source.run("create table p (id int) partition by hash(id) partitions 2", "create sequence sq")
    source.run("create database lonely", "create sequence lonely.sq", "create database more")
    source.run("create table more.t (id int primary key)", "create sequence more.sq", "create sequence more.s2")
    source.subscribe()
    source.storage.create_publication("everything", "*")
    command("subscribe", "all", "--from", source.uri, "--database", "*", "--allow-overlap")
    until_idle("s"), until_idle("all")
    for database in ("shop", "more", "lonely"):
        source.run(f"use {database}", "select nextval('sq')", "select nextval('sq')")
        assert command("run", "s")["point"] is (database == "shop")
        assert command("run", "all")["point"]
        found = {one["database"]: one["last"] for one in command("schema", "all")["sequences"] if one["name"] == "sq"}
        assert found[database] == 2
        until_idle("s"), until_idle("all")


def until_idle(name: str = "s") -> None:
    """The upstream merges objects until then."""
    for _ in range(5):
        if not command("run", name)["point"]:
            return
    raise AssertionError("it makes points and points")


def test_a_query_of_a_view_says_that_views_are_not_there(source: Source) -> None:
    source.run("create view v1 as select id from t")
    source.subscribe()
    command("run", "s")
    done = CliRunner().invoke(app, ["query", "s", "SELECT * FROM v1", "--json"])
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["message"]) == ("QUERY_FAILED", "v1 is a view upstream, and views are not there")
    assert "`ccpr tables NAME v1`" in error["remedy"]


def test_a_view_alone_makes_a_point_and_an_idle_iteration_asks_nothing_more(source: Source) -> None:
    source.subscribe()
    command("run", "s")
    plain = asked_when_idle(source.emulator)
    assert schema()["views"] == []
    source.run("create view v1 as select id from t", "create sequence sq")
    assert command("run", "s")["point"]
    assert [view["name"] for view in schema()["views"]] == ["v1"]
    assert asked_when_idle(source.emulator) == plain
    source.run("drop view v1")
    assert command("run", "s")["point"]
    assert schema()["views"] == []


def test_a_definition_that_cannot_be_had_is_reported_and_the_tables_go_on(source: Source) -> None:
    source.storage.create_view("shop", "bad", {"a": "int"}, "select 1", create_sql="create view bad as select ';")
    source.run("create view good as select id from t")
    source.subscribe()
    assert command("run", "s")["point"]
    found = schema()
    assert [view["name"] for view in found["views"]] == ["good"]
    (bad,) = found["unreadable"]
    assert (bad["kind"], bad["name"]) == ("view", "bad")
    assert command("status", "s")["last_error"] is None


def test_a_sequence_of_another_account_is_reported_without_its_value(source: Source) -> None:
    source.storage.create_account("acc1")
    source.storage.create_database("shop", account="acc1")
    source.storage.create_table("shop", "t", {"id": "int not null"}, primary_key=["id"], account="acc1")
    source.storage.create_sequence("shop", "sq", account="acc1")
    source.storage.create_publication("p", "shop", account="acc1", accounts=("sys",))
    source.subscribe(publisher="acc1")
    assert command("run", "s")["point"]
    assert schema()["sequences"] == []
    unreadable = [(one["kind"], one["name"]) for one in schema()["unreadable"]]
    assert unreadable == [("sequence", "sq"), ("function", ""), ("grant", ""), ("row rule", "")]
    assert checked("row rules") == ("skipped", "not known: it is of another account, whose rows the login cannot read")


def test_a_subscription_of_one_table_has_no_definitions(source: Source) -> None:
    source.run("create view v1 as select id from t")
    source.subscribe("--table", "t")
    assert command("run", "s")["point"]
    assert schema()["views"] == []


def test_definitions_go_with_their_points_and_into_a_new_state(source: Source, home: Path) -> None:
    source.run("create view v1 as select id from t")
    source.subscribe("--retain", "1")
    command("run", "s")
    folder = home / "home" / "mirrors" / "s" / "definitions"
    (first,) = folder.iterdir()
    source.run("insert into t values (2, 'y')")
    command("run", "s")
    assert list(folder.iterdir()) == [first]  # points that say the same share the file
    source.run("create view v2 as select a from t")
    command("run", "s")
    with closing(sqlite3.connect(home / "home" / "catalog.db")) as catalog:
        waiting = [path for (path,) in catalog.execute("select path from ccpr_garbage")]
        assert f"definitions/{first.name}" in waiting
    before = schema()
    command("state", "adopt", "s")
    assert schema() == before
    command("run", "s")
    assert [view["name"] for view in schema()["views"]] == ["v1", "v2"]
    (newest,) = [file for file in folder.iterdir() if file != first]
    newest.chmod(0o600)
    newest.write_bytes(newest.read_bytes().replace(b"select a", b"select b"))
    assert command("tables", "s", "--ddl", code=1)["error"]["code"] == "MIRROR_DAMAGED"
    assert f"definitions/{newest.name}" in str(command("verify", "s", code=1))


def restored(*words: str) -> Any:
    return command("restore", "s", *words, "--with-definitions", "-")["script"]


def test_the_script_makes_everything_again_in_another_database(source: Source) -> None:
    source.run("create view needed as select id + 1 as n from t", "create view a as select n from needed")
    source.run("create sequence sq start with 10 increment by 2", "select nextval('sq')", "select nextval('sq')")
    source.storage.create_view("shop", "bad", {"a": "int"}, "select 1", create_sql="create view bad as select 1 \\! rm")
    source.subscribe()
    command("run", "s")
    script = restored("--as", "copy")
    assert (script["definitions"], [one["name"] for one in script["left_out"]]) == (3, ["bad"])
    assert "rm" not in script["text"].split()
    source.run("create database copy", "use copy", "create table t (id int primary key, a varchar(10))")
    source.run("use copy", "insert into t values (41, 'z')")
    lines = [line for line in script["text"].splitlines() if not line.startswith("--")]
    statements = [one.strip() for one in "\n".join(lines).split(";\n") if one.strip()]
    source.run(*statements)
    assert source.run("use copy", "select n from copy.a") == [(42,)]
    assert source.run("use copy", "select nextval('sq')") == [(14,)]
    assert "not in it: view bad: " in script["text"]


def test_a_point_without_definitions_gives_a_script_that_says_so(source: Source, tmp_path: Path) -> None:
    source.subscribe()
    command("run", "s")
    file = tmp_path / "script.sql"
    command("restore", "s", "--with-definitions", str(file))
    assert "The point has nothing besides tables." in file.read_text()


def test_functions_of_one_name_are_all_there_in_the_order_of_their_arguments(source: Source) -> None:
    source.storage.functions += [
        (number, "f", 0, f'[{{"name": "x", "type": "{kind}"}}]', "int", "$1", "sql", "shop", "dump")
        for number, kind in enumerate(("varchar", "int", "float"), 1)
    ]
    source.subscribe()
    assert command("run", "s")["point"]
    found = [one["statements"][-1] for one in schema()["functions"]]
    assert found == [
        f"CREATE FUNCTION `shop`.`f` (`x` {kind}) RETURNS int LANGUAGE sql AS '$1'"
        for kind in ("float", "int", "varchar")
    ]


def test_functions_and_grants_of_the_database_are_in_the_point_and_last_in_the_script(source: Source) -> None:
    storage = source.storage
    args = '[{"name": "x", "type": "float"}]'
    storage.functions += [
        (1, "twice", 0, args, "float", "select 'a' + $1", "sql", "shop", "dump"),
        (
            2,
            "py",
            0,
            "[]",
            "int",
            '{"handler": "f", "import": false, "body": "def f(): ..."}',
            "python",
            "shop",
            "d",
        ),
        (3, "file", 0, "[]", "int", '{"handler": "f", "import": true, "body": "f.py"}', "python", "shop", "d"),
        (4, "bad", 0, '[{"name": "x", "type": "int); drop table t; --"}]', "int", "1", "sql", "shop", "d"),
        (5, "elsewhere", 0, "[]", "int", "1", "sql", "other", "d"),
    ]
    shop, table = storage.database("shop").id, storage.table("shop", "t").id
    when = "2026-01-01 00:00:00"
    storage.role_privileges += [
        (2, "r1", "table", table, 30, "select", "d.t", 1, when, 0),
        (2, "r1", "table", shop, 30, "table all", "d.*", 1, when, 1),
        (2, "public", "database", shop, 21, "create view", "d", 1, when, 0),
        (2, "r1", "table", 7, 30, "select", "d.t", 1, when, 0),
        (2, "r1", "database", shop, 30, "select; drop table t", "d", 1, when, 0),
    ]
    source.subscribe()
    assert command("run", "s")["point"]
    found = schema()
    assert [one["name"] for one in found["functions"]] == ["py", "twice"]
    assert [one["statements"][-1] for one in found["grants"]] == [
        "GRANT create view ON DATABASE `shop` TO `public`",
        "GRANT all ON TABLE `shop`.* TO `r1` WITH GRANT OPTION",
        "GRANT select ON TABLE `shop`.`t` TO `r1`",
    ]
    assert [(one["kind"], one["name"]) for one in found["unreadable"]] == [
        ("function", "file"),
        ("function", "bad"),
        ("grant", ""),
    ]
    text = restored("--as", "copy")["text"]
    statements = [line for line in text.splitlines() if line not in ("", ";") and not line.startswith("--")]
    assert statements == [
        "USE `copy`;",
        "CREATE FUNCTION `copy`.`py` () RETURNS int LANGUAGE python AS 'def f(): ...' HANDLER 'f'",
        "CREATE FUNCTION `copy`.`twice` (`x` float) RETURNS float LANGUAGE sql AS 'select ''a'' + $1'",
        "GRANT create view ON DATABASE `copy` TO `public`",
        "CREATE ROLE IF NOT EXISTS `r1`",
        "GRANT all ON TABLE `copy`.* TO `r1` WITH GRANT OPTION",
        "CREATE ROLE IF NOT EXISTS `r1`",
        "GRANT select ON TABLE `copy`.`t` TO `r1`",
    ]


def test_a_part_of_a_database_has_no_definitions(source: Source) -> None:
    source.run("create view v1 as select id from t")
    source.subscribe("--tables", "t*")
    assert command("run", "s")["point"]
    assert schema()["views"] == []


RULE = r"select * from shop.t where a = 'it''s; \\'"
RULED = ("warning", "roles have some on shop.t: whoever reads the replica sees every row")


def add_rules(storage: Storage) -> None:
    """Of two roles for `t`, and of a role and a table that are gone, as DROP ROLE and DROP TABLE leave them."""
    storage.roles += [(2, "r`1", 0, 0, None, ""), (3, "public", 0, 0, None, "")]
    storage.row_rules += [
        (3, "shop.t", "select 1"),
        (2, "shop.t", RULE),
        (7, "shop.u", "select 7"),
        (2, "shop.gone", "select 8"),
        (2, "other.t", "select 9"),
    ]


def test_row_rules_of_roles_are_in_the_point_in_the_status_and_last_in_the_script(source: Source) -> None:
    source.run("create table u (id int primary key)")
    source.subscribe()
    command("run", "s")
    plain = asked_when_idle(source.emulator)
    assert command("status", "s")["row_rules"] == schema()["row_rules"] == []
    assert checked("row rules") == ("ok", "none of a role on these tables")
    add_rules(source.storage)
    assert checked("row rules") == RULED, "it asks"
    assert asked_when_idle(source.emulator) == plain
    source.run("insert into u values (1)")
    assert command("run", "s")["point"]
    assert command("status", "s")["row_rules"] == ["shop.t"]
    shown = " ".join(CliRunner().invoke(app, ["status", "s"]).stdout.split())
    assert "row rules shop.t: whoever reads this replica sees every row" in shown
    found = schema()["row_rules"]
    assert [(one["role"], one["object"], one["rule"]) for one in found] == [
        ("public", "t", "select 1"),
        ("r`1", "t", RULE),
    ]
    script = restored("--as", "copy")
    assert script["definitions"] == 2
    lines = [line for line in script["text"].splitlines() if line not in ("", ";")]
    assert lines[2:] == [
        "USE `copy`;",
        "ALTER ROLE `public` ADD RULE 'select 1' ON TABLE `copy`.`t`",
        "-- The next row rule names database shop, which is copy here: change it where it is meant.",
        "CREATE ROLE IF NOT EXISTS `r``1`",
        r"ALTER ROLE `r``1` ADD RULE 'select * from shop.t where a = ''it''''s; \\\\''' ON TABLE `copy`.`t`",
    ]
    source.run("create database copy", *(line for line in lines if not line.startswith("--")))
    source.run("alter table t rename to w", "insert into u values (2)")
    assert command("run", "s")["point"]
    assert command("status", "s")["row_rules"] == schema()["row_rules"] == [], "a rule stays with the name"


def test_row_rules_on_tables_that_are_left_out_are_not_said(source: Source) -> None:
    add_rules(source.storage)
    source.run("create table u (id int primary key)")
    source.subscribe("--tables", "t*")
    source.subscribe("--exclude-tables", "t", "--allow-overlap", name="without")
    source.subscribe("--table", "u", "--allow-overlap", name="single")
    for name, ruled in {"s": ["shop.t"], "without": [], "single": []}.items():
        assert command("run", name)["point"]
        assert command("status", name)["row_rules"] == ruled
        assert (checked("row rules", name) == RULED) is bool(ruled)


def test_row_rules_are_said_of_each_of_several_databases(source: Source) -> None:
    source.run("create database more")
    source.storage.create_table("more", "T2", {"id": "int not null"}, primary_key=["id"])
    add_rules(source.storage)
    source.storage.row_rules.append((2, "more.t2", b"\xff"))
    source.storage.create_publication("everything", "*")
    command("subscribe", "s", "--from", source.uri, "--database", "*")
    command("run", "s")
    assert command("status", "s")["row_rules"] == ["more.T2", "shop.t"]
    assert "on more.T2, shop.t: whoever" in checked("row rules")[1]
    assert [(one["database"], one["object"]) for one in schema()["row_rules"]] == [("shop", "t")] * 2
    (problem,) = schema()["unreadable"]
    assert (problem["database"], problem["kind"], problem["name"]) == ("more", "row rule", "on T2")


@pytest.mark.parametrize(
    ("number", "text", "why"),
    [
        (1064, 'SQL parser error: table "mo_role_rule" does not exist', ""),
        (20101, "internal error: do not have privilege to execute the statement", "20101"),
        (20301, "invalid input: column rule_name does not exist", "20301"),
    ],
)
def test_row_rules_that_cannot_be_read_stop_nothing(source: Source, number: int, text: str, why: str) -> None:
    add_rules(source.storage)
    source.subscribe()
    command("run", "s")
    source.emulator.inject(FailStatement("select_mo_role_rule", number, text, times=0))
    source.run("insert into t values (5, 'z')")
    assert command("run", "s")["point"]
    assert [(one["kind"], why in one["reason"]) for one in schema()["unreadable"]] == [("row rule", True)] * bool(why)
    assert command("status", "s")["row_rules"] == (["shop.t"] if why else []), "as it was known last"
    assert checked("row rules")[0] == ("skipped" if why else "ok")
