"""Disks that are full or read-only under the state and under mirrors: each command says so at once, and what to do."""

import logging
import shutil
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from ccpr.service.free_space import FreeSpace
from ccpr.service.workspace import Workspace
from ccpr.state.database import create_engine, repeatable, transaction
from ccpr.state.errors import StateDiskFull
from tests.support.replica import NAME, Replica, replaying

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 10**12 - 300, 300))


def test_a_state_disk_without_space_is_said_at_once_and_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, tries = create_engine(f"sqlite:///{tmp_path}/catalog.db"), []
    with transaction(engine) as connection:
        connection.execute(sa.text("CREATE TABLE t (v BLOB)"))

    @repeatable
    def fill() -> None:
        tries.append(1)
        with transaction(engine) as connection:
            connection.execute(sa.text("PRAGMA max_page_count = 4"))
            connection.execute(sa.text("INSERT INTO t VALUES (zeroblob(1000000))"))

    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it was waited for"))
    with caplog.at_level(logging.INFO), pytest.raises(StateDiskFull) as caught:
        fill()
    assert len(tries) == 1
    assert caplog.records == []
    assert "Free space" in caught.value.remedy
    with transaction(engine) as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM t")).scalar() == 0


def test_a_mirror_that_cannot_be_written_is_not_subscribed_to(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        error = replica.subscribe("--mirror", "/proc/ccpr-mirror", code=1)["error"]
        assert (error["code"], error["subject"]) == ("STORE_FAILED", "/proc/ccpr-mirror")
        assert "--mirror" in error["remedy"]
        assert replica.command("subscriptions") == []
        replica.subscribe()
        assert not replica.mirror.exists(), "what was tried there is gone"
        replica.run()
        replica.assert_equal_to_source(1)


@pytest.mark.usefixtures("nearly_full")
def test_status_plan_and_doctor_say_that_the_mirrors_disk_is_full(replica: Replica) -> None:
    warnings = replica.command("status", NAME)["warnings"]
    assert any("only 300 B are free" in one and str(replica.mirror) in one for one in warnings)
    assert replica.command("plan", NAME)["free_bytes"] == 300
    checks = {one["what"]: one for one in replica.command("doctor", NAME, code=1)["checks"]}
    assert checks["mirror's space"]["result"] == "failed"
    assert "--mirror" in checks["mirror's space"]["remedy"]


def test_status_says_that_the_mirrors_folder_is_gone(replica: Replica) -> None:
    replica.run()
    before = replica.command("status", NAME)["warnings"]
    away = replica.mirror.rename(replica.mirror.with_name("away"))
    warnings = replica.command("status", NAME)["warnings"]
    assert [one for one in warnings if "is not there" in one and "ccpr alter" in one]
    away.rename(replica.mirror)
    assert len(replica.command("status", NAME)["warnings"]) == len(before)
    replica.assert_equal_to_source(2)


def test_the_room_of_a_folder_that_is_not_there_is_that_of_the_one_above(tmp_path: Path) -> None:
    space: Any = FreeSpace.of(tmp_path / "a" / "b")
    assert (space.there, space.writable, space.total) == (False, True, shutil.disk_usage(tmp_path).total)
    with Workspace(tmp_path) as workspace:
        assert FreeSpace.of(workspace.home) is not None
