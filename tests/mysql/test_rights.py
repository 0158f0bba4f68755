"""What a login may read: tables, columns and rows, at every point and in whatever way it asks; the rest does not exist
for it, and nothing tells of it."""

import logging
from contextlib import closing

import pymysql
import pytest

from ccpr.matrixone.server.wrong_passwords import password_digest
from ccpr.mysql import replicas
from ccpr.state.logins import LoginRole, PortLogins, ReadLimits
from tests.mysql.conftest import PASSWORD, Served
from tests.support.replica import command

pytestmark = pytest.mark.integration
ORDERS = {"id": "int not null", "region": "varchar(10)", "total": "int", "secret": "varchar(20)"}
LIMITS = ReadLimits(("orders", "d.a"), ("secret", "orders.region"), (("orders", "region = 'EU' AND total < 100"),))
IN_EU = [(1, 10), (3, 30)]


@pytest.fixture
def limited(served: Served) -> Served:
    """Table `orders` with four rows, two of them in the EU and small, and a table `payroll`. Login `limited` sees the
    rows of these two, without region and secret, and all of `a`."""
    storage = served.table.source.storage
    storage.create_table("d", "orders", ORDERS, primary_key=["id"])
    storage.create_table("d", "payroll", {"k": "int"})
    rows = {"id": [1, 2, 3, 4], "region": ["EU", "US", "EU", "EU"], "total": [10, 2147483647, 30, 1000]}
    with storage.begin() as transaction:
        transaction.insert("d", "orders", {**rows, "secret": ["s1", "s2", "s3", "s4"]})
        transaction.insert("d", "payroll", {"k": [7]})
    served.table.work()
    served.add("limited", limits=LIMITS)
    served.ask("SHOW DATABASES", user="limited", database=None)
    return served


def texts(served: Served, *statements: str) -> str:
    """All that is answered, errors too."""
    found = list[object]()
    for statement in statements:
        try:
            found.append(served.ask(statement, user="limited"))
        except pymysql.MySQLError as error:
            found.append(error.args)
    return repr(found)


def test_rows_of_a_condition_alone_are_there_in_whatever_way_they_are_asked_for(limited: Served) -> None:
    assert limited.ask("SELECT id, total FROM orders ORDER BY id", user="limited") == IN_EU
    for statement, expected in (
        ("SELECT * FROM orders ORDER BY 1", IN_EU),
        ("SELECT COUNT(*) FROM orders", [(2,)]),
        ("SELECT COUNT(*), MAX(total) FROM d.orders AS o WHERE id > 1", [(1, 30)]),
        ("SELECT n FROM a WHERE n IN (SELECT id FROM orders) ORDER BY n", [(1,), (3,)]),
        ("SELECT (SELECT SUM(o.total) FROM orders o WHERE o.id >= a.n) FROM a WHERE n = 2", [(30,)]),
        ("WITH q AS (SELECT total FROM orders) SELECT MAX(total) FROM q", [(30,)]),
        ("SELECT COUNT(*) FROM orders x JOIN orders y ON x.id <> y.id", [(2,)]),
        ("SELECT id FROM orders UNION SELECT id FROM orders ORDER BY 1", [(1,), (3,)]),
        ("SELECT id FROM orders WHERE total = 2147483647 OR id = 4", []),
        ("SELECT x.id FROM a LEFT JOIN orders x ON x.id = a.n WHERE a.n = 2", [(None,)]),
    ):
        assert limited.ask(statement, user="limited") == expected, statement


def test_no_error_tells_of_a_row_that_is_hidden(limited: Served) -> None:
    """The total of row 2 overflows."""
    assert limited.error("SELECT CAST(total AS DECIMAL(5,0)) * 1 FROM orders WHERE total * total * total > 0")
    assert limited.ask("SELECT total * total * total > 0 FROM orders", user="limited") == [(1,), (1,)]
    assert limited.ask("SELECT id FROM orders WHERE total * total * total > 0 ORDER BY id", user="limited") == [
        (1,),
        (3,),
    ]


def test_what_is_hidden_is_nowhere(limited: Served) -> None:
    schema = "information_schema"
    told = texts(
        limited,
        "SHOW TABLES",
        "SHOW FULL COLUMNS FROM orders",
        "DESCRIBE orders",
        "SHOW CREATE TABLE orders",
        "SHOW INDEX FROM orders",
        "SHOW TABLE STATUS",
        f"SELECT * FROM {schema}.tables",
        f"SELECT * FROM {schema}.columns",
        f"SELECT * FROM {schema}.statistics",
        f"SELECT * FROM {schema}.key_column_usage",
        "SELECT * FROM mo_catalog.mo_ccpr_log",
        "SELECT * FROM mo_catalog.mo_sync_configs",
        "SHOW SUBSCRIPTIONS",
    )
    for word in ("secret", "region", "payroll", "EU", "2147483647"):
        assert word not in told, word
    for statement in ("SELECT secret FROM orders", "SELECT orders.region FROM orders"):
        assert limited.ask(statement) != []
        with pytest.raises(pymysql.MySQLError) as caught:
            limited.ask(statement, user="limited")
        assert caught.value.args[0] == 1054
    assert limited.ask("SELECT k FROM payroll") == [(7,)]
    with pytest.raises(pymysql.MySQLError) as caught:
        limited.ask("SELECT k FROM payroll", user="limited")
    assert caught.value.args == (1146, "Table 'd.payroll' doesn't exist")
    assert limited.ask(
        "SELECT TABLE_ROWS FROM information_schema.tables WHERE TABLE_NAME = 'orders'", user="limited"
    ) == [(None,)]


def test_limits_hold_at_every_point(limited: Served) -> None:
    lsn = limited.table.lsns()[-1]
    storage = limited.table.source.storage
    with storage.begin() as transaction:
        transaction.insert("d", "orders", {"id": [5], "region": ["EU"], "total": [50], "secret": ["s5"]})
    limited.table.work()
    assert limited.ask("SELECT COUNT(*) FROM orders", user="limited") == [(3,)]
    time_of = limited.table.times[lsn]
    assert limited.ask(f"SELECT id, total FROM orders {{MO_TS = {time_of}}} ORDER BY 1", user="limited") == IN_EU
    command("points", "hold", "s", str(lsn), "--name", "held")
    assert limited.ask("SELECT COUNT(*) FROM orders {SNAPSHOT = 'held'}", user="limited") == [(2,)]
    assert limited.ask(f"SET ccpr_point = {lsn}", "SELECT * FROM orders ORDER BY id", user="limited") == IN_EU
    storage.rename_table("d", "payroll", "a_again")
    storage.rename_table("d", "orders", "bought")
    limited.table.work()
    for table in ("orders", "payroll", "bought"):
        for point in ("", f" {{MO_TS = {time_of}}}"):
            with pytest.raises(pymysql.MySQLError) as caught:
                limited.ask(f"SELECT * FROM {table}{point}", user="limited")
            assert caught.value.args[0] == 1146, (table, point)


def test_a_condition_that_cannot_be_applied_shows_nothing(limited: Served) -> None:
    logins = PortLogins(limited.workspace.log.engine, limited.workspace.vault)
    limited.add("odd", limits=ReadLimits(rows=(("orders", "nothing = 1"),)))
    limited.add("late", limits=ReadLimits(rows=(("orders", "total * total * total * total > 0"),)))
    number, text = limited.error("SELECT COUNT(*) FROM orders", user="odd")
    assert (number, "nothing" in text) == (1142, False)
    number, text = limited.error("SELECT COUNT(*) FROM orders", user="late")
    assert (number, "2147483647" in text, "d.orders cannot be read now" in text) == (20101, False, True)
    assert limited.ask("SELECT COUNT(*) FROM a", user="odd") == [(4,)]
    assert [login.name for login in logins.all()] == ["boss", "late", "limited", "odd", "other", "reader"]


def test_a_condition_may_name_the_login(limited: Served) -> None:
    limited.add("v2", limits=ReadLimits(rows=(("a", "CONCAT(v, '@%') = CURRENT_USER()"),)))
    assert limited.ask("SELECT n FROM a", user="v2") == [(2,)]


def test_all_values_are_as_they_are_without_a_condition(limited: Served) -> None:
    limited.add("all", limits=ReadLimits(rows=(("*", "1 = 1"),)))
    for statement in ("SELECT * FROM orders ORDER BY 1", "SELECT * FROM a ORDER BY 1", "SELECT COUNT(*) FROM a"):
        assert limited.ask(statement, user="all") == limited.ask(statement)


def test_what_a_login_may_do_is_changed_under_its_open_session(
    limited: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "LOOK_SECONDS", 0.0)
    with closing(limited.connect("limited")) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM orders")
        assert cursor.fetchall() == ((2,),)
        found = command("login", "alter", "limited", "--rows", "orders: total < 20", "--hide", "")
        assert (found["hidden"], found["rows"]) == ([], [["orders", "total < 20"]])
        cursor.execute("SELECT * FROM orders")
        assert cursor.fetchall() == ((1, "EU", 10, "s1"),)
        command("login", "alter", "limited", "--role", "relay", "--tables", "", "--rows", "")
        with pytest.raises(pymysql.MySQLError) as caught:
            cursor.execute("SELECT * FROM d.orders")
        assert caught.value.args[0] == 1049
    with pytest.raises(pymysql.MySQLError, match="Access denied"):
        limited.connect("limited")


def test_logins_are_added_listed_altered_and_removed(limited: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", PASSWORD)
    words = ["--subscription", "S", "--tables", "orders", "--hide", "secret", "--rows", "orders: region = 'EU'"]
    made = command("login", "add", "New", "--role", "reader", "--password-env", "PW", *words)
    assert (made["user"], made["publications"], "password" in made) == ("new", ["s"], False)
    assert limited.ask("SELECT COUNT(*) FROM orders", user="new") == [(3,)]
    listed = {one["user"]: one for one in command("login", "list")}
    assert listed["new"]["rows"] == [["orders", "region = 'EU'"]]
    assert listed["boss"]["role"] == "operator"
    add = ["login", "add", "x", "--role"]
    for rest, code in (
        (["king"], 2),
        (["relay", "--tables", "a"], 2),
        (["operator", "--subscription", "s"], 2),
        (["reader", "--rows", "orders"], 2),
        (["reader", "--rows", "orders: nothing = 1"], 1),
        (["reader", "--rows", "orders: id IN (SELECT n FROM a)"], 1),
        (["reader", "--rows", "orders: s REGEXP '\\\\d'"], 1),
        (["reader", "--subscription", "none"], 1),
    ):
        assert command(*add, *rest, code=code), rest
    assert "x" not in {one["user"] for one in command("login", "list")}
    command("login", "remove", "new")
    with pytest.raises(pymysql.MySQLError, match="Access denied"):
        limited.connect("new")


def test_a_login_is_for_its_own_port(limited: Served) -> None:
    limited.add("cluster", LoginRole.RELAY)
    with pytest.raises(pymysql.MySQLError, match="Access denied"):
        limited.connect("cluster")
    logins = PortLogins(limited.workspace.log.engine, limited.workspace.vault)
    assert logins.digest("reader", (LoginRole.RELAY,)) is None
    assert logins.digest("nobody") is None
    assert logins.digest("cluster") == password_digest(PASSWORD)


def test_an_operators_statements_are_in_the_log_with_who_and_from_where(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    served.ask("PAUSE SUBSCRIPTION s", user="boss")
    served.error("PAUSE SUBSCRIPTION nothing", user="boss")
    served.error("RESUME SUBSCRIPTION s")
    served.error("ALTER SUBSCRIPTION s SET (UPSTREAM = 'mysql://sys#root:hush@127.0.0.1:1')", user="boss")
    said = [record.getMessage() for record in caplog.records if record.name.endswith("admin_statements")]
    assert said[0] == "boss from 127.0.0.1: PAUSE SUBSCRIPTION s: done"
    assert said[1].startswith("boss from 127.0.0.1: PAUSE SUBSCRIPTION nothing: SUBSCRIPTION_MISSING")
    assert said[2] == "reader from 127.0.0.1: RESUME SUBSCRIPTION s: refused"
    assert said[3].startswith("boss from 127.0.0.1: ALTER SUBSCRIPTION s SET (UPSTREAM = '***'): ")
    assert "hush" not in caplog.text
