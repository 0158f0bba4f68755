"""The program around its commands: what it imports, its help, and how it ends if no command handles an error."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from ccpr.cli.lazy import Deferred
from ccpr.cli.main import Commands, app
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable
from ccpr.state.lease import Executor
from tests.support.recordings_location import SAMPLE
from tests.support.replica import NAME, replaying

pytestmark = pytest.mark.integration

HEAVY = {
    "dagster",
    "pyspark",
    "pandas",
    "polars",
    "pandera",
    "ccpr.pipeline.iteration",
    "ccpr_emulator.engine.storage",
}
HEAVY_TO_READ_THE_STATE = HEAVY | {"numpy", "pyarrow", "pymysql", "cryptography", "rich.progress"}
HEAVY_FOR_HELP = HEAVY_TO_READ_THE_STATE | {"sqlalchemy", "tenacity"}
COMMANDS = list(Commands.deferred)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCPR_HOME", str(tmp_path))


def ccpr(*words: str) -> Result:
    return CliRunner().invoke(app, [*words], catch_exceptions=False)


def imported(home: Path, *words: str) -> set[str]:
    """The modules of a process after this command."""
    code = (
        "import sys\nfrom ccpr.cli.main import app\n"
        "try:\n    app(sys.argv[1:])\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    environment = os.environ | {"CCPR_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS), ("target", "add"), ("state", "import")])
def test_help_imports_no_library(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert not imported(tmp_path, *words, "--help") & HEAVY_FOR_HELP


def test_an_explanation_imports_no_library(tmp_path: Path) -> None:
    assert not imported(tmp_path, "explain", "SNAPSHOT_GONE") & (HEAVY_FOR_HELP - {"tenacity"})


def test_reading_a_command_line_needs_no_pydantic(tmp_path: Path) -> None:
    """Typer 0.29 reads each option by pydantic, which takes as long to import as Python and Typer together."""
    assert "pydantic" not in imported(tmp_path, "run", "--help")


@pytest.mark.parametrize("command", ["subscriptions", "status"])
def test_what_only_reads_the_state_imports_no_engine(tmp_path: Path, command: str) -> None:
    assert not imported(tmp_path, command) & HEAVY_TO_READ_THE_STATE


def test_doctor_imports_no_engine(tmp_path: Path) -> None:
    assert not imported(tmp_path, "doctor") & HEAVY


def test_an_option_whose_value_is_refused_by_a_typed_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = ccpr("run", "shop", "--engine", "spark", "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert (error["code"], error["subject"]) == ("EXTRA_MISSING", "extra spark")
    assert "EXTRA_MISSING" in ccpr("run", "shop", "--engine", "spark").stderr


@pytest.mark.in_turn
def test_commands_about_an_idle_subscription_import_only_what_they_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CCPR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("UPSTREAM_PASSWORD", "any")
    with replaying(SAMPLE / "dml", tmp_path) as replica:
        replica.subscribe()
        states = replica.about.snapshots
        for _ in range(2):  # they copy, check lists by themselves, and compare them without Arrow's engine for queries
            modules = imported(tmp_path / "home", "run", NAME)
            assert not modules & {"pyarrow.acero", *HEAVY - {"ccpr.pipeline.iteration"}}
        for _ in range(states - 2):
            replica.run()
        for words in (("status",), ("status", NAME), ("subscriptions",), ("points", NAME)):
            assert not imported(tmp_path / "home", *words) & HEAVY_TO_READ_THE_STATE, words
        modules = imported(tmp_path / "home", "run", NAME)
        assert not modules & (HEAVY - {"ccpr.pipeline.iteration"})
        assert not modules & {"ccpr.targets.sync", "ccpr.targets.target_plan", "ccpr.pipeline.plan"}
        assert modules & {"tenacity", "sqlalchemy.dialects.mysql", "numpy.ma", "rich.progress", "rich.table"} == set()
        assert not imported(tmp_path / "home", "plan", NAME) & (HEAVY - {"ccpr.pipeline.iteration"})
        for words in (("query", NAME, "acc"), ("query", NAME, "SELECT COUNT(*) FROM acc"), ("tables", NAME)):
            assert not imported(tmp_path / "home", *words) & HEAVY, words
        assert replica.command("status", NAME)["newest_point"] == states - 1


def test_a_program_that_started_arrow_without_pandas_can_use_both() -> None:
    code = (
        "import sys\nfrom ccpr.cli.output import start_arrow\nstart_arrow()\n"
        "import pyarrow as pa\nrows = pa.table({'a': [1, None], 'b': ['x', None]})\n"
        "assert 'pandas' not in sys.modules\n"
        "frame = rows.to_pandas()\nimport pandas\nassert frame['b'].isna().tolist() == [False, True]\n"
        "assert pa.Table.from_pandas(frame, preserve_index=False).column('b').to_pylist() == ['x', None]\n"
        "assert pa.array(pandas.Series([1, None], dtype='Int64')).to_pylist() == [1, None]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_help_lists_every_command() -> None:
    text = ccpr("help").stdout
    assert all(f" {name} " in text for name in COMMANDS)
    leading = [name for name in COMMANDS if f"│ {name} " in ccpr("--help").stdout]
    assert (len(leading), leading[:2]) == (16, ["subscribe", "run"])
    assert max(map(len, text.splitlines())) <= 80
    assert all(known.summary.endswith((".", "…")) for known in Commands.deferred.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_is_explained(name: str) -> None:
    assert ccpr(name, "--help").exit_code == 0
    command = Commands.deferred[name].load(name)
    parts = {name: command} | {f"{name} {part}": below for part, below in getattr(command, "commands", {}).items()}
    for words, part in parts.items():
        assert part.help, words
        assert not [param.name for param in part.params if not param.help and not param.hidden], words


def test_a_command_that_does_not_exist_is_an_error_with_similar_ones() -> None:
    result = ccpr("subscripton")
    assert result.exit_code == 2
    assert "subscribe" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "shop", "--engine", "foo"),
        ("alter", "shop"),
        ("nothing",),
        ("doctor", "--table", "t"),
        ("doctor", "shop", "--database", "d"),
    ],
)
def test_wrong_usage_is_a_document_for_scripts(words: tuple[str, ...]) -> None:
    result = ccpr(*words, "--json")
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "USAGE"
    assert "--help" in error["remedy"]
    assert ccpr(*words).stdout == ""


def test_wrong_usage_names_the_command_whose_help_says_more() -> None:
    """This pins what typer's own exceptions say: their exit code, their message, and the context in `ctx`."""
    for words, command in ((("target", "add"), "target add"), (("run", "shop", "--what"), "run"), (("run",), "run")):
        error = json.loads(ccpr(*words, "--json").stdout)["error"]
        assert error["subject"].split(maxsplit=1)[1] == command
        assert f"{command} --help" in error["remedy"]
        assert error["message"]


@pytest.mark.parametrize(
    "words",
    [
        ("subscriptions",),
        ("status",),
        ("status", "shop"),
        ("tables", "shop"),
        ("points", "shop"),
        ("export", "shop", "d.t", "--out", "x"),
        ("verify", "shop"),
        ("snapshots", "shop"),
        ("doctor",),
        ("run", "shop"),
        ("plan", "shop"),
        ("resync", "shop"),
        ("alter", "shop", "--interval", "5"),
        ("pause", "shop"),
        ("resume", "shop"),
        ("drop", "shop"),
        ("subscribe", "shop", "--from", "mysql://a:b@127.0.0.1:1", "--database", "d", "--max-sessions", "1"),
        ("target", "release", "shop"),
        ("sql", "SHOW SUBSCRIPTIONS"),
        ("target", "list", "shop"),
        ("target", "add", "shop", "db", "--to", "mysql://a:b@127.0.0.1:1/d"),
        ("target", "alter", "shop", "db", "--ddl-policy", "full"),
        ("target", "rebuild", "shop", "db", "t"),
        ("target", "remove", "shop", "db"),
        ("state", "export", "shop"),
        ("state", "import", "x"),
        ("config", "apply", "-f", "x"),
        ("config", "export"),
    ],
    ids=" ".join,
)
def test_every_command_closes_the_workspace_that_it_opens(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, closed = [], []
    open_, close = Workspace.__init__, Workspace.close

    def opening(workspace: Workspace, *arguments: Any, **options: Any) -> None:
        opened.append(workspace)
        open_(workspace, *arguments, **options)

    def closing(workspace: Workspace) -> None:
        closed.append(workspace)
        close(workspace)

    monkeypatch.setattr(Workspace, "__init__", opening)
    monkeypatch.setattr(Workspace, "close", closing)
    ccpr(*words, "--json")
    assert len(opened) == 1
    assert closed == opened


@pytest.fixture
def failure(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What the command `fail` raises."""
    raised: list[BaseException] = []

    def fail(as_json: bool = typer.Option(False, "--json")) -> None:
        raise raised[0]

    monkeypatch.setattr(Deferred, "load", lambda *_: _alone(fail))
    return raised


def _alone(function: object) -> object:
    alone = typer.Typer()
    alone.command()(function)  # type: ignore[type-var]
    return typer.main.get_command(alone)


def test_a_defect_shows_no_stack_to_the_user(failure: list[BaseException]) -> None:
    failure.append(ZeroDivisionError("division by [zero]"))
    result = ccpr("run")
    assert result.exit_code == 1
    assert "DEFECT: ZeroDivisionError: division by [zero]" in result.stderr
    assert "Traceback" not in result.output
    assert "remedy" in result.stderr
    assert json.loads(ccpr("run", "--json").stdout)["error"]["code"] == "DEFECT"
    assert "Traceback" in ccpr("--verbose", "run").stderr


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), typer.Abort()], ids=["at work", "at a prompt"])
def test_an_interruption_has_its_own_exit_code_and_a_message(
    failure: list[BaseException], interruption: BaseException
) -> None:
    failure.append(interruption)
    result = ccpr("run")
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("module", ["ccpr.cli.lazy", "ccpr.service.workspace"])
def test_an_interruption_while_modules_are_imported_shows_no_stack(tmp_path: Path, module: str) -> None:
    """The signal comes when the module is asked for: once before any command is known, once inside one."""
    code = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from ccpr.cli.main import main\n"
        "sys.argv = ['ccpr', 'subscriptions']\n"
        "main()"
    )
    environment = os.environ | {"CCPR_HOME": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=-1, stderr=-1, text=True) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in errors


def test_an_emulator_that_cannot_be_served_says_what_to_do(tmp_path: Path) -> None:
    result = ccpr("emulator", "--living", "--tls-certificate", str(tmp_path / "missing.pem"))
    assert result.exit_code == 1
    assert "EMULATOR_NOT_SERVED" in result.stderr
    assert "--tls-certificate" in result.stderr


def test_a_folder_of_locks_that_cannot_be_made_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateUnreadable, match="lock"):
        Executor(tmp_path / "file" / "executors")


@pytest.mark.parametrize("words", [("-h",), ("run", "-h"), ("target", "-h"), ("target", "add", "-h")])
def test_help_has_a_short_option_everywhere(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, "Usage: " in result.output) == (0, True)


def test_the_version_is_shown() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("ccpr ")


@pytest.mark.parametrize("words", [("-v", "status"), ("points", "x", "-v"), ("status", "--verbose", "--json")])
def test_verbose_may_stand_anywhere(words: tuple[str, ...], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("ccpr.cli.output.show_log", lambda verbose: asked.append(verbose))
    assert CliRunner().invoke(app, words).exit_code == int("x" in words)  # which is no subscription
    assert asked == [True]


def test_status_has_a_short_option_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("ccpr.cli.output.show_log", lambda verbose: asked.append(verbose))
    assert CliRunner().invoke(app, ["status", "-v"]).exit_code == 0
    assert asked == [False]


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("run --al", ["--allow-resync"]),
        ("alter s --consistency i", ["isolated"]),
        ("target add s t --ddl-policy m", ["manual"]),
    ],
)
def test_the_shell_completes_options_and_the_words_that_they_take(words: str, completed: list[str]) -> None:
    line = {"COMP_WORDS": f"ccpr {words}", "COMP_CWORD": str(len(words.split()))}
    environment = {**os.environ, "_CCPR_COMPLETE": "complete_bash", **line}
    program = "from ccpr.cli.main import app; app(prog_name='ccpr')"
    shown = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert shown.stdout.split() == completed
