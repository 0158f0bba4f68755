"""What `ccpr serve` does by itself: second copies are brought up to date, restores are tried, files are read again and
repaired, and it is shown when one of these is late."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import ccpr
from ccpr.base.errors import Failure
from ccpr.cli.main import app
from ccpr.maintenance.scrubbing import is_waiting, next_share
from ccpr.serve.caretaking import Caretaker, is_due
from ccpr.serve.pages import Overview
from ccpr.serve.status_metrics import StatusMetrics
from ccpr.service.workspace import Workspace
from ccpr.state.care_records import MOST_DRILLS, Drill, DrillRecords, Scrub, ScrubRecords
from tests.support.one_table import DATABASE, OneTable
from tests.support.replica import command
from tests.support.simulated import rows

START, DAY = datetime(2026, 11, 1, tzinfo=UTC), 86400.0


class Clock:
    """Ours: of the wall, and of the process."""

    def __init__(self) -> None:
        self.now, self.steady = START.timestamp(), 0.0

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.steady += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shop(one_table: OneTable) -> OneTable:
    one_table.source.subscribe("--drill-every", "12h", "--verify-within", "10d")
    for _ in range(6):
        one_table.work()
    return one_table


@pytest.fixture
def workspace(shop: OneTable, clock: Clock) -> Iterator[Workspace]:
    with closing(Workspace(clock=lambda: clock.now)) as workspace:
        yield workspace


def status(workspace: Workspace) -> dict[str, Any]:
    from ccpr.pipeline.lag import LagMeter
    from ccpr.service.status import read_status

    return json.loads(json.dumps(read_status(workspace, workspace.log.row("s"), LagMeter(workspace.clock)).to_json()))


def figures(workspace: Workspace) -> dict[str, float]:
    return {one.name: sample.value for one in StatusMetrics(workspace).collect() for sample in one.samples}


def test_the_service_tries_a_restore_when_one_is_due_and_no_more(workspace: Workspace, clock: Clock) -> None:
    care = Caretaker(workspace, steady=lambda: clock.steady)
    for _ in range(3):
        care._round()
        clock.passes(60)
    assert len(command("drill", "s", "--history")) == 1
    clock.passes(11.9 * 3600)
    care._round()
    assert len(command("drill", "s", "--history")) == 1
    clock.passes(0.1 * 3600)
    care._round()
    assert len(command("drill", "s", "--history")) == 2
    assert status(workspace)["drill"]["trouble"] == ""
    assert figures(workspace)["ccpr_drill_good"] == 1.0
    clock.passes(25 * 3600)
    assert "no good drill for" in status(workspace)["drill"]["trouble"]
    assert figures(workspace)["ccpr_drill_age_seconds"] == pytest.approx(25 * 3600, abs=5)
    assert care.loop.errors == 0


def test_a_drill_that_failed_is_tried_again_within_an_hour_and_shown(
    workspace: Workspace, clock: Clock, shop: OneTable
) -> None:
    care, objects = Caretaker(workspace, steady=lambda: clock.steady), shop.source.mirror_folder() / "objects"
    good = {file: file.read_bytes() for file in objects.iterdir()}
    command("alter", "s", "--verify-within", "0")
    for file in good:
        file.write_bytes(b"x" * file.stat().st_size)
    care._round()
    found = status(workspace)["drill"]
    assert "MIRROR_DAMAGED" in found["trouble"]
    assert figures(workspace)["ccpr_drill_good"] == 0.0
    for file, content in good.items():
        file.write_bytes(content)
    clock.passes(1800)
    care._round()
    assert "MIRROR_DAMAGED" in status(workspace)["drill"]["trouble"]
    clock.passes(1801)
    care._round()
    assert status(workspace)["drill"]["trouble"] == ""


def test_subscriptions_that_want_no_care_are_asked_for_their_rows_only(workspace: Workspace) -> None:
    command("alter", "s", "--verify-within", "0", "--drill-every", "0")
    statements = []
    sa.event.listen(workspace.log.engine, "before_cursor_execute", lambda *what: statements.append(what[2]))
    Caretaker(workspace)._round()
    assert [statement.split()[0] for statement in statements] == ["SELECT"]


@given(age=st.integers(-(10**6), 10**6), every=st.integers(1, 10**6), good=st.booleans())
def test_when_a_drill_is_due(age: int, every: int, good: bool) -> None:
    began = START - timedelta(seconds=age)
    failure = None if good else Failure("STORE_FAILED", "", "", "")
    last = Drill(began, began, 1, 1, "x", failure=failure)
    due = is_due(last, every, START.timestamp())
    if age < 0:
        assert due, "a clock that was set back ends the wait"
    else:
        assert due == (age >= every or (not good and age >= 3600))


def test_old_drills_are_forgotten_and_the_last_good_one_is_not(workspace: Workspace) -> None:
    records = DrillRecords(workspace.log.engine, workspace.log.row("s").task_id)
    failure = Failure("STORE_FAILED", "no", "x", "y")
    for number in range(MOST_DRILLS + 5):
        at = START + timedelta(minutes=number)
        records.add(Drill(at, at, number, number, "x", failure=None if number == 2 else failure))
    found = records.all()
    assert len(found) == MOST_DRILLS + 1
    assert records.last()[1] == found[-1]
    assert found[-1].lsn == 2


def test_all_files_are_read_again_in_time_and_damage_is_repaired(
    workspace: Workspace, clock: Clock, shop: OneTable
) -> None:
    command("alter", "s", "--drill-every", "0")
    care, objects = Caretaker(workspace, steady=lambda: clock.steady), shop.source.mirror_folder() / "objects"
    damaged = sorted(objects.iterdir())[-1]
    content = damaged.read_bytes()
    damaged.write_bytes(b"x" * len(content))
    records = ScrubRecords(workspace.log.engine, workspace.log.row("s").task_id)
    rounds = 0
    while (scrub := records.get()) is None or scrub.last_began_at is None:
        care._round()
        clock.passes(3600)
        rounds += 1
    assert 2 < rounds <= 240, "in shares, within ten days"
    assert damaged.read_bytes() == content
    assert (scrub.repaired, dict(scrub.damaged)) == (1, {})
    care._round()
    assert records.get() == scrub, "the next round begins when its time has come"
    clock.passes(10 * DAY)
    care._round()
    assert records.get() != scrub
    assert status(workspace)["scrub"]["trouble"] == ""
    assert care.loop.errors == 0


def test_what_cannot_be_repaired_is_shown(workspace: Workspace, clock: Clock, shop: OneTable) -> None:
    command("alter", "s", "--drill-every", "0", "--verify-within", "1h")
    care, folder = Caretaker(workspace, steady=lambda: clock.steady), shop.source.mirror_folder()
    file = next((folder / "manifests").rglob("*.arrow"))
    file.write_bytes(b"x" * file.stat().st_size)
    for _ in range(70):
        care._round()
        clock.passes(60)
    found = status(workspace)["scrub"]
    assert list(found["damaged"]) == [file.relative_to(folder).as_posix()]
    assert "damaged files that could not be repaired" in found["trouble"]
    assert figures(workspace)["ccpr_damaged_files"] == 1
    assert "damaged files that could not be repaired" in Overview(workspace)().content.decode()


@given(
    sizes=st.lists(st.integers(1, 10**7), min_size=1, max_size=60),
    ticks=st.lists(st.sampled_from((60.0, 60.0, 3600.0, 5 * DAY, -2 * DAY)), min_size=1, max_size=12),
)
def test_a_round_ends_within_its_time_if_the_service_runs(sizes: list[int], ticks: list[float]) -> None:
    """Whatever the clock of the wall does meanwhile; with looks of an hour, the last object a look late."""
    within, now, steady = 10 * DAY, START.timestamp(), 0.0
    scrub, done, place, last = Scrub("", START), 0, 0, 0.0
    jumps = iter(ticks)
    while place < len(sizes):
        share = next_share(scrub, sum(sizes), within, steady - last or 3600.0, now)
        last = steady
        while place < len(sizes) and share > 0:
            share -= sizes[place]
            done += sizes[place]
            place += 1
        steady += 3600.0
        now += 3600.0 + next(jumps, 0.0)
        assert steady <= within + 2 * DAY + 3600.0 * 2
    assert done == sum(sizes)


def test_a_round_that_is_done_waits_for_its_time() -> None:
    done = Scrub("", START, START)
    assert is_waiting(done, DAY, START.timestamp() + DAY - 1)
    assert not is_waiting(done, DAY, START.timestamp() + DAY)
    assert not is_waiting(done, DAY, START.timestamp() - 1), "the clock was set back"
    assert not is_waiting(Scrub("x", START, START), DAY, START.timestamp())
    assert not is_waiting(None, DAY, START.timestamp())


def test_the_service_brings_a_second_copy_up_to_date_and_shows_its_lag(
    workspace: Workspace, clock: Clock, shop: OneTable, home: Path
) -> None:
    place = (home / "second").as_uri()
    command("alter", "s", "--drill-every", "0", "--verify-within", "0", "--copy-to", place, "--copy-every", "1h")
    care = Caretaker(workspace, steady=lambda: clock.steady)
    care._round()
    (found,) = status(workspace)["copies"]
    assert (found["place"], found["lsn"], found["lag_seconds"], found["trouble"]) == (place, 5, 0.0, "")
    shop.work(90)
    (found,) = status(workspace)["copies"]
    assert (found["lsn"], found["lag_seconds"]) == (5, pytest.approx(90, abs=1))
    assert figures(workspace)["ccpr_copy_lag_seconds"] == pytest.approx(90, abs=1)
    clock.passes(3599)
    care._round()
    assert status(workspace)["copies"][0]["lsn"] == 5, "it is not due yet"
    clock.passes(1)
    care._round()
    assert status(workspace)["copies"][0]["lsn"] == 6
    assert figures(workspace)["ccpr_copy_lag_seconds"] == 0.0
    copied = ccpr.open_mirror(place).table(f"{DATABASE}.a")
    for lsn, expected in shop.truth.items():
        assert rows(copied.to_arrow(at=lsn)) == rows(expected)
    clock.passes(2 * 3600 + 1)
    assert "not brought up to date for 2 h" in status(workspace)["copies"][0]["trouble"]
    assert figures(workspace)["ccpr_copy_age_seconds"] == pytest.approx(2 * 3600 + 1, abs=1)
    told = CliRunner().invoke(app, ["status", "s"], catch_exceptions=False).output
    assert "second copy" in told
    assert "point 6, up to date; last copied to" in " ".join(told.split())
    assert care.loop.errors == 0


def test_drills_take_second_copies_too(
    workspace: Workspace, clock: Clock, shop: OneTable, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = home / "second"
    command("alter", "s", "--verify-within", "0")
    command("copy", "s", "--to", str(place))
    shop.work()  # which the copy has not
    monkeypatch.setattr("ccpr.serve.caretaking.secrets.choice", lambda those: those[-1])
    care = Caretaker(workspace, steady=lambda: clock.steady)
    care._round()
    (first,) = command("drill", "s", "--history")
    assert (first["good"], first["place"].endswith(f", from {place.as_uri()}"), first["lsn"] < 6) == (True, True, True)
    for file in (place / "objects").iterdir():
        content = file.read_bytes()
        file.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    clock.passes(13 * 3600)
    care._round()
    failed, *_ = command("drill", "s", "--history")
    assert failed["failure"]["code"] == "MIRROR_DAMAGED"
    assert status(workspace)["drill"]["trouble"]
    assert care.loop.errors == 0


def test_a_second_copy_that_cannot_be_written_is_tried_again_and_shown(
    workspace: Workspace, clock: Clock, shop: OneTable, home: Path
) -> None:
    place = home / "second"
    place.write_text("a file is where the folder should be")
    command("alter", "s", "--drill-every", "0", "--verify-within", "0", "--copy-to", str(place), "--copy-every", "10m")
    care = Caretaker(workspace, steady=lambda: clock.steady)
    for attempts in (1, 2):
        care._round()
        (found,) = status(workspace)["copies"]
        assert (found["attempts"], found["failure"]["code"]) == (attempts, "STORE_FAILED")
        assert "could not be brought up to date: STORE_FAILED" in found["trouble"]
        assert found["trouble"].endswith(f"`ccpr copy NAME --forget {place.as_uri()}` ends it if it is not wanted")
        assert "could not be brought up to date" in Overview(workspace)().content.decode()
        clock.passes(601)
    assert figures(workspace)["ccpr_copy_failed_attempts"] == 2
    place.unlink()
    care._round()
    (found,) = status(workspace)["copies"]
    assert (found["lsn"], found["attempts"], found["trouble"]) == (5, 0, "")
    copied = ccpr.open_mirror(place).table(f"{DATABASE}.a")
    assert rows(copied.to_arrow(at=5)) == rows(shop.truth[5])


def test_a_copy_that_was_begun_nowhere_is_late_and_one_that_is_forgotten_is_not_shown(
    workspace: Workspace, clock: Clock, shop: OneTable, home: Path
) -> None:
    place = str(home / "second")
    command("alter", "s", "--copy-to", place, "--copy-every", "1h")
    made = workspace.log.row("s").created_at.timestamp()
    clock.now = made + 3 * 3600
    assert "not brought up to date for 3 h" in status(workspace)["copies"][0]["trouble"]
    assert command("copy", "s")["newest_point"] == 5
    command("alter", "s", "--copy-to", "", "--copy-every", "0")
    assert [one["every"] for one in status(workspace)["copies"]] == [0]
    assert command("copy", "s", "--forget", place)["known"]
    assert status(workspace)["copies"] == []
    assert not command("copy", "s", "--forget", place)["known"]
    copied = ccpr.open_mirror(place).table(f"{DATABASE}.a")
    assert rows(copied.to_arrow(at=5)) == rows(shop.truth[5])
