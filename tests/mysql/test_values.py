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


def _plain(row: tuple[Any, ...]) -> list[Any]:
    return [one.encode() if isinstance(one, str) else one for one in row]
