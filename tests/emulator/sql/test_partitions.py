"""PARTITION BY and the DDL of partitions: rows, and what the catalog shows (docs/upstream.md, "Partitioned tables")."""

import pytest

from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.wire_client import Client, Connect

pytestmark = pytest.mark.integration

RANGE = "partition by range columns (n) (partition a values less than (10), partition b values less than (20))"


@pytest.fixture
def client(connect: Connect):
    with SimulatedUpstream(Storage()) as emulator:
        found = connect(emulator.port, user="root")
        for statement in (
            "create database d",
            "use d",
            "create table h (n int primary key, v int) partition by hash(n) partitions 3",
            f"create table r (n int, v int) {RANGE}",
            "create table l (n int primary key) partition by list (n) (partition a values in (1, -2), "
            "partition b values in (3))",
        ):
            found.rows(statement)
        yield found


def catalog(client: Client) -> dict[str, tuple[str, int]]:
    query = "select relname, relkind, partitioned from mo_catalog.mo_tables where reldatabase = 'd'"
    return {name.decode(): (kind.decode(), int(parts)) for name, kind, parts in client.rows(query)}


def counts(client: Client, table: str) -> int:
    ((count,),) = client.rows(f"select count(*) from {table}")
    return int(count)


def test_each_partition_is_a_hidden_table(client: Client) -> None:
    found = catalog(client)
    assert found["r"] == ("r", 1)
    assert {name for name, (kind, _) in found.items() if kind == "partition"} == {
        *(f"%!%p{number}%!%h" for number in range(3)),
        *(f"%!%{part}%!%{table}" for part in "ab" for table in "rl"),
    }
    assert {name for (name,) in client.rows("show tables")} == {b"h", b"r", b"l"}


def test_rows_are_found_whatever_partition_they_are_in(client: Client) -> None:
    client.rows("insert into h values (1, 1), (2, 2), (3, 3)")
    client.rows("update h set n = n + 1 where n = 3")
    client.rows("insert into r values (5, 1), (15, 2)")
    client.rows("update r set n = 16 where n = 5")
    assert [int(n) for (n,) in client.rows("select n from h order by n")] == [1, 2, 4]
    assert [int(n) for (n,) in client.rows("select n from r order by n")] == [15, 16]
    client.error("insert into h values (4, 0)")  # a key is unique in the whole table
    client.error("insert into r values (20, 0)")
    client.error("insert into l values (2)")
    client.rows("insert into l values (-2), (3)")


def test_partitions_are_added_dropped_and_emptied(client: Client) -> None:
    client.rows("alter table r add partition (partition c values less than (maxvalue))")
    client.rows("insert into r values (5, 1), (15, 2), (25, 3)")
    client.rows("alter table r drop partition a")
    assert counts(client, "r") == 2
    client.rows("insert into r values (5, 1)")  # the next one takes what is less
    client.rows("alter table r truncate partition b")
    assert counts(client, "r") == 1
    found = catalog(client)
    assert (found["%!%b%!%r"], found["%!%c%!%r"]) == (("r", 0), ("partition", 0))
    assert "%!%a%!%r" not in found
    client.rows("alter table h truncate partition all")
    client.rows("rename table r to s")
    assert {"%!%b%!%s", "%!%c%!%s"} <= catalog(client).keys()
    for refused in (
        "alter table h drop partition p0",
        "alter table h add partition (partition x values in (1))",
        "alter table s add partition (partition x values less than (5))",
        "alter table s drop partition x",
        "alter table s drop partition b, c",
        "alter table s exchange partition b with table l",
    ):
        client.error(refused)
