"""Several databases at one time: what happens upstream between the account's snapshot and those of its databases
(decision account-snapshots), one case at a time; random histories are in tests/histories."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ccpr.matrixone.client.errors import DatabaseMissing, SnapshotGone
from ccpr.matrixone.client.snapshot_ref import SnapshotRef, is_of_account, marker_of
from ccpr.matrixone.schema import Kind
from ccpr.pipeline.committing import IterationOutcome
from ccpr.pipeline.errors import BaseSnapshotLost, ScopeConflict, TableChangedMeanwhile
from ccpr.pipeline.options import Timeouts
from ccpr.pipeline.temporary_snapshots import TemporarySnapshots
from ccpr.service.status import LeftOut
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.settings import Settings
from ccpr_emulator.engine.entries import SUBSCRIPTION
from ccpr_emulator.engine.partitioning import by_hash
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.replicating import NAME, iterate, read_mirror, subscribed
from tests.support.meanwhile import once_before

pytestmark = pytest.mark.long

COLUMNS = {"id": "int not null", "v": "varchar(20)"}
CHOSEN = ("shop_a", "shop_b")


@dataclass
class Account:
    """Databases of an account, two of them replicated, each with a table `t`."""

    name: str
    storage: Storage
    workspace: Workspace

    def insert(self, database: str, *ids: int, table: str = "t") -> None:
        with self.storage.begin(self.name) as transaction:
            transaction.insert(database, table, {"id": list(ids), "v": [str(number) for number in ids]})

    def iterate(self) -> IterationOutcome:
        """An iteration, after which all tables of the chosen databases are as they were upstream at its time."""
        outcome = iterate(self.workspace)
        if outcome.point:
            self.compare(outcome)
        return outcome

    def compare(self, outcome: IterationOutcome) -> None:
        point = self.workspace.mirror(NAME).point(outcome.lsn)
        wanted = {
            f"{entry.database.name}.{definition.name}": (entry.database.name, definition.name)
            for entry, definition in self.storage.tables_at(outcome.at, account=self.name)
            if entry.database.name in CHOSEN
        }
        late = {f"{table.database}.{table.name}" for table in point.behind.values()}
        shown = {ref.qualified_name for ref in point.tables.values() if ref.kind is Kind.TABLE}
        assert shown == wanted.keys() - late
        for full in sorted(shown):
            rows = self.storage.rows_at(*wanted[full], outcome.at, account=self.name)
            assert read_mirror(self.workspace, point, full).sort_by("id") == rows.sort_by("id"), full

    def create_partitioned(self, database: str) -> None:
        by = by_hash("id", 2)
        self.storage.create_table(database, "p", COLUMNS, primary_key=["id"], partitioning=by, account=self.name)

    def lose(self, role: str) -> None:
        """Somebody drops a snapshot of ours, and what it protected is merged and collected."""
        self.storage.drop_snapshot(getattr(self.context(), role).name)
        for number, database in enumerate(CHOSEN, 40):
            self.insert(database, number)
            self.storage.flush(database, "t", account=self.name)
            assert self.storage.merge(database, "t", account=self.name)
        assert self.storage.collect()

    def context(self) -> Context:
        return Context.from_text(self.workspace.log.row(NAME).context)


@pytest.fixture(params=["sys", "acc1"])
def account(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Account]:
    yield from an_account(request.param, tmp_path, Settings(databases="shop_*"))


@pytest.fixture
def isolated(tmp_path: Path) -> Iterator[Account]:
    yield from an_account("acc1", tmp_path, Settings(databases="shop_*", consistency="isolated"))


def an_account(name: str, folder: Path, settings: Settings) -> Iterator[Account]:
    storage = Storage()
    if name != "sys":
        storage.create_account(name)
    for database in (*CHOSEN, "other"):
        storage.create_database(database, account=name)
        storage.create_table(database, "t", COLUMNS, primary_key=["id"], account=name)
    storage.create_publication("p", "*", account=name)
    publisher = (name, storage.accounts[name])
    with (
        SimulatedUpstream(storage) as emulator,
        closing(subscribed(emulator.port, folder, "*", publisher=publisher, settings=settings)) as workspace,
    ):
        made = Account(name, storage, workspace)
        for number, database in enumerate((*CHOSEN, "other")):
            made.insert(database, number, 10 + number)
        yield made


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Do something upstream, once, between the account's snapshot and those of its databases."""
    take = TemporarySnapshots.of_databases

    def patch(action: Callable[[], Any]) -> None:
        def taking(
            temporary: TemporarySnapshots, ref: SnapshotRef, databases: Mapping[str, int]
        ) -> dict[str, SnapshotRef]:
            monkeypatch.setattr(TemporarySnapshots, "of_databases", take)
            action()
            return take(temporary, ref, databases)

        monkeypatch.setattr(TemporarySnapshots, "of_databases", taking)

    return patch


@pytest.mark.parametrize("second_snapshot", [False, True])
def test_rows_of_all_databases_are_of_one_time(
    account: Account, meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch, second_snapshot: bool
) -> None:
    if second_snapshot:
        monkeypatch.setattr("ccpr.pipeline.appendable.SHORT_LIST", -1)
    account.iterate()
    for number in range(100, 103):
        account.insert("shop_a", number)

        def change(number: int = number) -> None:
            for database in CHOSEN:
                account.insert(database, 1000 + number)
                account.storage.flush(database, "t", account=account.name)
            account.storage.merge("shop_a", "t", account=account.name)
            account.storage.collect()

        meanwhile(change)
        assert account.iterate().point


def test_what_is_merged_and_collected_after_the_snapshot_is_read_from_it(
    account: Account, meanwhile: Callable[..., None]
) -> None:
    """In the first iteration, without a base: the list of the later snapshot lacks what was live."""

    def merge() -> None:
        for database in CHOSEN:
            account.storage.flush(database, "t", account=account.name)
        account.insert("shop_a", 500)
        account.storage.flush("shop_a", "t", account=account.name)
        assert account.storage.merge("shop_a", "t", account=account.name)
        account.storage.collect()

    meanwhile(merge)
    assert account.iterate().tables == 2
    account.storage.collect()
    account.iterate()


def test_databases_come_and_go(account: Account) -> None:
    account.iterate()
    account.storage.drop_database("shop_b", account=account.name)
    account.insert("shop_a", 7)
    assert account.iterate().tables == 1
    account.storage.create_database("shop_b", account=account.name)
    account.storage.create_table("shop_b", "t", COLUMNS, primary_key=["id"], account=account.name)
    account.insert("shop_b", 70)
    assert account.iterate().tables == 2


@contextmanager
def tried_again(caplog: pytest.LogCaptureFixture, why: str) -> Iterator[None]:
    """The iteration in the block tries a second time, for this reason."""
    caplog.set_level(logging.INFO, "ccpr.pipeline.driver")
    yield
    assert re.search(rf"tried again with a new snapshot: {TableChangedMeanwhile.code}.*{why}", caplog.text)


ALTERATIONS: dict[str, Callable[[Account], Any]] = {
    "rename": lambda it: it.storage.rename_table("shop_b", "t", "u", account=it.name),
    "truncate": lambda it: it.storage.truncate("shop_b", "t", account=it.name),
    "drop": lambda it: it.storage.drop_table("shop_b", "t", account=it.name),
    "rename and back": lambda it: (
        it.storage.rename_table("shop_b", "t", "u", account=it.name),
        it.storage.rename_table("shop_b", "u", "t", account=it.name),
    ),
    "another database": lambda it: (
        it.storage.drop_database("shop_b", account=it.name),
        it.storage.create_database("shop_b", account=it.name),
        it.storage.create_table("shop_b", "t", COLUMNS, primary_key=["id"], account=it.name),
    ),
    "rename a column": lambda it: it.storage.rename_column("shop_b", "t", "v", "w", account=it.name),
}


@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS)
def test_a_table_that_is_altered_meanwhile_is_not_shown_as_two(
    account: Account,
    meanwhile: Callable[..., None],
    alter: Callable[[Account], Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    account.iterate()
    account.insert("shop_a", 8)
    meanwhile(lambda: alter(account))
    with tried_again(caplog, r"shop_b\.t"):
        assert account.iterate().point


@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS)
def test_isolated_only_the_altered_table_stays_behind(
    isolated: Account, meanwhile: Callable[..., None], alter: Callable[[Account], Any]
) -> None:
    isolated.iterate()
    isolated.insert("shop_a", 8)
    meanwhile(lambda: alter(isolated))
    outcome = isolated.iterate()
    assert (outcome.point, outcome.quarantined) == (True, ("shop_b.t",))
    assert isolated.iterate().quarantined == ()


def test_a_database_that_is_dropped_meanwhile_takes_a_second_snapshot(
    account: Account, meanwhile: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    account.iterate()
    meanwhile(lambda: account.storage.drop_database("shop_b", account=account.name))
    with tried_again(caplog, "database shop_b"):
        assert account.iterate().tables == 1


def test_a_database_that_is_dropped_before_a_snapshot_of_its_table_takes_a_second_snapshot(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    account.create_partitioned("shop_b")
    with (
        once_before("object_list", lambda: account.storage.drop_database("shop_b", account=account.name)),
        tried_again(caplog, "shop_b"),
    ):
        assert account.iterate().tables == 1


def test_a_table_that_is_created_meanwhile_is_flushed_too(account: Account, meanwhile: Callable[..., None]) -> None:
    def create() -> None:
        account.storage.create_table("shop_b", "u", COLUMNS, primary_key=["id"], account=account.name)
        account.insert("shop_b", 1, table="u")

    meanwhile(create)
    assert iterate(account.workspace, timeouts=Timeouts(flush=0.0)).tables == 2
    assert account.iterate().tables == 3


def test_a_partitioned_table_that_is_created_meanwhile_is_no_hindrance(
    account: Account, meanwhile: Callable[..., None]
) -> None:
    meanwhile(lambda: account.create_partitioned("shop_b"))
    assert account.iterate().tables == 2
    assert account.iterate().tables == 3


def test_without_the_last_points_snapshot_its_marker_says_nothing(account: Account) -> None:
    """The marker is there, and what only the account's snapshot protected is in no list against it."""
    account.iterate()
    account.lose("current")
    with pytest.raises(BaseSnapshotLost):
        account.iterate()
    account.compare(iterate(account.workspace, allow_resync=True))


@pytest.mark.parametrize("is_first", [True, False])
def test_an_open_snapshot_that_is_lost_before_the_list_is_taken_again(account: Account, is_first: bool) -> None:
    if not is_first:
        account.iterate()
        account.insert("shop_b", 30)
    with once_before("object_list", lambda: account.lose("open")), pytest.raises(SnapshotGone):
        account.iterate()
    assert account.iterate().point


def test_a_database_that_another_account_publishes_is_none_of_them(account: Account) -> None:
    account.storage.create_database("shop_c", account=account.name, kind=SUBSCRIPTION)
    assert account.iterate().tables == 2


@pytest.mark.parametrize("statement", ["__++__internal_get_ddl", "__++__internal_object_list"])
def test_a_database_that_the_upstream_does_not_find_again_takes_a_second_snapshot(
    account: Account, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As a real one answers of a snapshot that was taken while the database was dropped and made again."""
    account.iterate()
    account.insert("shop_a", 8)
    with once_before(statement, not_found), tried_again(caplog, "failed to get database"):
        assert account.iterate().point


def not_found() -> None:
    text = "internal error: failed to get database: ExpectedEOB"
    raise DatabaseMissing(text, subject="statement", number=20101, text=text)


@pytest.mark.parametrize("other", ["shop_x", "shop_b"])
def test_a_database_with_capital_letters_is_left_out_and_said_to_be(account: Account, other: str) -> None:
    """The upstream would take a snapshot of the one in lower case, if there is one."""
    capitals = other.upper()
    account.storage.create_database(capitals, account=account.name)
    account.storage.create_table(capitals, "t", COLUMNS, primary_key=["id"], account=account.name)
    account.insert(capitals, 1)
    assert account.iterate().tables == 2
    assert account.context().unreplicated == ((capitals, "capitals"),)
    assert "lower case" in LeftOut.of(capitals, "capitals").reason
    account.storage.drop_database(capitals, account=account.name)
    account.insert("shop_a", 77)
    account.iterate()
    assert account.context().unreplicated == ()


def test_no_database_that_matches_is_an_error(account: Account) -> None:
    for database in CHOSEN:
        account.storage.drop_database(database, account=account.name)
    with pytest.raises(ScopeConflict, match=r"no database that matches shop_\*"):
        account.iterate()


def test_a_run_that_was_killed_goes_on_with_the_same_snapshots(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.iterate()
    account.insert("shop_a", 9)
    with monkeypatch.context() as patch:
        patch.setattr(TemporarySnapshots, "wait_until_flushed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            account.iterate()
    lists = {name for name in account.context().to_drop if "c" in name.rpartition("_")[2][6:]}
    held = set(account.storage.snapshots)
    assert {(account.name, name) for name in lists} <= held
    assert len(lists) == len(CHOSEN)
    account.storage.rename_table("shop_a", "t", "renamed", account=account.name)  # the snapshots show it as it was
    account.insert("shop_b", 99)
    assert account.iterate().point
    assert account.iterate().point


def test_two_points_snapshots_are_held_and_no_others(account: Account) -> None:
    for number in range(20, 24):
        account.insert("shop_b", number)
        account.iterate()
    context = account.context()
    held = [ref.name for ref in (context.current, context.previous) if ref is not None]
    assert [is_of_account(name) for name in held] == [True, True]
    assert not context.to_drop
    markers = {(account.name, marker_of(name)) for name in held}
    assert set(account.storage.snapshots) == {("sys", name) for name in held} | markers


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt
