"""A client that does what a MatrixOne does follows random histories of an upstream through the relay: it has the rows
of each point that it is shown. `RELAY_HISTORIES` of them, from seed `SEED` on; `make relay-histories` takes 300."""

import os
import uuid
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ccpr.relay.relay_server import Relay
from ccpr.state.settings import Settings
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.engine.transaction import CreateAt, WriteConflict
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.events import prepare
from tests.histories.history import DATABASE, Circumstances, History
from tests.histories.replicating import ITERATIONS, NAME, STEPS, Replica, subscribed
from tests.support.driving import iterate
from tests.support.meanwhile import before_statements, once_before
from tests.support.native_client import NativeClient, NativeTask, UpstreamLogin
from tests.support.relayed import assert_has_point, relaying

pytestmark = pytest.mark.integration

FIRST = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("RELAY_HISTORIES", "4"))


def following(relay: Relay) -> tuple[NativeClient, NativeTask]:
    """A client whose iterations are those that a test asks for."""
    client, upstream = NativeClient(), UpstreamLogin("127.0.0.1", relay.port, "dump", "111")
    task = NativeTask(str(uuid.UUID(int=1)), DATABASE, NAME, upstream)
    client.tasks[task.id] = client.databases[DATABASE] = task
    return client, task


def commit_prepared(history: History, sql: str) -> None:
    """The other half of a commit falls between an iteration's snapshot and the flush, now and then: then no row of an
    object may be older than the point."""
    for transaction in [one for one in history.open if one.open and one.prepared]:
        if "flush" in sql.lower() and history.rng.random() < 0.5:
            history.open.remove(transaction)
            with suppress(WriteConflict):
                transaction.commit()
                history.note("  the commit of what was prepared")


def test_a_matrixone_is_not_shown_an_object_before_its_first_commit(tmp_path: Path) -> None:
    storage = Storage(create_at="prepare")
    storage.create_database(DATABASE)
    storage.create_table(DATABASE, "t", {"n": "bigint"}, primary_key=["n"])
    storage.create_publication("p", DATABASE)
    with (
        SimulatedUpstream(storage) as source,
        closing(subscribed(source.port, tmp_path, DATABASE, settings=Settings(with_indexes=True))) as first,
        relaying(first) as relay,
    ):
        client, task = following(relay)
        mirror = first.mirror(NAME)
        with storage.begin() as transaction:
            transaction.insert(DATABASE, "t", {"n": [1]})
        iterate(first, NAME)
        client.iterate(task)
        waiting = storage.begin()
        waiting.insert(DATABASE, "t", {"n": [2]})
        waiting.prepare()

        def commit() -> None:
            waiting.commit()
            storage.flush(DATABASE, "t")

        with once_before("flush", commit):  # after the snapshot was taken
            iterate(first, NAME)
        listed = [entry for ref in mirror.point().tables.values() for entry in mirror.manifest(ref).listed_objects()]
        client.iterate(task)
        assert {entry.stats.name for entry in listed} - client.files.keys(), "the mirror has the object"
        assert assert_has_point(client, task, mirror) == 1
        for _ in range(2):  # the flush has replaced it
            iterate(first, NAME)
            client.iterate(task)
        assert assert_has_point(client, task, mirror) == 2


@pytest.mark.parametrize("create_at", ["commit", "prepare"])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_matrixone_follows_a_history(seed: int, create_at: CreateAt, tmp_path: Path) -> None:
    circumstances = replace(Circumstances.of(seed), faults=False, one_table=False, isolated=False, with_indexes=True)
    history = History(seed, circumstances, create_at)
    publisher = (history.account, history.storage.accounts[history.account])
    try:
        with ExitStack() as held:
            source = held.enter_context(SimulatedUpstream(history.storage))
            settings = Settings(with_indexes=True)
            first = subscribed(source.port, tmp_path / "first", DATABASE, publisher=publisher, settings=settings)
            held.enter_context(closing(first))
            relay = held.enter_context(relaying(first))
            client, task = following(relay)
            replica = Replica(history, source, first)
            for _ in range(ITERATIONS):
                for _ in range(history.rng.randint(0, STEPS)):
                    history.step()
                for _ in range(len(history.open) if create_at == "prepare" else 0):
                    prepare(history)
                with before_statements(partial(commit_prepared, history)):
                    outcome = replica.iterate()
                history.done.append(f"iteration {outcome}")
                mirror = first.mirror(NAME)
                if not mirror.point_files().all():
                    continue
                client.iterate(task)
                assert_has_point(client, task, mirror, mirror.point(task.watermark))
    except Exception as error:
        error.add_note("\n  ".join((f"history of seed {seed}, create_at={create_at}, {circumstances}:", *history.done)))
        raise
