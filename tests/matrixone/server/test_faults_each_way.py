"""Each fault, injected by API, by a statement and by option, strikes as many times as it says and then no more."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest

from ccpr_emulator.recorded_upstream import RecordedUpstream
from ccpr_emulator.serving.faults import KINDS, parse_fault
from tests.support.waiting import LIMIT_SECONDS
from tests.support.wire_client import Client, Connect

pytestmark = [pytest.mark.integration, pytest.mark.recordings]
RUN = [sys.executable, "-c", "import typer; from ccpr_emulator.cli.emulator import emulator; typer.run(emulator)"]
GET, LIST = "__++__internal_get_object sys p {} 1", "__++__internal_object_list s2 {} sys p"
LOST = "lost"
# name: the fault (times=1 is added), the statement that it strikes, and the error that is the answer; None: see
# `changed`
CASES: dict[str, tuple[str, str, int | str | None]] = {
    "cut_object": ("after_bytes=10 object_name={0}", GET.format("{0}"), LOST),
    "missing_object": ("object_name={1}", GET.format("{1}"), 20405),
    "damaged_byte": ("offset=3 object_name={2}", GET.format("{2}"), None),
    "wrong_chunk_length": ("difference=-2 object_name={3}", GET.format("{3}"), None),
    "wrong_total_size": ("difference=5 object_name={4}", GET.format("{4}"), None),
    "wrong_total_chunks": ("difference=1 object_name={5}", GET.format("{5}"), None),
    "cut_object_list": ("after_rows=1", LIST.format("-"), LOST),
    "stale_read": ("", LIST.format("s1"), 22101),
    "snapshot_collected": ("name=s0", "__++__internal_check_snapshot_flushed s0 sys p", 20101),
    "cut_answer": ("after_bytes=2 kind=get_snapshot_ts", "__++__internal_get_snapshot_ts s1 sys p", LOST),
    "cut_statement": ("kind=get_databases", "__++__internal_get_databases s1 sys p account - -", LOST),
    "fail_statement": ("kind=show_publications number=1234 text='as asked'", "show publications", 1234),
    "delay": ("kind=show_databases seconds=0.3", "show databases", None),
}
Ask = Callable[[str], None]


@pytest.fixture
def objects(recordings: Path) -> list[str]:
    return sorted(path.name for path in (recordings / "dml" / "objects").iterdir())


def fault_of(name: str, objects: list[str]) -> str:
    return f"{name} {CASES[name][0].format(*objects)} times=1"


def take_snapshots(client: Client) -> None:
    for number in range(3):
        client.rows(f"create snapshot s{number} for database gd_dml from sys publication p")


def assert_struck_once(name: str, objects: list[str], connect: Callable[[], Client]) -> None:
    """The first answer is as the fault wants it, the second as if there had been none."""
    _, statement, error = CASES[name]
    statement = statement.format(*objects)
    begin = time.monotonic()
    if error is not None:
        number, text = connect().error(statement)
        assert number in ((0, 2006, 2013) if error == LOST else (error,)), text
        assert connect().rows(statement)
        return
    struck = connect().rows(statement)
    took = time.monotonic() - begin
    whole = connect().rows(statement)
    assert (took >= 0.3) if name == "delay" else (changed(name, whole[0]) == struck[0] != whole[0])


def changed(name: str, row: tuple[bytes | None, ...]) -> tuple[bytes | None, ...]:
    """What the fault makes of get_object's row."""
    data, size, chunk, chunks, last = (cell or b"" for cell in row)
    match name:
        case "damaged_byte":
            data = data[:3] + bytes((data[3] ^ 0xFF,)) + data[4:]
        case "wrong_chunk_length":
            data = data[:-2]
        case "wrong_total_size":
            size = b"%d" % (int(size) + 5)
        case _:
            chunks = b"%d" % (int(chunks) + 1)
    return data, size, chunk, chunks, last


def test_every_fault_is_here() -> None:
    named = {parse_fault(f"{name} {text}").__class__ for name, (text, _, _) in CASES.items()}
    apart = {"RefuseLogins", "Crash", "FailLogin", "CutLogin", "Hold", "EmptyPast", "NoCheckpoints"}
    assert {kind.__name__ for kind in set(KINDS) - named} == apart, "below, and in test_faults_of_restarts.py"


@pytest.mark.parametrize("way", ["api", "wire"])
@pytest.mark.parametrize("name", CASES)
def test_by_api_and_by_a_statement(recordings: Path, connect: Connect, objects: list[str], name: str, way: str) -> None:
    with RecordedUpstream(recordings / "dml", flush_after=0) as emulator:
        client = connect(emulator.port)
        take_snapshots(client)
        text = fault_of(name, objects)
        if way == "api":
            fault = parse_fault(text)
            assert fault is not None
            emulator.inject(fault)
        else:
            quoted = text.replace("'", "''")
            client.rows(f"SET EMULATOR FAULT = '{quoted}'")
        assert_struck_once(name, objects, lambda: connect(emulator.port))


@contextmanager
def command(recordings: Path, *faults: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    options = [word for fault in faults for word in ("--fault", fault)]
    arguments = ["--recording", str(recordings / "dml"), "--flush-after", "0", *options]
    process = subprocess.Popen([*RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline().rsplit(":", 1)[1])
    finally:
        process.kill()
        process.communicate()


def test_by_option(recordings: Path, connect: Connect, objects: list[str]) -> None:
    with command(recordings, *(fault_of(name, objects) for name in CASES)) as (_, port):
        take_snapshots(connect(port))
        for name in CASES:
            assert_struck_once(name, objects, lambda: connect(port))


def test_a_crash_by_option_ends_the_command_with_70(recordings: Path, connect: Connect) -> None:
    with command(recordings, "crash kind=show_warnings") as (process, port):
        client = connect(port)
        assert client.one("select 1") == b"1"
        assert client.error("show warnings")[0] in (0, 2006, 2013)
        assert process.wait(60) == 70


def test_logins_are_refused_by_option_and_again_taken_after_the_time(recordings: Path, connect: Connect) -> None:
    with command(recordings, "refuse_logins seconds=600") as (_, port), pytest.raises(pymysql.MySQLError) as refused:
        connect(port)
    assert refused.value.args[0] == 1040
    with RecordedUpstream(recordings / "dml") as emulator:
        fault = parse_fault("refuse_logins seconds=0.5")
        assert fault is not None
        client = connect(emulator.port)
        emulator.inject(fault)
        until, number = time.monotonic() + LIMIT_SECONDS, 1040
        while number == 1040 and time.monotonic() < until:
            try:
                connect(emulator.port)
                number = 0
            except pymysql.MySQLError as error:
                number = error.args[0]
        assert number == 0
        assert client.one("select 1") == b"1", "who is in stays in"


def test_a_fault_by_option_that_is_none_is_named(recordings: Path) -> None:
    for text in ("nonsense", "delay kind=x", "delay kind=x seconds=soon"):
        done = subprocess.run(
            [*RUN, "--living", "--fault", text],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"NO_COLOR": "1", "PATH": ""},
        )
        assert done.returncode == 2
        assert "--fault" in done.stderr
