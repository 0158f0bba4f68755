"""The statements about subscriptions from the command line of mysql, as people type them; what an upstream offers."""

import re
import shutil
import subprocess
from contextlib import closing

import pymysql
import pytest

from ccpr.config.sql.statement_running import PUBLICATIONS
from ccpr.mysql import replicas
from ccpr.service.subscriptions import SHOWN
from tests.emulator.sql.first_hour import STATEMENTS
from tests.mysql.conftest import PASSWORD, Served
from tests.support.replica import command
from tests.support.simulated import asked, run_sql

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("mysql") is None, reason="there is no mysql"),
]


def typed(served: Served, script: str, *, user: str = "boss") -> str:
    """What the command line of mysql prints, warnings and errors too; it goes on after one."""
    options = ["-h127.0.0.1", f"-P{served.server.port}", f"-u{user}", f"-p{PASSWORD}", "--skip-ssl", "--force"]
    done = subprocess.run(
        ["mysql", *options, "--show-warnings", "--comments"], input=script, capture_output=True, text=True, timeout=120
    )
    return done.stdout + done.stderr


def test_the_statements_of_a_first_hour_are_answered_or_refused_by_name(served: Served) -> None:
    storage = served.table.source.storage
    storage.create_table(
        "d",
        "customers",
        {"id": "bigint not null", "name": "varchar(100)", "email": "varchar(200)", "created_at": "timestamp"},
    )
    orders = {
        "id": "int unsigned not null",
        "customer_id": "bigint not null",
        "total": "decimal(12,2)",
        "note": "text",
        "status": "varchar(9)",
    }
    storage.create_table("d", "orders", orders)
    served.table.work()
    lines = STATEMENTS.read_text().replace("ui_shop", "d").splitlines()
    told = typed(served, "USE d;\n" + ";\n".join(lines) + ";\n")
    errors = {
        int(line): int(code) for code, line in re.findall(r"^ERROR (\d+) \(\w+\) at line (\d+)", told, re.MULTILINE)
    }
    other = {text: code for number, text in enumerate(lines, 2) if (code := errors.get(number)) not in (None, 1290)}
    assert other == {
        "explain select * from orders where id=1": 1235,
        "select * from big": 1146,
        "prepare s from 'select * from orders where id=?'": 1235,
        "show publications": 1235,
        "show snapshots": 1235,
        "select count(*) from orders {snapshot='ui_sp'}": 20101,
        "select * from nosuch": 1146,
        "select nosuch from orders": 1054,
        "selec 1": 1064,
        "select json_extract(doc,'$.a'), v, d, t, y from j": 1146,
        "kill 999": 1094,
    }
    refused = {text for number, text in enumerate(lines, 2) if errors.get(number) == 1290}
    assert refused == {text for text in lines if text.split()[0] in _CHANGING.split()}


_CHANGING = "alter create delete drop grant insert load lock rename replace truncate update"


def upstream(served: Served) -> str:
    return served.table.source.uri.replace("env:UPSTREAM_PASSWORD", "111")


def test_the_statements_of_the_outline_as_they_are_printed(served: Served) -> None:
    uri = upstream(served)
    assert typed(served, "DROP SUBSCRIPTION s;") == ""
    told = typed(
        served,
        f"""-- a subscription
CREATE SUBSCRIPTION sub1 DATABASE d FROM '{uri}' SYNC_INTERVAL = 60;
SHOW SUBSCRIPTIONS;
CREATE SUBSCRIPTION sub1
  DATABASE d
  FROM '{uri}';
CREATE SUBSCRIPTION sub2 DATABASE d TABLE a FROM '{uri}';
SELECT subscription_name, sync_level, state FROM mo_catalog.mo_ccpr_log ORDER BY 1, 2;
SELECT subscription_name FROM mo_catalog.mo_sync_configs;
DROP SUBSCRIPTION sub1;
""",
    )
    head, row, *rest = told.splitlines()
    assert head.split("\t") == list(SHOWN)
    assert row.split("\t")[0:1] + row.split("\t")[2:6] == ["sub1", "d", "*", "60", "0"]
    assert "dump:***@" in row
    said = "\n".join(rest)
    assert "SUBSCRIPTION_EXISTS" in said
    assert "SCOPE_OVERLAP" in said
    assert "ccpr drop" in said or "Choose" in said, "the remedy"
    assert "s\tdatabase" in said
    assert "sub1\tdatabase\t0" in said
    assert "111@" not in row


def test_show_subscriptions_has_its_8_columns_also_when_it_is_empty(served: Served) -> None:
    served.ask("DROP SUBSCRIPTION s", user="boss")
    with closing(served.connect(database=None)) as connection, connection.cursor() as cursor:
        for statement, columns in (("SHOW SUBSCRIPTIONS", SHOWN), ("show subscriptions ;", SHOWN)):
            assert cursor.execute(statement) == 0
            assert tuple(one[0] for one in cursor.description) == columns


def test_a_database_is_created_from_a_cluster_as_in_matrixone(served: Served) -> None:
    uri = upstream(served)
    create = f"CREATE DATABASE d FROM '{uri}' sys PUBLICATION"
    assert served.error(f"{create} p")[0] == 1227
    assert "SCOPE_OVERLAP" in served.error(f"{create} p", user="boss")[1]
    served.ask("DROP SUBSCRIPTION s", user="boss")
    refused = served.error(f"{create} other", user="boss", database=None)
    assert (refused[0], "PUBLICATION_MISSING" in refused[1], "CREATE PUBLICATION" in refused[1]) == (20101, True, True)
    assert served.ask("SHOW SUBSCRIPTIONS", database=None) == []
    served.ask(f"{create} p SYNC INTERVAL 5", user="boss", database=None)
    ((name, *_, interval, state, _, _),) = served.ask("SHOW SUBSCRIPTIONS", database=None)
    assert (name, interval, state) == ("d", "5", "0")
    again = create.replace("DATABASE", "DATABASE IF NOT EXISTS")
    assert "Note (Code 1105): subscription d exists" in typed(served, f"{again} p;")
    command("run", "d")
    assert served.ask("SELECT COUNT(*) FROM d.a", database=None) == [(3,)]
    served.ask("DROP SUBSCRIPTION d", f"CREATE TABLE d.a FROM '{uri}' PUBLICATION p", user="boss", database=None)
    assert served.ask("SHOW SUBSCRIPTIONS", database=None)[0][:4:3] == ("a", "a")
    assert served.error("CREATE DATABASE mine", user="boss", database=None)[0] == 1290


def test_the_status_of_a_subscription(served: Served) -> None:
    with closing(served.connect()) as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute("SHOW SUBSCRIPTION s STATUS")
        (row,) = cursor.fetchall()
    assert list(row) == [
        "subscription_name",
        "state",
        "ok",
        "lag_seconds",
        "newest_point",
        "iteration_lsn",
        "watermark",
        "step",
        "tables_in_quarantine",
        "targets_behind",
        "error_code",
        "error_message",
        "remedy",
    ]
    assert (row["state"], row["ok"], row["newest_point"], row["error_code"]) == ("idle", "1", "2", None)
    assert "SUBSCRIPTION_MISSING" in served.error("SHOW SUBSCRIPTION s STATUS", user="other", database=None)[1]
    assert "SQL_SYNTAX" in served.error("SHOW SUBSCRIPTION s")[1]
    (shown,) = command("sql", "SHOW SUBSCRIPTION s STATUS")
    assert {**shown["rows"][0], "lag_seconds": 0} == {
        **shown["rows"][0],
        "subscription_name": "s",
        "ok": 1,
        "newest_point": 2,
        "lag_seconds": 0,
    }


def test_what_an_upstream_offers_a_login(served: Served) -> None:
    uri, storage = upstream(served), served.table.source.storage
    storage.create_account("acc1")
    storage.create_database("e")
    storage.create_publication("for_others", "e", accounts=["acc1"])
    expected = [("p", "sys", "d", "*", "all", 1), ("for_others", "sys", "e", "*", "acc1", 0)]
    found = served.ask(f"SHOW PUBLICATIONS FROM '{uri}'", user="boss")
    assert found == [tuple(map(str, row)) for row in expected]
    assert served.error(f"SHOW PUBLICATIONS FROM '{uri}'")[0] == 1227
    offers = command("offers", uri)
    assert [tuple(row[name] for name in PUBLICATIONS) for row in offers] == expected
    (shown,) = command("sql", f"SHOW PUBLICATIONS FROM '{uri}'")
    assert shown["rows"] == offers
    assert served.error("SHOW PUBLICATIONS FROM 'mysql://sys#dump@127.0.0.1:1'", user="boss")[0] == 1235


def test_warnings_of_a_statement_are_mysqls(served: Served) -> None:
    with closing(served.connect("boss")) as connection, connection.cursor() as cursor:
        cursor.execute("DROP SUBSCRIPTION IF EXISTS nothing")
        assert connection._result.warning_count == 1
        cursor.execute("SHOW WARNINGS")
        assert cursor.fetchall() == (("Note", "1105", "there is no nothing"),)
        with pytest.raises(pymysql.MySQLError):
            cursor.execute("SELECT nothing FROM a")
        cursor.execute("SHOW WARNINGS")
        assert cursor.fetchall()[0][:2] == ("Error", "1054")
        cursor.execute("SELECT 1")
        cursor.execute("SHOW WARNINGS")
        assert cursor.fetchall() == ()


def test_a_drop_that_leaves_snapshots_warns_and_says_what_to_run(served: Served) -> None:
    fault = "set emulator fault = 'refuse_logins seconds=600'"
    run_sql(served.table.source.emulator.port, "d", fault)
    told = typed(served, "DROP SUBSCRIPTION s;")
    assert "may still be upstream" in told
    assert "DROP SNAPSHOT IF EXISTS" in told


def test_the_statements_of_the_outline_by_who_has_a_login_of_an_account(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`myaccount#root`, as it is printed: without account sys, and so in logical mode. A database is there as soon as
    it has a point, however seldom the server looks."""
    monkeypatch.setattr(replicas, "LOOK_SECONDS", float("inf"))
    emulator = served.table.source.emulator
    asked(emulator, "create account myaccount admin_name 'root' identified by '111'", user="dump")
    emulator.upgrade("4.2")
    asked(
        emulator, "create database db1", "create table db1.t1 (id int primary key, v varchar(9))", user="myaccount#root"
    )
    asked(emulator, "insert into db1.t1 values (1, 'one'), (2, null)", user="myaccount#root")
    uri = f"mysql://myaccount#root:111@127.0.0.1:{emulator.port}"
    told = typed(
        served,
        f"""CREATE SUBSCRIPTION sub1 DATABASE db1 FROM '{uri}' SYNC_INTERVAL = 60;
CREATE SUBSCRIPTION sub2 DATABASE db1 TABLE t1 FROM '{uri}';
SHOW SUBSCRIPTIONS;
""",
    )
    assert "SCOPE_OVERLAP" in told
    (row,) = (line for line in told.splitlines() if line.startswith("sub1\t"))
    assert "root:***@" in row
    command("run", "sub1")
    asked(
        emulator, "update db1.t1 set v = 'two' where id = 2", "delete from db1.t1 where id = 1", user="myaccount#root"
    )
    command("run", "sub1")
    wanted = tuple(asked(emulator, "select id, v from db1.t1", user="myaccount#root"))
    assert tuple(served.ask("SELECT id, v FROM db1.t1", database=None)) == wanted == ((2, "two"),)
    typed(served, f"DROP SUBSCRIPTION sub1; CREATE SUBSCRIPTION sub2 DATABASE db1 TABLE t1 FROM '{uri}';")
    asked(emulator, "insert into db1.t1 values (3, 'three')", user="myaccount#root")
    command("run", "sub2")
    assert served.ask("SELECT id, v FROM db1.t1 ORDER BY id", database=None) == [(2, "two"), (3, "three")]
