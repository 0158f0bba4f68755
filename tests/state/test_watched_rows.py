"""What is read of all subscriptions each second is what is stored, and only what has changed is read whole."""

import random
import uuid
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.errors import Transient
from ccpr.state import log_rows
from ccpr.state.context import Context
from ccpr.state.database import transaction
from ccpr.state.log import CcprLog
from ccpr.state.log_rows import WHOLE_SECONDS, Claim, LogRow, WatchedRows
from ccpr.state.migrations import open_database
from ccpr.state.settings import Settings
from ccpr.state.states import State
from ccpr.state.subscription import Subscription
from ccpr.state.tables import mo_ccpr_log

pytestmark = pytest.mark.integration
START = 1_700_000_000.0


class Clock:
    """No two transactions are of one microsecond."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        self.now += 2e-6
        return self.now


@pytest.fixture
def log(catalog_url: str) -> CcprLog:
    return CcprLog(open_database(catalog_url), Clock())


def new_row(name: str) -> LogRow:
    publication = Publication("p", "sys", 0)
    endpoint = Endpoint("127.0.0.1", 6001, "sys", "dump")
    new = Subscription(str(uuid.uuid4()), name, endpoint, "sealed", publication, "d", None, Settings())
    return new.to_row(datetime.fromtimestamp(START, UTC))


class Flaky(Transient):
    code, about = "FLAKY", "test"


class Others:
    """What other processes may do to the rows, at random."""

    def __init__(self, log: CcprLog, seed: int) -> None:
        self.log, self.chance = log, random.Random(seed)
        self.claims: dict[str, Claim] = {}
        self.made = 0

    def do(self) -> None:
        names = [row.subscription_name for row in self.log.rows()]
        kind = self.chance.choice(
            ("new", "claim", "step", "renew", "release", "fail", "pause", "resume", "drop", "alter")
        )
        if kind == "new" or not names:
            self.made += 1
            self.log.insert(new_row(f"s{self.made % 7}" if f"s{self.made % 7}" not in names else f"n{self.made}"))
            return
        name = self.chance.choice(names)
        row = self.log.row(name)
        claim = self.claims.get(row.task_id)
        if claim is not None and row.fence != claim.fence:
            claim = None  # it has been lost
        if kind == "claim" and row.state in (State.RUNNING, State.ERROR):
            self.claims[row.task_id] = self.log.claim(name, "we", 30.0, lambda _: True)
        elif kind == "step" and claim:
            ref = SnapshotRef("x", row.iteration_lsn, 0, 1, START)
            self.log.remember(claim, Context(current=ref, list_rows=self.chance.randrange(10**6)))
        elif kind == "renew" and claim:
            self.log.renew(claim, self.chance.uniform(10, 60))
        elif kind == "release" and claim:
            self.log.release(claim)
        elif kind == "fail" and claim and row.state == State.RUNNING:
            self.log.start(claim, Context())
            self.log.fail(claim, Context(), Flaky("down", subject="test", remedy="Wait."), ends=False)
        elif kind == "pause" and row.state == State.RUNNING:
            self.log.pause(name)
        elif kind == "resume" and row.state == State.PAUSED:
            self.log.resume(name)
        elif kind == "drop":
            self.log.drop(name)
        elif kind == "alter":
            settings = replace(Settings.from_text(row.sync_config), sync_interval=self.chance.randrange(1, 100))
            self.log.alter(row, {"sync_config": settings.to_text()}, reroute=False)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_watched_is_what_is_stored_after_whatever_others_do(log: CcprLog, seed: int) -> None:
    steady = Clock()
    others, watched = Others(log, seed), WatchedRows(log.engine, steady)
    copy: dict[str, LogRow] = {}
    for _ in range(150):
        log._clock.now += others.chance.choice((0.0, 0.5, -0.25))  # type: ignore[attr-defined]
        for _ in range(others.chance.randrange(3)):
            others.do()
        changes = watched.read()
        for task_id in changes.gone:
            del copy[task_id]
        copy |= {row.task_id: row for row in changes.rows}
        assert copy == watched.rows == {row.task_id: row for row in log.rows()}
    log.engine.dispose()


def test_only_what_has_changed_is_read_whole(log: CcprLog, monkeypatch: pytest.MonkeyPatch) -> None:
    steady, read = Clock(), Counter[str]()
    some, whole = log_rows.read_some, log_rows.read_rows
    monkeypatch.setattr(log_rows, "read_some", lambda c, keys: (read.update(some=len(keys)), some(c, keys))[1])
    monkeypatch.setattr(log_rows, "read_rows", lambda c: (read.update(["whole"]), whole(c))[1])
    for number in range(20):
        log.insert(new_row(f"s{number}"))
    watched = WatchedRows(log.engine, steady)
    assert len(watched.read().rows) == 20
    log.claim("s3", "we", 30.0, lambda _: True)
    log.pause("s4")
    assert {row.subscription_name for row in watched.read().rows} == {"s3", "s4"}
    assert not watched.read()
    assert read == {"whole": 1, "some": 2}
    with transaction(log.engine) as connection:  # by hand, and without its time
        connection.execute(mo_ccpr_log.update().where(mo_ccpr_log.c.live_name == "s5").values(watermark=7))
    assert not watched.read()
    steady.now += WHOLE_SECONDS
    assert [row.watermark for row in watched.read().rows] == [7]
    log.engine.dispose()


def test_a_row_that_cannot_be_read_is_gone_until_it_can(log: CcprLog) -> None:
    for number in range(3):
        log.insert(new_row(f"s{number}"))
    watched = WatchedRows(log.engine, Clock())
    watched.read()
    good = log.row("s1")

    def write(state: int) -> None:
        with transaction(log.engine) as connection:
            connection.execute(mo_ccpr_log.update().where(mo_ccpr_log.c.live_name == "s1").values(state=state))

    write(77)
    changes = watched.read()
    assert (changes.gone, [row.subscription_name for row in changes.bad]) == ([good.task_id], ["s1"])
    again = watched.read()
    assert (bool(again), [row.subscription_name for row in again.bad]) == (False, ["s1"]), "it is told each time"
    write(good.state)
    assert watched.read().rows == [good]
    assert len(watched.rows) == 3
    log.engine.dispose()
