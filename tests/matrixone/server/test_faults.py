"""Faults strike where they should, and as many times as they should."""

import time
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
from pymysql.cursors import SSCursor

from ccpr_emulator.recorded_upstream import RecordedUpstream
from ccpr_emulator.serving import faults
from tests.support.wire_client import Client, Connect

pytestmark = [pytest.mark.integration, pytest.mark.recordings]
LOST = (0, 2006, 2013)


@pytest.fixture
def emulator(recordings: Path) -> Iterator[RecordedUpstream]:
    with RecordedUpstream(recordings / "dml", flush_after=0) as emulator:
        yield emulator


@pytest.fixture
def client(emulator: RecordedUpstream, connect: Connect) -> Client:
    return connect(emulator.port)


@pytest.fixture
def objects(recordings: Path) -> list[Path]:
    return sorted((recordings / "dml" / "objects").glob("*"), key=lambda path: -path.stat().st_size)


def ask(path: Path, chunk: int = 1) -> str:
    return f"__++__internal_get_object sys p {path.name} {chunk}"


@pytest.mark.parametrize("after", [0, 1, 100, 100_000])
def test_an_object_breaks_off_once(
    emulator: RecordedUpstream, client: Client, connect: Connect, objects: list[Path], after: int
) -> None:
    emulator.inject(faults.CutObject(after_bytes=after, object_name=objects[0].name))
    assert client.rows(ask(objects[1]))[0][0] == objects[1].read_bytes()
    assert client.rows(ask(objects[0], 0))[0][0] == b""
    assert client.error(ask(objects[0]))[0] in LOST
    assert connect(emulator.port).rows(ask(objects[0]))[0][0] == objects[0].read_bytes()


def test_an_object_list_breaks_off_in_a_row(emulator: RecordedUpstream, client: Client, connect: Connect) -> None:
    for number in range(4):
        client.rows(f"create snapshot s{number} for database gd_dml from sys publication p")
    emulator.inject(faults.CutObjectList(after_rows=2))
    streaming = SSCursor(client.connection)
    streaming.execute("__++__internal_object_list s3 - sys p")
    assert len(streaming.fetchmany(2)) == 2
    with pytest.raises(pymysql.err.OperationalError, match="Lost connection"):
        streaming.fetchone()
    streaming._result.unbuffered_active = False  # else PyMySQL reads on when it is collected
    assert len(connect(emulator.port).rows("__++__internal_object_list s3 - sys p")) == 5


def test_sizes_and_bytes_can_lie(emulator: RecordedUpstream, client: Client, objects: list[Path]) -> None:
    path, size, data = objects[0], objects[0].stat().st_size, objects[0].read_bytes()
    emulator.inject(faults.WrongTotalSize(5, times=2), faults.WrongTotalChunks(1, times=1))
    assert client.rows(ask(path, 0))[0][1:4] == (b"%d" % (size + 5), b"0", b"2")
    assert client.rows(ask(path))[0][1:4] == (b"%d" % (size + 5), b"1", b"1")
    assert client.rows(ask(path))[0][1:4] == (b"%d" % size, b"1", b"1")
    emulator.inject(faults.WrongChunkLength(-3, times=1))
    assert client.rows(ask(path))[0][0] == data[:-3]
    emulator.inject(faults.WrongChunkLength(3, times=1))
    assert client.rows(ask(path))[0][0] == data + bytes(3)
    emulator.inject(faults.DamagedByte(10, times=1))
    damaged = client.rows(ask(path))[0][0] or b""
    assert [n for n in range(size) if damaged[n] != data[n]] == [10]
    assert client.rows(ask(path))[0][0] == data


def test_an_object_can_be_missing_until_faults_are_cleared(
    emulator: RecordedUpstream, client: Client, objects: list[Path]
) -> None:
    emulator.inject(faults.MissingObject(objects[0].name))
    for chunk in (0, 1, 1):
        assert client.error(ask(objects[0], chunk)) == (20405, f"file {objects[0].name} is not found")
    assert client.rows(ask(objects[1]))
    emulator.clear_faults()
    assert client.rows(ask(objects[0]))


def test_a_statement_fails_before_or_after_its_effect(
    emulator: RecordedUpstream, client: Client, connect: Connect
) -> None:
    create = "create snapshot {} for database gd_dml from sys publication p"
    emulator.inject(faults.FailStatement("create_snapshot", 22101, "stale read"))
    assert client.error(create.format("s1")) == (22101, "stale read")
    assert emulator.snapshots() == ()
    emulator.inject(faults.FailStatement("create_snapshot", after_effect=True))
    assert client.error(create.format("s1"))[0] == 20101
    assert [snapshot.name for snapshot in emulator.snapshots()] == ["s1"]
    emulator.inject(faults.CutStatement("create_snapshot", after_effect=True))
    assert client.error(create.format("s2"))[0] in LOST
    assert [snapshot.name for snapshot in emulator.snapshots()] == ["s1", "s2"]
    again = connect(emulator.port)
    emulator.inject(faults.Delay("select", 0.3))
    begin = time.monotonic()
    again.rows("select 1")
    assert time.monotonic() - begin >= 0.3


def test_all_connections_can_be_broken(emulator: RecordedUpstream, client: Client, connect: Connect) -> None:
    assert emulator.disconnect_all() == 1
    assert client.error("select 1")[0] in LOST
    assert connect(emulator.port).one("select 1") == b"1"
