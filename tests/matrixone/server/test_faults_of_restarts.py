"""What a server answers around its stops and starts, played by a simulated upstream."""

import threading
from collections.abc import Iterator

import pymysql
import pytest

from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.serving.faults import (
    CutLogin,
    CutStatement,
    EmptyPast,
    FailLogin,
    FailStatement,
    Fault,
    Hold,
    NoCheckpoints,
)
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.waiting import until
from tests.support.wire_client import Client, Connect

pytestmark = pytest.mark.integration

CREATE = "create snapshot if not exists {} for database d from sys publication p"
TIME = "__++__internal_get_snapshot_ts {} sys p"
LOST = (0, 2006, 2013)


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
    return connect(simulated.port)


@pytest.mark.parametrize(("fault", "number"), [(FailLogin(), 1815), (FailLogin(1053, "x"), 1053), (CutLogin(), 2013)])
def test_a_login_fails_once(simulated: SimulatedUpstream, connect: Connect, fault: Fault, number: int) -> None:
    simulated.inject(fault)
    with pytest.raises(pymysql.MySQLError) as refused:
        connect(simulated.port)
    assert refused.value.args[0] == number
    assert connect(simulated.port).one("select 1") == b"1"


@pytest.mark.parametrize(
    "fault",
    [
        FailStatement("create_snapshot", 20638, "txn commit status is unknown: x", later=600),
        CutStatement("create_snapshot", later=600),
    ],
)
def test_what_a_client_gave_up_is_done_later_with_the_time_of_then(
    simulated: SimulatedUpstream, client: Client, connect: Connect, fault: Fault
) -> None:
    simulated.inject(fault)
    assert client.error(CREATE.format("s"))[0] in (20638, *LOST)
    other = connect(simulated.port)
    assert "find 0 snapshot records" in other.error(TIME.format("s"))[1]
    other.rows("insert into d.t values (1)")
    written = simulated.storage.now.physical
    simulated.clear_faults()  # what waits goes on
    until(lambda: "s" in simulated.status().snapshots, "the snapshot")
    assert int(other.one(TIME.format("s")) or 0) > written


def test_statements_wait_until_they_are_held_no_more(
    simulated: SimulatedUpstream, client: Client, connect: Connect
) -> None:
    simulated.inject(Hold("create_snapshot", 600))
    waiting = threading.Thread(target=client.rows, args=(CREATE.format("s"),))
    waiting.start()
    until(lambda: simulated.status().statements.get("create_snapshot"), "it waits")
    assert connect(simulated.port).one("select 1") == b"1", "others do not wait"
    assert simulated.status().snapshots == ()
    simulated.clear_faults()
    waiting.join(60)
    assert simulated.status().snapshots == ("s",)


def test_an_orderly_stop_answers_what_is_asked_and_does_nothing_any_more(
    simulated: SimulatedUpstream, client: Client, connect: Connect
) -> None:
    client.rows(CREATE.format("kept"))
    simulated.inject(Hold("create_snapshot", 600), FailStatement("drop_snapshot", later=600))
    found: list[tuple[int, str]] = []
    waiting = threading.Thread(target=lambda: found.append(client.error(CREATE.format("s"))))
    waiting.start()
    until(lambda: simulated.status().statements.get("create_snapshot") == 2, "it waits")
    idle = connect(simulated.port)
    connect(simulated.port).error("drop snapshot kept from sys publication p")
    stopping = threading.Thread(target=simulated.shut_down, args=(1.0,))
    stopping.start()
    waiting.join(60)
    assert found == [(1105, "context canceled")]
    assert idle.error("select 1")[0] in (1105, *LOST)
    with pytest.raises(pymysql.MySQLError) as refused:
        connect(simulated.port)
    assert refused.value.args[0] in (1815, 2003, 2013)
    stopping.join(60)
    with pytest.raises(pymysql.MySQLError) as refused:
        connect(simulated.port)
    assert refused.value.args[0] == 2003
    simulated.restart()
    assert simulated.status().snapshots == ("kept",)
    assert connect(simulated.port).one(TIME.format("kept"))


def test_a_kill_loses_what_waited_and_keeps_what_was_done(
    simulated: SimulatedUpstream, client: Client, connect: Connect
) -> None:
    client.rows("insert into d.t values (1)")
    simulated.inject(Hold("create_snapshot", 600))
    found: list[tuple[int, str]] = []
    waiting = threading.Thread(target=lambda: found.append(client.error(CREATE.format("s"))))
    waiting.start()
    until(lambda: simulated.status().statements.get("create_snapshot"), "it waits")
    simulated.kill()
    waiting.join(60)
    assert [number for number, _ in found] == [2013]
    simulated.restart()
    again = connect(simulated.port)
    assert again.rows("select * from d.t") == [(b"1",)]
    assert simulated.status().snapshots == ()


def at_once(client: Client, statement: str) -> tuple[int, str] | list[tuple[bytes | None, ...]]:
    """The error, or the rows."""
    try:
        return client.rows(statement)
    except pymysql.MySQLError as error:
        return error.args[0], error.args[1]


EMPTY = "internal error: failed to get database: ExpectedEOB"
GONE = 'internal error: failed to query mo_indexes: SQL parser error: table "mo_indexes" does not exist'


def test_a_lost_past_is_empty_and_newer_points_are_read_well(simulated: SimulatedUpstream, client: Client) -> None:
    client.rows(CREATE.format("old"))
    ts = int(client.one(TIME.format("old")) or 0)
    asked = [
        f"select datname from mo_catalog.mo_database {{mo_ts = {ts}}}",
        f"select relname from mo_catalog.mo_tables {{mo_ts = {ts}}}",
        f"select attname from mo_catalog.mo_columns {{mo_ts = {ts}}} where account_id = 0",
        "__++__internal_check_snapshot_flushed old sys p",
        "__++__internal_get_ddl old sys p database d -",
        "__++__internal_object_list old - sys p",
        "__++__internal_get_mo_indexes 1 sys p old",
        f"select * from d.t {{mo_ts = {ts}}}",
        "select * from d.t {snapshot = 'old'}",
    ]
    before = [at_once(client, statement) for statement in asked]
    simulated.inject(EmptyPast(600))
    lost: list[object] = [[], [], [], (0, "ExpectedEOB"), (20101, EMPTY), (20101, EMPTY), (20101, GONE)]
    assert [at_once(client, statement) for statement in asked] == [*lost, *[(1049, "Unknown database d")] * 2]
    assert client.rows(TIME.format("old")), "its name is known"
    client.rows(CREATE.format("new"))
    assert client.rows("__++__internal_get_ddl new sys p database d -")
    assert client.rows("__++__internal_check_snapshot_flushed new sys p")
    assert client.error("__++__internal_object_list new old sys p") == (20101, EMPTY)
    assert client.rows("select relname from mo_catalog.mo_tables where reldatabase = 'd'"), "the present is whole"
    assert client.rows("select * from d.t") == []
    simulated.clear_faults()
    assert [at_once(client, statement) for statement in asked] == before


def test_without_checkpoints_the_past_is_an_error_and_new_snapshots_are_not_found(
    simulated: SimulatedUpstream, client: Client
) -> None:
    client.rows(CREATE.format("old"))
    ts = int(client.one(TIME.format("old")) or 0)
    simulated.inject(NoCheckpoints(600))
    text = f"No available checkpoints for snapshot read at:{ts}-0, table:mo_database, tid:1, txn:"
    for statement, wrapper in (
        (f"select datname from mo_catalog.mo_database {{mo_ts = {ts}}}", "internal error: "),
        ("__++__internal_check_snapshot_flushed old sys p", "internal error: "),
        ("__++__internal_get_ddl old sys p database d -", "internal error: failed to get database: internal error: "),
        ("__++__internal_object_list old - sys p", "internal error: failed to get database: internal error: "),
        ("__++__internal_get_mo_indexes 1 sys p old", "internal error: failed to query mo_indexes: internal error: "),
    ):
        number, said = client.error(statement)
        assert (number, said.startswith(wrapper + text)) == (20101, True), said
    assert client.error(f"select * from d.t {{mo_ts = {ts}}}") == (1049, "Unknown database d")
    client.rows(CREATE.format("new"))
    assert "find 0 snapshot records by name(new)" in client.error(TIME.format("new"))[1]
    simulated.clear_faults()
    assert client.rows(TIME.format("new"))


def test_a_lost_past_ends(simulated: SimulatedUpstream, client: Client) -> None:
    client.rows(CREATE.format("old"))
    simulated.inject(EmptyPast(0.3))
    until(lambda: not isinstance(at_once(client, "__++__internal_get_ddl old sys p database d -"), tuple), "its end")
