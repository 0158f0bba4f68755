"""Former spellings go on working, say what is typed now on standard error, and are in no help."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ccpr.cli.former import translated
from ccpr.cli.main import app
from scripts.reference import commands


@pytest.mark.parametrize(
    ("typed", "now", "said"),
    [
        ("lake add s l --to URI --copy-on-write", "target add s l --to URI --copy-on-write", "`ccpr target add` now"),
        ("lake list s --json", "target list s --json --kind lake", "`ccpr target list` now"),
        ("lake status s l", "target status s l --kind lake", "`ccpr target status` now"),
        ("lake alter s l --keep 3", "target alter s l --keep 3", "`ccpr target alter` now"),
        ("lake sync s l", "target sync s l", "`ccpr target sync` now"),
        ("lake rebuild s l t", "target rebuild s l t", "`ccpr target rebuild` now"),
        ("lake drop s l --purge --yes", "target remove s l --purge --yes", "`ccpr lake drop` is `ccpr target remove`"),
        ("lake add drop l --to URI", "target add drop l --to URI", "`ccpr target add` now"),
        ("release s --target b --table t", "target release s --table t b", "`ccpr target release` now"),
        ("release s --table=t", "target release s --table=t", "`ccpr target release` now"),
        ("relay approve s b", "follower approve s b", "`ccpr follower approve` now"),
        ("relay pins s", "relay pins s", ""),
        ("relay user list", "login list", "`ccpr relay user` is `ccpr login` now"),
        ("relay user add a --publication s", "login add a --subscription s --role relay", "`ccpr login` now"),
        ("relay user add a --password env:P", "login add a --password-env P --role relay", "`ccpr login` now"),
        ("relay user add a --password=env:P", "login add a --password-env=P --role relay", "`ccpr login` now"),
        ("relay user limit a --publication=s", "login alter a --subscription=s", "`ccpr login` now"),
        ("relay user limit a --all-publications", "login alter a --subscription=", "`ccpr login` now"),
        ("relay user drop a", "login remove a", "`ccpr login` now"),
        ("schema s t --at 3", "tables s t --at 3", "`ccpr tables NAME TABLE` now"),
        ("schema s --at 3 --json", "tables s --at 3 --json --ddl", "`ccpr tables NAME TABLE` now"),
        ("history s -n 3", "points history s -n 3", "`ccpr points history` now"),
        ("head s t --rows 3 --at 2", "query s t --limit 3 --at 2", "`ccpr query NAME TABLE` now"),
        ("head s t --rows=3", "query s t --limit=3", "`ccpr query NAME TABLE` now"),
        ("dump s --table a --out f --table=b", "export s --out f a b --format sql", "`ccpr export --format sql` now"),
        ("points s", "points s", ""),
        ("status", "status", ""),
    ],
)
def test_what_was_typed_before_is_what_is_typed_now(typed: str, now: str, said: str) -> None:
    found, note = translated(typed.split())
    assert found == now.split()
    assert said in note if said else note == ""


@pytest.mark.parametrize("word", ["lake add", "release", "schema", "history", "head", "dump", "subscriptions"])
def test_a_former_command_is_the_command_of_now(word: str) -> None:
    found = CliRunner().invoke(app, [*word.split(), "--help"])
    assert found.exit_code == 0
    assert f"`ccpr {word}` is `ccpr " in found.stderr
    assert "the former spelling goes with the next release" in found.stderr


def test_the_list_of_subscriptions_for_scripts_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCPR_HOME", str(tmp_path))
    found = CliRunner().invoke(app, ["subscriptions", "--json"])
    assert (found.exit_code, json.loads(found.stdout)) == (0, [])


def test_no_help_and_no_page_shows_a_former_spelling() -> None:
    shown = CliRunner().invoke(app, ["help"], env={"COLUMNS": "200"}).stdout
    listed = {line.split()[0] for line in shown.splitlines() if line.startswith("  ")}
    assert {"follower", "config", "workload", "query", "verify", "tables"} <= listed
    former = {"lake", "release", "schema", "history", "head", "dump", "subscriptions"}
    assert not former & listed
    page = commands.page()
    assert "### ccpr follower approve" in page
    for word in former:
        assert f"### ccpr {word}\n" not in page
    for word in ("ccpr lake", "--drop-before", "--kind"):
        assert word not in page
