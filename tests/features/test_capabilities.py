"""What the upstream can do is asked for, kept with the subscription, and shown; what is too old is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ccpr.cli.main import app
from tests.support.replica import NAME, Replica, replaying, source_uri


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    with replaying(recordings / "dml", home) as replica:
        yield replica


def known(replica: Replica) -> Any:
    return replica.command("status", NAME)["capabilities"]


def checks(replica: Replica, *words: str, code: int = 0) -> dict[str, Any]:
    found = replica.command("doctor", *words, code=code)["checks"]
    return {check["what"]: check for check in found if check["side"] == "upstream"}


def test_an_upgrade_in_place_goes_on_without_a_new_copy(replica: Replica) -> None:
    replica.subscribe()
    assert (known(replica)["zero_dates"], known(replica)["flush"]) == (False, True)
    copied = replica.run()["objects_copied"]
    replica.emulator.upgrade("4.2")
    second = replica.run()
    assert (second["lsn"], second["point"]) == (1, True)
    assert second["objects_copied"] <= second["objects_total"] - copied, "what was there is not copied again"
    lists = [one.text for one in replica.emulator.log() if one.kind == "object_list"]
    # Of the full list only appendable objects are taken (decision created-before-its-rows).
    assert [" - " in text for text in lists[-2:]] == [False, True], "a difference was asked for"
    found = known(replica)
    assert found["zero_dates"] is True
    assert (found["early_creates"], found["abort_column"]) == (False, False), "its objects say so"
    replica.assert_equal_to_source(2)


def test_status_and_doctor_show_them(replica: Replica) -> None:
    replica.subscribe()
    replica.run(), replica.run()
    shown = CliRunner().invoke(app, ["status", NAME, "-v"], catch_exceptions=False).output
    assert "zero dates: no" in " ".join(shown.split())
    found = checks(replica, NAME)
    assert (found["interface"]["result"], found["capabilities"]["result"]) == ("ok", "ok")
    assert "objects created before their commits: no" in found["capabilities"]["told"]


def test_a_release_without_the_interface_is_refused_at_subscribe_and_by_doctor(replica: Replica) -> None:
    replica.emulator.upgrade("3.0")
    error = replica.subscribe(code=1)["error"]
    assert error["code"] == "UPSTREAM_TOO_OLD"
    assert "4.0.0-rc1" in error["remedy"]
    assert replica.command("subscriptions") == []
    source = source_uri(replica.emulator.port)
    found = checks(replica, "--from", source, code=1)
    assert {what: check["result"] for what, check in found.items()} == {
        "login": "ok",
        "interface": "failed",
        "all else": "skipped",
    }
    assert found["interface"]["code"] == "UPSTREAM_TOO_OLD"


def test_an_exported_state_keeps_them(replica: Replica) -> None:
    replica.subscribe()
    replica.run()
    before, file = known(replica), replica.folder / "state.json"
    replica.command("state", "export", NAME, "--out", str(file))
    (replica.folder / "home" / "catalog.db").rename(replica.folder / "lost.db")
    replica.command("state", "import", str(file))
    assert known(replica) == before
    replica.run()
    replica.assert_equal_to_source(2)


def test_a_row_of_0_1_0_learns_them_with_the_next_iteration(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as old:
        old.setattr("ccpr.service.subscriptions.probe", lambda session: None)
        replica.subscribe()
    assert known(replica) is None
    replica.run()
    assert known(replica)["flush"] is True
