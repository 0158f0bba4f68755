"""What the extra `emulator` adds to the core: an upstream, and changes to it, from the second wheel."""

import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.installed.core import ROOT, Core
from tests.support.replica import source_uri

PYPROJECTS = (ROOT / "pyproject.toml", ROOT / "packages" / "emulator" / "pyproject.toml")


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Core:
    return Core.install(tmp_path_factory.mktemp("emulator"), extra="emulator")


@contextmanager
def served(core: Core, *words: str) -> Iterator[int]:
    """The port of `ccpr emulator`, which ends as it should."""
    command = [str(core.python.with_name("ccpr")), "emulator", *words]
    with subprocess.Popen(
        command, cwd=core.folder, env=core.environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on 127.0.0.1:")
            yield int(line.rpartition(":")[2])
        finally:
            process.terminate()
        assert process.wait(60) == 0


def test_both_distributions_have_one_version_and_name_each_other_by_it() -> None:
    main, emulator = (tomllib.loads(file.read_text("utf-8"))["project"] for file in PYPROJECTS)
    assert main["version"] == emulator["version"]
    assert main["optional-dependencies"]["emulator"] == [f"{emulator['name']}=={emulator['version']}"]
    assert f"{main['name']}=={main['version']}" in emulator["dependencies"]
    same = ("license", "requires-python")
    assert [main[name] for name in same] == [emulator[name] for name in same]


def test_each_wheel_has_its_own_package(core: Core) -> None:
    names = {name.partition("/")[0] for name in core.installed("matrixone_ccpr_emulator")}
    assert {name for name in names if not name.endswith(".dist-info")} == {"ccpr_emulator"}
    assert any(name.endswith("licenses/LICENSE") for name in core.installed("matrixone_ccpr_emulator"))
    assert [name for name in core.installed("matrixone_ccpr") if "emulator" in name] == []


def test_a_recording_is_served(core: Core, recordings: Path) -> None:
    with served(core, "--recording", str(recordings / "dml")) as port:
        assert port


def test_a_stream_of_changes_is_replicated_and_compared(core: Core, tmp_path: Path) -> None:
    record = str(tmp_path / "load")
    with served(core, "--living") as port:
        source = source_uri(port)
        options = ("--from", source, "--record", record, "--changes", "200", "--rate", "0", "--publish")
        assert core.command("workload", "run", *options)["changes"] >= 200
        scope = ("--database", "ccpr_load", "--publication", "ccpr_load_pub", "--publisher", "sys")
        core.command("subscribe", "load", "--from", source, *scope)
        assert core.command("run", "load")["point"]
        assert core.command("workload", "check", "--record", record, "--mirror", "load")["equal"]


def test_its_errors_are_explained(core: Core) -> None:
    assert core.command("explain", "CCPR_EMULATOR_RECORDING")["about"] == "file of a recording"
