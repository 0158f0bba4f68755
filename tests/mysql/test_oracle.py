"""Random statements: the answer is a MariaDB's, or they are refused by name; and what the documentation says of both.

`make sql-histories` asks more of them.
"""

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pymysql
import pytest
from sqlglot import exp, parse_one

from ccpr.matrixone.errors import CcprError
from ccpr.mysql.select_rules import RULES, translated
from ccpr.mysql.select_scope import ReadTable
from ccpr.mysql.statement_text import StatementRefused, understood
from ccpr.mysql.value_kinds import ValueKind
from tests.docs.pages import DOCS
from tests.mysql.generated_statements import Statements, parametrised
from tests.mysql.oracle import COLLATED, MODE, Oracle, generated_rows
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.integration
COUNT, SEED, EACH = int(os.environ.get("SQL_STATEMENTS", "400")), os.environ.get("SEED", "1"), 50
TEXTS = {kind: way for kind, way in pymysql.converters.conversions.items() if not isinstance(kind, int)}
PAGE = DOCS / "how-to/connect-a-tool.md"


@pytest.fixture(scope="module")
def theirs(mariadb: MariaDb) -> Iterator[pymysql.Connection]:
    login = {"host": mariadb.host, "port": mariadb.port, "user": mariadb.user, "password": mariadb.password}
    with closing(pymysql.connect(**login, charset="utf8mb4", conv=TEXTS)) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE sql_oracle {COLLATED}")
        cursor.execute("USE sql_oracle")
        cursor.execute(f"SET sql_mode = '{MODE}', time_zone = '+00:00', collation_connection = 'utf8mb4_nopad_bin'")
        yield connection
        cursor.execute("DROP DATABASE sql_oracle")


def _of_matrixone() -> Iterator[Oracle]:
    """A live one, which MATRIXONE names: where it answers otherwise is printed, and no error."""
    if place := os.environ.get("MATRIXONE"):
        host, _, port = place.partition(":")
        login = {"user": "dump", "password": "111", "charset": "utf8mb4", "conv": TEXTS, "autocommit": True}
        connection = pymysql.connect(host=host, port=int(port), **login)
        with connection.cursor() as cursor:
            for statement in ("DROP DATABASE IF EXISTS sql_oracle", "CREATE DATABASE sql_oracle", "USE sql_oracle"):
                cursor.execute(statement)
        yield Oracle(connection, collated="")


@pytest.mark.timeout(0 if COUNT > 1000 else 120)
def test_answers_are_those_of_a_mariadb(theirs: pymysql.Connection) -> None:
    oracle = Oracle(theirs)
    oracles = [oracle, *_of_matrixone()]
    for number in range(COUNT // EACH):
        random = Random(f"{SEED}-{number}")
        for name, count in (("t", random.choice((0, 1, 12, 30))), ("o", 8)):
            rows = generated_rows(random, count)
            for one in oracles:
                one.load(name, rows)
        statements = Statements(random)
        for statement in (statements.statement() for _ in range(EACH)):
            oracle.ask(*(parametrised(random, statement) if random.random() < 0.5 else (statement,)))
            for one in oracles[1:]:
                one.ask(statement)
    for one in oracles[1:]:
        print(f"matrixone: equal={one.equal} different={len(one.different)} failed_there={one.failed.total()}")
        print(*(f"  {found}" for found in one.different[:50]), sep="\n")
    print(f"sql: statements={COUNT} equal={oracle.equal} refused={oracle.refused.total()}", end=" ")
    print(f"failed_there={oracle.failed.total()} different={len(oracle.different)}")
    for what, count in oracle.refused.most_common(12):
        print(f"  {count} {what}")
    assert oracle.different == []
    assert oracle.equal > COUNT // 2


def test_statements_written_by_hand_are_answered_as_by_a_mariadb(theirs: pymysql.Connection) -> None:
    lines = (Path(__file__).parent / "statements_compared.sql").read_text().splitlines()
    statements, oracle, random = [line for line in lines if line[:2] != "--"], Oracle(theirs), Random(5)
    oracle.load("t", generated_rows(random, 30))
    oracle.load("o", generated_rows(random, 8))
    for statement in statements:
        oracle.ask(statement)
    assert (oracle.different, dict(oracle.refused), dict(oracle.failed)) == ([], {}, {})
    assert oracle.equal == len(statements)


def test_a_year_beside_two_digits_or_a_text_is_refused() -> None:
    class Years:
        def table(self, database: str, name: str, point: int | None) -> ReadTable:
            return ReadTable(name, {"y": ValueKind("int", name="year")})

    for condition in ("y = 24", "y < '2024'", "y IN (2024, 24)", "y BETWEEN 1 AND 2024"):
        with pytest.raises(StatementRefused):
            translated(understood(f"SELECT y FROM t WHERE {condition}"), Years(), lambda name: None)
    translated(understood("SELECT y FROM t WHERE y = 2024 AND y IN (NULL, 1999)"), Years(), lambda name: None)


def test_a_union_with_an_enum_has_no_order() -> None:
    class Labels:
        def table(self, database: str, name: str, point: int | None) -> ReadTable:
            return ReadTable(name, {"e": ValueKind("text", name="enum", labels=("b", "a"))})

    for query in ("{} ORDER BY 1", "SELECT q.e FROM ({}) q ORDER BY q.e"):
        for union in ("SELECT NULL AS e UNION SELECT e FROM t", "SELECT e FROM t UNION ALL SELECT e FROM t"):
            with pytest.raises(StatementRefused, match="ORDER BY"):
                translated(understood(query.format(union)), Labels(), lambda name: None)


def _examples(part: str) -> list[str]:
    text = PAGE.read_text().partition(f"<!-- {part} -->")[2].partition("\n\n<!--")[0].partition("\n* ")[0]
    lines = [line.split("|")[2 if part == "answered" else 1] for line in text.splitlines() if line.startswith("|")]
    return [found for line in lines for found in re.findall(r"`([^`]+)`", line)]


def _translated(theirs: Oracle, example: str) -> None:
    constants = {"database()": "d", "version()": "8", "user()": "u", "connection_id()": 1, "@@sql_mode": ""}
    constants |= {"now()": "2026-01-01 00:00:00", "curdate()": "2026-01-01"}

    def constant(name: str) -> str | int:
        if name not in constants:
            raise StatementRefused("", subject=name)
        return constants[name]

    found = translated(understood(f"SELECT {example} FROM t"), theirs, constant)
    theirs.ours.sql(found.sql).fetchall()


def test_what_the_documentation_says_is_answered_and_is_all(theirs: pymysql.Connection) -> None:
    oracle, seen = Oracle(theirs), set[type | str]()
    oracle.load("t", generated_rows(Random(1), 0))
    oracle.load("o", generated_rows(Random(2), 5).slice(0, 1))
    for example in _examples("answered"):
        if not re.fullmatch("[A-Z ]+", example):
            _translated(oracle, example)
            nodes = list(parse_one(f"SELECT {example} FROM t", dialect="mysql").walk())
            seen |= {node.name.upper() if isinstance(node, exp.Anonymous) else type(node) for node in nodes}
    spelled = {
        exp.CurrentTimestamp,
        exp.Boolean,
        exp.Paren,
        exp.Literal,
        exp.Null,
        exp.Date,
    }  # they are in others, or other spellings
    assert set(RULES) - seen - spelled == set()


def test_what_the_documentation_says_is_refused(theirs: pymysql.Connection) -> None:
    oracle = Oracle(theirs)
    oracle.load("t", generated_rows(Random(1), 0))
    for example in _examples("refused"):
        with pytest.raises(CcprError) as caught:
            _translated(oracle, example)
        assert caught.value.code == "STATEMENT_REFUSED", example
