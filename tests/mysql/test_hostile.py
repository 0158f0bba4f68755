"""Statements and clients that mean no good: each ends by name, and the next one is answered."""

from contextlib import ExitStack, closing

import pyarrow as pa
import pymysql
import pytest

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.server.answers import StatementError
from ccpr.mysql.engines import MOST_AT_ONCE, Engines
from ccpr.mysql.query_runner import QueryLimits, QueryRunner
from ccpr.mysql.select_rules import translated
from ccpr.mysql.select_scope import ReadTable
from ccpr.mysql.statement_text import understood
from ccpr.mysql.value_kinds import INT, ValueKind
from tests.mysql.conftest import Served


class _Tables:
    def table(self, database: str, name: str, point: int | None) -> ReadTable:
        return ReadTable("t", {"a": INT, "c": ValueKind("text", collation="utf8mb4_general_ci"), "j": _JSON})


_JSON = ValueKind("opaque", name="json")


def refused(statement: str) -> str:
    with pytest.raises((CcprError, StatementError)) as caught:
        translated(understood(statement), _Tables(), lambda name: None)
    return str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
        "SELECT " + "1+" * 9000 + "1",
        "SELECT " + "NOT " * 9000 + "1",
        "SELECT " + "-" * 9000 + "1",
        "SELECT 1 " + "UNION SELECT 1 " * 4000,
        "SELECT a FROM " + "(SELECT a FROM " * 50 + "t" + ") x" * 50 + ")",
        "SELECT CASE " + "WHEN 1 THEN " * 5000,
        "SELECT 'x",
        "SELECT a FROM t; SELECT 1",
        "SELECT \x00",
    ],
)
def test_statements_that_are_deep_or_broken_are_errors(statement: str) -> None:
    assert refused(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM `/etc/passwd`, read_text('x')",
        "SELECT getenv('HOME')",
        "SELECT a FROM t INTO OUTFILE '/tmp/x'",
        "SELECT LOAD_FILE('/etc/passwd')",
        "SELECT a FROM t FOR UPDATE",
        "SELECT @x := 1",
        "SELECT a FROM t WHERE a = 1 = 1",
        "SELECT a, a = 'x' FROM t",
        "SELECT c = 'x' FROM t",
        "SELECT CONCAT(c, 'y') = 'x' FROM t",
        "SELECT c FROM t ORDER BY c",
        "SELECT DISTINCT c FROM t",
        "SELECT MAX(c) FROM t",
        "SELECT c, COUNT(*) FROM t GROUP BY c",
        "SELECT CONCAT(j, '') FROM t",
        "SELECT a FROM t GROUP BY a WITH ROLLUP ORDER BY a",
        "SELECT a FROM t GROUP BY a WITH ROLLUP HAVING a IS NULL",
        "SELECT a REGEXP (CHAR(97)), c REGEXP 'a' FROM t",
        "SELECT SUM(SUM(a)) OVER () FROM t",
        "SELECT SUM(a), ROW_NUMBER() OVER (ORDER BY a) FROM t GROUP BY a",
        "SELECT LAG(a, 1, 0) OVER (ORDER BY a) FROM t",
        "SELECT SUM(a) OVER (ORDER BY a RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
        "SELECT RANK() OVER (ORDER BY c) FROM t",
        "SELECT GREATEST(c, 'x') FROM t",
        "SELECT a FROM t NATURAL RIGHT JOIN t AS u",
        "SELECT a FROM t LIMIT a",
        "SELECT x'41'",
        "SELECT _latin1'a'",
        "SELECT a FROM t {SNAPSHOT = 1}",
        "WITH RECURSIVE x AS (SELECT 1 AS a) SELECT a FROM x",
        "SELECT (SELECT SUM(t.a) FROM t AS o) FROM t",
        "SELECT MAX(NULL) - MAX(a) FROM t",
        "SELECT a IN ((SELECT a FROM t) LIMIT 1) FROM t",
        "SELECT a BETWEEN 1 AND 2e0 FROM t",
        "SELECT a FROM t GROUP BY -3",
        "SELECT q.x * 2 FROM (SELECT a / 3 AS x FROM t) q",
        "SELECT a FROM t PROCEDURE ANALYSE()",
        "SELECT a FROM t EXCEPT SELECT a FROM t UNION SELECT 1",
        "SELECT c FROM t INTERSECT SELECT c FROM t",
        "SELECT SUM(a / 3) FROM t",
        "SELECT a FROM t WHERE a = (SELECT a / 3 FROM t ORDER BY 1 LIMIT 1)",
        "SELECT TO_DAYS('2024-01-01')",
    ],
)
def test_what_would_be_another_answer_is_refused(statement: str) -> None:
    assert refused(statement)


def test_text_of_another_collation_is_shown_and_asked_for_null() -> None:
    found = translated(understood("SELECT c, c IS NULL, LENGTH(c) FROM t"), _Tables(), lambda name: None)
    assert [column.name for column in found.columns] == ["c", "c IS NULL", "LENGTH(c)"]


@pytest.mark.integration
def test_clients_that_do_not_read_hold_nothing_for_ever(served: Served) -> None:
    long = "SELECT a0.v FROM " + ", ".join(f"a AS a{n}" for n in range(14))
    clients = [served.connect(cursorclass=pymysql.cursors.SSCursor) for _ in range(MOST_AT_ONCE)]
    cursors = [client.cursor() for client in clients]  # one that is collected reads what is left
    for client, cursor in zip(clients, cursors, strict=True):
        client.query("SET max_execution_time = 5000")
        cursor.execute(long)  # its rows are not read
    assert served.ask("SELECT COUNT(*) FROM a") == [(3,)]
    for client in clients:
        client._result.unbuffered_active = False
        client._force_close()


@pytest.mark.integration
def test_a_large_result_is_streamed(served: Served) -> None:
    rows = " CROSS JOIN ".join(f"a AS a{n}" for n in range(11))
    with closing(served.connect(cursorclass=pymysql.cursors.SSCursor)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT a0.n, a1.v FROM {rows}")
        assert sum(1 for _ in cursor) == 3**11
    assert served.ask("SELECT 1") == [(1,)]


def test_a_statement_that_needs_too_much_memory_ends_by_name() -> None:
    table = pa.table({"a": pa.array(range(2_000_000))})
    runner = QueryRunner(QueryLimits(engines=Engines(16 << 20)))
    found = translated(understood("SELECT COUNT(*) FROM (SELECT DISTINCT a FROM t) q"), _Tables(), lambda name: None)
    with closing(runner), pytest.raises(StatementError) as caught:
        list(runner.rows_of(found.sql, lambda _: found.columns, {"t": table}, ExitStack(), binary=False).frames(0))
    assert caught.value.number == 1038


@pytest.mark.integration
def test_rows_are_limited_as_a_client_asks(served: Served) -> None:
    assert served.ask("SET SQL_SELECT_LIMIT = 2", "SELECT n FROM a ORDER BY n") == [(0,), (1,)]


@pytest.mark.integration
@pytest.mark.parametrize("limit", [2**63 - 1, 2**63, 10**19 - 1, 2**64 - 1])
def test_a_limit_may_be_more_than_any_answer_has(served: Served, limit: int) -> None:
    every = [(0,), (1,), (2,)]
    assert served.ask(f"SET SQL_SELECT_LIMIT = {limit}", "SELECT n FROM a ORDER BY n") == every
    tables = "SELECT table_name FROM information_schema.tables"
    assert served.ask(f"SET SQL_SELECT_LIMIT = {limit}", tables) == [("a",)]
    assert served.ask(f"SELECT n FROM a ORDER BY n LIMIT {limit}") == every
    assert served.ask(f"SELECT n FROM a ORDER BY n LIMIT {limit} OFFSET 1") == every[1:]
    assert served.ask(f"SELECT n FROM a ORDER BY n LIMIT 1, {limit}") == every[1:]
    assert served.ask(f"SELECT n FROM a ORDER BY n LIMIT 1 OFFSET {limit}") == []
