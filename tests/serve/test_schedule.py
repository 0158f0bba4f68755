"""What the service starts when, with a clock that the test moves: random subscriptions, durations and failures."""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.pipeline.due import back_off, due_at
from ccpr.serve import schedule as schedule_module
from ccpr.serve.schedule import LONG_PER_WORKER, LONG_SECONDS, Schedule
from ccpr.state.context import Context
from ccpr.state.credentials import Vault
from ccpr.state.log_rows import LogRow
from ccpr.state.settings import Settings
from ccpr.state.states import IterationState, State
from ccpr.state.subscription import Subscription

START = 1_700_000_000.0
ERROR = "UPSTREAM_UNREACHABLE: it refuses [upstream] Start it."


class Clock:
    """Seconds since 1970, and steady seconds; `jump` sets the first only."""

    def __init__(self) -> None:
        self.now, self.steady = START, 0.0

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        self.steady += seconds

    def jump(self, seconds: float) -> None:
        self.now += seconds


def new_row(vault: Vault, number: int, interval: int) -> LogRow:
    endpoint, publication = Endpoint("127.0.0.1", 6001, "sys", "dump"), Publication("p", "sys", 0)
    settings = Settings(sync_interval=interval)
    new = Subscription.new(f"s{number}", endpoint, "111", vault, publication, f"d{number}", None, settings)
    return new.to_row(datetime.fromtimestamp(START - 1000, UTC))


def began_at(row: LogRow, when: float) -> LogRow:
    """As an iteration that began then leaves it."""
    ref = SnapshotRef(f"xr_0_{row.iteration_lsn}_0", row.iteration_lsn, 0, round(when * 1e9), when)
    context = Context(current=ref).to_text()
    return replace(row, context=context, iteration_lsn=row.iteration_lsn + 1, error_message=None)


def failed_at(row: LogRow, when: float, count: int) -> LogRow:
    return replace(row, error_message=f"R:{count}:{round(when)}:{round(when)}:{ERROR}")


@dataclass
class Simulation:
    """A service that does nothing but take time."""

    clock: Clock
    schedule: Schedule
    rows: dict[str, LogRow]
    broken: set[str]
    workers: int
    ends: dict[str, float] = field(default_factory=dict)  # steady time at which the running ones end
    started: dict[str, float] = field(default_factory=dict)
    fails: dict[str, int] = field(default_factory=dict)
    late: dict[str, list[float]] = field(default_factory=dict)

    def begin_due(self, seconds_of: dict[str, float]) -> None:
        for row in self.schedule.due():
            task_id = row.task_id
            assert task_id not in self.ends, "two iterations of one subscription"
            self.late.setdefault(task_id, []).append(self.schedule.lateness(row))
            self.schedule.began(task_id)
            self.started[task_id] = self.clock.now
            self.ends[task_id] = self.clock.steady + seconds_of[task_id]
        counted = [
            task_id
            for task_id, end in self.ends.items()
            if not self.fails.get(task_id) and self.clock.steady - (end - seconds_of[task_id]) < LONG_SECONDS
        ]
        assert len(counted) <= self.workers
        assert len(self.ends) <= self.schedule.most_at_once

    def go_on(self) -> None:
        """To the next moment at which something happens."""
        waits = [max(0.0, end - self.clock.steady) for end in self.ends.values()]
        wait = self.schedule.wait_seconds()
        assert wait is None or wait > 0
        waits += [] if wait is None else [wait]
        self.clock.go_on(min(waits) + 1e-6)
        for task_id in [one for one, end in self.ends.items() if end <= self.clock.steady]:
            del self.ends[task_id]
            failed = task_id in self.broken
            self.fails[task_id] = self.fails.get(task_id, 0) + 1 if failed else 0
            row = self.rows[task_id]
            if failed:
                self.rows[task_id] = failed_at(row, self.clock.now, self.fails[task_id])
            else:
                self.rows[task_id] = began_at(row, self.started[task_id])
            self.schedule.ended(task_id, self.rows[task_id], failed=failed)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "key")


def simulate(vault: Vault, seed: int, *, count: int, workers: int, broken: int) -> Simulation:
    chance, clock = random.Random(seed), Clock()
    schedule = Schedule(workers, lambda: clock.now, lambda: clock.steady)
    rows = {row.task_id: row for row in (new_row(vault, number, chance.choice((1, 3, 10))) for number in range(count))}
    names = list(rows)
    simulation = Simulation(clock, schedule, rows, set(names[:broken]), workers)
    # A broken one hangs until its timeout.
    seconds = {task_id: 30.0 if task_id in simulation.broken else chance.uniform(0.01, 0.05) for task_id in names}
    schedule.update(rows.values())
    while clock.now < START + 200:
        simulation.begin_due(seconds)
        simulation.go_on()
        if chance.random() < 0.1:
            schedule.update(simulation.rows.values())
    return simulation


@pytest.mark.parametrize("seed", range(6))
def test_no_more_run_at_once_than_workers_and_each_begins_when_it_is_due(vault: Vault, seed: int) -> None:
    simulation = simulate(vault, seed, count=12, workers=4, broken=0)
    assert all(len(late) > 15 for late in simulation.late.values())
    assert max(late for lates in simulation.late.values() for late in lates[1:]) < 0.3


@pytest.mark.parametrize("seed", range(3))
def test_subscriptions_whose_upstream_hangs_do_not_delay_the_others(vault: Vault, seed: int) -> None:
    simulation = simulate(vault, seed, count=20, workers=2, broken=6)
    healthy = [lates for task_id, lates in simulation.late.items() if task_id not in simulation.broken]
    assert len(healthy) == 14
    # At first nothing is known of them: each may keep a worker for LONG_SECONDS.
    assert max(late for lates in healthy for late in lates[-10:]) < 0.5
    assert all(simulation.fails[task_id] >= 2 for task_id in simulation.broken), "and they are tried again"


def test_what_failed_is_tried_again_after_the_wait_that_the_sensor_has_too(vault: Vault) -> None:
    clock = Clock()
    schedule = Schedule(1, lambda: clock.now, lambda: clock.steady)
    row = began_at(new_row(vault, 0, 10), START - 100)
    schedule.update([row])
    for count in range(1, 5):
        (found,) = schedule.due()
        schedule.began(found.task_id)
        clock.go_on(0.25)
        row = failed_at(row, clock.now, count)
        schedule.ended(row.task_id, row, failed=True)
        assert schedule.due() == []
        wait = schedule.wait_seconds()
        assert wait == pytest.approx(max(due_at(row) - clock.now, back_off(row, count)), abs=1e-6)
        clock.go_on(wait + 1e-6)


def test_a_failure_that_did_not_reach_the_row_is_not_tried_in_a_circle(vault: Vault) -> None:
    clock = Clock()
    schedule = Schedule(1, lambda: clock.now, lambda: clock.steady)
    row = began_at(new_row(vault, 0, 10), START - 100)
    schedule.update([row])
    (found,) = schedule.due()
    schedule.began(found.task_id)
    schedule.ended(row.task_id, None, failed=True)
    schedule.update([row])
    assert schedule.due() == []
    assert schedule.wait_seconds() == pytest.approx(back_off(row, 1))


def test_paused_stopped_held_and_dropped_ones_do_not_begin(vault: Vault) -> None:
    clock, dead = Clock(), set()
    schedule = Schedule(8, lambda: clock.now, lambda: clock.steady, dead.__contains__)
    due = [began_at(new_row(vault, number, 10), START - 100) for number in range(4)]
    paused = replace(due[0], state=State.PAUSED)
    stopped = replace(due[1], state=State.ERROR, iteration_state=IterationState.ERROR)
    held = replace(due[2], cn_uuid="another", lease_expires_at=round((START + 20) * 1000))
    schedule.update([paused, stopped, held, due[3]])
    assert schedule.due() == [due[3]]
    schedule.update([due[0], stopped, held], gone=[due[3].task_id])
    assert schedule.due() == [due[0]], "resumed; and one is gone"
    dead.add("another")
    assert schedule.due() == [due[0], held] or schedule.due() == [held, due[0]]


def test_an_iteration_that_the_last_service_left_open_goes_on_at_once(vault: Vault) -> None:
    clock = Clock()
    row = replace(
        began_at(new_row(vault, 0, 3600), START - 5),
        iteration_state=IterationState.RUNNING,
        updated_at=datetime.fromtimestamp(START - 1, UTC),
    )
    first = Schedule(1, lambda: clock.now, lambda: clock.steady)
    first.update([row])
    assert first.due() == [row]
    other = Schedule(1, lambda: clock.now, lambda: clock.steady)
    other.update([])
    other.update([row])
    assert other.due() == [], "one that another executor began later may be at work"


def test_a_clock_that_is_set_back_does_not_stop_it(vault: Vault) -> None:
    clock = Clock()
    schedule = Schedule(1, lambda: clock.now, lambda: clock.steady)
    row = began_at(new_row(vault, 0, 10), START)
    clock.jump(-3600)
    schedule.update([row])
    assert schedule.due() == [row]
    schedule.began(row.task_id)
    row = began_at(row, clock.now)
    schedule.ended(row.task_id, row, failed=False)
    assert schedule.due() == []
    clock.go_on(10)
    assert schedule.due() == [row]


def test_a_first_copy_that_takes_days_keeps_no_worker(vault: Vault) -> None:
    clock = Clock()
    schedule = Schedule(1, lambda: clock.now, lambda: clock.steady)
    rows = [new_row(vault, number, 10) for number in range(LONG_PER_WORKER + 3)]
    schedule.update(rows)
    begun = 0
    while found := schedule.due():
        assert len(found) == 1
        schedule.began(found[0].task_id)
        begun += 1
        clock.go_on(LONG_SECONDS + 0.1)
    assert begun == LONG_PER_WORKER + 1


@dataclass
class Plain:
    """What a schedule answers, found by looking at every subscription."""

    clock: Clock
    rows: dict[str, LogRow] = field(default_factory=dict)
    not_before: dict[str, float] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)
    fails: Counter[str] = field(default_factory=Counter)

    def end(self, task_id: str, *, failed: bool) -> LogRow:
        """The row that an iteration leaves that ends now."""
        began, row = self.began.pop(task_id), self.rows[task_id]
        if failed:
            self.fails[task_id] += 1
            row = failed_at(row, self.clock.now, self.fails[task_id])
            self.not_before[task_id] = self.clock.steady + back_off(row, self.fails[task_id])
        else:
            row = began_at(row, self.clock.now - (self.clock.steady - began))
            self.not_before.pop(task_id, None)
            self.fails[task_id] = 0
        return row

    def put(self, row: LogRow, dues: dict[str, float | None]) -> None:
        if self.rows.get(row.task_id) != row:
            self.rows[row.task_id] = row
            dues[row.task_id] = self.due_of(row)

    def due_of(self, row: LogRow) -> float | None:
        return due_at(row, self.clock.now) if row.state == State.RUNNING else None

    def due(self, workers: int, dues: dict[str, float | None]) -> list[str]:
        ready = sorted(
            (due, task_id)
            for task_id, due in dues.items()
            if due is not None
            and due <= self.clock.now
            and task_id not in self.began
            and self.not_before.get(task_id, 0.0) <= self.clock.steady
            and not self.rows[task_id].is_held(self.clock.now)
        )
        apart = sum(self._apart(task_id) for task_id in self.began)
        left = workers * LONG_PER_WORKER - apart
        free = workers - (len(self.began) - apart) + min(left, 0)
        found = []
        for _, task_id in ready:
            if self.rows[task_id].error_message:
                if left > 0:
                    left -= 1
                    found.append(task_id)
            elif free > 0:
                free -= 1
                found.append(task_id)
        return found

    def wait(self, workers: int, dues: dict[str, float | None]) -> float | None:
        apart = sum(self._apart(task_id) for task_id in self.began)
        left = workers * LONG_PER_WORKER - apart
        free = workers - (len(self.began) - apart) + min(left, 0)
        waits = [began + LONG_SECONDS - self.clock.steady for began in self.began.values()]
        for task_id, due in dues.items():
            if due is None or task_id in self.began:
                continue
            rest = self.not_before.get(task_id, 0.0) - self.clock.steady
            if rest > 0 and rest >= due - self.clock.now:
                waits.append(rest)
            elif (left if self.rows[task_id].error_message else free) > 0:
                waits.append(due - self.clock.now)
        return min((wait for wait in waits if wait > 0), default=None)

    def _apart(self, task_id: str) -> bool:
        return bool(self.rows[task_id].error_message) or self.clock.steady - self.began[task_id] >= LONG_SECONDS


@pytest.mark.parametrize("seed", range(6))
def test_heaps_find_what_a_look_at_every_subscription_finds(vault: Vault, seed: int) -> None:
    chance, clock = random.Random(seed), Clock()
    plain, dues = Plain(clock), dict[str, float | None]()
    schedule = Schedule(2, lambda: clock.now, lambda: clock.steady)

    def update(rows: list[LogRow], gone: list[str]) -> None:
        for task_id in gone:
            del plain.rows[task_id], dues[task_id]
            plain.not_before.pop(task_id, None)
        for row in rows:
            if (before := plain.rows.get(row.task_id)) and before.error_message and not row.error_message:
                plain.not_before.pop(row.task_id, None)
            plain.put(row, dues)
        schedule.update(rows, gone)

    update([began_at(new_row(vault, number, chance.choice((1, 5, 30))), START - 40) for number in range(15)], [])
    for step in range(200):
        kind = chance.choice(("time", "time", "jump", "hold", "pause", "new", "gone", "end", "end", "fail"))
        idle = [task_id for task_id in plain.rows if task_id not in plain.began]
        task_id = chance.choice(idle) if idle else None
        if kind == "time":
            clock.go_on(chance.choice((0.01, 0.5, 3.0)))
        elif kind == "jump" and chance.random() < 0.2:
            clock.jump(chance.choice((-20.0, 20.0)))
        elif kind == "hold" and task_id:
            until = 0 if plain.rows[task_id].lease_expires_at else round((clock.now + 4) * 1000)
            update([replace(plain.rows[task_id], cn_uuid="another", lease_expires_at=until)], [])
        elif kind == "pause" and task_id:
            state = State.RUNNING if plain.rows[task_id].state == State.PAUSED else State.PAUSED
            update([replace(plain.rows[task_id], state=state)], [])
        elif kind == "new":
            update([began_at(new_row(vault, 100 + step, 5), clock.now)], [])
        elif kind == "gone" and task_id:
            update([], [task_id])
        elif kind in ("end", "fail") and plain.began:
            task_id = chance.choice(list(plain.began))
            row = plain.end(task_id, failed=kind == "fail")
            plain.put(row, dues)
            schedule.ended(task_id, row, failed=kind == "fail")
        expected = plain.due(2, dues)
        assert [row.task_id for row in schedule.due()] == expected
        for task_id in expected:
            schedule.began(task_id)
            plain.began[task_id] = clock.steady
        wait, latest = schedule.wait_seconds(), plain.wait(2, dues)
        assert wait is None or wait > 0
        assert latest is None or (wait is not None and wait <= latest + 1e-6), "what begins then is looked at in time"


def test_a_look_costs_what_is_due_and_not_what_there_is(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looked = Clock(), Counter[str]()
    rows = [began_at(new_row(vault, number, 3600), START - 1) for number in range(2000)]
    schedule = Schedule(4, lambda: clock.now, lambda: clock.steady)
    schedule.update(rows)
    entry_at = schedule_module._Queue._entry
    monkeypatch.setattr(
        schedule_module._Queue, "_entry", lambda self, place: (looked.update(["places"]), entry_at(self, place))[1]
    )
    assert schedule.due() == []
    assert schedule.wait_seconds() is not None
    assert looked["places"] <= 8
    clock.go_on(3600)
    assert len(schedule.due()) == 4, "as many as there are workers, of 2,000 that are due"
    assert schedule.wait_seconds() is None, "none becomes due later"
    assert looked["places"] <= 24


def test_what_is_gone_while_it_runs_is_forgotten_at_its_end(vault: Vault) -> None:
    clock = Clock()
    schedule = Schedule(1, lambda: clock.now, lambda: clock.steady)
    row = began_at(new_row(vault, 0, 10), START - 100)
    schedule.update([row])
    schedule.began(row.task_id)
    schedule.update([], gone=[row.task_id])
    schedule.ended(row.task_id, None, failed=False, later=True)
    clock.go_on(100)
    assert (schedule.due(), schedule.wait_seconds()) == ([], None)


def test_places_that_were_left_are_cleared_away(vault: Vault) -> None:
    clock = Clock()
    schedule = Schedule(1, lambda: clock.now, lambda: clock.steady)
    row = began_at(new_row(vault, 0, 3600), START)
    for lease in range(20_000):
        schedule.update([replace(row, lease_expires_at=lease)])
    assert len(schedule._sound) < 2000
