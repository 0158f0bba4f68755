"""The relay on the wire: logins, scope, the statements of a MatrixOne in their order, snapshots that last."""

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pymysql
import pytest

from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.relay.client_port import Listen
from ccpr.relay.errors import RelayListen
from ccpr.relay.relay_server import Relay
from ccpr.service.workspace import Workspace
from ccpr.state.pins import Pins
from tests.relay.conftest import PASSWORD, Relayed
from tests.support.relayed import relaying
from tests.support.replica import replaying
from tests.support.wire_client import Client, Connect

pytestmark = [pytest.mark.integration, pytest.mark.recordings]
TASK = "0ae3c1de-96a5-4d2c-8f0c-7f1f9f0d3f2a"
MANY = 24


def native(number: int) -> str:
    return f"ccpr_{TASK}_{number}"


def log_in(connect: Connect, relayed: Relayed, user: str = "sys#dump") -> Client:
    return connect(relayed.relay.port, user=user, password=PASSWORD)


def take(client: Client, name: str) -> None:
    client.rows(f"CREATE SNAPSHOT IF NOT EXISTS `{name}` FOR DATABASE gd_dml FROM sys PUBLICATION replica")


def test_a_matrixone_gets_its_statements_answered_in_their_order(relayed: Relayed, connect: Connect) -> None:
    first, second = log_in(connect, relayed), log_in(connect, relayed)
    coverage = first.rows("SHOW PUBLICATION COVERAGE `replica`")
    assert (b"gd_dml", b"*") in coverage
    assert second.rows("__++__internal_get_databases - sys replica database gd_dml -") == [(b"gd_dml",)]
    created = second.rows("__++__internal_get_ddl - sys replica database gd_dml -")
    assert all(b'PROPERTIES("from_publication" = "true")' in row[3] for row in created if row[3])
    for row in created:
        assert row[2] is not None
        second.rows(f"__++__internal_get_mo_indexes {int(row[2])} sys replica -")
    fetched = _iterate(log_in(connect, relayed), 0)
    assert fetched
    for number in (1, 2, 3):
        relayed.replica.run()
        _iterate(log_in(connect, relayed), number)
    names = {pin.name for pin in _pins(relayed).all()}
    assert names == {native(2), native(3)}, "two snapshots and no more, as a MatrixOne drops them"


def _iterate(client: Client, number: int) -> int:
    """What one iteration sends; returns how many objects were fetched."""
    name, of = native(number), "sys replica"
    take(client, name)
    at = client.one(f"__++__internal_get_snapshot_ts {name} {of}")
    assert at is not None
    against = "-"
    if number:
        against = native(number - 1)
        before = client.one(f"__++__internal_get_snapshot_ts {against} {of}")
        assert before is not None
        assert int(before) <= int(at)
    if number > 1:
        client.rows(f"DROP SNAPSHOT IF EXISTS `{native(number - 2)}` FROM sys PUBLICATION replica")
    assert client.one(f"__++__internal_check_snapshot_flushed {name} {of}") == b"1"
    client.rows(f"__++__internal_get_databases {name} {of} database gd_dml -")
    for row in client.rows(f"__++__internal_get_ddl {name} {of} database gd_dml -"):
        client.rows(f"__++__internal_get_mo_indexes {int(row[2] or 0)} {of} {name}")
    live = [row for row in client.rows(f"__++__internal_object_list {name} {against} {of}") if row[4] == b"0-0"]
    for row in live:
        stats = ObjectStats.parse(row[2] or b"")
        ((_, size, *_),) = client.rows(f"__++__internal_get_object {of} {stats.name} 0")
        ((data, *_),) = client.rows(f"__++__internal_get_object {of} {stats.name} 1")
        assert len(data or b"") == int(size or 0) == stats.size
    return len(live)


def _pins(relayed: Relayed) -> Pins:
    log = relayed.workspace.log
    return Pins(log.engine, log.row("replica").task_id)


# ---- logins


@pytest.mark.parametrize(
    ("user", "password"),
    [("dump", "112"), ("dump", ""), ("nobody", "111"), ("sys#dump", "1111"), ("acc1#dump", "111"), ("", "111")],
)
def test_a_login_needs_a_user_and_its_password(relayed: Relayed, user: str, password: str) -> None:
    with pytest.raises(pymysql.MySQLError) as caught:
        pymysql.connect(host="127.0.0.1", port=relayed.relay.port, user=user, password=password)
    assert caught.value.args[0] == 1045
    assert password not in caught.value.args[1] or not password


def test_many_wrong_logins_at_once_keep_nobody_out(relayed: Relayed, connect: Connect) -> None:
    def wrong(_: int) -> int:
        with pytest.raises(pymysql.MySQLError) as caught:
            pymysql.connect(host="127.0.0.1", port=relayed.relay.port, user="dump", password="no", connect_timeout=60)
        return caught.value.args[0]

    with ThreadPoolExecutor(MANY) as pool:
        found = pool.map(wrong, range(MANY))
        assert log_in(connect, relayed).one("SELECT 1") == b"1"
        assert set(found) == {1045}


def test_thirty_sessions_are_served_and_the_next_is_refused(relayed: Relayed, connect: Connect) -> None:
    clients = [log_in(connect, relayed) for _ in range(30)]
    with pytest.raises(pymysql.MySQLError, match="30 sessions are open"):
        log_in(connect, relayed)
    assert {client.one("SELECT 1") for client in clients} == {b"1"}


def test_users_are_added_listed_and_dropped_and_the_password_is_nowhere(relayed: Relayed, connect: Connect) -> None:
    replica = relayed.replica
    made = replica.command("relay", "user", "add", "Mo")
    assert [one["user"] for one in replica.command("relay", "user", "list")] == ["mo"]
    assert replica.command("relay", "user", "add", "mo", code=1)["error"]["code"] == "RELAY_USER_EXISTS"
    assert replica.command("relay", "user", "add", "x", "--password", "plain", code=2)["error"]["code"] == "BAD_URI"
    for file in (replica.folder / "home").rglob("*"):
        assert not file.is_file() or made["password"].encode() not in file.read_bytes()
    from ccpr.relay.offers import Offers
    from ccpr.relay.relay_backing import StateFolder
    from ccpr.state.logins import PortLogins

    users = PortLogins(relayed.workspace.log.engine, relayed.workspace.vault)
    folder = StateFolder(Offers(relayed.workspace))
    with Relay(folder, users.digest, Listen(port=0), seen_by=folder.seen_by) as other:
        client = connect(other.port, user="sys#MO", password=made["password"])
        assert client.one("SELECT 1") == b"1"
        replica.command("relay", "user", "drop", "mo")
        with pytest.raises(pymysql.MySQLError, match="Access denied"):
            connect(other.port, user="mo", password=made["password"])
    assert replica.command("relay", "user", "drop", "mo", code=1)["error"]["code"] == "RELAY_USER_MISSING"


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:6002", "example.com:1"])
def test_off_loopback_it_needs_tls_or_a_plain_word(address: str) -> None:
    with pytest.raises(RelayListen, match="would read the data"):
        Listen.parse(address).context()
    assert Listen.parse(address, insecure=True).context() is None


@pytest.mark.parametrize("address", ["", "6002", "host:", ":1", "host:x", "host:70000"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(RelayListen, match="HOST:PORT"):
        Listen.parse(address)


# ---- scope, and statements that no MatrixOne sends


def test_an_object_outside_the_ledger_does_not_exist(relayed: Relayed, connect: Connect) -> None:
    client = log_in(connect, relayed)
    (relayed.replica.mirror / "secret").write_text("x")
    for name in (
        "../mirror.json",
        "head.json",
        "../../key",
        "objects/x",
        "/etc/passwd",
        "00000000-0000-0000-0000-000000000000_00000",
        "%2e%2e",
        "a\\b",
    ):
        assert client.error(f"__++__internal_get_object sys replica {name} 1")[0] == 20405
        assert client.error(f"__++__internal_get_object sys replica {name} 0")[0] == 20405


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (a int)",
        "INSERT INTO gd_dml.x VALUES (1)",
        "DELETE FROM gd_dml.x",
        "DROP DATABASE gd_dml",
        "DROP SNAPSHOT s",
        "CREATE SNAPSHOT s FOR ACCOUNT",
        "CREATE SNAPSHOT s FOR ACCOUNT FROM sys PUBLICATION replica",
        "CREATE SNAPSHOT s FOR DATABASE other FROM sys PUBLICATION replica",
        "CREATE SNAPSHOT s FOR TABLE gd_dml nothing FROM sys PUBLICATION replica",
        "CREATE SNAPSHOT s FOR DATABASE gd_dml FROM sys PUBLICATION other",
        "DROP SNAPSHOT s FROM sys PUBLICATION replica",
        "SELECT mo_ctl('dn','checkpoint','')",
        "SELECT mo_ctl('dn','diskcleaner','force_gc')",
        "SELECT * FROM mo_catalog.mo_user",
        "SET EMULATOR FAULT = 'crash kind=ping'",
        "SHOW EMULATOR STATUS",
        "LOAD DATA INFILE 'x' INTO TABLE t",
        "__++__internal_object_list s - sys replica",
        "__++__internal_object_list s - sys",
        "__++__internal_get_ddl s sys replica database gd_dml -",
        "__++__internal_get_ddl - sys other database gd_dml -",
        "__++__internal_get_snapshot_ts s sys replica",
        "__++__internal_get_object sys other x 1",
        "__++__internal_nothing",
        "/*",
        "'",
        "\x00",
    ],
)
def test_anything_else_is_refused_with_a_reason(relayed: Relayed, connect: Connect, statement: str) -> None:
    client = log_in(connect, relayed)
    number, text = client.error(statement)
    assert number in (1064, 1146, 20101, 20301)
    assert text
    assert client.one("SELECT 1") == b"1", "the session goes on"


def test_flushing_is_an_empty_ok(relayed: Relayed, connect: Connect) -> None:
    client = log_in(connect, relayed)
    ((number,), *_) = [row[:1] for row in client.rows("SELECT rel_id FROM mo_catalog.mo_tables WHERE rel_id > 3")]
    answer = json.loads(client.one(f"SELECT mo_ctl('dn','flush','{int(number or 0)}')") or b"")
    assert answer["result"] == [{"ReturnStr": "OK"}]


def test_a_difference_needs_both_snapshots_and_the_older_first(relayed: Relayed, connect: Connect) -> None:
    client, of = log_in(connect, relayed), "sys replica"
    take(client, "one")
    relayed.replica.run()
    take(client, "two")
    assert client.rows(f"__++__internal_object_list two one {of}")
    assert client.error(f"__++__internal_object_list one two {of}") == (20101, "internal error: invalid timestamp")
    client.rows("DROP SNAPSHOT one FROM sys PUBLICATION replica")
    assert "find 0 snapshot records" in client.error(f"__++__internal_object_list two one {of}")[1]


def test_without_index_tables_a_matrixone_is_told_how_to_have_them(
    recordings: Path, home: Path, connect: Connect
) -> None:
    with replaying(recordings / "keys", home) as replica, Workspace() as workspace:
        replica.subscribe()
        replica.run()
        with relaying(workspace) as relay:
            client = connect(relay.port, user="dump", password=PASSWORD)
            tables = client.rows("SELECT rel_id, relname FROM mo_catalog.mo_tables WHERE relkind = 'r'")
            ids = {name: int(number or 0) for number, name in tables}
            assert client.rows(f"__++__internal_get_mo_indexes {ids[b'comp']} sys replica -") == []
            text = client.error(f"__++__internal_get_mo_indexes {ids[b'idx']} sys replica -")[1]
            assert "another subscription with `ccpr subscribe … --with-indexes`" in text


def test_a_subscription_without_a_point_is_said_to_have_none(recordings: Path, home: Path, connect: Connect) -> None:
    with replaying(recordings / "dml", home) as replica, Workspace() as workspace:
        replica.subscribe()
        with relaying(workspace) as relay:
            client = connect(relay.port, user="dump", password=PASSWORD)
            assert client.rows("SHOW PUBLICATION COVERAGE replica") == [(b"gd_dml", b"*")]
            text = client.error("CREATE SNAPSHOT s FOR DATABASE gd_dml FROM sys PUBLICATION replica")[1]
            assert "ccpr run replica" in text


# ---- pins


def test_a_pinned_point_stays_until_it_is_dropped(relayed: Relayed, connect: Connect) -> None:
    client, replica = log_in(connect, relayed), relayed.replica
    take(client, "kept")
    replica.command("alter", "replica", "--retain", "1")
    for _ in range(3):
        replica.run()
    points = [point["lsn"] for point in replica.command("points", "replica")]
    assert points == [0, 1, 2, 3], "all since the pinned one"
    assert client.rows("__++__internal_object_list kept - sys replica")
    assert [pin["snapshot"] for pin in replica.command("relay", "pins", "replica")["pins"]] == ["kept"]
    assert replica.command("relay", "pins", "replica", "--drop", "kept")["dropped"] == ["kept"]
    replica.run()
    assert [point["lsn"] for point in replica.command("points", "replica")] == [4]


def test_a_restarted_relay_knows_its_snapshots(relayed: Relayed, connect: Connect) -> None:
    client = log_in(connect, relayed)
    take(client, "kept")
    before = client.rows("__++__internal_object_list kept - sys replica")
    relayed.replica.run()
    with Workspace() as again, relaying(again) as relay:
        other = connect(relay.port, user="dump", password=PASSWORD)
        take(other, "kept")  # it is there: IF NOT EXISTS
        assert other.rows("__++__internal_object_list kept - sys replica") == before


def test_two_who_take_one_snapshot_at_once_get_the_same(relayed: Relayed, connect: Connect) -> None:
    clients = [log_in(connect, relayed) for _ in range(6)]
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(lambda client: take(client, "same"), clients))
    assert len({client.one("__++__internal_get_snapshot_ts same sys replica") for client in clients}) == 1


def test_a_pin_of_another_history_is_gone(relayed: Relayed, connect: Connect) -> None:
    client = log_in(connect, relayed)
    take(client, "old")
    with relayed.workspace.log.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE ccpr_pins SET snapshot_ts = snapshot_ts + 1")
    assert "find 0 snapshot records" in client.error("__++__internal_object_list old - sys replica")[1]


def test_a_damaged_object_is_not_served(relayed: Relayed, connect: Connect) -> None:
    client = log_in(connect, relayed)
    take(client, "s")
    ((_, _, stats, *_), *_) = client.rows("__++__internal_object_list s - sys replica")
    name = ObjectStats.parse(stats or b"").name
    path = relayed.replica.mirror / "objects" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(content)
    assert "is damaged" in client.error(f"__++__internal_get_object sys replica {name} 1")[1]


# ---- clients that vanish or dawdle


def test_a_reader_that_takes_nothing_stops_nobody(relayed: Relayed, connect: Connect) -> None:
    client = log_in(connect, relayed)
    take(client, "s")
    rows = client.rows("__++__internal_object_list s - sys replica")
    names = [ObjectStats.parse(row[2] or b"").name for row in rows]
    slow = log_in(connect, relayed)
    for _ in range(200):  # answers pile up in its socket until the relay's thread waits
        slow.connection._execute_command(3, f"__++__internal_get_object sys replica {names[0]} 1")
        slow.connection._next_seq_id = 0
        slow.connection._result = None
    for name in names[:5]:
        assert client.rows(f"__++__internal_get_object sys replica {name} 1")
    sock: socket.socket = slow.connection._sock
    sock.close()  # vanishes in the middle
    assert client.one("SELECT 1") == b"1"


def test_a_relay_that_is_stopped_ends_its_sessions(relayed: Relayed, connect: Connect) -> None:
    client = log_in(connect, relayed)
    done = threading.Thread(target=relayed.relay.stop)
    done.start()
    done.join(60)
    assert not done.is_alive()
    with pytest.raises(pymysql.MySQLError):
        client.rows("SELECT 1")
