"""Under CI=true nothing is skipped: neither by a mark, in a test, for a module, nor because there is nothing to try."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ci import UNDER_CI
from tests.support.recordings_location import recordings_folder

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
SKIPPED = {
    "mark": "@pytest.mark.skip(reason='r')\ndef test(): pass",
    "condition": "@pytest.mark.skipif(True, reason='r')\ndef test(): pass",
    "test": "def test(): pytest.skip('r')",
    "fixture": "@pytest.fixture\ndef some(): pytest.skip('r')\ndef test(some): pass",
    "import in a test": "def test(): pytest.importorskip('no_such_module')",
    "module": "pytest.skip('r', allow_module_level=True)\ndef test(): pass",
    "import of a module": "pytest.importorskip('no_such_module')\ndef test(): pass",
    "no parameters": "@pytest.mark.parametrize('value', [])\ndef test(value): pass",
}
SCENARIOS = {
    "all_types",
    "cut_inside_object",
    "ddl",
    "dml",
    "keys",
    "many_tables",
    "other_account",
    "partitioned",
    "table_level",
    "wide_and_large",
}


def outcome(text: str, folder: Path, ci: str) -> tuple[int, str]:
    file = folder / "test_skipped.py"
    file.write_text(f"import pytest\n{text}\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "-rs", str(file)]
    words += ["--rootdir", str(folder), "-c", str(ROOT / "pyproject.toml"), "-o", "addopts=", "-o", "timeout="]
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("kind", SKIPPED)
def test_what_is_skipped_fails_under_ci(kind: str, tmp_path: Path) -> None:
    code, shown = outcome(SKIPPED[kind], tmp_path, "true")
    assert code != 0, shown
    assert "which no test may be under CI=true" in shown, shown


def test_elsewhere_it_is_skipped(tmp_path: Path) -> None:
    code, shown = outcome(SKIPPED["test"], tmp_path, "")
    assert (code, "1 skipped" in shown) == (0, True), shown


def test_under_ci_all_recordings_are_there() -> None:
    """Tests of each recording take their names from the folder: one that is absent would be no test at all."""
    folder = recordings_folder()
    found = {path.parent.name for path in folder.glob("*/about.json")} if folder else set()
    assert found >= SCENARIOS or not UNDER_CI
    assert found, "the sample is in the repository"


def test_no_test_asks_the_environment_by_itself_whether_it_runs_under_ci() -> None:
    asking = re.compile(r"environ[^\n]*[\"']CI[\"']")
    found = [path for path in (ROOT / "tests").rglob("*.py") if asking.search(path.read_text())]
    assert {path.name for path in found} == {"ci.py", "test_ci.py"}
