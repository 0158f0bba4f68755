"""Objects that are created before the commit of their first row, as by MatrixOne since 4.2 (decision
created-before-its-rows), one case at a time; random histories of them are in tests/histories."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pytest

from emulator.engine.storage import Storage
from emulator.engine.transaction import Transaction
from emulator.simulated_upstream import SimulatedUpstream
from replication.iteration.iteration import Outcome
from replication.service.workspace import Workspace
from tests.histories.replicating import NAME, iterate, read_mirror, subscribed

DATABASE, TABLE = "shop", "orders"


@dataclass
class Shop:
    """A table upstream, and its replica."""

    storage: Storage
    workspace: Workspace

    def insert(self, *ids: int) -> Transaction:
        """A transaction that is not committed yet."""
        transaction = self.storage.begin()
        transaction.insert(DATABASE, TABLE, {"id": list(ids), "v": [str(number) for number in ids]})
        return transaction

    def iterate(self) -> Outcome:
        """An iteration, after which the mirror equals the upstream."""
        outcome = iterate(self.workspace)
        mirror = self.workspace.mirror(NAME)
        found = read_mirror(self.workspace, mirror.point(outcome.lsn), f"{DATABASE}.{TABLE}")
        assert found.sort_by("id") == self.storage.rows_at(DATABASE, TABLE, outcome.at).sort_by("id")
        return outcome


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    storage = Storage(create_at="prepare")
    storage.create_database(DATABASE)
    storage.create_table(DATABASE, TABLE, {"id": "bigint", "v": "varchar(20)"}, primary_key=["id"])
    storage.create_publication("p", DATABASE)
    with (
        SimulatedUpstream(storage) as emulator,
        closing(subscribed(emulator.port, tmp_path, DATABASE)) as workspace,
    ):
        yield Shop(storage, workspace)


def test_rows_of_a_transaction_that_was_prepared_before_the_base_and_committed_after_it_are_there(shop: Shop) -> None:
    shop.insert(1).commit()
    waiting = shop.insert(2)
    waiting.prepare()  # into the object of row 1, which the next iteration flushes …
    second = shop.insert(3)
    shop.iterate()
    second.prepare()  # … so that this creates another one
    shop.iterate()
    second.commit()
    assert shop.iterate().point
    waiting.commit()
    assert shop.iterate().point


def test_rows_in_an_object_that_a_transaction_left_when_it_was_rolled_back_are_there(shop: Shop) -> None:
    shop.iterate()
    first = shop.insert(1)
    first.prepare()
    first.rollback()
    for _ in range(3):
        shop.iterate()
    shop.insert(2).commit()
    assert shop.iterate().point


def test_deletes_of_a_transaction_that_was_prepared_before_the_base_are_there(shop: Shop) -> None:
    shop.insert(1, 2).commit()
    shop.iterate()
    waiting = shop.storage.begin()
    waiting.delete(DATABASE, TABLE, pc.field("id") == 1)
    waiting.prepare()
    shop.iterate()
    waiting.commit()
    assert shop.iterate().point


def test_a_create_time_that_the_write_ahead_log_moved_is_not_a_contradiction(shop: Shop) -> None:
    shop.iterate()
    waiting = shop.insert(1)
    waiting.prepare()
    shop.iterate()
    waiting.commit()
    shop.iterate()
    shop.storage.replay_wal()
    shop.insert(2).commit()
    shop.iterate()


def test_an_iteration_in_which_nothing_was_written_is_idle(shop: Shop) -> None:
    shop.insert(1).commit()
    shop.iterate()
    shop.iterate()
    assert not shop.iterate().point
