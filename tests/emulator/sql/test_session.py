"""SQL on a simulated upstream, over the wire; and the statements of a replication client on what it made."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from ccpr.matrixone.objects.stats import ObjectStats
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.wire_client import Client, Connect

pytestmark = pytest.mark.integration


@pytest.fixture
def simulated() -> Iterator[SimulatedUpstream]:
    with SimulatedUpstream(Storage(cn_rows=50)) as emulator:
        yield emulator


@pytest.fixture
def client(simulated: SimulatedUpstream, connect: Connect) -> Client:
    client = connect(simulated.port)
    client.rows("create database shop")
    client.rows("use shop")
    client.rows(
        "create table orders (id bigint primary key, note varchar(40), price decimal(10,2), at datetime(6),"
        " key by_note (note))"
    )
    client.rows("create publication p database shop account all")
    return client


def test_rows_are_inserted_changed_and_deleted(client: Client) -> None:
    client.rows(
        "insert into orders values (1, 'one', 1.5, '2026-01-02 03:04:05.25'), (2, NULL, -2, null),"
        " (3, 'it''s', 0, null)"
    )
    client.rows("update orders set note = 'two', price = 22.75 where id = 2")
    client.rows("delete from shop.orders where id in (3, 4)")
    assert client.rows("select * from orders order by id") == [
        (b"1", b"one", b"1.50", b"2026-01-02 03:04:05.250000"),
        (b"2", b"two", b"22.75", None),
    ]
    assert client.one("select count(*) from orders where note is not null") == b"2"
    assert client.rows("select note from orders where price > 1.5") == [(b"two",)]


def test_every_type_is_written_and_shown(client: Client) -> None:
    client.rows(
        "create table all_types (b bool, bt bit(10), u bigint unsigned, f double, d decimal(60,5), t time(6),"
        " ts timestamp, dt date, bn binary(4), js json, uu uuid, en enum('red','green'), st set('x','y'),"
        " v vecf32(2), y year)"
    )
    client.rows(
        "insert into all_types values (true, 5, 18446744073709551615, 1.25, '-123.45', '-12:00:01.5',"
        " '2026-01-02 03:04:05', '0001-01-01', x'00ff', '{\"b\":1,\"a\":[1,2]}',"
        " '019e7044-880f-75db-b5e2-fc574dad2986', 'green', 'y,x', '[1, 2.5]', 2026)"
    )
    assert client.rows("select * from all_types") == [
        (
            b"1",
            b"\x00\x05",
            b"18446744073709551615",
            b"1.25",
            b"-123.45000",
            b"-12:00:01.500000",
            b"2026-01-02 03:04:05",
            b"0001-01-01",
            b"\x00\xff",
            b'{"a": [1, 2], "b": 1}',
            b"019e7044-880f-75db-b5e2-fc574dad2986",
            b"green",
            b"x,y",
            b"[1, 2.5]",
            b"2026",
        )
    ]


def test_a_transaction_is_seen_by_others_when_it_commits(
    simulated: SimulatedUpstream, client: Client, connect: Connect
) -> None:
    other = connect(simulated.port, database="shop")
    client.rows("begin")
    client.rows("insert into orders (id) values (1)")
    assert client.one("select count(*) from orders") == b"1"
    assert other.one("select count(*) from orders") == b"0"
    client.rows("commit")
    assert other.one("select count(*) from orders") == b"1"
    client.rows("begin")
    client.rows("delete from orders")
    client.rows("rollback")
    assert client.one("select count(*) from orders") == b"1"


def test_errors_have_the_numbers_that_clients_know(
    client: Client, simulated: SimulatedUpstream, connect: Connect
) -> None:
    client.rows("insert into orders (id) values (1)")
    assert client.error("insert into orders (id) values (1)")[0] == 1062
    assert client.error("insert into nowhere values (1)")[0] == 1146
    assert client.error("insert into orders (id) values (null)")[0] == 1048
    assert client.error("insert into orders (id, note) values (2)")[0] == 1136
    assert client.error("insert into orders (id, price) values (2, 'x')")[0] == 20301
    assert client.error("insert into orders (id, price) values (2, 123456789.00)")[0] == 20301
    assert client.error("create table orders (id int)")[0] == 1050
    assert client.error("create table t (id nonsense)")[0] == 20301
    assert client.error("drop database shop") == (
        20101,
        "internal error: can not drop database 'shop' which is publishing",
    )
    assert client.error("insert into orders values")[0] == 1064
    other = connect(simulated.port, database="shop")
    for session in (client, other):
        session.rows("begin")
        session.rows("update orders set note = 'mine' where id = 1")
    client.rows("commit")
    assert other.error("commit")[0] == 20619
    client.rows("begin")
    assert client.error("create snapshot s for database shop from sys publication p")[0] == 20101


def test_ddl_keeps_and_changes_ids_as_the_upstream_does(client: Client) -> None:
    def ids(name: str) -> tuple[bytes | None, ...]:
        (row,) = client.rows(f"select rel_id, rel_logical_id from mo_catalog.mo_tables where relname = '{name}'")
        return row

    first = ids("orders")
    client.rows("rename table orders to o2")
    assert ids("o2") == first
    client.rows("alter table o2 add column extra int")
    added = ids("o2")
    assert added[0] != first[0]
    assert added[1] == first[1]
    client.rows("truncate table o2")
    assert ids("o2")[0] != added[0]
    assert ids("o2")[1] == first[1]
    client.rows("drop table o2")
    client.rows("create table o2 (id int)")
    assert ids("o2")[1] != first[1]
    assert client.rows("show tables") == [(b"o2",)]


def test_a_replication_client_sees_a_flushed_snapshot(client: Client) -> None:
    client.rows("insert into orders (id, note) values (1, 'a'), (2, 'b')")
    client.rows("create snapshot s1 for database shop from sys publication p")
    assert client.one("__++__internal_check_snapshot_flushed s1 sys p") == b"0"
    assert client.rows("__++__internal_object_list s1 - sys p") == []
    for (table_id,) in client.rows("select rel_id from mo_catalog.mo_tables where reldatabase = 'shop'"):
        client.rows(f"select mo_ctl('dn','flush','{(table_id or b'').decode()}')")
    assert client.one("__++__internal_check_snapshot_flushed s1 sys p") == b"1"
    listed = client.rows("__++__internal_object_list s1 - sys p")
    stats = [ObjectStats.parse(row[2] or b"") for row in listed]
    assert [(one.rows, one.appendable) for one in stats] == [(2, True), (2, True)], "the table and its index table"
    data = client.rows(f"__++__internal_get_object sys p {stats[0].name} 1")
    assert len(data[0][0] or b"") == stats[0].size
    client.rows("create snapshot s2 for database shop from sys publication p")
    difference = client.rows("__++__internal_object_list s2 s1 sys p")
    assert (
        sorted((ObjectStats.parse(row[2] or b"").appendable, row[4] != b"0-0") for row in difference)
        == [(False, False)] * 2 + [(True, True)] * 2
    )
    ((_, _, table_id, ddl),) = client.rows("__++__internal_get_ddl s1 sys p database shop -")
    assert ddl is not None
    assert ddl.startswith(
        b"CREATE TABLE `shop`.`orders` (\n  `id` bigint NOT NULL,\n  `note` varchar(40) DEFAULT NULL,"
    )
    indexes = client.rows(f"__++__internal_get_mo_indexes {(table_id or b'').decode()} sys p s1")
    assert [row[1] for row in indexes] == [b"by_note", b"by_note", b"PRIMARY"]
    client.rows("drop snapshot s1 from sys publication p")
    number, text = client.error("__++__internal_object_list s2 s1 sys p")
    assert number == 20101
    assert "find 0 snapshot records by name(s1)" in text


def test_accounts_have_databases_of_their_own(simulated: SimulatedUpstream, client: Client, connect: Connect) -> None:
    client.rows("create account acc1 admin_name 'a' identified by 'b'")
    other = connect(simulated.port, user="acc1:admin")
    other.rows("create database shop")
    other.rows("create table shop.t (id int)")
    other.rows("insert into shop.t values (7)")
    assert client.error("select * from shop.t")[0] == 1146
    assert other.error("create publication q database shop account acc1")[0] == 20101
    other.rows("create publication q database shop account sys")
    client.rows("create snapshot s for database shop from acc1 publication q")
    assert client.rows("__++__internal_get_ddl s acc1 q database shop -")[0][1] == b"t"
    assert other.rows("select sname from mo_catalog.mo_snapshots") == [(b"s",)]
    assert client.rows("select sname from mo_catalog.mo_snapshots") == []
    assert {
        row[0] for row in client.rows("select account_id from mo_catalog.mo_tables where reldatabase = 'shop'")
    } == {b"0", b"1"}


def test_a_statement_that_cannot_be_read_to_its_end_does_nothing(client: Client) -> None:
    client.rows("insert into orders (id) values (1), (2)")
    for text in (
        "delete from orders where id = 1 or",
        "update orders set note = 'x' where id = 1 and id in (2",
        "insert into orders (id) values (3) on duplicate",
        "update orders set price = price +",
        "create table t (id int) engine=innodb nonsense",
        "drop table orders now",
        "truncate table orders now",
        "alter table orders add column x int, nonsense",
        "create table t (id int) clustered by (id)",
    ):
        assert client.error(text)[0] == 1064, text
    assert client.rows("select id, note from orders order by id") == [(b"1", None), (b"2", None)]
    assert client.rows("show tables") == [(b"orders",)]


def test_strings_mean_what_they_mean_upstream(client: Client) -> None:
    client.rows(r"insert into orders (id, note) values (1, 'it\'''s'), (2, 'a\n\x\%'), (-4, '\0')")
    client.rows(r'insert into orders (id, note) values (3, "say ""a\"\\")')
    assert client.rows("select id, note from orders order by id") == [
        (b"-4", b"\0"),
        (b"1", b"it''s"),
        (b"2", b"a\nx\\%"),
        (b"3", b'say "a"\\'),
    ]
    assert client.rows(r"select id from orders where note like 'a%\%'") == [(b"2",)]
    client.rows(r"create table members (e enum('it\'''s', 'a\nb', 'c\_d'))")
    client.rows("insert into members values ('it''''s'), ('a\nb'), ('c\\_d')")
    assert client.rows("select e from members") == [(b"it''s",), (b"a\nb",), (b"c\\_d",)]


def test_comments_are_space_and_what_is_in_executable_ones_is_executed(client: Client) -> None:
    client.rows("insert /* by hand */ into orders (id) values (1), -- one\n(2) # two")
    client.rows("/*!40000 delete */ from orders /*! where id = 1 */")
    assert client.rows("select count(*/* all */) from orders") == [(b"1",)]


def test_an_error_shows_no_string(client: Client) -> None:
    for text in ("insert into orders values (1, 'secret'", "use 'secret'", "drop account 'secret' cascade", "'secret"):
        number, shown = client.error(text)
        assert number in (1064, 20105)
        assert "secret" not in shown
        assert "'***" in shown


def test_statements_say_how_many_rows_they_changed(client: Client) -> None:
    cursor = client.connection.cursor()
    assert cursor.execute("/* by hand */ insert into orders (ID, Note) values (1, 'a'), (2, 'b'), (3, null)") == 3
    assert cursor.execute("-- two\nupdate orders set note = 'z' where id between 2 and 9") == 2
    assert cursor.execute("delete from orders where note like 'z'") == 2
    assert cursor.execute("delete from orders where id = 9") == 0
    assert (
        cursor.execute(f"insert into orders (id) values {','.join(f'({n})' for n in range(10, 400))}") == 390
    )  # a length of three bytes


def test_without_autocommit_a_change_waits_for_commit(
    simulated: SimulatedUpstream, client: Client, connect: Connect
) -> None:
    other = connect(simulated.port, database="shop")
    other.rows("SET AUTOCOMMIT = 0")  # as PyMySQL sends it by default
    assert not other.connection.get_autocommit()
    other.rows("insert into orders (id) values (1)")
    assert client.one("select count(*) from orders") == b"0"
    assert other.error("create snapshot s for database shop from sys publication p")[0] == 20101
    other.rows("rollback")
    assert other.one("select count(*) from orders") == b"0"
    other.rows("insert into orders (id) values (2)")
    other.rows("commit work")
    client.rows("insert into orders (id) values (3)")
    assert client.one("select count(*) from orders") == b"2"
    assert other.one("select count(*) from orders") == b"2", (
        "the transaction begins with the first statement after the commit"
    )
    client.rows("insert into orders (id) values (4)")
    assert other.one("select count(*) from orders") == b"2"
    other.rows("set autocommit=1")
    assert other.connection.get_autocommit()
    assert other.one("select count(*) from orders") == b"3"
    other.rows("insert into orders (id) values (5)")
    assert client.one("select count(*) from orders") == b"4"


def test_rows_are_chosen_by_the_simple_conditions(client: Client) -> None:
    client.rows("insert into orders (id, note) values (1, 'one'), (2, 'two'), (3, 'three'), (4, null)")
    for where, ids in (
        ("id between 2 and 3", [2, 3]),
        ("note like 't%'", [2, 3]),
        ("note not like 't%'", [1]),
        ("note is null", [4]),
        ("note in ('one', null)", [1]),
        ("note not in ('one')", [2, 3]),
        ("note not in ('one', null)", []),
        ("note = null", []),
        ("note <> 'one' and id > 2", [3]),
    ):
        assert client.rows(f"select id from orders where {where} order by id") == [(str(n).encode(),) for n in ids], (
            where
        )
    assert client.rows("select note as n from orders order by n desc limit 1 offset 1") == [(b"three",)]
    assert client.rows("select id from orders order by id limit 1, 2") == [(b"2",), (b"3",)]
    assert client.rows("select count(1) from orders where id > 1") == [(b"3",)]
    assert client.error("select id from orders limit -1")[0] == 1064
    assert client.error("select nosuch(id) from orders")[0] == 20105
    assert client.one("select 1") == b"1"


def test_bytes_are_marked_as_binary(simulated: SimulatedUpstream, client: Client, connect: Connect) -> None:
    client.rows("create table b (id int primary key, t text, b blob, j json)")
    client.rows("insert into b values (1, 'ä', x'ff00', '1')")
    with client.connection.cursor() as cursor:
        cursor.execute("select * from b")
        assert [field.charsetnr for field in cursor._result.fields] == [63, 33, 63, 33]


def test_tables_are_shown(client: Client) -> None:
    client.rows("create table t2 (A int not null, b longtext, c real, primary key (a))")
    assert client.rows("show tables like 't%'") == [(b"t2",)]
    assert client.rows("show full tables from shop") == [(b"orders", b"BASE TABLE"), (b"t2", b"BASE TABLE")]
    assert client.rows("show create table t2")[0][1] == (
        b"CREATE TABLE `t2` (\n  `A` int NOT NULL,\n  `b` text DEFAULT NULL,\n  `c` double DEFAULT NULL,\n"
        b"  PRIMARY KEY (`A`)\n)"
    )
    assert [row[:4] for row in client.rows("desc orders")][:2] == [
        (b"id", b"BIGINT", b"NO", b"PRI"),
        (b"note", b"VARCHAR(40)", b"YES", b"MUL"),
    ]
    assert client.rows("show columns from orders") == client.rows("describe shop.orders")
    assert [row[:5] for row in client.rows("show index from orders from shop")] == [
        (b"orders", b"0", b"PRIMARY", b"1", b"id"),
        (b"orders", b"1", b"by_note", b"1", b"note"),
    ]
    assert client.rows("show create database shop") == [(b"shop", b"CREATE DATABASE `shop`")]
    assert client.error("show tables from nowhere like")[0] == 1064
    assert client.error("desc nothing")[0] == 1146


def test_indexes_columns_and_tables_are_altered_renamed_and_dropped(client: Client) -> None:
    client.rows("insert into orders (id, note, price) values (1, 'x', 1), (2, 'x', 2)")
    client.rows("alter table orders modify price decimal(12,4)")
    assert client.rows("select price from orders order by id") == [(b"1.0000",), (b"2.0000",)]
    assert client.error("alter table orders modify column price decimal(4,4)")[0] == 20301
    assert client.error("create unique index u on orders (note)")[0] == 1062
    client.rows("create index u on orders (price)")
    assert client.error("alter table orders add index u (note)")[0] == 1061
    client.rows("update orders set price = 3 where id = 1")
    client.rows("drop index u on orders")
    assert client.error("drop index u on orders")[0] == 1091
    client.rows("alter table orders add unique key k (price)")
    assert client.error("insert into orders (id, price) values (9, 3)")[0] == 1062
    client.rows("create table a (id int)")
    client.rows("create table b (id int)")
    client.rows("rename table a to c, b to a, c to b")
    client.rows("create account if not exists acc1 admin_name 'a' identified by 'b'")
    client.rows("create account if not exists acc1 admin_name 'a' identified by 'b'")
    assert client.rows("select account_name from mo_catalog.mo_account") == [(b"sys",), (b"acc1",)]
    assert client.error("rename table a to other.a")[0] == 20301
    client.rows("drop table if exists a, nothing, b")
    assert client.rows("show tables") == [(b"orders",)]
    for text in ("create table t (id int, ID int)", "alter table orders add column note int"):
        assert client.error(text)[0] == 1060


def test_a_session_of_the_command_line_client(simulated: SimulatedUpstream) -> None:
    program = shutil.which("mariadb") or shutil.which("mysql")
    assert program, "scripts/test-components installs it"
    script = """create database shop;
        use shop
        create table orders (id bigint primary key, note varchar(40));
        insert into orders values (1, 'first'), (2, null);
        begin; delete from orders; rollback;
        select * from orders order by id; show tables;
        status
        nonsense;
        select count(*) from orders;
    """
    command = [program, "-h127.0.0.1", f"-P{simulated.port}", "-uroot", "-pany", "--force", "--batch"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60, check=False)
    assert [line for line in done.stderr.splitlines() if line.startswith("ERROR")] == [
        "ERROR 1064 (42000) at line 8: SQL syntax: the emulator does not know this statement, near 'nonsense'"
    ]
    lines = done.stdout.splitlines()
    assert lines[:5] == ["id\tnote", "1\tfirst", "2\tNULL", "Tables_in_shop", "orders"]
    assert lines[-2:] == ["count(*)", "2"]
