"""A stranger's session with the clients that strangers have: `mariadb`, PyMySQL, SQLAlchemy."""

import shutil
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pymysql
import pytest
import sqlalchemy as sa

from ccpr_emulator.simulated_upstream import SimulatedUpstream

pytestmark = pytest.mark.integration


@pytest.fixture
def simulated() -> Iterator[SimulatedUpstream]:
    with SimulatedUpstream() as emulator:
        yield emulator


def test_the_mariadb_client_loads_a_file_and_sends_several_statements_at_once(
    simulated: SimulatedUpstream, tmp_path: Path
) -> None:
    program = shutil.which("mariadb") or shutil.which("mysql")
    assert program, "scripts/test-components installs it"
    (tmp_path / "orders.csv").write_text('id,customer,total\n1,"Ann, the first",10.5\n2,\\N,20\n')
    script = f"""create database shop;
        use shop;
        create table orders (id int primary key, customer varchar(40), total decimal(10,2), paid bool default false);
        load data local infile '{tmp_path}/orders.csv' into table orders fields terminated by ',' enclosed by '"'
            lines terminated by '\\n' ignore 1 lines (id, customer, total);
        delimiter //
        insert into orders (id, total) values (3, 1); update orders set paid = true where id = 3;
        select id from orders//
        delimiter ;
        select customer, sum(total) total from orders group by customer order by total desc;
        show tables; describe orders;
        status
    """
    command = [program, "-h127.0.0.1", f"-P{simulated.port}", "-uroot", "-pany", "--batch", "--local-infile=1"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[:8] == [
        "id",
        "1",
        "2",
        "3",
        "customer\ttotal",
        "NULL\t21.00",
        "Ann, the first\t10.50",
        "Tables_in_shop",
    ]
    assert lines[8:11] == ["orders", "Field\tType\tNull\tKey\tDefault\tExtra\tComment", "id\tINT\tNO\tPRI\tNULL\t\t"]


def test_pymysql_gets_values_of_the_types_it_knows(simulated: SimulatedUpstream) -> None:
    with pymysql.connect(host="127.0.0.1", port=simulated.port, user="root", password="any") as connection:
        cursor = connection.cursor()
        cursor.execute("create database shop")
        connection.select_db("shop")
        cursor.execute(
            "create table orders (id bigint auto_increment primary key, at datetime(3), total decimal(10,2), y year,"
            " v vecf32(2), note text)"
        )
        rows = [("2026-01-02 03:04:05.678", Decimal("1.50"), 2026, "[1,2.5]", "it's %"), (None, None, None, None, None)]
        cursor.executemany("insert into orders (at, total, y, v, note) values (%s, %s, %s, %s, %s)", rows)
        assert cursor.rowcount == 2
        cursor.execute("insert into orders (note) values ('third')")
        assert cursor.lastrowid == 3
        connection.commit()
        cursor.execute("select * from orders where note = %s", ("it's %",))
        ((number, at, total, year, vector, note),) = cursor.fetchall()
        assert (number, total, year, vector, note) == (1, Decimal("1.50"), 2026, "[1, 2.5]", "it's %")
        assert at.microsecond == 678000
        cursor.execute("select count(*), avg(id), max(total), 7 div 2, 7 / 2, concat('a', null) from orders")
        assert cursor.fetchall() == ((3, 2.0, Decimal("1.50"), 3, 3.5, None),)
        cursor.execute("delete from orders")
        connection.rollback()
        cursor.execute("select count(*) from orders")
        assert cursor.fetchone() == (3,)


def test_sqlalchemy_creates_reflects_and_queries(simulated: SimulatedUpstream) -> None:
    engine = sa.create_engine(f"mysql+pymysql://root:any@127.0.0.1:{simulated.port}/information_schema")
    with engine.begin() as connection:
        connection.execute(sa.text("create database shop"))
    engine.dispose()
    engine = sa.create_engine(f"mysql+pymysql://root:any@127.0.0.1:{simulated.port}/shop")
    metadata = sa.MetaData()
    customers = sa.Table(
        "customers",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(40), nullable=False, index=True),
        sa.Column("since", sa.DateTime, server_default=sa.func.now()),
    )
    orders = sa.Table(
        "orders",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("customer", sa.ForeignKey("customers.id")),
        sa.Column("total", sa.Numeric(10, 2)),
    )
    metadata.create_all(engine)
    with engine.begin() as connection:
        made = connection.execute(customers.insert().values(name="Ann"))
        assert made.inserted_primary_key == (1,)
        connection.execute(orders.insert(), [{"customer": 1, "total": Decimal(n)} for n in range(5)])
        connection.execute(orders.update().where(orders.c.id > 3).values(total=orders.c.total + 10))
        joined = (
            sa.select(customers.c.name, sa.func.sum(orders.c.total))
            .join(orders, orders.c.customer == customers.c.id)
            .group_by(customers.c.name)
        )
        assert connection.execute(joined).all() == [("Ann", Decimal("30.00"))]
    inspector = sa.inspect(engine)
    assert inspector.get_table_names() == ["customers", "orders"]
    assert inspector.get_pk_constraint("orders")["constrained_columns"] == ["id"]
    assert [index["column_names"] for index in inspector.get_indexes("customers")] == [["name"]]
    (key,) = inspector.get_foreign_keys("orders")
    assert (key["constrained_columns"], key["referred_table"]) == (["customer"], "customers")
    reflected = sa.Table("customers", sa.MetaData(), autoload_with=engine)
    assert {column.name: str(column.type) for column in reflected.columns} == {
        "id": "INTEGER",
        "name": "VARCHAR(40)",
        "since": "DATETIME",
    }
    metadata.drop_all(engine)
    engine.dispose()
