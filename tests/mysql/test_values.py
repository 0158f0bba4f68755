"""Every type that is served, by the text and by the binary protocol, as a client reads it."""

from contextlib import closing
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import mysql.connector
import pytest

from tests.mysql.conftest import PASSWORD, Served
from tests.support.one_table import DATABASE
from tests.support.replica import command

pytestmark = pytest.mark.integration
COLUMNS = {
    "id": "int not null",
    "small": "tinyint",
    "big": "bigint",
    "whole": "bigint unsigned",
    "money": "decimal(12,2)",
    "real8": "double",
    "real4": "float",
    "word": "varchar(20)",
    "long_text": "text",
    "raw": "varbinary(20)",
    "day": "date",
    "moment": "datetime(3)",
    "instant": "timestamp",
    "clock": "time",
    "flag": "bool",
}
ROWS: list[tuple[Any, ...]] = [
    (
        1, -5, 2**63 - 1, 2**64 - 1, Decimal("-12.50"), 0.1, 1.5, "wörd", "x" * 70000, b"\x00\xff", date(2024, 2, 29),
        datetime(2021, 6, 1, 12, 0, 0, 123000), datetime(2020, 1, 1, 0, 0, 5), timedelta(hours=30, seconds=1), 1,
    ),
    (2, *[None] * (len(COLUMNS) - 1)),
]  # fmt: skip


@pytest.fixture
def typed(served: Served) -> Served:
    storage = served.table.source.storage
    storage.create_table(DATABASE, "k", COLUMNS, primary_key=["id"])
    values = {name: [row[place] for row in ROWS] for place, name in enumerate(COLUMNS)}
    values["flag"] = [None if one is None else bool(one) for one in values["flag"]]
    with storage.begin() as transaction:
        transaction.insert(DATABASE, "k", values)
    command("run", "s")
    return served


def connected(served: Served) -> Any:
    where = {"host": "127.0.0.1", "port": served.server.port, "database": "d", "ssl_disabled": True}
    return mysql.connector.connect(user="reader", password=PASSWORD, use_pure=True, **where)


@pytest.mark.parametrize("prepared", [False, True])
def test_values_are_what_they_are_upstream(typed: Served, prepared: bool) -> None:
    with closing(connected(typed)) as connection:
        cursor = connection.cursor(prepared=prepared)
        cursor.execute(f"SELECT {', '.join(COLUMNS)} FROM k ORDER BY id")
        found = [tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row) for row in cursor]
    for row, expected in zip(found, ROWS, strict=True):
        for name, cell, other in zip(COLUMNS, _plain(row), _plain(expected), strict=True):
            assert cell == other, name


def test_parameters_of_a_prepared_statement(typed: Served) -> None:
    with closing(connected(typed)) as connection:
        cursor = connection.cursor(prepared=True)
        for value, column in ((1, "id"), ("wörd", "word"), (Decimal("-12.50"), "money"), (date(2024, 2, 29), "day")):
            cursor.execute(f"SELECT id FROM k WHERE {column} = ? AND ? IS NULL", (value, None))
            assert cursor.fetchall() == [(1,)], column
        cursor.execute("SELECT ?, ? + 1", ("a' OR '1'='1", 41))
        assert cursor.fetchall() == [("a' OR '1'='1", 42)]
        with pytest.raises(mysql.connector.Error):
            cursor.execute("INSERT INTO k (id) VALUES (?)", (3,))


def test_a_connection_of_a_pool_begins_anew(typed: Served) -> None:
    with closing(connected(typed)) as connection, closing(connection.cursor()) as cursor:
        connection.start_transaction()
        cursor.execute("SET @x = 5, sql_select_limit = 1")
        cursor.execute("SELECT id, @x FROM k")
        assert (cursor.fetchall(), connection.in_transaction) == ([(1, 5)], True)
        connection.cmd_reset_connection()
        cursor.execute("SELECT id, @x FROM k ORDER BY id")
        assert (cursor.fetchall(), connection.in_transaction) == ([(1, None), (2, None)], False)


WRITTEN: dict[Any, str] = {
    5: "CAST(5 AS UNSIGNED)",  # as this driver sends what has no sign
    -5: "-5",
    "-12.5": "'-12.5'",
    "wörd": "'wörd'",
    Decimal("-12.50"): "-12.50",
    0.1: "1e-1",
    date(2024, 2, 29): "DATE '2024-02-29'",
    datetime(2021, 6, 1, 12, 0, 0, 123000): "TIMESTAMP '2021-06-01 12:00:00.123000'",
    datetime(2020, 1, 1, 0, 0, 5): "TIMESTAMP '2020-01-01 00:00:05'",
    None: "NULL",
}


@pytest.mark.in_turn
def test_a_parameter_means_what_a_literal_of_its_type_does(typed: Served) -> None:
    """Beside columns of each type: the answer, or the error, is the same by both protocols."""
    conditions = ("{} <= ?", "{} IN (?, NULL)", "CONCAT({}, ?) LIKE '%1%'")
    counts = {"answers": 0, "errors": 0}
    with closing(connected(typed)) as connection:
        for column in ("big", "whole", "money", "real8", "word", "day", "moment", "clock", "flag"):
            for condition in (one.replace("{}", column) for one in conditions):
                for value, literal in WRITTEN.items():
                    found = _asked(connection, f"SELECT id, {condition} FROM k ORDER BY id", (value,))
                    written = condition.replace("?", literal)
                    assert found == _asked(connection, f"SELECT id, {written} FROM k ORDER BY id"), written
                    counts["answers" if isinstance(found, list) else "errors"] += 1
        assert min(counts.values()) > 80
        for count in (1, 0):
            assert _asked(connection, "SELECT id FROM k ORDER BY id LIMIT ?", (count,)) == [(1,)][:count]
        assert _asked(connection, "SELECT ?", (b"\x00\xff",)) == 1210
        assert _asked(connection, "SELECT ?, ?", (5, date(2024, 2, 29))) == [(5, date(2024, 2, 29))]


def _asked(connection: Any, statement: str, values: tuple[Any, ...] = ()) -> list[Any] | int:
    with closing(connection.cursor(prepared=bool(values))) as cursor:
        try:
            cursor.execute(statement, values)
            return list(cursor.fetchall())
        except mysql.connector.Error as error:
            return int(error.errno)


def _plain(row: tuple[Any, ...]) -> list[Any]:
    return [one.encode() if isinstance(one, str) else one for one in row]
