"""Our own client subscribes to the relay: the mirror of a mirror is that mirror, for each recording; and so is the
mirror at the end of three relays."""

import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from ccpr.pipeline.due import due_at
from ccpr.pipeline.lag import LagMeter
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription
from ccpr_emulator.recorded_upstream import RecordedUpstream
from tests.histories.replicating import NAME, subscribed
from tests.support.driving import iterate
from tests.support.recordings_location import scenarios
from tests.support.relayed import assert_same_point, relaying, subscribe_through
from tests.support.replica import About

pytestmark = [pytest.mark.integration, pytest.mark.recordings]
SCENARIOS = [pytest.param(path, id=name) for name, path in scenarios().items()]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_mirror_of_a_mirror_is_that_mirror(scenario: str, recordings: Path, tmp_path: Path) -> None:
    about = About.read(recordings / scenario)
    with ExitStack() as held:
        source = held.enter_context(RecordedUpstream(recordings / scenario))
        first = held.enter_context(closing(_subscribed(about, source, tmp_path / "first")))
        relay = held.enter_context(relaying(first))
        second = held.enter_context(closing(subscribe_through(relay.port, tmp_path / "second", _of(first, NAME))))
        for _ in range(about.snapshots):
            if iterate(first, NAME).point:
                assert iterate(second, "again").point
                assert_same_point(first.mirror(NAME), second.mirror("again"))
            elif first.mirror(NAME).published_head():
                iterate(second, "again")
        assert iterate(second, "again").point is False, "the same point again is nothing new"


def test_the_mirror_after_three_relays_is_the_first(recordings: Path, tmp_path: Path) -> None:
    about = About.read(recordings / "dml")
    with ExitStack() as held:
        source = held.enter_context(RecordedUpstream(recordings / "dml"))
        mirrors = [(held.enter_context(closing(_subscribed(about, source, tmp_path / "0"))), NAME)]
        for number in range(1, 4):
            before, name = mirrors[-1]
            relay = held.enter_context(relaying(before))
            made = subscribe_through(relay.port, tmp_path / str(number), _of(before, name), f"m{number}")
            mirrors.append((held.enter_context(closing(made)), f"m{number}"))
        for _ in range(4):
            for workspace, name in mirrors:
                iterate(workspace, name)
            assert_same_point(mirrors[0][0].mirror(NAME), mirrors[-1][0].mirror("m3"))


def test_the_lag_of_a_second_site_is_the_age_of_its_data(recordings: Path, tmp_path: Path) -> None:
    """However long the first site has had nothing new, or has stood still; through two relays, too."""
    about, meter = About.read(recordings / "dml"), LagMeter()
    with ExitStack() as held:
        source = held.enter_context(RecordedUpstream(recordings / "dml"))
        first = held.enter_context(closing(_subscribed(about, source, tmp_path / "first")))
        relay = held.enter_context(relaying(first))
        second = held.enter_context(closing(subscribe_through(relay.port, tmp_path / "second", _of(first, NAME))))
        again = held.enter_context(relaying(second))
        third = held.enter_context(closing(subscribe_through(again.port, tmp_path / "third", _of(second, "again"))))
        iterate(first, NAME)
        began = time.time()
        first.clock = lambda: time.time() + 134  # it is 134 s later there: only durations count between sites
        for workspace in (second, third):
            iterate(workspace, "again")
            row = workspace.log.row("again")
            lag = meter.read(row.task_id, Context.from_text(row.context))
            assert lag.seconds is not None
            assert 134 <= lag.seconds <= 134 + time.time() - began + 1
            assert lag.warnings() == [], "no clock differs"
            assert due_at(row, time.time()) > time.time() - 60, "the next iteration is due by when this one was"


def _subscribed(about: About, source: RecordedUpstream, folder: Path) -> Workspace:
    publisher = (about.publisher, source.recording.account_id)
    settings = Settings(with_indexes=True)
    return subscribed(source.port, folder, about.database, table=about.table, publisher=publisher, settings=settings)


def _of(workspace: Workspace, name: str) -> Subscription:
    return Subscription.from_row(workspace.log.row(name))
