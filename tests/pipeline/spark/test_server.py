"""The keeping of a warm session: who starts it, what is found after a crash, a reboot or a restore, and who may see its
token. The server is a small program that listens as Spark's does; tests/pipeline/spark/test_connect.py has Spark's.
"""

import json
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from typing import Any, ClassVar

import pytest

import ccpr.pipeline.spark.server as module
import ccpr.pipeline.spark.supervisor as supervising
from ccpr.pipeline.spark.errors import SparkCodeDiffers, SparkSessionLost, SparkUnavailable
from ccpr.pipeline.spark.locks import shared
from ccpr.pipeline.spark.server import WarmSpark
from ccpr.pipeline.spark.server_process import ServerProcess
from ccpr.pipeline.spark.server_record import ServerRecord, WarmState
from ccpr.pipeline.spark.session import SparkSettings
from ccpr.pipeline.spark.supervisor import Supervisor

pytestmark = [pytest.mark.slow, pytest.mark.integration]

LIMIT_SECONDS = 60.0
SERVER = """
import socket, sys, time
settings = dict(line.split("=", 1) for line in open(sys.argv[2]).read().splitlines())
if MODE == "dies":
    sys.exit("no such class")
time.sleep(DELAY)
with socket.socket() as listening:
    listening.bind(("127.0.0.1", int(settings["spark.connect.grpc.binding.port"])))
    listening.listen()
    while True:
        listening.accept()[0].close()
"""


class QuickProcess(ServerProcess):
    """Listens in a tenth of a second."""

    mode, delay = "serves", 0.0
    launches = 0

    def _command(self) -> list[str]:
        QuickProcess.launches += 1
        code = SERVER.replace("MODE", repr(self.mode)).replace("DELAY", str(self.delay))
        return [sys.executable, "-c", code, "--properties-file", str(self.config)]


class Quick(WarmSpark):
    """A warm session of such a server."""

    broken = False
    checked: ClassVar[list[int]] = []  # how many tasks each check had

    def __init__(self, home: Path, settings: SparkSettings | None = None) -> None:
        super().__init__(home, settings)
        self.process: QuickProcess = QuickProcess(self.folder, self.settings)

    def _check(self, server: ServerRecord, tasks: int = 1) -> None:
        self.checked.append(tasks)
        if self.broken:
            raise SparkSessionLost("it does not answer", subject="the warm session")


@pytest.fixture
def warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Quick]:
    monkeypatch.setattr(SparkSettings, "prepare_environment", lambda self: None)
    QuickProcess.launches = 0
    Quick.checked.clear()
    made = Quick(tmp_path)
    yield made
    made.stop()


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < limit, "it did not come true"
        time.sleep(0.02)


def server_of(warm: WarmSpark) -> ServerRecord:
    server = warm.look().server
    assert server is not None
    return server


def rewrite(warm: WarmSpark, **values: Any) -> None:
    path = warm.folder / "server.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_session_is_started_once_found_again_and_ended(warm: Quick) -> None:
    assert warm.look().state is WarmState.ABSENT
    assert not warm.stop()
    first = warm.start()
    assert first.usable
    assert Quick(warm.home).start() == first
    assert QuickProcess.launches == 1
    assert warm.stop()
    assert warm.look().state is WarmState.ABSENT
    assert not (warm.folder / "server.json").exists()


def test_a_server_is_warmed_up_by_jobs_on_all_cores_when_it_is_new(warm: Quick) -> None:
    warm.start()
    assert warm.checked == [1]
    assert warm.start(warm_up=True).usable
    assert warm.checked == [1, 1]  # whether the one that is there answers
    warm.start(again=True, warm_up=True)
    slots = warm.settings.slots
    assert slots
    assert warm.checked == [1, 1, 1, *[slots] * 100]


def test_a_warm_up_ends_when_the_start_is_cancelled(warm: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()

    def check(server: ServerRecord, tasks: int = 1) -> None:
        assert not warm.look().usable  # no copy has to wait for it, and it for no copy
        warm.checked.append(tasks)
        if len(warm.checked) == 5:
            cancelled.set()

    monkeypatch.setattr(warm, "_check", check)
    assert warm.start(warm_up=True, cancelled=cancelled).usable
    assert len(warm.checked) == 5


def test_two_starts_at_once_make_one_server(warm: Quick) -> None:
    warm.process.delay = 0.3
    found = []
    threads = [threading.Thread(target=lambda one=one: found.append(one.start())) for one in (warm, Quick(warm.home))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert QuickProcess.launches == 1
    assert found[0].server == found[1].server


def test_a_killed_server_is_absent_and_the_next_start_makes_another(warm: Quick) -> None:
    first = warm.start().server
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: warm.look().state is WarmState.ABSENT)
    second = warm.start().server
    assert second is not None
    assert second.token != first.token
    assert second.pid != first.pid


def test_a_process_id_that_is_another_programs_now_is_left_alone(warm: Quick, tmp_path: Path) -> None:
    """After a reboot, or a restore of the state folder."""
    warm.start()
    with Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        rewrite(warm, pid=other.pid)
        assert warm.stop()
        assert other.poll() is None
        other.kill()
    (warm.folder / "server.json").write_text(json.dumps({"pid": os.getpid(), "port": 1}))
    assert warm.look().state is WarmState.ABSENT
    assert not warm.stop()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"pid": 1}', '{"pid": -1, "port": "x"}', "\ud800"])
def test_a_damaged_record_is_no_session_and_the_server_is_started_again(warm: Quick, text: str) -> None:
    first = server_of_started(warm)
    (warm.folder / "server.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert not warm.look().usable
    again = server_of_started(warm)
    assert again.pid != first.pid


def server_of_started(warm: WarmSpark) -> ServerRecord:
    server = warm.start().server
    assert server is not None
    return server


def test_a_port_that_was_taken_meanwhile_is_not_the_end(warm: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    free = module.free_port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ports = iter([taken.getsockname()[1]])
        monkeypatch.setattr(module, "free_port", lambda: next(ports, None) or free())
        assert warm.start().usable
    assert QuickProcess.launches == 2


def test_a_server_that_ends_at_once_is_an_error_with_its_last_words(warm: Quick) -> None:
    warm.process.mode = "dies"
    with pytest.raises(SparkUnavailable, match="no such class") as caught:
        warm.start()
    assert str(warm.log) in caught.value.remedy
    assert warm.look().state is WarmState.ABSENT


def test_a_server_of_other_code_is_not_used_and_is_started_again(warm: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    first = server_of_started(warm)
    monkeypatch.setattr(module, "loaded_code", lambda: "later")
    assert warm.look().state is WarmState.OTHER_CODE
    with pytest.raises(SparkCodeDiffers, match="have changed"):  # the program itself is older than its files
        warm.start()
    assert server_of(warm).pid == first.pid
    monkeypatch.setattr(module, "source_digest", lambda: "later")
    second = server_of_started(warm)
    assert (second.code, second.pid != first.pid) == ("later", True)


def test_other_settings_or_credentials_are_another_session(warm: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    first = server_of_started(warm)
    other = Quick(warm.home, replace(warm.settings, config={"spark.hadoop.fs.s3a.secret.key": "hush"}))
    assert other.look().state is WarmState.OTHER_SETTINGS
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "quiet")
    assert warm.look().state is WarmState.OTHER_SETTINGS
    assert server_of_started(warm).pid != first.pid
    written = (warm.folder / "server.json").read_text()
    assert "hush" not in written
    assert "quiet" not in written


def test_a_session_that_does_not_answer_is_started_again(warm: Quick) -> None:
    first = server_of_started(warm)

    class Once(Quick):
        def _check(self, server: ServerRecord) -> None:
            if server.pid == first.pid:
                raise SparkSessionLost("it does not answer", subject="the warm session")

    assert server_of_started(Once(warm.home)).pid != first.pid


def test_a_start_that_fails_leaves_nothing_behind(warm: Quick) -> None:
    warm.broken = True
    with pytest.raises(SparkSessionLost):
        warm.start()
    assert warm.look().state is WarmState.ABSENT


def test_the_token_is_in_a_private_file_and_in_no_argument(warm: Quick) -> None:
    server = server_of_started(warm)
    arguments = Path(f"/proc/{server.pid}/cmdline").read_bytes().decode()
    assert "--properties-file" in arguments
    assert server.token not in arguments
    assert server.token not in (warm.folder / "server.conf").read_text()
    for path in (warm.folder, *warm.folder.iterdir()):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_a_server_of_another_machine_is_neither_used_nor_ended(warm: Quick) -> None:
    server = server_of_started(warm)
    rewrite(warm, boot="another machine")
    assert warm.look().state is WarmState.ELSEWHERE
    for action in (warm.start, warm.stop):
        with pytest.raises(SparkUnavailable, match="another machine"):
            action()
    os.kill(server.pid, 0)
    rewrite(warm, boot=server.boot)


def test_a_port_at_which_another_user_listens_gets_no_token(warm: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    warm.start()
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert not warm.look().usable
    monkeypatch.undo()


def test_nothing_is_started_where_a_server_is_named(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable, match="named already"):
        Quick(tmp_path, SparkSettings(tmp_path, remote="sc://far:15002")).start()
    with Supervisor(Quick(tmp_path, SparkSettings(tmp_path, remote="sc://far:15002"))) as supervisor:
        assert supervisor.state() == "not running"
    assert list(tmp_path.iterdir()) == []


def test_a_supervisor_starts_it_again_when_it_dies_and_ends_it(warm: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "_BACK_OFF", (0.05,))
    monkeypatch.setattr(supervising, "_LOOK_SECONDS", 0.05)
    with Supervisor(warm) as supervisor:
        until(lambda: supervisor.state() == "ready")
        first = server_of(warm)
        os.kill(first.pid, signal.SIGKILL)
        until(lambda: supervisor.starts == 2 and supervisor.state() == "ready")
        assert server_of(warm).pid != first.pid
    assert warm.look().state is WarmState.ABSENT


def test_a_supervisor_leaves_the_server_of_somebody_else_running(warm: Quick) -> None:
    server = server_of_started(warm)
    with Supervisor(Quick(warm.home)) as supervisor:
        until(lambda: supervisor.starts == 1)
    assert server_of(warm) == server
    assert warm.look().usable


def test_a_supervisor_that_ends_during_a_start_ends_the_start(warm: Quick) -> None:
    warm.process.delay = LIMIT_SECONDS
    with Supervisor(warm) as supervisor:
        until(lambda: QuickProcess.launches == 1)
        assert supervisor.state() == "starting" or supervisor.state() == "not running"
    assert warm.look().state is WarmState.ABSENT


def test_a_session_on_demand_is_started_by_copies_and_ended_when_none_uses_it(
    warm: Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "_LOOK_SECONDS", 0.02)
    assert not warm.may_be_started()
    with Supervisor(Quick(warm.home), on_demand=True, unused_seconds=0.1):
        assert warm.may_be_started()
        with shared(warm.used):
            server = warm.start(supervised=True).server
            assert server is not None
            time.sleep(0.5)  # as long as this is, nothing else than the lock keeps it
            assert server_of(warm) == server
            other = Quick(warm.home, replace(warm.settings, config={"spark.ui.port": "4050"}))
            assert not other.may_be_started()  # that would end the one that is used
        until(lambda: warm.look().state is WarmState.ABSENT)
        assert warm.start(supervised=True).usable
    assert warm.look().state is WarmState.ABSENT
    assert not warm.may_be_started()


def test_of_two_keepers_the_first_ends_the_session_and_the_second_takes_over(
    warm: Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "_LOOK_SECONDS", 0.02)
    first = Supervisor(Quick(warm.home), on_demand=True)
    first.start()
    with Supervisor(Quick(warm.home), on_demand=True):
        warm.start(supervised=True)
    assert warm.look().usable
    with Supervisor(Quick(warm.home), on_demand=True) as third:
        first.stop()
        assert warm.look().state is WarmState.ABSENT
        until(lambda: third._is_keeper)
        assert warm.start(supervised=True).usable
    assert warm.look().state is WarmState.ABSENT


def test_the_command_keeps_it_until_it_is_ended(tmp_path: Path) -> None:
    """In a process of its own, which gets the signal."""
    code = """
import sys
from pathlib import Path
import ccpr.pipeline.spark.server as module
from tests.pipeline.spark.test_server import Quick
from ccpr.pipeline.spark.session import SparkSettings
SparkSettings.prepare_environment = lambda self: None
module.WarmSpark = Quick
from ccpr.cli.main import main
sys.argv = ["ccpr", "spark", "keep"]
main()
"""
    environment = os.environ | {"CCPR_HOME": str(tmp_path)}
    with Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3], env=environment) as command:
        until(lambda: Quick(tmp_path).look().usable or command.poll() is not None)
        command.send_signal(signal.SIGTERM)
        assert command.wait(LIMIT_SECONDS) == 0
    assert Quick(tmp_path).look().state is WarmState.ABSENT


def test_a_supervisor_says_that_it_cannot_start_it(warm: Quick) -> None:
    warm.process.mode = "dies"
    with Supervisor(warm) as supervisor:
        until(lambda: supervisor.failure is not None)
        assert supervisor.state() == "failing"


def test_a_starter_that_was_killed_leaves_a_server_that_the_next_start_ends(warm: Quick) -> None:
    server = server_of_started(warm)
    rewrite(warm, start_seconds=0.0)  # as it is before a job has run
    assert warm.look().state is WarmState.STARTING
    assert server_of_started(warm).pid != server.pid
    with suppress(ProcessLookupError):
        os.kill(server.pid, 0)


def test_an_error_of_the_disk_does_not_end_a_supervisor(warm: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> bool:
        raise OSError(28, "No space left on device")

    with Supervisor(Quick(warm.home), on_demand=True, unused_seconds=0.1) as supervisor:
        with monkeypatch.context() as patched:
            patched.setattr("ccpr.pipeline.spark.supervisor.is_shared", full)
            until(lambda: supervisor.loop.errors > 1)
        warm.start(supervised=True)
        until(lambda: warm.look().state is WarmState.ABSENT)
        assert supervisor.loop.trouble() is None
