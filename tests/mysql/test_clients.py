"""What clients ask, answered: PyMySQL, the command line of mysql, SQLAlchemy's reflection, prepared statements."""

import shutil
import subprocess
import threading
from contextlib import closing

import pymysql
import pytest
import sqlalchemy as sa

from ccpr.dagster.replica_health import ports_text
from ccpr.mysql import replicas
from ccpr.state.errors import StateUnavailable
from ccpr.state.pins import Pins
from tests.mysql.conftest import PASSWORD, Served
from tests.support.replica import command
from tests.support.waiting import until

pytestmark = pytest.mark.integration


def test_a_select_gives_the_rows_of_the_newest_point(served: Served) -> None:
    assert list(served.ask("SELECT n, v FROM a ORDER BY n")) == [(0, "v0"), (1, "v1"), (2, "v2")]
    assert served.ask("SELECT COUNT(*) AS k, MAX(n) FROM d.a") == [(3, 2)]
    served.table.work()
    assert served.ask("SELECT COUNT(*) FROM a") == [(4,)]


def test_points_are_named_in_the_statement(served: Served) -> None:
    first, second, _ = served.table.lsns()
    time_of = served.table.times[second]
    assert served.ask(f"SELECT COUNT(*) FROM a {{MO_TS = {time_of}}}") == [(2,)]
    assert served.ask(f"SELECT COUNT(*) FROM a{{MO_TS = {time_of}}} AS x JOIN a ON x.n = a.n") == [(2,)]
    assert served.ask(f"SET ccpr_point = {first}", "SELECT COUNT(*) FROM a") == [(1,)]
    assert "HOLD_MISSING" in served.error("SELECT * FROM a {SNAPSHOT = 'nothing'}")[1]


def test_a_transaction_sees_one_point(served: Served) -> None:
    with closing(served.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        served.table.work()
        cursor.execute("SELECT COUNT(*) FROM a")
        assert cursor.fetchall() == ((3,),)
        cursor.execute("COMMIT")
        cursor.execute("SELECT COUNT(*) FROM a")
        assert cursor.fetchall() == ((4,),)


def test_a_point_that_is_read_is_pinned_and_given_back(served: Served) -> None:
    row = served.workspace.log.row("s")
    with closing(served.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        assert len(served.workspace.of(row).pins.all()) == 1
        cursor.execute("ROLLBACK")
    served.server._replicas.let_go(at_once=True)
    assert served.workspace.of(row).pins.all() == []


def test_a_pin_that_cannot_be_dropped_now_is_dropped_later(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    row, replicas = served.workspace.log.row("s"), served.server._replicas
    with closing(served.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM a")

    def away(pins: Pins, name: str) -> bool:
        raise StateUnavailable("it does not answer", subject="state database")

    with monkeypatch.context() as patched:
        patched.setattr(Pins, "drop", away)
        with pytest.raises(StateUnavailable):
            replicas.let_go(at_once=True)
        assert len(served.workspace.of(row).pins.all()) == 1
    replicas.let_go(at_once=True)
    assert served.workspace.of(row).pins.all() == []


def test_retention_leaves_a_point_alone_that_a_transaction_reads(served: Served) -> None:
    command("alter", "s", "--retain", "1")
    newest = served.table.lsns()[-1]
    with closing(served.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        for _ in range(3):
            served.table.work()
        assert served.table.lsns()[0] == newest
        cursor.execute("SELECT COUNT(*), MAX(v) FROM a")
        assert cursor.fetchall() == ((3, "v2"),)
        cursor.execute("COMMIT")
        cursor.execute("SELECT COUNT(*) FROM a")
        assert cursor.fetchall() == ((6,),)
    served.server._replicas.let_go(at_once=True)
    served.table.work()
    assert len(served.table.lsns()) == 1


def test_two_databases_of_one_name_are_told_apart(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "LOOK_SECONDS", 0.0)
    served.table.source.subscribe("--allow-overlap", name="s2")
    command("run", "s2")
    assert [row[0] for row in served.ask("SHOW DATABASES LIKE '%d'", database=None)] == ["s.d", "s2.d"]
    number, text = served.error("SELECT 1")
    assert (number, "`s.d` and `s2.d`" in text) == (1049, True)
    assert served.ask("SELECT COUNT(*) FROM `s2.d`.a", database=None) == [(3,)]
    number, text = served.error("SELECT COUNT(*) FROM `s2.d`.a, `s.d`.a AS b", database=None)
    assert (number, "no point in common" in text) == (1235, True)


def test_writes_are_refused_with_a_sentence(served: Served) -> None:
    for statement in ("INSERT INTO a VALUES (9, 'x')", "UPDATE a SET v = 'x'", "DELETE FROM a", "DROP TABLE a"):
        number, text = served.error(statement)
        assert (number, "this is a replica of MatrixOne" in text) == (1290, True)
    assert served.error("SELECT v + 1 FROM a")[0] == 1235
    assert "BIT_COUNT" in served.error("SELECT BIT_COUNT(n) FROM a")[1].upper()
    assert served.error("SELECT n FROM nothing")[0] == 1146
    assert served.error("SELECT nothing FROM a")[0] == 1054
    assert served.error("SELECT v, COUNT(*) FROM a")[0] == 1055


def test_logins_see_what_is_theirs(served: Served) -> None:
    assert [row[0] for row in served.ask("SHOW DATABASES", database=None)] == ["d", "information_schema", "mo_catalog"]
    assert [row[0] for row in served.ask("SHOW DATABASES", user="other", database=None)] == [
        "information_schema",
        "mo_catalog",
    ]
    assert served.error("SELECT 1", user="other")[0] == 1049
    assert served.ask("SELECT subscription_name FROM mo_catalog.mo_ccpr_log", user="other", database=None) == []
    with pytest.raises(pymysql.MySQLError, match="Access denied"):
        pymysql.connect(host="127.0.0.1", port=served.server.port, user="reader", password="wrong")


def test_subscriptions_are_changed_by_operators_alone(served: Served) -> None:
    assert served.error("PAUSE SUBSCRIPTION s")[0] == 1227
    served.ask("PAUSE SUBSCRIPTION s", user="boss")
    shown = served.ask("SHOW SUBSCRIPTIONS")
    assert (len(shown[0]), shown[0][0], shown[0][5]) == (8, "s", "2")
    served.ask("RESUME SUBSCRIPTION s", user="boss")
    assert served.ask("SELECT state FROM mo_catalog.mo_ccpr_log WHERE subscription_name = 's'") == [(0,)]
    assert "PURGE" in served.error("DROP SUBSCRIPTION s PURGE", user="boss")[1]
    assert "SQL_SYNTAX" in served.error("ALTER SUBSCRIPTION s SET (NOTHING = 1)", user="boss")[1]
    served.ask("DROP SUBSCRIPTION s", user="boss")
    with closing(served.connect(database=None)) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW SUBSCRIPTIONS")
        assert (len(cursor.description), cursor.fetchall()) == (8, ())


def test_what_clients_ask_at_connect_and_in_their_trees(served: Served) -> None:
    assert served.ask("SELECT @@version_comment LIMIT 1")[0][0].startswith("matrixone-ccpr")
    assert served.ask("SELECT DATABASE(), CONNECTION_ID() > 0") == [("d", 1)]
    assert served.ask("SHOW FULL TABLES") == [("a", "BASE TABLE")]
    assert [row[0] for row in served.ask("SHOW FULL COLUMNS FROM a")] == ["n", "v"]
    assert served.ask("DESCRIBE a")[0][:4] == ("n", "int", "NO", "PRI")
    assert served.ask("SHOW CREATE TABLE a")[0][1].upper().startswith("CREATE TABLE")
    assert served.ask("SHOW VARIABLES LIKE 'sql_mode'")[0][1].startswith("ONLY_FULL")
    asked = "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'd'"
    columns = served.ask(f"{asked} ORDER BY ORDINAL_POSITION")
    assert columns == [("n", "int"), ("v", "varchar")]
    served.ask("SET NAMES utf8mb4", "SET SESSION sql_mode = 'STRICT_TRANS_TABLES'", "SET autocommit=1")
    assert "ANSI_QUOTES" in served.error("SET sql_mode = 'ANSI_QUOTES'")[1]
    assert served.error("SET nothing = 1")[0] == 1193
    assert served.ask("SET @x = 2, @y := 'v1', @Z = -5", "SELECT @X + n, @nothing, @z FROM a WHERE v = @y") == [
        (3, None, -5)
    ]
    assert all("@name" in served.error(f"SET @x{rest}")[1] for rest in ("", " = 1.5", " = 'a' 'b' 'c'", " = @y + 1"))
    assert served.error("SELECT n FROM a WHERE n = ?")[0] == 1064


def test_sqlalchemy_reflects_a_table(served: Served) -> None:
    engine = sa.create_engine(f"mysql+pymysql://reader:{PASSWORD}@127.0.0.1:{served.server.port}/d")
    table = sa.Table("a", sa.MetaData(), autoload_with=engine)
    assert [column.name for column in table.columns] == ["n", "v"]
    assert [column.name for column in table.primary_key] == ["n"]
    with engine.connect() as connection:
        rows = connection.execute(sa.select(table.c.v).where(table.c.n >= 1).order_by(table.c.n)).all()
    assert rows == [("v1",), ("v2",)]
    engine.dispose()


@pytest.mark.skipif(shutil.which("mysql") is None, reason="there is no mysql")
def test_the_command_line_of_mysql(served: Served) -> None:
    options = ["-h127.0.0.1", f"-P{served.server.port}", "-ureader", f"-p{PASSWORD}", "--skip-ssl", "d", "-e"]
    done = subprocess.run(
        ["mysql", *options, "SHOW TABLES; SELECT n, v FROM a WHERE v = 'v1'"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == ("Tables_in_d\na\nn\tv\n1\tv1\n", 0), done.stderr


def test_what_is_answered_is_counted_and_status_says_where(served: Served) -> None:
    def figures() -> dict[tuple[str, ...], float]:
        samples = (sample for metric in served.server.metrics.collect() for sample in metric.samples)
        return {(one.name, *one.labels.values()): one.value for one in samples if not one.name.endswith("_created")}

    before = figures()
    served.ask("SELECT n, v FROM a ORDER BY n")
    served.error("SELECT RAND()")
    served.error("SELECT nothing FROM a")
    with pytest.raises(pymysql.MySQLError):
        pymysql.connect(host="127.0.0.1", port=served.server.port, user="reader", password="wrong")
    until(lambda: figures()["ccpr_sql_sessions",] == 0, "the sessions' end")
    after = figures()
    assert {name: after[name] - before[name] for name in after if name[0] != "ccpr_sql_seconds_total"} == {
        ("ccpr_sql_statements_total", "done"): 1 + 3,  # SET AUTOCOMMIT of each connection
        ("ccpr_sql_statements_total", "refused"): 1,
        ("ccpr_sql_statements_total", "failed"): 1,
        ("ccpr_sql_bytes_total",): 3 * (4 + 2 + 3),
        ("ccpr_sql_sessions",): 0,
        ("ccpr_sql_refused_total",): 0,
        ("ccpr_sql_wrong_passwords_total",): 1,
    }
    assert 0 < after["ccpr_sql_seconds_total",] < 20
    statements = sum(int(value) for name, value in after.items() if name[0] == "ccpr_sql_statements_total")
    counted = f"0 connections, {statements} statements, 1 refused, 1 wrong passwords since it began"
    until(lambda: ports_text(served.workspace) == f"SQL on {served.server.address}: {counted}", "Dagster's text")
    assert command("status", "s")["sql_ports"] == [f"127.0.0.1:{served.server.port}"]
    served.server.stop()
    assert command("status", "s")["sql_ports"] == []


def test_a_statement_is_killed_and_ends_in_time(served: Served) -> None:
    long = "SELECT COUNT(*) FROM " + ", ".join(f"a AS a{n}" for n in range(25)) + " WHERE a0.n + a24.n > 100"
    with closing(served.connect()) as connection, closing(served.connect()) as other:
        number, ended = connection.thread_id(), threading.Event()

        def kill() -> None:
            """Until it has begun there is nothing to kill."""
            with other.cursor() as cursor:
                while not ended.wait(0.1):
                    cursor.execute(f"KILL QUERY {number}")

        thread = threading.Thread(target=kill)
        thread.start()
        with connection.cursor() as cursor, pytest.raises(pymysql.MySQLError) as caught:
            cursor.execute(long)
        ended.set()
        thread.join()
        assert caught.value.args[0] == 1317
        connection.query("SET max_execution_time = 500")
        with connection.cursor() as cursor, pytest.raises(pymysql.MySQLError) as caught:
            cursor.execute(long)
        assert caught.value.args[0] == 3024
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchall() == ((1,),)
    assert served.error("KILL QUERY 999999")[0] == 1094
