"""Objects that are created before the commit of their first row, as by MatrixOne since 4.2 (decision
created-before-its-rows), one case at a time; random histories of them are in tests/histories."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.compute as pc
import pytest

from ccpr.matrixone.client import upstream_snapshots
from ccpr.matrixone.client.errors import StatementFailed
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.upstream_session import Session
from ccpr.pipeline.committing import IterationOutcome
from ccpr.pipeline.temporary_snapshots import TemporarySnapshots
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.engine.transaction import Transaction
from ccpr_emulator.simulated_upstream import EngineBacking, SimulatedUpstream
from tests.histories.replicating import NAME, iterate, read_mirror, subscribed

pytestmark = pytest.mark.long

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

    def iterate(self) -> IterationOutcome:
        """An iteration, after which the mirror equals the upstream."""
        outcome = iterate(self.workspace)
        mirror = self.workspace.mirror(NAME)
        found = read_mirror(self.workspace, mirror.point(outcome.lsn), f"{DATABASE}.{TABLE}")
        assert found.sort_by("id") == self.storage.rows_at(DATABASE, TABLE, outcome.at).sort_by("id")
        return outcome


@pytest.fixture(params=["full list", "second snapshot"])
def second_snapshot(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """How the appendable objects are found, however few there are."""
    if request.param == "second snapshot":
        monkeypatch.setattr("ccpr.pipeline.appendable.SHORT_LIST", -1)
    return request.param == "second snapshot"


@pytest.fixture(params=[False, True], ids=["4.2", "after 4.2"])
def shop(tmp_path: Path, request: pytest.FixtureRequest, second_snapshot: bool) -> Iterator[Shop]:
    """Of a release that stores rows of aborted transactions, or not."""
    storage = Storage(create_at="prepare", abort_column=request.param)
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


def test_rows_and_deletes_of_aborted_transactions_are_not_there(shop: Shop) -> None:
    shop.insert(1, 2, 3).commit()
    aborted = shop.insert(4)
    aborted.delete(DATABASE, TABLE, pc.field("id") == 1)
    aborted.prepare()
    aborted.rollback()
    shop.insert(5).commit()
    with shop.storage.begin() as deleting:
        deleting.delete(DATABASE, TABLE, pc.field("id") == 2)
    assert shop.iterate().point
    known = Context.from_text(shop.workspace.log.row(NAME).context).capabilities
    assert known is not None
    assert known.abort_column == shop.storage.files.abort_column
    shop.insert(6).commit()
    assert shop.iterate().point, "an iteration that brings only such objects is not idle"


def test_an_aborted_transaction_alone_changes_no_row(shop: Shop) -> None:
    shop.insert(1).commit()
    shop.iterate()
    aborted = shop.insert(2)
    aborted.delete(DATABASE, TABLE)
    aborted.prepare()
    aborted.rollback()
    for _ in range(2):
        shop.iterate()


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


def test_the_mark_of_a_delete_is_no_contradiction(shop: Shop) -> None:
    """After a checkpoint an object is listed twice: as it was there, and with its delete, which is marked after 4.2."""
    shop.insert(1).commit()
    shop.iterate()
    shop.insert(2).commit()
    shop.storage.flush(DATABASE, TABLE)
    shop.storage.checkpoint()
    shop.storage.merge(DATABASE, TABLE)
    assert shop.iterate().point


def test_an_iteration_in_which_nothing_was_written_is_idle(shop: Shop) -> None:
    shop.insert(1).commit()
    shop.iterate()
    shop.iterate()
    assert not shop.iterate().point


# ---- instead of a long full list


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Do something upstream between an iteration's snapshot, which is flushed, and its second one."""
    monkeypatch.setattr("ccpr.pipeline.appendable.SHORT_LIST", -1)
    take = TemporarySnapshots.later

    def patch(action: Callable[[], object]) -> None:
        def take_later(temporary: TemporarySnapshots, database: str) -> SnapshotRef:
            if not temporary._later:
                action()
            return take(temporary, database)

        monkeypatch.setattr(TemporarySnapshots, "later", take_later)

    return patch


@pytest.fixture
def late(tmp_path: Path) -> Iterator[Shop]:
    """A shop whose next iteration brings a row in an object that was created before the last one's snapshot."""
    storage = Storage(create_at="prepare")
    storage.create_database(DATABASE)
    for name in (TABLE, "others"):
        storage.create_table(DATABASE, name, {"id": "bigint", "v": "varchar(20)"}, primary_key=["id"])
    storage.create_publication("p", DATABASE)
    with SimulatedUpstream(storage) as emulator, closing(subscribed(emulator.port, tmp_path, DATABASE)) as workspace:
        shop = Shop(storage, workspace)
        with storage.begin() as transaction:
            transaction.insert(DATABASE, "others", {"id": [9], "v": ["x"]})
        waiting = shop.insert(1)
        waiting.prepare()
        shop.iterate()
        waiting.commit()
        yield shop


def lists(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each further list of objects that the upstream sends, whether it is a full one."""
    full: list[bool] = []
    answer = EngineBacking.object_list

    def object_list(backing: EngineBacking, account: str, target: Any, base: Any) -> Any:
        full.append(base is None)
        return answer(backing, account, target, base)

    monkeypatch.setattr(EngineBacking, "object_list", object_list)
    return full


def test_a_long_list_is_replaced_by_a_second_snapshot(
    late: Shop, meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(lambda: late.insert(2).commit())
    full = lists(late, monkeypatch)
    assert late.iterate().point
    assert full == [False, False]
    assert len(late.storage.snapshots) == 2, "the second snapshot is dropped"


def test_a_short_list_is_read_whole(late: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    full = lists(late, monkeypatch)
    assert late.iterate().point
    assert full == [False, True]


def test_a_list_that_was_long_is_not_read_again(late: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    late.iterate()
    context = Context.from_text(late.workspace.log.row(NAME).context)
    assert context.list_rows == 2, "one object of the other table, and the appendable one"
    monkeypatch.setattr("ccpr.pipeline.appendable.SHORT_LIST", 1)
    late.insert(3).commit()
    full = lists(late, monkeypatch)
    assert late.iterate().point
    assert full == [False, False]


@pytest.mark.parametrize(
    ("change", "is_full"),
    [
        (lambda storage: storage.rename_table(DATABASE, TABLE, "renamed"), False),
        (lambda storage: storage.create_table(DATABASE, "new", {"id": "bigint"}, primary_key=["id"]), False),
        (lambda storage: storage.truncate(DATABASE, TABLE), True),
        (lambda storage: storage.drop_table(DATABASE, TABLE), True),
        (lambda storage: storage.truncate(DATABASE, "others"), True),
    ],
    ids=["rename", "create", "truncate", "drop", "truncate another"],
)
def test_what_is_changed_between_the_two_snapshots_hides_no_row(
    late: Shop,
    meanwhile: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Storage], object],
    is_full: bool,
) -> None:
    meanwhile(lambda: change(late.storage))
    full = lists(late, monkeypatch)
    assert late.iterate().point
    assert full == ([False, True] if is_full else [False, False])


def test_tables_that_swap_their_names_in_between_keep_their_objects(late: Shop, meanwhile: Callable[..., None]) -> None:
    def swap() -> None:
        for old, new in ((TABLE, "aside"), ("others", TABLE), ("aside", "others")):
            late.storage.rename_table(DATABASE, old, new)

    meanwhile(swap)
    assert late.iterate().point


def test_an_upstream_that_takes_no_second_snapshot_is_asked_for_the_full_list(
    late: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccpr.pipeline.appendable.SHORT_LIST", -1)
    refused = StatementFailed("no", subject="snapshot", number=20101, text="no")
    monkeypatch.setattr(TemporarySnapshots, "later", mock.Mock(side_effect=refused))
    full = lists(late, monkeypatch)
    assert late.iterate().point
    assert full == [False, True]


def test_a_second_snapshot_that_a_kill_left_is_dropped(late: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccpr.pipeline.appendable.SHORT_LIST", -1)
    with monkeypatch.context() as patch:
        killed = mock.Mock(side_effect=KeyboardInterrupt)
        patch.setattr("ccpr.pipeline.appendable.table_ids", killed)
        with pytest.raises(KeyboardInterrupt):
            late.iterate()
    assert len(late.storage.snapshots) == 4
    assert late.iterate().point
    assert len(late.storage.snapshots) == 2


def test_after_a_lost_connection_the_second_snapshot_may_be_too_early(
    late: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccpr.pipeline.appendable.SHORT_LIST", -1)
    create = upstream_snapshots.create_snapshot

    def lost(session: Session, name: str, publication: Publication, database: str, table: str | None = None) -> None:
        create(session, name, publication, database, table)
        session.opened += 1

    monkeypatch.setattr("ccpr.matrixone.client.upstream_snapshots.create_snapshot", lost)
    full = lists(late, monkeypatch)
    assert late.iterate().point
    assert full == [False, True]
    assert len(late.storage.snapshots) == 2
