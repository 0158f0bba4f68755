"""What CONTRIBUTING.md says of this tree is true of it: files, folders, names in them, make targets."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

_TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
_SPAN = re.compile(r"`([^`\n]+)`")
_FOLDERS = "ccpr|ccpr_assets|sensors|resources|tests|docs|benchmarks|scripts|changes"
_PATH = re.compile(rf"(?:{_FOLDERS})/[\w./-]*|[\w-]+\.(?:toml|txt|yml|yaml|md)")
_HERE = r"`(?P<path>ccpr/[\w/]+\.py)` \((?P<names>[^)]*)\)"


def paths() -> list[str]:
    """What looks like a path; not one with a placeholder, as `ccpr/<room>/errors.py`."""
    return sorted({span for span in _SPAN.findall(_TEXT) if _PATH.fullmatch(span)} - {"ccpr.yaml"})  # a user's own


def names() -> list[tuple[str, str]]:
    """Names of code that stand in brackets behind a file: `ccpr/….py` (`Name`)."""
    pairs = re.finditer(_HERE, _TEXT)
    return [(found["path"], name) for found in pairs for name in _SPAN.findall(found["names"]) if name.isidentifier()]


@pytest.mark.parametrize("path", paths())
def test_each_path_is_there(path: str) -> None:
    own = (ROOT / path, *(ROOT / "docs" / path,) * path.endswith(".md"))
    assert any(place.exists() for place in own)


@pytest.mark.parametrize(("path", "name"), names())
def test_each_name_behind_a_file_is_in_it(path: str, name: str) -> None:
    assert re.search(rf"\b{name}\b", (ROOT / path).read_text("utf-8"))


def test_each_make_target_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    wanted = {word for span in _SPAN.findall(_TEXT) for word in re.findall(r"^make ([a-z][a-z-]*)", span)}
    assert len(wanted) > 10
    assert {word for word in wanted if not re.search(rf"^{word}:", makefile, re.M)} == set()


def test_the_check_finds_paths_and_names() -> None:
    assert len(paths()) > 50
    assert ("ccpr/pipeline/step_names.py", "RULES") not in names()
    assert ("ccpr/matrixone/client/retry.py", "RULES") in names()
    assert Path("nowhere.toml").name not in paths()
