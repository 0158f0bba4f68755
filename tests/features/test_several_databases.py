"""Several databases of an account as one subscription: what it has, what it asks for upstream, and what it cannot."""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import typer.testing

import ccpr
from ccpr.cli.main import app
from ccpr.dagster.events import definitions_metadata
from ccpr.dagster.table_specs import load_subscriptions
from ccpr.dagster.target_tables import report_target_tables
from ccpr.matrixone.client.database_definitions import VIEW
from ccpr.service.workspace import Workspace
from ccpr.state.history import PointHistory
from ccpr.state.patterns import ALL_NAMES, NamePatterns
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.mariadb import MariaDb, uri_from
from tests.support.meanwhile import once_before
from tests.support.replica import command
from tests.support.simulated import asked_when_idle, rows
from tests.support.target_rows import target_rows
from tests.targets.target_database import Place, new_database

COLUMNS = {"id": "int not null", "v": "varchar(20)"}
DATABASES = ("crm", "shop_1", "shop_2")


@dataclass
class Source:
    """An account with several databases, each with tables `item` and `order_1`, all of them published by `p`."""

    storage: Storage
    emulator: SimulatedUpstream
    home: Path
    account: str

    @property
    def uri(self) -> str:
        return f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{self.emulator.port}"

    def subscribe(self, *options: str, name: str = "s", code: int = 0) -> Any:
        return command("subscribe", name, "--from", self.uri, *options, code=code)

    def create(self, database: str, table: str) -> None:
        self.storage.create_table(database, table, COLUMNS, primary_key=["id"], account=self.account)
        self.insert(database, table, 1, 2)

    def create_database(self, database: str) -> None:
        self.storage.create_database(database, account=self.account)
        for table in ("item", "order_1"):
            self.create(database, table)

    def insert(self, database: str, table: str, *ids: int) -> None:
        values = [f"{database} {table} {number}" for number in ids]
        with self.storage.begin(self.account) as transaction:
            transaction.insert(database, table, {"id": list(ids), "v": values})

    def assert_equal(self, databases: str = "", tables: NamePatterns = ALL_NAMES, name: str = "s") -> None:
        """The newest point has the tables that match, with the upstream's rows of the present."""
        now, chosen = self.storage.now, NamePatterns.of(databases)
        there = {
            (entry.database.name, definition.name)
            for entry, definition in self.storage.tables_at(now, account=self.account)
            if chosen.match(entry.database.name) and tables.match(definition.name)
        }
        mirror = ccpr.open_mirror(self.home / "home" / "mirrors" / name)
        assert {info.name for info in mirror.tables() if info.kind == "table"} == {".".join(pair) for pair in there}
        for database, table in there:
            expected = self.storage.rows_at(database, table, now, account=self.account)
            assert rows(mirror.table(f"{database}.{table}").to_arrow()) == rows(expected), (database, table)

    def snapshots(self) -> set[str]:
        """The accounts that have any."""
        return {account for account, _ in self.storage.snapshots}


@dataclass
class Target:
    """A database of a MariaDB as the target `name` of subscription `s`."""

    name: str
    place: Place
    uri: str

    def assert_equal(self, source: Source, database: str) -> None:
        """It has the tables of the database, with the upstream's rows of the present, and no others."""
        now = source.storage.now
        names = {
            definition.name
            for entry, definition in source.storage.tables_at(now, account=source.account)
            if entry.database.name == database
        }
        found = {name for (name,) in self.place.query("SHOW TABLES") if not name.startswith("ccpr_")}
        assert found == names
        with Workspace() as workspace:
            row = workspace.log.row("s")
            points = PointHistory(workspace.log.engine, row.task_id).tables(row.iteration_lsn).values()
        tables = {point.table.name: point.table for point in points if point.table.database == database}
        for name in names:
            shown = target_rows(self.place.server, self.place.database, name, tables[name].user_columns)
            assert rows(shown) == rows(source.storage.rows_at(database, name, now, account=source.account)), name


@pytest.fixture(params=["acc1", "sys"])
def source(home: Path, request: pytest.FixtureRequest) -> Iterator[Source]:
    storage = Storage()
    if request.param != "sys":
        storage.create_account(request.param)
        storage.create_database("other")
        storage.create_table("other", "t", COLUMNS, primary_key=["id"])
    with SimulatedUpstream(storage, password="111") as emulator:
        made = Source(storage, emulator, home, request.param)
        for database in DATABASES:
            made.create_database(database)
        storage.create_publication("p", "*", account=made.account)
        yield made


only_acc1 = pytest.mark.parametrize("source", ["acc1"], indirect=True)


def test_all_databases_of_an_account_are_of_one_time(source: Source) -> None:
    source.subscribe("--account", source.account)
    command("run", "s")
    source.assert_equal()
    source.insert("shop_1", "item", 7)
    source.insert("crm", "order_1", 7, 8)
    source.create_database("late")
    command("run", "s")
    source.assert_equal()
    source.storage.drop_database("shop_2", account=source.account)
    source.storage.rename_table("crm", "item", "thing", account=source.account)
    command("run", "s")
    source.assert_equal()
    source.create_database("shop_2")  # again, so another one
    source.insert("shop_2", "item", 9)
    command("run", "s")
    source.assert_equal()
    while command("run", "s")["point"]:
        pass
    source.insert("late", "item", 5)
    assert command("run", "s")["tables_changed"] == 1
    source.assert_equal()


def test_patterns_choose_databases_and_tables_of_them(source: Source) -> None:
    source.subscribe("--database", "shop_*,CRM", "--publisher", source.account, "--exclude-tables", "order_*")
    source.create_database("shap")
    command("run", "s")
    source.assert_equal("shop_*,crm", NamePatterns.of("", "order_*"))
    source.create_database("shop_3")
    source.insert("shap", "item", 5)
    command("run", "s")
    source.assert_equal("shop_*,crm", NamePatterns.of("", "order_*"))
    while command("run", "s")["point"]:
        pass
    source.insert("shap", "item", 6)
    source.insert("shop_1", "order_1", 6)
    assert not command("run", "s")["point"]  # what is left out costs no point
    command("alter", "s", "--databases", "shop_1,sh?p", "--exclude-tables", "")
    planned = command("plan", "s")
    kinds = {(change["kind"], change["table"]) for change in planned["changes"]}
    assert {("created", "shap.item"), ("created", "shop_1.order_1"), ("left_scope", "crm.item")} <= kinds
    command("run", "s", "--plan", planned["id"])
    source.assert_equal("shop_1,sh?p")
    command("alter", "s", "--databases", "*")
    command("run", "s")
    source.assert_equal()


@only_acc1
def test_it_is_shown_as_what_it_is(source: Source) -> None:
    source.storage.create_view("crm", "v", {"id": "int"}, "select 1 as id", create_sql="", account="acc1")
    source.subscribe("--account", "acc1", "--database", "shop_*,crm", "--tables", "item")
    command("run", "s")
    (listed,) = command("subscriptions")
    assert (listed["database"], listed["tables"], listed["publisher"]) == ("shop_*,crm", "tables item", "acc1")
    (shown,) = command("sql", "SHOW SUBSCRIPTIONS")[0]["rows"]
    assert (shown["database"], shown["tables"]) == ("shop_*,crm", "tables item")
    level = "SELECT sync_level, db_name FROM mo_sync_configs"
    assert command("sql", level)[0]["rows"] == [{"sync_level": "account", "db_name": "*"}]
    status = command("status", "s")
    assert status["scope"] == "shop_*,crm of account acc1 (tables item)"
    left_out = {one["name"]: one["reason"] for one in status["not_replicated"]}
    assert left_out == {
        "crm.v": "it has no rows; points of whole databases have its definition (`ccpr tables --ddl`)",
        **{f"{name}.order_1": "the patterns of the subscription exclude it" for name in DATABASES},
    }
    tables = [table["table"] for table in command("tables", "s")["tables"]]
    assert tables == [f"{name}.item" for name in DATABASES]
    schema = command("tables", "s", "--ddl")
    assert [table["table"] for table in schema["tables"]] == tables
    assert (schema["views"], schema["unreadable"]) == ([], [])
    doctor = {check["what"]: check["told"] for check in command("doctor", "s")["checks"]}
    assert doctor["publication"] == (
        "acc1.p covers shop_*,crm of account acc1 (tables item) and admits the login; physical: object files are "
        "copied, through publication acc1.p"
    )
    assert doctor["databases"] == "3: crm, shop_1, shop_2"
    assert doctor["tables"] == "6 tables, 3 of them match: tables item; not replicated: crm.v (view)"


@only_acc1
def test_rows_are_read_by_the_full_name(source: Source) -> None:
    source.subscribe("--account", "acc1")
    source.create("crm", "single")
    command("run", "s")
    assert command("query", "s", "shop_2.item")["rows"][0] == {"id": 1, "v": "shop_2 item 1"}
    assert command("query", "s", "single")["table"] == "crm.single"
    error = command("query", "s", "item", code=1)["error"]
    assert error["code"] == "TABLE_NOT_IN_POINT"
    assert "crm.item, shop_1.item, shop_2.item" in error["remedy"]
    joined = "select a.v, b.v as w from crm.item a join shop_2.item b using (id) order by id"
    assert command("query", "s", joined)["rows"][1] == {"v": "crm item 2", "w": "shop_2 item 2"}
    assert "crm.item" in command("query", "s", "select * from item", code=1)["error"]["remedy"]
    found = command("tables", "s", "--ddl", "crm.item")["tables"]
    assert [one["table"] for one in found] == ["crm.item"]
    assert command("verify", "s")["sound"]
    assert command("resync", "s", "--table", "crm.item", "--yes")["outcome"]
    assert command("resync", "s", "--table", "item", "--yes", code=1)["error"]["code"] == "TABLE_NOT_IN_POINT"
    source.assert_equal()


@pytest.mark.parametrize("counted", [True, False])
def test_index_tables_are_those_of_the_points_time(source: Source, *, counted: bool) -> None:
    """`counted`: whether the upstream counts the definition's version when an index comes."""

    def create_index() -> None:
        storage.create_index("shop_1", "item", "by_v", ["v"], account=account)
        if not counted:
            entry = storage.table("shop_1", "item", account=account)
            tick, made = entry.definitions[-1]
            entry.definitions[-1] = (tick, replace(made, version=made.version - 1))

    def index_tables() -> int:
        return [info.kind for info in mirror.tables()].count("index")

    storage, account = source.storage, source.account
    source.subscribe("--account", account, "--with-indexes")
    storage.create_index("crm", "item", "by_v", ["v"], account=account)
    command("run", "s")
    mirror = ccpr.open_mirror(source.home / "home" / "mirrors" / "s")
    assert index_tables() == 1
    with once_before("FOR DATABASE `shop_1`", create_index):
        command("run", "s")  # with a second snapshot
    assert index_tables() == 2
    with once_before("FOR DATABASE `shop_1`", lambda: storage.drop_index("shop_1", "item", "by_v", account=account)):
        command("run", "s")
    assert index_tables() == 1
    source.assert_equal()


def described(found: dict[str, Any], kind: str) -> list[tuple[str, str]]:
    return [(one["database"], one["name"]) for one in found[kind]]


def test_views_sequences_and_functions_of_each_database_are_in_each_point(source: Source) -> None:
    storage, account, mine = source.storage, source.account, source.account == "sys"
    for database in ("crm", "shop_1"):
        query = f"select id from {database}.item"
        text = f"create view v as {query}"
        storage.create_view(database, "v", {"id": "int"}, query, create_sql=text, account=account)
    storage.create_sequence("crm", "sq", start=10, increment=2, account=account)
    storage.functions.append((1, "f", 0, "[]", "int", "select 1", "sql", "shop_2", "dump"))
    item = storage.table("shop_1", "item", account=account).id
    storage.role_privileges.append((2, "r", "table", item, 30, "select", "d.t", 1, "2026-01-01 00:00:00", 0))
    source.subscribe("--account", account)
    first = command("run", "s")["lsn"]
    found = command("tables", "s", "--ddl")
    assert described(found, "views") == [("crm", "v"), ("shop_1", "v")]
    assert found["views"][1]["statements"] == ["CREATE VIEW `shop_1`.`v` AS select id from shop_1.item"]
    unreadable = {(one["kind"], one["database"], one["name"]) for one in found["unreadable"]}
    if mine:
        assert unreadable == set()
        assert [(one["database"], one["name"], one["last"]) for one in found["sequences"]] == [("crm", "sq", 10)]
        assert described(found, "functions") == [("shop_2", "f")]
        assert [(one["database"], one["object"]) for one in found["grants"]] == [("shop_1", "item")]
    else:
        whole = {(kind, database, "") for kind in ("function", "grant", "row rule") for database in DATABASES}
        assert unreadable == whole | {("sequence", "crm", "sq")}
        assert (found["sequences"], found["functions"], found["grants"]) == ([], [], [])
    assert command("tables", "s", "--ddl", "crm.v")["views"] == found["views"][:1]
    assert command("tables", "s", "--ddl", "v", code=1)["error"]["code"] == "TABLE_NOT_IN_POINT"  # there are two
    asked = asked_when_idle(source.emulator)
    storage.drop_relation("crm", "v", VIEW, account=account)
    assert command("run", "s")["point"]
    assert described(command("tables", "s", "--ddl"), "views") == [("shop_1", "v")]
    assert asked_when_idle(source.emulator) == asked
    assert command("tables", "s", "--ddl", "--at", str(first)) == found
    assert command("verify", "s")["sound"]
    storage.drop_database("shop_1", account=account)
    command("run", "s")
    assert described(command("tables", "s", "--ddl"), "views") == []


@only_acc1
def test_the_script_of_a_database_has_what_belongs_to_it(source: Source) -> None:
    for database in ("crm", "shop_1"):
        name = f"in_{database}"
        text = f"create view {name} as select 1"
        source.storage.create_view(database, name, {"a": "int"}, "select 1", create_sql=text, account="acc1")
    source.storage.create_sequence("crm", "sq", account="acc1")
    source.subscribe("--account", "acc1")
    command("run", "s")
    script = command("restore", "s", "--database", "crm", "--as", "copy", "--with-definitions", "-")["script"]
    assert script["definitions"] == 1
    assert "CREATE VIEW `copy`.`in_crm` AS select 1" in script["text"]
    assert "in_shop_1" not in script["text"]
    assert [one.rpartition(": ")[0] for one in script["text"].splitlines() if "not in it" in one] == [
        "-- not in it: sequence sq",
        "-- not in it: functions",
        "-- not in it: grants",
        "-- not in it: row rules",
    ]
    shown = typer.testing.CliRunner().invoke(app, ["schema", "s"], catch_exceptions=False).stdout
    assert "CREATE VIEW `shop_1`.`in_shop_1` AS select 1;" in shown
    assert shown.count("not known: functions: it is of another account") == 1
    assert shown.count("not known: sequence crm.sq: it is of another account") == 1
    with Workspace() as workspace:
        mirror = workspace.mirror("s")
        ((_, table),) = definitions_metadata(mirror.definitions(mirror.point())).items()
    records = [record.data for record in table.records]
    assert [(one["database"], one["name"]) for one in records if one["kind"] == "view"] == [
        ("crm", "in_crm"),
        ("shop_1", "in_shop_1"),
    ]


def test_nothing_stays_upstream_of_one_that_is_dropped(source: Source) -> None:
    source.subscribe("--account", source.account)
    command("run", "s")
    source.insert("crm", "item", 3)
    command("run", "s")
    assert source.snapshots() == {"sys", source.account}
    found = command("snapshots", "s")
    assert {(one["role"], one["exists"]) for one in found} == {("current", True), ("previous", True)}
    command("drop", "s", "--purge", "--yes")
    assert source.storage.snapshots == {}
    assert not (source.home / "home" / "mirrors" / "s").exists()


@only_acc1
def test_a_lost_snapshot_of_an_account_is_found_though_its_marker_cannot_be_listed(source: Source) -> None:
    source.subscribe("--account", "acc1")
    command("run", "s")
    name = command("snapshots", "s")[0]["name"]
    lost = f"{name.rpartition('_')[0]}_abcdefa"
    source.storage.create_snapshot(lost, account="sys", level="account", database="acc1")
    found = {one["name"]: one["role"] for one in command("snapshots", "s")}
    assert found == {name: "current", lost: "lost"}
    assert [one["name"] for one in command("snapshots", "s", "--lost")] == [name]
    assert ("sys", name) in source.storage.snapshots
    assert ("sys", lost) not in source.storage.snapshots


def refused(source: Source, *options: str, code: int = 1) -> dict[str, Any]:
    error = source.subscribe(*options, name="other", code=code)["error"]
    assert [one["name"] for one in command("subscriptions")] in ([], ["s"])
    return error


@only_acc1
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--database", "shop_*", "--table", "item"), "one table is of one database, and several are named"),
        (("--database", "shop_1,,crm"), "databases is 'shop_1,,crm', not patterns joined by commas: one is empty"),
    ],
)
def test_what_only_one_database_can_have_is_refused(source: Source, options: tuple[str, ...], text: str) -> None:
    error = refused(source, *options, code=2)
    assert (error["code"], error["message"]) == ("BAD_SETTING", text)


@only_acc1
def test_databases_that_are_not_there_are_refused(source: Source) -> None:
    for wanted, message in {
        "shop_1,crn": "account acc1 has no database crn",
        "shap_*": "account acc1 has no database that matches shap_*",
        "crm,mo_catalog": "databases of the system are not replicated",
        "": "account acc1 has no database ",
    }.items():
        error = refused(source, "--database", wanted)
        assert (error["code"], error["message"]) == ("DATABASE_MISSING", message)
    source.subscribe("--database", "shop_1")
    error = command("alter", "s", "--databases", "shop_*", code=2)["error"]
    assert (error["code"], error["message"]) == ("BAD_SETTING", "a subscription to one database stays that")


@only_acc1
def test_what_is_published_has_to_be_the_whole_account(source: Source) -> None:
    storage = source.storage
    storage.drop_publication("p", account="acc1")
    storage.create_publication("q", "crm", account="acc1")
    run = "As admin of account acc1: CREATE PUBLICATION `pub_all` DATABASE * ACCOUNT sys;"
    error = refused(source, "--account", "acc1")
    assert (error["code"], error["subject"], error["remedy"]) == (
        "PUBLICATION_MISSING",
        "all databases of the account",
        run,
    )
    error = refused(source, "--database", "shop_*")
    assert error["remedy"] == run.replace("account acc1", "account <the databases' account>")
    error = refused(source, "--account", "acc1", "--publication", "q")
    assert error["code"] == "NOT_COVERED"
    assert error["message"] == "the publication covers crm (*), not all databases of the account"
    assert "CREATE PUBLICATION `q_all` DATABASE * ACCOUNT sys." in error["remedy"]
    assert refused(source, "--account", "acc2")["code"] == "ACCOUNT_MISSING"
    storage.create_account("acc2")
    storage.create_publication("p", "*", accounts=["acc2"], account="acc1")
    error = refused(source, "--account", "acc1")
    assert (error["code"], error["remedy"]) == (
        "NOT_PERMITTED",
        "As admin of account acc1: ALTER PUBLICATION `p` ACCOUNT ADD `sys`.",
    )
    storage.alter_publication("p", accounts=["sys"], account="acc1")
    storage.create_publication("p", "*", account="acc2")
    assert refused(source, "--database", "shop_*")["code"] == "PUBLICATION_AMBIGUOUS"
    source.subscribe("--database", "shop_*", "--account", "acc1")


@only_acc1
def test_the_same_table_twice_is_refused(source: Source) -> None:
    source.subscribe("--database", "shop_*", "--account", "acc1", "--tables", "item")
    for options in (("--account", "acc1"), ("--database", "shop_1"), ("--database", "shop_1", "--table", "item")):
        error = refused(source, *options)
        assert (error["code"], "shop_* of account acc1 (tables item)" in error["message"]) == ("SCOPE_OVERLAP", True)
    source.subscribe("--database", "crm", "--account", "acc1", name="one")
    source.subscribe("--database", "shop_1", "--tables", "order_*", name="orders")
    source.subscribe("--database", "x,shap*", "--account", "acc1", name="no", code=1)
    for options in (("--databases", "*"), ("--tables", "")):
        assert command("alter", "s", *options, code=1)["error"]["code"] == "SCOPE_OVERLAP"
    command("alter", "s", "--databases", "shop_*,more")


@only_acc1
def test_what_works_with_one_database_only_says_so(source: Source) -> None:
    source.subscribe("--account", "acc1")
    command("run", "s")
    target = command("target", "add", "s", "t", "--to", "mysql://root:x@127.0.0.1:1/d", code=1)["error"]
    follower = command("follower", "add", "s", "--into", "mysql://sys#root:x@127.0.0.1:1", code=1)["error"]
    restored = command("restore", "s", "--into", "mysql://sys#root:x@127.0.0.1:1", code=1)["error"]
    for error in (target, follower, restored):
        assert error["code"] == "SEVERAL_DATABASES"
    assert restored["remedy"] == "Name one with --database: crm, shop_1, shop_2."
    unknown = command("restore", "s", "--database", "x", "--with-definitions", "-", code=1)["error"]
    assert unknown["code"] == "TABLE_NOT_IN_POINT"


@only_acc1
def test_statements_have_the_same_settings(source: Source) -> None:
    command("sql", f"CREATE SUBSCRIPTION s ACCOUNT acc1 FROM '{source.uri}' WITH (TABLES = 'item')")
    command("run", "s")
    source.assert_equal("", NamePatterns.of("item"))
    command("sql", "ALTER SUBSCRIPTION s SET (DATABASES = 'crm,shop_*', TABLES = '')")
    command("run", "s")
    source.assert_equal("crm,shop_*")
    command("drop", "s", "--purge", "--yes")
    command("sql", f"CREATE SUBSCRIPTION s ACCOUNT FROM '{source.uri}' PUBLICATION p OF acc1 WITH (DATABASES = 'crm')")
    command("run", "s")
    source.assert_equal("crm")
    error = command("sql", f"CREATE SUBSCRIPTION a ACCOUNT acc1 FROM '{source.uri}' PUBLICATION p OF acc1", code=2)
    assert error["error"]["code"] == "SQL_SYNTAX"


@only_acc1
def test_a_file_has_the_same_settings(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    file = source.home / "ccpr.yaml"
    text = f"""
upstreams: {{main: {{uri: "mysql://sys#dump@127.0.0.1:{source.emulator.port}", password: "${{UPSTREAM_PASSWORD}}"}}}}
subscriptions:
  s: {{upstream: main, publisher: acc1, databases: "shop_*"}}
"""

    def apply(content: str, code: int = 0) -> Any:
        file.write_text(content)
        return command("config", "apply", "-f", str(file), "--yes", code=code)

    first = source.home / "first.yaml"
    options = ("--from", source.uri, "--name", "s", "-f", str(first))
    assert (
        command("config", "init", "--database", "shop_*", "--to", "mysql://u@h/d", *options, code=2)["error"]["code"]
        == "USAGE"
    )
    command("config", "init", "--database", "shop_*", *options)
    command("config", "apply", "-f", str(first))
    assert apply(text)["unchanged"] == 1
    command("run", "s")
    source.assert_equal("shop_*")
    apply(text.replace("shop_*", "*"))
    command("run", "s")
    source.assert_equal()
    assert apply(text.replace("shop_*", "*"))["unchanged"] == 1
    for change in ("database: crm", "databases: '*', with_indexes: true"):
        apply(text.replace('databases: "shop_*"', change), code=2)
    for change, message in {
        "databases: '*', targets: {t: {uri: 'mysql://u:p@h/d'}}": "it must name its `database`",
        "databases: '*', followers: {f: {uri: 'mysql://sys#u:p@h:1'}}": "several databases has no followers",
    }.items():
        assert message in apply(text.replace('databases: "shop_*"', change), code=2)["error"]["message"]
    command("alter", "s", "--databases", "shop_*,crm")
    exported = source.home / "exported.yaml"
    command("config", "export", "-f", str(exported))
    assert "databases: shop_*,crm" in exported.read_text()
    for name in re.findall(r"export (\w+)=", exported.read_text()):
        monkeypatch.setenv(name, "111")
    assert command("config", "apply", "-f", str(exported), "--yes")["unchanged"] == 1


@only_acc1
def test_the_state_can_be_moved(source: Source) -> None:
    source.subscribe("--account", "acc1", "--database", "shop_*")
    command("run", "s")
    source.insert("shop_1", "item", 3)
    command("run", "s")
    home, old, file = source.home / "home", source.home / "old", source.home / "state.json"
    command("state", "export", "s", "--out", str(file))
    home.rename(old)
    home.mkdir()
    (old / "mirrors").rename(home / "mirrors")
    command("state", "import", str(file), "--from", source.uri)
    source.insert("shop_2", "item", 3)
    source.insert("crm", "item", 3)
    command("run", "s")
    source.assert_equal("shop_*")
    command("drop", "s")
    assert source.storage.snapshots == {}


@only_acc1
def test_texts_for_people(source: Source) -> None:
    options = ("--from", source.uri, "--account", "acc1")
    shown = typer.testing.CliRunner().invoke(app, ["subscribe", "s", *options], catch_exceptions=False).stdout
    assert "subscribed s to * of account acc1 at 127.0.0.1" in " ".join(shown.split())
    for words in (("--publisher", "other"), ("--account", "acc1", "--publisher", "other")):
        assert typer.testing.CliRunner().invoke(app, ["subscribe", "t", "--from", source.uri, *words]).exit_code == 2


@pytest.fixture
def targets(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Target]]:
    monkeypatch.setenv("TARGET_PASSWORD", mariadb.password)
    with new_database(mariadb) as one, new_database(mariadb) as two:
        yield [
            Target(name, place, uri_from(place.uri, "TARGET_PASSWORD")) for name, place in (("one", one), ("two", two))
        ]


@only_acc1
def test_each_target_gets_one_of_the_databases(source: Source, targets: list[Target]) -> None:
    one, two = targets
    source.subscribe("--account", "acc1")
    command("target", "add", "s", "one", "--to", one.uri, "--database", "shop_1", "--ddl-policy", "full")
    command("run", "s")
    command("target", "add", "s", "two", "--to", two.uri, "--database", "crm", "--ddl-policy", "full")
    command("run", "s")
    for target, database in ((one, "shop_1"), (two, "crm")):
        target.assert_equal(source, database)
    source.create("crm", "only_crm")
    source.insert("shop_1", "item", 7)
    source.insert("shop_2", "item", 7)
    source.storage.rename_table("crm", "item", "thing", account="acc1")
    done = {one["target"]: {table["table"] for table in one["tables"]} for one in command("run", "s")["targets"]}
    assert done == {"one": {"shop_1.item"}, "two": {"crm.only_crm", "crm.thing"}}
    for target, database in ((one, "shop_1"), (two, "crm")):
        target.assert_equal(source, database)
    shown = {target["name"]: target["source_database"] for target in command("status", "s")["targets"]}
    assert shown == {"one": "shop_1", "two": "crm"}
    text = typer.testing.CliRunner().invoke(app, ["status", "s"], catch_exceptions=False).stdout
    assert "database shop_1 to " in " ".join(text.split())
    wanted = [["s", "targets", "one", one.place.database, table] for table in ("item", "order_1")]
    paths = [list(asset.key.path) for asset in load_subscriptions().assets]
    assert sorted(path for path in paths if path[1:3] == ["targets", "one"]) == wanted
    assert ["s", "crm", "only_crm"] in paths
    with dg.DagsterInstance.ephemeral() as instance, closing(Workspace()) as workspace:
        report_target_tables(instance, workspace, "s")
        reported = [list(key.path) for key in instance.all_asset_keys()]
    assert sorted(path for path in reported if path[2] == "one") == wanted
    command("alter", "s", "--databases", "crm,shop_2")
    source.storage.truncate("crm", "thing", account="acc1")
    command("run", "s")
    two.assert_equal(source, "crm")
    held = {name for (name,) in one.place.query("SHOW TABLES") if not name.startswith("ccpr_")}
    assert held == {"item", "order_1"}, "all of its tables at once are not dropped unasked"
    command("target", "approve", "s", "one")
    assert not [name for (name,) in one.place.query("SHOW TABLES") if not name.startswith("ccpr_")]


@only_acc1
def test_a_table_that_is_behind_concerns_the_target_of_its_database_only(source: Source, targets: list[Target]) -> None:
    source.subscribe("--account", "acc1", "--consistency", "isolated")
    for target, database in zip(targets, ("crm", "shop_1"), strict=True):
        command("target", "add", "s", target.name, "--to", target.uri, "--database", database, "--ddl-policy", "full")
    command("run", "s")
    source.insert("crm", "item", 7)
    with once_before("FOR DATABASE `shop_1`", lambda: source.storage.truncate("shop_1", "item", account="acc1")):
        command("run", "s")
    behind = {one["target"]: [table["table"] for table in one["behind"]] for one in command("target", "list", "s")}
    assert behind == {"one": [], "two": ["shop_1.item"]}
    targets[0].assert_equal(source, "crm")
    command("run", "s")
    for target, database in zip(targets, ("crm", "shop_1"), strict=True):
        target.assert_equal(source, database)


@only_acc1
def test_whose_tables_a_target_gets_has_to_be_said(source: Source, targets: list[Target]) -> None:
    one = targets[0]
    source.subscribe("--account", "acc1", "--database", "shop_*")
    source.subscribe("--account", "acc1", "--database", "crm", name="single")

    def add(name: str, *options: str, code: int) -> dict[str, Any]:
        return command("target", "add", name, "one", "--to", one.uri, *options, code=code)["error"]

    assert add("s", code=1)["code"] == "SEVERAL_DATABASES"
    for name, database in (("s", "crm"), ("s", "mysql"), ("single", "shop_1")):
        assert add(name, "--database", database, code=2)["code"] == "BAD_SETTING"
    command("run", "s")
    assert add("s", "--database", "shop_3", code=2)["remedy"] == "It has shop_1, shop_2. Letter case counts."
    command("target", "add", "s", "one", "--to", one.uri, "--database", "shop_1", "--as-text", "item.v")
    assert command("target", "list", "s")[0]["source_database"] == "shop_1"
    command("run", "s")
    one.assert_equal(source, "shop_1")
    file, home = source.home / "state.json", source.home / "home"
    command("state", "export", "s", "--out", str(file))
    home.rename(source.home / "old")
    home.mkdir()
    (source.home / "old" / "mirrors").rename(home / "mirrors")
    (source.home / "old" / "key").rename(home / "key")
    command("state", "import", str(file), "--from", source.uri)
    assert command("target", "list", "s")[0]["source_database"] == "shop_1"
    source.insert("shop_1", "item", 9)
    source.insert("shop_2", "item", 9)
    command("run", "s")
    one.assert_equal(source, "shop_1")
