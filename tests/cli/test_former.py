"""Former spellings go on working, say what is typed now on standard error, and are in no help."""

import pytest
from typer.testing import CliRunner

from ccpr.cli.former import translated
from ccpr.cli.main import app
from scripts.reference import commands


@pytest.mark.parametrize(
    ("typed", "now", "said"),
    [
        ("follow s --into URI --downstream b", "follower add s --into URI b", "`ccpr follower add NAME FOLLOWER` now"),
        ("follow s --into=URI", "follower add s --into=URI", "`ccpr follower add` now"),
        ("unfollow s --downstream=b --force", "follower remove s --force b", "`ccpr follower remove NAME FOLLOWER`"),
        ("promote --downstream b s --check sum", "follower promote s --check sum b", "`ccpr follower promote"),
        ("init --from URI", "config init --from URI", "`ccpr config init` now"),
        ("apply -f x --yes", "config apply -f x --yes", "`ccpr config apply` now"),
        ("export-config", "config export", "`ccpr config export` now"),
        ("load run --rate 5", "workload run --rate 5", "`ccpr workload` now"),
        ("verify s --deep --no-repair", "verify s --deep", "only looks"),
        ("verify s --repair", "verify s --repair", ""),
        ("verify s", "verify s", ""),
        ("serve --spark --port 0", "serve --port 0", "without --spark and --no-spark"),
        ("serve --no-spark", "serve", "as `ccpr run` does"),
        ("serve --port 0", "serve --port 0", ""),
        ("head -n 5 t -s s --json", "head s -n 5 t --json", "ccpr head s t"),
        ("head t --subscription=s --at 3", "head s t --at 3", "ccpr head s t"),
        ("head s t -n 5", "head s t -n 5", ""),
        ("head --help", "head --help", ""),
        ("head t --help", "head t --help", ""),
    ],
)
def test_what_was_typed_before_is_what_is_typed_now(typed: str, now: str, said: str) -> None:
    found, note = translated(typed.split())
    assert found == now.split()
    assert said in note if said else note == ""


@pytest.mark.parametrize("word", ["follow", "unfollow", "promote", "init", "apply", "export-config", "load"])
def test_a_former_command_is_the_command_of_now(word: str) -> None:
    found = CliRunner().invoke(app, [word, "--help"])
    assert found.exit_code == 0
    assert "the former spelling goes with the next release" in found.stderr
    assert f" {' '.join(translated([word])[0])} [OPTIONS]" in " ".join(found.stdout.split()), "its help is that of now"


@pytest.mark.parametrize("words", [[], ["start"], ["keep", "--on-demand"], ["status", "--json"], ["--help"]])
def test_the_commands_of_the_warm_session_say_what_there_is_instead(words: list[str]) -> None:
    found = CliRunner().invoke(app, ["spark", *words])
    assert found.exit_code == 2
    assert found.stdout == ""
    assert "`ccpr spark` is gone" in found.stderr
    assert "CCPR_SPARK_REMOTE=sc://host:port" in found.stderr
    assert all(len(line) <= 80 for line in found.stderr.splitlines())


def test_no_help_and_no_page_shows_a_former_spelling() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    listed = {line.split()[1] for line in shown.splitlines() if line.startswith("│ ") and len(line.split()) > 2}
    assert {"follower", "config", "workload", "head", "verify"} <= listed
    assert not {"follow", "unfollow", "promote", "init", "apply", "export-config", "load", "spark"} & listed
    page = commands.page()
    assert "### ccpr follower promote" in page
    assert "`ccpr head NAME TABLE [OPTIONS]`" in page
    for word in (
        "ccpr unfollow",
        "ccpr promote",
        "ccpr export-config",
        "--no-repair",
        "--downstream",
        "--subscription",
        "ccpr spark",
        "--no-spark",
    ):
        assert word not in page
