"""A MatrixOne of 4.2.0 or earlier ends at objects with the abort column of later releases: it is refused before it has
any."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ccpr.relay.relay_server import Relay
from ccpr.state.settings import Settings
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.replicating import NAME, subscribed
from tests.support.driving import iterate
from tests.support.native_client import NativeClient
from tests.support.relayed import relaying
from tests.support.replica import command

pytestmark = pytest.mark.integration

DATABASE = "shop"


@pytest.fixture(params=[False, True], ids=["4.2", "after 4.2"])
def relay(request: pytest.FixtureRequest, home: Path) -> Iterator[tuple[Relay, bool]]:
    """A relay of a mirror, and whether its source writes the column."""
    storage = Storage(create_at="prepare", abort_column=request.param)
    storage.create_database(DATABASE)
    storage.create_table(DATABASE, "t", {"n": "bigint"}, primary_key=["n"])
    storage.create_publication("p", DATABASE)
    with (
        SimulatedUpstream(storage) as source,
        closing(subscribed(source.port, home, DATABASE, settings=Settings(with_indexes=True))) as workspace,
        relaying(workspace) as relay,
    ):
        with storage.begin() as transaction:
            transaction.insert(DATABASE, "t", {"n": [1, 2]})
        iterate(workspace, NAME)
        yield relay, request.param


@pytest.mark.parametrize("reads", [False, True])
def test_one_that_cannot_read_the_sources_objects_is_refused(
    relay: tuple[Relay, bool], home: Path, client: NativeClient, reads: bool
) -> None:
    served, has_column = relay
    client.reads_abort_column = reads
    refused = has_column and not reads
    into = ("--into", f"mysql://sys#root:env:DOWN@127.0.0.1:{client.port}")

    def tried(*words: str) -> Any:
        done = command(*words, *into, code=1 if refused else 0)
        return done["error"]["code"] if refused else None

    mirror = str(home / "home" / "mirrors" / NAME)
    for words in (
        ("follower", "add", NAME, "b", "--relay-address", f"127.0.0.1:{served.port}"),
        ("restore", NAME, "--as", "back", "--check", "none"),
        ("restore", "--mirror", mirror, "--as", "alone", "--check", "none"),
    ):
        assert tried(*words) == ("DOWNSTREAM_UNFIT" if refused else None), words
    assert client.databases.keys() == (set() if refused else {DATABASE, "back", "alone"})
