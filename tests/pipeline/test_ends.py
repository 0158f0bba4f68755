"""What the upstream says ends a subscription only where it is so: each case against a simulated upstream that answers
as a real one does while it stops, starts, or cannot read its past (docs/upstream.md 12)."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ccpr.matrixone.client.errors import (
    AccessDenied,
    DatabaseMissing,
    HistoryUnreadable,
    ObjectGone,
    PublicationMissing,
    SnapshotGone,
    StatementFailed,
    StatementUnknown,
)
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline import ends
from ccpr.pipeline.committing import IterationOutcome
from ccpr.pipeline.errors import BaseSnapshotLost
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.log_rows import LogRow
from ccpr.state.states import State
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.serving.faults import FailStatement
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.replicating import NAME, TEST_TIMEOUTS, iterate, read_mirror, subscribed
from tests.support.meanwhile import before_statements
from tests.support.patching import replaced

pytestmark = pytest.mark.integration

COLUMNS = {"id": "int not null", "v": "varchar(20)"}
UNKNOWN = "internal error: words that no rule knows"


@dataclass
class Shop:
    """A database with two tables, replicated."""

    storage: Storage
    emulator: SimulatedUpstream
    workspace: Workspace
    now: list[float] = field(default_factory=lambda: [1_700_000_000.0])

    def insert(self, *ids: int, table: str = "t") -> None:
        with self.storage.begin() as transaction:
            transaction.insert("shop", table, {"id": list(ids), "v": [str(number) for number in ids]})

    def iterate(self) -> IterationOutcome:
        """An iteration, after which the tables are as they were upstream at its time."""
        outcome = iterate(self.workspace, timeouts=TEST_TIMEOUTS)
        if outcome.point:
            point = self.workspace.mirror(NAME).point(outcome.lsn)
            there = {definition.name for _, definition in self.storage.tables_at(outcome.at)}
            assert {ref.name for ref in point.tables.values()} == there
            for name in sorted(there):
                rows = self.storage.rows_at("shop", name, outcome.at)
                assert read_mirror(self.workspace, point, f"shop.{name}").sort_by("id") == rows.sort_by("id"), name
        return outcome

    @property
    def row(self) -> LogRow:
        return self.workspace.log.row(NAME)

    @property
    def context(self) -> Context:
        return Context.from_text(self.row.context)

    def fails(self, kind: type[CcprError]) -> bool:
        """An iteration that fails so. Whether that has ended the subscription."""
        with pytest.raises(kind):
            self.iterate()
        assert self.row.error_message
        return self.row.state == State.ERROR

    def is_whole_again(self) -> None:
        self.insert(len(self.workspace.mirror(NAME).points()) + 1000)
        assert self.iterate().point


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(ends, "CONFIRM_SECONDS", 0.0)
    storage = Storage()
    storage.create_database("shop")
    for name in ("t", "u"):
        storage.create_table("shop", name, COLUMNS, primary_key=["id"])
    storage.create_publication("p", "shop")
    with SimulatedUpstream(storage) as emulator, closing(subscribed(emulator.port, tmp_path, "shop")) as workspace:
        made = Shop(storage, emulator, workspace)
        workspace.clock = lambda: made.now[0]
        made.insert(1, 2)
        made.insert(3, table="u")
        made.iterate()
        made.insert(4)
        yield made


@contextmanager
def answering(*answers: tuple[str, Callable[[], Exception]]) -> Iterator[None]:
    """In the block each statement with one of these parts is answered by an error, in each session."""

    def act(sql: str) -> None:
        for part, error in answers:
            if part in sql:
                raise error()

    with before_statements(act):
        yield


def gone(kind: type[Any], text: str, number: int = 20101) -> Callable[[], Exception]:
    return lambda: kind(text, subject="statement", number=number, text=text)


@contextmanager
def empty_past(workspace: Workspace, seen: list[str]) -> Iterator[None]:
    """Catalogs at a past time have no rows and no error, as after a kill of a 4.2."""

    def emptied(original: Callable[..., Any]) -> Callable[..., Any]:
        def query(session: Any, sql: str, **options: Any) -> Any:
            answer = original(session, sql, **options)
            if "mo_ts" in sql and any(name in sql for name in ("mo_database", "mo_tables", "mo_columns", "mo_pubs")):
                seen.append(sql)
                answer.rows.clear()
            return answer

        return query

    with replaced("ccpr.matrixone.client.upstream_session", "Session.query", emptied):
        yield


def test_an_error_that_no_rule_knows_is_tried_again_for_as_long_as_it_takes(shop: Shop) -> None:
    shop.emulator.inject(FailStatement("check_snapshot_flushed", 20101, UNKNOWN, times=7))
    for _ in range(7):
        assert not shop.fails(StatementFailed)
        shop.now[0] += 3600
    shop.is_whole_again()


def test_what_the_present_denies_is_tried_again_and_counts_only_after_a_quarter_of_an_hour(shop: Shop) -> None:
    unknown = gone(StatementUnknown, "SQL parser error: You have an error in your SQL syntax", 1064)
    with answering(("internal_object_list", unknown)):
        assert not shop.fails(StatementUnknown)
        shop.now[0] += ends.DOUBT_SECONDS - 1
        assert not shop.fails(StatementUnknown)
        assert not shop.fails(StatementUnknown), "three times, but within less than a quarter of an hour"
        assert shop.context.doubt is not None
        assert shop.context.doubt.times == 3
    shop.is_whole_again()
    assert shop.context.doubt is None
    with answering(("internal_object_list", unknown)):
        assert [shop.fails(StatementUnknown) for _ in range(4)] == [False] * 4
        shop.now[0] -= 3600
        assert not shop.fails(StatementUnknown), "our clock was set back: it is counted anew"
        shop.now[0] += ends.DOUBT_SECONDS
        assert [shop.fails(StatementUnknown) for _ in range(2)] == [False, True]


def test_another_error_in_between_begins_the_count_anew(shop: Shop) -> None:
    with answering(("internal_object_list", gone(ObjectGone, "file f is not found", 20405))):
        assert not shop.fails(ObjectGone)
        assert not shop.fails(ObjectGone)
    shop.now[0] += ends.DOUBT_SECONDS
    with answering(("internal_object_list", gone(StatementFailed, UNKNOWN))):
        assert not shop.fails(StatementFailed)
    with answering(("internal_object_list", gone(ObjectGone, "file f is not found", 20405))):
        assert not shop.fails(ObjectGone)
    shop.is_whole_again()


def test_a_publication_that_is_gone_ends_it_and_one_that_only_seems_so_does_not(shop: Shop) -> None:
    missing = gone(PublicationMissing, "internal error: publication sys.p does not exist")
    with answering(("internal_get_snapshot_ts", missing)):
        assert not shop.fails(PublicationMissing)
    shop.is_whole_again()
    shop.storage.drop_publication("p")
    assert shop.fails(PublicationMissing)


def test_a_database_that_is_dropped_ends_it(shop: Shop) -> None:
    shop.storage.drop_publication("p")
    shop.storage.drop_database("shop")
    shop.storage.create_publication("p", "*")
    assert shop.fails(DatabaseMissing)


def test_a_login_that_is_refused_once_does_not_end_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = gone(AccessDenied, "Access denied for user 'dump'", 1045)
    with answering(("internal_get_snapshot_ts", denied)):
        assert not shop.fails(AccessDenied)
    shop.is_whole_again()

    def refuse(*_: object) -> Any:
        raise denied()

    monkeypatch.setattr("ccpr.matrixone.client.upstream_session._connect", refuse)
    assert shop.fails(AccessDenied)


def test_a_first_iteration_is_told_the_end_at_once(shop: Shop, tmp_path: Path) -> None:
    with closing(subscribed(shop.emulator.port, tmp_path / "new", "shop")) as workspace:
        shop.storage.drop_publication("p")
        with pytest.raises(PublicationMissing):
            iterate(workspace)
        assert workspace.log.row(NAME).state == State.ERROR


def test_an_empty_past_is_no_empty_database(shop: Shop) -> None:
    seen: list[str] = []
    with empty_past(shop.workspace, seen):
        for _ in range(6):
            with pytest.raises((DatabaseMissing, PublicationMissing, HistoryUnreadable)):
                shop.iterate()
            assert shop.row.state == State.RUNNING
            shop.now[0] += 120
    assert seen
    assert len(shop.workspace.mirror(NAME).points()) == 1
    shop.is_whole_again()


def test_tables_that_the_catalog_lacks_and_the_present_has_were_not_dropped(shop: Shop) -> None:
    def without_u(original: Callable[..., Any]) -> Callable[..., Any]:
        def query(session: Any, sql: str, **options: Any) -> Any:
            answer = original(session, sql, **options)
            if "mo_ts" in sql and ("mo_tables" in sql or "mo_columns" in sql):
                answer.rows[:] = [row for row in answer.rows if b"u" not in row]
            return answer

        return query

    with replaced("ccpr.matrixone.client.upstream_session", "Session.query", without_u):
        assert not shop.fails(HistoryUnreadable)
        assert "shop" in (shop.row.error_message or "")
    shop.is_whole_again()
    shop.storage.drop_table("shop", "u")
    shop.insert(77)
    assert shop.iterate().tables == 1, "a table that is dropped is dropped"


def test_a_base_that_cannot_be_read_is_waited_for_and_one_that_is_gone_ends_it(shop: Shop) -> None:
    text = "internal error: No available checkpoints for snapshot read at:1-0, table:mo_database, tid:1"
    current = shop.context.current
    assert current is not None
    with answering((f" {current.name} ", gone(HistoryUnreadable, text))):
        assert not shop.fails(HistoryUnreadable), "a full list would cost more than is allowed"
    shop.is_whole_again()
    shop.storage.drop_snapshot(shop.context.current.name if shop.context.current else "")
    shop.insert(500)
    assert shop.fails(BaseSnapshotLost)


def test_a_snapshot_that_was_just_made_and_is_not_found_is_made_again(shop: Shop) -> None:
    text = "internal error: find 0 snapshot records by name(xr), expect only 1"
    with answering(("internal_check_snapshot_flushed", gone(SnapshotGone, text))):
        assert not shop.fails(SnapshotGone)
    shop.is_whole_again()


def test_a_snapshot_that_is_made_after_it_was_given_up_is_dropped(shop: Shop) -> None:
    """CREATE SNAPSHOT waits for a lock, is given up, and is done when the lock is free (docs/upstream.md 4.3)."""
    given_up: list[str] = []

    def act(sql: str) -> None:
        if sql.startswith("CREATE SNAPSHOT"):
            given_up.append(sql.split("`")[1])
            raise PublicationMissing("no", subject="statement", number=20101, text="no")

    with before_statements(act):
        assert not shop.fails(PublicationMissing)
    (name,) = given_up
    assert [late for late, _ in shop.context.late] == [name]
    shop.storage.create_snapshot(name, database="shop")
    shop.is_whole_again()
    assert ("sys", name) not in shop.storage.snapshots
    assert [late for late, _ in shop.context.late] == [name], "another may be made yet"
    shop.now[0] += 2 * 3600
    shop.is_whole_again()
    assert shop.context.late == ()
    assert len(shop.storage.snapshots) == 2
