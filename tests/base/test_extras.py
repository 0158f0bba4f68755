"""Packages that only some need: what is missing is named, with what to type."""

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ccpr.base.errors import ExtraMissing, absent, require
from ccpr.cli.main import Commands

ROOT = Path(__file__).parents[2]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def asked_for() -> list[tuple[str, list[Any]]]:
    """The arguments of each call of `require` in what is installed: the extra, and what it is asked for."""
    calls = [
        node
        for file in (ROOT / "ccpr").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require"
    ]
    return [(ast.literal_eval(call.args[0]), call.args[1:]) for call in calls]


def test_what_is_there_is_not_asked_for() -> None:
    require("spark", "json", "pytest")
    assert absent("json", "no_such_package", "pytest", "nor_this_one") == ["no_such_package", "nor_this_one"]


def test_what_is_missing_is_named_with_what_to_type() -> None:
    with pytest.raises(ExtraMissing) as found:
        require("spark", "json", "no_such_package", otherwise="Or do without.")
    assert found.value.message == "no_such_package is not installed"
    assert found.value.remedy == "pip install 'matrixone-ccpr[spark]'. Or do without."
    with pytest.raises(ExtraMissing, match="no_such_package, nor_this_one are not installed"):
        require("spark", "no_such_package", "nor_this_one")


def test_a_package_that_was_blocked_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    assert absent("duckdb") == ["duckdb"]


def test_every_extra_that_is_asked_for_is_one_of_the_project() -> None:
    found = asked_for()
    of_commands = {known.where for known in Commands.deferred.values() if ":" not in known.where}
    assert of_commands == {"emulator"}
    assert {extra for extra, _ in found} | of_commands == EXTRAS.keys() - {"all", "dev", "docs", "targets"}
    assert all(packages for _, packages in found)


def test_all_has_every_extra_for_users() -> None:
    (everything,) = EXTRAS["all"]
    named = set(everything.removeprefix("matrixone-ccpr[").removesuffix("]").split(","))
    (both,) = (one for one in EXTRAS["dagster-spark"] if one.startswith("matrixone-ccpr["))
    assert both == "matrixone-ccpr[dagster,spark]"
    assert named | {"dagster", "spark"} == EXTRAS.keys() - {"all", "dev", "docs"}
