"""The catalogue of errors is whole, and so is the document made of it."""

import importlib
import json
import pkgutil
import re
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ccpr.cli.explain_command import OTHERS, PACKAGE, WAYS, areas, catalogue, error_classes, markdown
from ccpr.cli.main import app
from ccpr.matrixone.client.errors import SnapshotGone
from ccpr.matrixone.client.retry import RULES
from ccpr.matrixone.errors import CcprError, Refused
from ccpr.mirror.errors import StoreFailed

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md"
_CODE_WORD = re.compile(r"[a-z]+_[a-z]|[a-z]\(\)|\b(?:requirement|architecture|section|None|True|False) ?\d*\b|\.py\b")


def explain(*words: str) -> Result:
    return CliRunner().invoke(app, ["explain", *words], catch_exceptions=False)


def test_every_error_has_a_code_of_its_own_and_is_of_one_kind() -> None:
    kinds = error_classes()
    assert not [code for code, count in Counter(kind.code for kind in kinds).items() if count > 1]
    ways = [way for way in WAYS if way is not Refused]  # which is Terminal once it is confirmed
    assert not [kind for kind in kinds if sum(issubclass(kind, way) for way in ways) != 1]
    assert not [kind for kind in kinds if not re.fullmatch("[A-Z][A-Z_0-9]*[A-Z0-9]", kind.code)]
    assert {SnapshotGone, StoreFailed} <= set(kinds)


@pytest.mark.integration  # the import of Dagster starts a process
def test_no_error_of_any_module_is_left_out() -> None:
    packages = (PACKAGE, "ccpr_emulator")
    for package in packages:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    pending, defined = [CcprError], set()
    while pending:
        pending += (below := pending.pop().__subclasses__())
        defined |= {kind for kind in below if "code" in vars(kind) and kind.__module__.partition(".")[0] in packages}
    assert set(error_classes()) == defined, "add the module to OTHERS"
    assert {kind.__module__ for kind in error_classes()} >= set(OTHERS), "remove it from OTHERS"


def test_every_error_says_what_it_means_what_it_is_about_and_what_to_do() -> None:
    for entry in catalogue().values():
        assert re.fullmatch(r"[A-Z].*[.]", entry.meaning), (
            f"{entry.code}: its docstring is no sentence: {entry.meaning!r}"
        )
        assert not _CODE_WORD.search(entry.meaning), f"{entry.code}: a word of the code in {entry.meaning!r}"
        assert entry.about
        assert entry.area in areas()
        assert entry.remedy
        assert entry.remedy != CcprError.default_remedy, entry.code


def test_what_is_tried_again_is_told() -> None:
    entries = catalogue()
    for kind, rule in RULES:
        code = kind.code  # type: ignore[attr-defined]
        assert (f"{rule.attempts} attempts" in entries[code].again) == (rule.attempts > 1)
    assert "next attempt" in entries["STORE_FAILED"].again
    assert entries["SNAPSHOT_OUTCOME_UNKNOWN"].handling == "looked up before anything is repeated"
    assert all(entry.again.startswith("no;") == (entry.kind == "Terminal") for entry in entries.values())


def test_the_document_is_what_the_code_says() -> None:
    assert DOCUMENT.read_text() == markdown(), "run `make reference`"
    assert explain("--markdown").stdout == markdown()


@pytest.mark.parametrize("written", ["SNAPSHOT_GONE", "snapshot_gone", " Snapshot-Gone "])
def test_a_code_is_explained_however_its_letters_are_written(written: str) -> None:
    result = explain(written, "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told["code"] == "SNAPSHOT_GONE"
    assert told["remedy"] == SnapshotGone.default_remedy
    assert set(told) == {"code", "kind", "handling", "meaning", "about", "remedy", "again", "area"}
    text = explain(written).stdout
    assert told["meaning"] in text
    assert told["remedy"] in text


@pytest.mark.parametrize(
    ("written", "near"), [("SNAPSHOT_GON", "SNAPSHOT_GONE"), ("busy", "_BUSY"), ("", None), ("ÄÖ[/bold]", None)]
)
def test_a_code_that_is_not_there_is_told_with_those_that_are_close(written: str, near: str | None) -> None:
    result = explain(written, "--json")
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "CODE_UNKNOWN"
    assert (near in error["remedy"]) if near else ("lists all codes" in error["remedy"])
    assert explain(written).exit_code == 2


def test_without_a_code_all_are_listed() -> None:
    assert [entry["code"] for entry in json.loads(explain("--json").stdout)] == list(catalogue())
    listed = explain().stdout
    assert all(code in listed for code in catalogue())


def test_an_error_names_the_command_that_explains_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCPR_HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["run", "nobody"], catch_exceptions=False)
    assert result.exit_code == 1
    assert "ccpr explain SUBSCRIPTION_MISSING" in result.stderr
