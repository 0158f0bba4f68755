"""Faults injected by statements and by options into a simulated upstream."""

from collections.abc import Iterator

import pymysql
import pytest

from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.serving.faults import KINDS, Crash, Delay, MissingObject, parse_fault
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.wire_client import Client, Connect

pytestmark = pytest.mark.integration


@pytest.fixture
def simulated() -> Iterator[SimulatedUpstream]:
    storage = Storage()
    storage.create_database("d")
    storage.create_table("d", "t", {"id": "int"}, primary_key=["id"])
    storage.create_publication("p", "d")
    with SimulatedUpstream(storage) as emulator:
        yield emulator


@pytest.fixture
def client(simulated: SimulatedUpstream, connect: Connect) -> Client:
    client = connect(simulated.port)
    for name in ("s1", "s2"):
        client.rows(f"create snapshot {name} for database d from sys publication p")
    return client


def test_a_fault_is_read_from_its_name_and_fields() -> None:
    assert parse_fault("delay kind=object_list seconds=0.5 times=0") == Delay("object_list", 0.5, 0)
    assert parse_fault("missing_object object_name='a b'") == MissingObject("a b")
    assert parse_fault("crash after_effect=true") == Crash(after_effect=True)
    assert parse_fault("none") is None
    for text in ("", "nonsense", "delay", "delay kind=x seconds=y", "crash speed=1", "crash kind"):
        with pytest.raises(ValueError, match=r".+"):
            parse_fault(text)
    assert len({kind.__name__ for kind in KINDS}) == 20


def test_a_stale_read_and_a_collected_snapshot_have_the_upstreams_numbers(client: Client) -> None:
    client.rows("set emulator fault = 'stale_read'")
    assert client.error("__++__internal_object_list s2 s1 sys p")[0] == 22101
    assert client.rows("__++__internal_object_list s2 s1 sys p") == []
    client.rows("SET EMULATOR FAULT = 'snapshot_collected name=s1'")
    assert "find 0 snapshot records by name(s1)" in client.error("__++__internal_object_list s2 s1 sys p")[1]
    assert client.rows("__++__internal_object_list s2 - sys p") == []
    client.rows("set emulator fault = 'none'")
    assert client.rows("__++__internal_object_list s2 s1 sys p") == []
    assert client.error("set emulator fault = 'nonsense'")[0] == 20301


def test_an_answer_breaks_off_after_so_many_bytes(
    simulated: SimulatedUpstream, client: Client, connect: Connect
) -> None:
    client.rows("set emulator fault = 'cut_answer kind=get_snapshot_ts after_bytes=3'")
    assert client.error("__++__internal_get_snapshot_ts s1 sys p")[0] == 2013
    assert connect(simulated.port).one("__++__internal_get_snapshot_ts s1 sys p")


def test_logins_are_refused_for_a_time(simulated: SimulatedUpstream, client: Client, connect: Connect) -> None:
    client.rows("set emulator fault = 'refuse_logins seconds=60'")
    with pytest.raises(pymysql.MySQLError) as refused:
        connect(simulated.port)
    assert refused.value.args[0] == 1040
    client.rows("set emulator fault = 'none'")
    connect(simulated.port)


def test_a_crash_stops_the_server_at_once_and_loses_nothing_committed(
    simulated: SimulatedUpstream, client: Client, connect: Connect
) -> None:
    client.rows("set emulator fault = 'crash kind=insert after_effect=1'")
    assert client.error("insert into d.t values (1)")[0] == 2013
    assert simulated.crashed.wait(60)
    with pytest.raises(pymysql.MySQLError):
        connect(simulated.port)
    simulated.stop()
    simulated.restart()
    assert connect(simulated.port).rows("select * from d.t") == [(b"1",)]
