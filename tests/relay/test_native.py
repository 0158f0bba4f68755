"""A client that does what a MatrixOne does follows a relay: at each point it has the rows of the point, through
renames, truncations and rewrites, and over restarts of the relay."""

from contextlib import ExitStack, closing
from pathlib import Path

import pymysql
import pytest

from ccpr.matrixone.server.server import Server
from ccpr.relay.relay_server import Relay
from ccpr.state.pins import Pins
from ccpr.state.settings import Settings
from ccpr_emulator.recorded_upstream import RecordedUpstream
from tests.histories.replicating import NAME, subscribed
from tests.support.driving import iterate
from tests.support.native_client import NativeClient
from tests.support.recordings_location import scenarios
from tests.support.relayed import assert_has_point, relaying
from tests.support.replica import About

pytestmark = [pytest.mark.integration, pytest.mark.recordings]
# Without a database that is replicated in part, and without zero dates, for which Python has no value.
SCENARIOS = [
    pytest.param(path, id=name)
    for name, path in scenarios().items()
    if not name.endswith("table_level") and name != "4.2.0/zero_dates"
]


def follow(client: NativeClient, relay: Relay | Server, database: str) -> None:
    with closing(pymysql.connect(host="127.0.0.1", port=client.port, user="root", password="111")) as session:
        session.query(
            f"CREATE DATABASE `{database}` FROM 'mysql://sys#dump:111@127.0.0.1:{relay.port}' sys "
            f"PUBLICATION `{NAME}` SYNC INTERVAL 2"
        )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_matrixone_follows_through_everything_that_was_recorded(
    scenario: str, recordings: Path, tmp_path: Path
) -> None:
    about = About.read(recordings / scenario)
    with ExitStack() as held:
        source = held.enter_context(RecordedUpstream(recordings / scenario))
        publisher = (about.publisher, source.recording.account_id)
        first = subscribed(
            source.port, tmp_path, about.database, publisher=publisher, settings=Settings(with_indexes=True)
        )
        held.enter_context(closing(first))
        relay = held.enter_context(relaying(first))
        client = held.enter_context(NativeClient())
        for number in range(about.snapshots):
            iterate(first, NAME)
            head = first.mirror(NAME).published_head()
            if head is None or head.newest_point is None:
                continue
            if not client.tasks:
                follow(client, relay, about.database)
            task = client.wait_for(first.mirror(NAME).point().at.physical)
            assert_has_point(client, task, first.mirror(NAME))
            if number == 1:
                relay.server.disconnect_all()  # in the middle of whatever it is doing
        pins = Pins(first.log.engine, first.log.row(NAME).task_id).all()
        assert len(pins) <= 3


def test_a_relay_that_restarts_is_gone_on_with(recordings: Path, tmp_path: Path) -> None:
    about = About.read(recordings / "dml")
    with ExitStack() as held:
        source = held.enter_context(RecordedUpstream(recordings / "dml"))
        first = subscribed(source.port, tmp_path, about.database, settings=Settings(with_indexes=True, retain=1))
        held.enter_context(closing(first))
        client = held.enter_context(NativeClient())
        iterate(first, NAME)
        with relaying(first) as relay:
            port = relay.port
            follow(client, relay, about.database)
            client.wait_for(first.mirror(NAME).point().at.physical)
        for _ in range(3):  # it is away, and retention runs
            iterate(first, NAME)
        with relaying(first, port=port):
            task = client.wait_for(first.mirror(NAME).point().at.physical)
            assert_has_point(client, task, first.mirror(NAME))
            assert task.lsn > 1
