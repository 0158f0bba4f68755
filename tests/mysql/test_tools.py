"""Tools as they come: drivers, their questions about what there is, and the values that they make of rows. What needs
the network, the two drivers of Java, is of the lane `long`."""

import os
import shutil
import subprocess
import sys
from contextlib import closing
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import mysql.connector
import pymysql
import pyspark
import pytest
import sqlalchemy as sa

from ccpr.base.maven import Jar, NoJar
from tests.mysql.conftest import PASSWORD, Served

pytestmark = pytest.mark.integration

STATEMENTS = [
    line for line in (Path(__file__).parent / "statements_of_clients.sql").read_text().splitlines() if line[:2] != "--"
]
ORDERS = {
    "id": "int not null",
    "customer": "varchar(20)",
    "total": "decimal(12,2)",
    "placed": "datetime",
    "paid": "bool",
    "ratio": "double",
    "born": "date",
    "big": "bigint unsigned",
}
COUNT = 1000
DRIVERS = {
    "mysql": Jar(
        "com.mysql:mysql-connector-j:9.4.0", "49ed93c8b2bea9cb0929b85a8a28837b191d0f8eac6919fdcef16e36e2cd53b3"
    ),
    "mariadb": Jar(
        "org.mariadb.jdbc:mariadb-java-client:3.5.5", "81b9b10dbbd823e5dc9d81bc48435c76d7e92297a8515cfb75bc620917df9baa"
    ),
}


def row(number: int) -> tuple[Any, ...]:
    placed = datetime(2026, 1, 1) + timedelta(hours=number)
    born = date(2020, 1, 1) + timedelta(days=number % 30)
    paid, big = number % 2, 2**63 + number
    return number, f"c{number % 7}", Decimal(number) / 4, placed, paid, number / 3, born, big


@pytest.fixture
def shop(served: Served) -> Served:
    """With a table of many rows, and of many types."""
    served.table.source.storage.create_table("d", "orders", ORDERS, primary_key=["id"])
    rows = [dict(zip(ORDERS, row(number), strict=True)) for number in range(COUNT)]
    for one in rows:
        one["paid"] = bool(one["paid"])
    with served.table.source.storage.begin() as transaction:
        transaction.insert("d", "orders", rows)
    served.table.work()
    return served


def test_a_hundred_statements_of_clients_are_answered_as_text(shop: Served) -> None:
    assert len(STATEMENTS) == 100
    with closing(shop.connect()) as connection, connection.cursor() as cursor:
        for statement in STATEMENTS:
            cursor.execute(statement)
            cursor.fetchall()


def test_a_hundred_statements_of_clients_are_answered_in_the_binary_protocol(shop: Served) -> None:
    options = {"host": "127.0.0.1", "port": shop.server.port, "user": "reader", "password": PASSWORD, "database": "d"}
    with closing(mysql.connector.connect(**options, use_pure=True)) as connection:
        for statement in STATEMENTS:
            with closing(connection.cursor(prepared=statement.startswith(("SELECT", "WITH")))) as cursor:
                cursor.execute(statement)
                if cursor.description:
                    cursor.fetchall()
        with closing(connection.cursor(prepared=True)) as cursor:
            cursor.execute("SELECT * FROM orders WHERE id = %s AND placed < %s", (5, datetime(2027, 1, 1)))
            assert cursor.fetchall() == [row(5)]


@pytest.mark.parametrize("program", ["mysql", "mariadb"])
def test_a_hundred_statements_from_a_command_line(shop: Served, program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program}")
    options = ["-h127.0.0.1", f"-P{shop.server.port}", "-ureader", f"-p{PASSWORD}", "--skip-ssl", "--force", "d"]
    script = ";\n".join(STATEMENTS) + ";\n"
    done = subprocess.run([program, *options], input=script, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_tools_ask_has_the_columns_that_they_read(shop: Served) -> None:
    lines = (Path(__file__).parent / "statements_of_tools.sql").read_text().splitlines()
    with closing(shop.connect()) as connection, connection.cursor() as cursor:
        for statement, _, columns in (line.partition(" --> ") for line in lines if line[:2] != "--"):
            cursor.execute(statement)
            cursor.fetchall()
            given = [one[0] for one in cursor.description or ()]
            assert set(filter(None, columns.split(", "))) <= set(given), statement


def test_numbers_have_the_digits_that_mysql_says(shop: Served) -> None:
    asked = "SELECT column_name, numeric_precision, numeric_scale FROM information_schema.columns"
    assert shop.ask(
        f"{asked} WHERE table_name = 'orders' AND data_type NOT LIKE 'date%' ORDER BY ordinal_position"
    ) == [
        ("id", 10, 0),
        ("customer", None, None),
        ("total", 12, 2),
        ("paid", 3, 0),
        ("ratio", 22, None),
        ("big", 20, 0),
    ]


def test_sqlalchemy_reflects_all_of_a_database(shop: Served) -> None:
    engine = sa.create_engine(f"mysql+pymysql://reader:{PASSWORD}@127.0.0.1:{shop.server.port}/d")
    look = sa.inspect(engine)
    assert sorted(look.get_schema_names()) == ["d", "information_schema", "mo_catalog"]
    assert (look.get_table_names(), look.get_view_names()) == (["a", "orders"], [])
    columns = look.get_columns("orders")
    assert {one["name"]: str(one["type"]) for one in columns} == {
        "id": "INTEGER",
        "customer": "VARCHAR(20)",
        "total": "DECIMAL(12, 2)",
        "placed": "DATETIME",
        "paid": "TINYINT",
        "ratio": "DOUBLE",
        "born": "DATE",
        "big": "BIGINT",
    }
    assert look.get_pk_constraint("orders")["constrained_columns"] == ["id"]
    assert (look.get_foreign_keys("orders"), look.get_indexes("orders")) == ([], [])
    metadata = sa.MetaData()
    metadata.reflect(engine)
    orders = metadata.tables["orders"]
    with engine.connect() as connection:
        columns = [one for one in orders.c if one.name != "ratio"]  # which SQLAlchemy makes a decimal of
        found = connection.execute(sa.select(*columns).where(orders.c.total < 1).order_by(orders.c.id.desc())).all()
    assert list(map(tuple, found)) == [row(number)[:5] + row(number)[6:] for number in (3, 2, 1, 0)]
    engine.dispose()


@pytest.mark.in_turn
def test_questions_about_names_reach_nothing_else(shop: Served) -> None:
    """They are answered by DuckDB's rules: of what it can read but these tables nothing is taken."""
    names = "information_schema.tables"
    for statement in (
        f"SELECT * FROM {names}, read_csv('/etc/passwd')",
        f"SELECT * FROM {names}, `/etc/passwd`",
        f"SELECT getenv('HOME') FROM {names}",
        f"SELECT current_setting('memory_limit') FROM {names}",
        f"SELECT * FROM {names}, duckdb_settings()",
        f"SELECT read_text('/etc/passwd') FROM {names}",
        f"SELECT (SELECT MAX(content) FROM read_blob('/etc/passwd')) FROM {names}",
        f"SELECT @x := 1 FROM {names}",
        f"SELECT 1 FROM {names} INTO OUTFILE '/tmp/x'",
        f"SELECT COUNT(*) FROM {names} {{MO_TS = 1}}",
        "SELECT * FROM information_schema.nothing",
        "SELECT * FROM information_schema.duckdb_tables",
    ):
        assert shop.error(statement)[0] in (1235, 1109, 1064, 1146, 1049, 1193), statement
    many = ", ".join(f"information_schema.columns AS c{n}" for n in range(9))
    assert shop.error(f"SELECT * FROM {many}")[0] in (1104, 3024, 1038)
    assert shop.ask(f"SELECT TABLE_NAME FROM {names} WHERE TABLE_SCHEMA = '§0' OR TABLE_NAME = 'it''s'") == []


# ---- Java


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    try:
        return request.param, DRIVERS[request.param].fetch(tmp_path / "jars")
    except NoJar as error:
        pytest.skip(str(error))


@pytest.mark.long
def test_the_drivers_of_java(shop: Served, driver: tuple[str, Path]) -> None:
    from py4j.java_gateway import JavaGateway

    name, jar = driver
    (py4j,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    gateway = JavaGateway.launch_gateway(classpath=str(jar), jarpath=str(py4j), die_on_exit=True)
    try:
        for options in ("", "?useServerPrepStmts=true"):
            url = f"jdbc:{name}://127.0.0.1:{shop.server.port}/d{options}"
            connection = gateway.jvm.java.sql.DriverManager.getConnection(url, "reader", PASSWORD)
            _look_around(connection.getMetaData())
            statement = connection.createStatement()
            for text in STATEMENTS:
                statement.execute(text)
            prepared = connection.prepareStatement(
                "SELECT total, big, placed FROM orders WHERE id = ? AND customer = ?"
            )
            prepared.setInt(1, 5)
            prepared.setString(2, "c5")
            found = prepared.executeQuery()
            about = found.getMetaData()
            assert (about.getPrecision(1), about.getScale(1)) == (38, 2)
            assert found.next()
            cells = [str(found.getString(place)) for place in (1, 2, 3)]
            assert cells == ["1.25", str(2**63 + 5), "2026-01-01 05:00:00"]
            connection.setReadOnly(True)
            connection.setAutoCommit(False)
            assert statement.execute("SELECT COUNT(*) FROM orders")
            connection.commit()
            assert connection.isValid(5)
            connection.close()
    finally:
        gateway.shutdown()
        gateway.java_process.terminate()


def _look_around(about: Any) -> None:
    asked = {
        "getTables": about.getTables("d", None, "%", None),
        "getColumns": about.getColumns("d", None, "orders", "%"),
        "getPrimaryKeys": about.getPrimaryKeys("d", None, "orders"),
        "getIndexInfo": about.getIndexInfo("d", None, "orders", False, False),
        "getImportedKeys": about.getImportedKeys("d", None, "orders"),
        "getExportedKeys": about.getExportedKeys("d", None, "orders"),
        "getProcedures": about.getProcedures("d", None, "%"),
        "getFunctions": about.getFunctions("d", None, "%"),
        "getCatalogs": about.getCatalogs(),
        "getSchemas": about.getSchemas(),
    }
    counts = {what: _count(found) for what, found in asked.items()}
    assert counts == {
        "getTables": 2,
        "getColumns": len(ORDERS),
        "getPrimaryKeys": 1,
        "getIndexInfo": 1,
        "getImportedKeys": 0,
        "getExportedKeys": 0,
        "getProcedures": 0,
        "getFunctions": 0,
        "getCatalogs": 3,
        "getSchemas": 0,
    }


def _count(found: Any) -> int:
    count = 0
    while found.next():
        count += 1
    return count


@pytest.mark.long
def test_the_jdbc_source_of_spark_reads_the_same_rows(shop: Served, tmp_path: Path) -> None:
    try:
        jar = DRIVERS["mysql"].fetch(tmp_path / "jars")
    except NoJar as error:
        pytest.skip(str(error))
    url = f"jdbc:mysql://127.0.0.1:{shop.server.port}/d"
    program = [sys.executable, str(Path(__file__).parent / "spark_jdbc.py"), url, PASSWORD, str(jar)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, env={**os.environ, "TZ": "UTC"})
    assert done.returncode == 0, done.stderr[-2000:]
    expected = [[str(cell) for cell in row(number)] for number in range(COUNT)]
    for number, cells in enumerate(expected):
        cells[2] = f"{Decimal(number) / 4:.2f}"
    assert [line.split("\t") for line in done.stdout.splitlines() if "\t" in line] == expected


def test_an_error_of_a_tool_is_told_by_name(shop: Served) -> None:
    """Spark's source for the MariaDB driver quotes names as texts, which MySQL would compare with numbers."""
    with pytest.raises(pymysql.MySQLError, match="comparison < of int and text"):
        shop.ask('SELECT 1 FROM orders WHERE "id" < 250 or "id" is null')
