"""The catalog that is not read because it is known is always the one that would be read (decision
catalog-by-checksum)."""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ccpr.matrixone.client.errors import NotCovered
from ccpr.matrixone.schema import Table
from ccpr.matrixone.server.mo_catalog import checksum_of
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.committing import IterationOutcome, Last
from ccpr.pipeline.driver import drive
from ccpr.pipeline.errors import ScopeConflict
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.options import IterationOptions
from ccpr.pipeline.scope import diff_scope
from ccpr.pipeline.steps import snapshot as step
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context, settled_digest
from ccpr.state.errors import StateUnreadable
from ccpr.state.history import PointHistory
from ccpr.state.settings import Settings
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.serving.faults import FailStatement
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.replicating import NAME, TEST_TIMEOUTS, iterate, read_mirror, subscribed
from tests.support.patching import replaced

pytestmark = pytest.mark.integration

DATABASE = "shop"
COLUMNS = {"id": "int not null", "v": "varchar(20)", "d": "date"}
NAMES = st.sampled_from(["a", "b", "c"])
SCOPES = {
    "whole": Settings(),
    "with indexes": Settings(with_indexes=True),
    "patterns": Settings(tables="a,b*", exclude_tables="c"),
    "isolated": Settings(consistency="isolated"),
}


def as_read(table: Table) -> Any:
    """The table with all that the catalog says of it, and nothing that was found in files."""
    columns = tuple(replace(column, digits=0, unread=None, zero_dates=None) for column in table.columns)
    return replace(table, columns=columns).to_json()


def names(catalog: CatalogDiff) -> dict[str, int | None]:
    """What an object list may name, as a list is read."""
    found: dict[str, int | None] = dict.fromkeys(name for name, _ in catalog.unreplicated)
    for number, table in catalog.listed().items():
        found[table.name] = number if number in catalog.tables else None
    return found


@contextmanager
def compared(seen: Counter[str]) -> Iterator[None]:
    """Each catalog that is known is read as well, and has to be the same."""
    original = step.diff_catalog

    def diff_catalog(iteration: Iteration, record: IterationRecord) -> CatalogDiff:
        found = original(iteration, record)
        seen["known" if found.known else "read"] += 1
        if found.known is not None:
            session, subscription, last = iteration.sessions.session, iteration.subscription, iteration.last
            take = partial(record.temporary.of_databases, record.snapshot)
            full = diff_scope(session, subscription, record.snapshot, last.tables, take)
            assert full.changes == ()
            assert not full.failures
            assert {n: as_read(table) for n, table in full.tables.items()} == {
                n: as_read(table) for n, table in found.tables.items()
            }
            assert [table.indexes for table in full.tables.values()] == [found.tables[n].indexes for n in full.tables]
            for what in ("unreplicated", "relations_digest", "is_whole", "is_partitioned"):
                assert getattr(full, what) == getattr(found, what), what
            assert full.copied(subscription) == found.copied(subscription)
            assert names(full) == names(found)
            assert [(t.id, t.name, k) for t, k in full.relations()] == [(t.id, t.name, k) for t, k in found.relations()]
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ccpr.pipeline.driver.diff_catalog", diff_catalog)
        patch.setattr("ccpr.pipeline.ends.CONFIRM_SECONDS", 0.0)
        yield


class Machine(RuleBasedStateMachine):
    """DDL, rows, iterations by new processes and by one that keeps what it knows, and a state that is restored."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.storage = Storage()
        self.seen: Counter[str] = Counter()
        self.rows = 0
        self.last: Last | None = None  # of the process that goes on
        self.copied = False

    @initialize(scope=st.sampled_from(sorted(SCOPES)))
    def start(self, scope: str) -> None:
        self.storage.create_database(DATABASE)
        for name in ("a", "b"):
            self.storage.create_table(DATABASE, name, COLUMNS, primary_key=["id"])
        self.storage.create_publication("p", DATABASE)
        self.emulator = SimulatedUpstream(self.storage)
        self.emulator.start()
        subscribed(self.emulator.port, self.folder, DATABASE, settings=SCOPES[scope]).close()
        self.iterate()

    def teardown(self) -> None:
        self.emulator.stop()
        shutil.rmtree(self.folder)

    def there(self, name: str) -> bool:
        return self.storage.find(DATABASE, name) is not None

    @rule(name=NAMES)
    def create_or_drop(self, name: str) -> None:
        if self.there(name):
            self.storage.drop_table(DATABASE, name)
        else:
            self.storage.create_table(DATABASE, name, COLUMNS, primary_key=["id"])

    @rule(name=NAMES)
    def drop_and_create(self, name: str) -> None:
        if self.there(name):
            self.storage.drop_table(DATABASE, name)
            self.storage.create_table(DATABASE, name, COLUMNS, primary_key=["id"])

    @rule(name=NAMES)
    def truncate(self, name: str) -> None:
        if self.there(name):
            self.storage.truncate(DATABASE, name)

    @rule(name=NAMES, other=NAMES)
    def rename(self, name: str, other: str) -> None:
        if self.there(name) and not self.there(other):
            self.storage.rename_table(DATABASE, name, other)

    @rule()
    def swap_names(self) -> None:
        if self.there("a") and self.there("b"):
            for name, new in (("a", "x"), ("b", "a"), ("x", "b")):
                self.storage.rename_table(DATABASE, name, new)

    @rule(name=NAMES, comment=st.sampled_from(["", "one", "two"]))
    def comment(self, name: str, comment: str) -> None:
        if self.there(name):
            self.storage.comment_table(DATABASE, name, comment)

    @rule(name=NAMES, in_place=st.booleans())
    def add_or_drop_column(self, name: str, in_place: bool) -> None:
        if not self.there(name):
            return
        if any(column.name == "w" for column in self.storage.table(DATABASE, name).definition.columns):
            self.storage.drop_column(DATABASE, name, "w")
        else:
            self.storage.add_column(DATABASE, name, "w", "int", in_place=in_place)

    @rule(name=NAMES)
    def create_or_drop_index(self, name: str) -> None:
        if not self.there(name):
            return
        if self.storage.table(DATABASE, name).definition.indexes:
            self.storage.drop_index(DATABASE, name, "i")
        else:
            self.storage.create_index(DATABASE, name, "i", ["v"])

    @rule()
    def create_or_drop_view(self) -> None:
        if self.there("view"):
            self.storage.drop_relation(DATABASE, "view", "v")
        else:
            text = "create view view as select 1 as one"
            self.storage.create_view(DATABASE, "view", {"one": "int"}, "select 1 as one", create_sql=text)

    @rule(names=st.sampled_from([(), ("a",), ("a", "b"), ("b", "c")]))
    def publish(self, names: tuple[str, ...]) -> None:
        tables = tuple(filter(self.there, names))
        self.storage.alter_publication("p", **({"tables": tables} if tables else {"database": DATABASE}))

    @rule(name=NAMES)
    def insert(self, name: str) -> None:
        if self.there(name):
            self.rows += 1
            with self.storage.begin() as transaction:
                transaction.insert(DATABASE, name, {"id": [self.rows], "v": [f"v{self.rows}"]})

    @rule(again=st.booleans())
    def iterate(self, again: bool = False) -> None:
        """By a new process; with `again` it runs once more, when nothing has changed."""
        for _ in range(1 + again):
            self.last = None  # another executor had the lease
            self._iterate(None)

    @rule()
    def go_on(self) -> None:
        """By the process that ran the last iteration."""
        self._iterate(self.last)

    @rule()
    def copy_the_state(self) -> None:
        shutil.rmtree(self.folder / "copy", ignore_errors=True)
        shutil.copytree(self.folder / "home", self.folder / "copy")
        self.copied = True

    @precondition(lambda self: self.copied)
    @rule()
    def restore_the_state(self) -> None:
        shutil.rmtree(self.folder / "home")
        shutil.copytree(self.folder / "copy", self.folder / "home")
        self.last = None

    def _iterate(self, known: Last | None) -> None:
        options = IterationOptions(allow_resync=True, timeouts=TEST_TIMEOUTS)
        with closing(Workspace(self.folder / "home")) as workspace, compared(self.seen):
            try:
                with (
                    workspace.lease(NAME) as lease,
                    workspace.iteration_under(lease, options, known=known) as iteration,
                ):
                    outcome = drive(iteration).ended
                    self.last = iteration.last_read
            except (NotCovered, ScopeConflict):  # what is published, or matches, is none of the tables
                self.last = None
                return
            self.is_equal(workspace, outcome)

    def is_equal(self, workspace: Workspace, outcome: IterationOutcome) -> None:
        """The point shows what the upstream had then, row by row."""
        point = workspace.mirror(NAME).point(outcome.lsn)
        for ref in point.tables.values():
            if ref.kind == "table":
                name = ref.qualified_name
                rows = self.storage.rows_at(DATABASE, ref.name, outcome.at)
                assert read_mirror(workspace, point, name).sort_by("id") == rows.sort_by("id"), name


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=10, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


@contextmanager
def replicated(folder: Path) -> Iterator[tuple[Storage, SimulatedUpstream, Workspace]]:
    """Two tables, and their first point."""
    storage = Storage()
    storage.create_database(DATABASE)
    for name in ("a", "b"):
        storage.create_table(DATABASE, name, COLUMNS, primary_key=["id"])
    storage.create_publication("p", DATABASE)
    with SimulatedUpstream(storage) as emulator, closing(subscribed(emulator.port, folder, DATABASE)) as workspace:
        assert iterate(workspace).point
        yield storage, emulator, workspace


def sent(emulator: SimulatedUpstream, workspace: Workspace) -> dict[str, int]:
    """The statements about the catalog that an iteration sends."""
    before = Counter(emulator.status().statements)
    iterate(workspace)
    asked = Counter(emulator.status().statements) - before
    kinds = ("select_mo_tables", "select_mo_columns", "get_ddl", "checksum_mo_tables", "checksum_mo_columns")
    return {kind: asked[kind] for kind in kinds if asked[kind]}


def context_of(workspace: Workspace) -> Context:
    return Context.from_text(workspace.log.row(NAME).context)


KNOWN = {"checksum_mo_tables": 1, "checksum_mo_columns": 1}
READ = {"select_mo_tables": 1, "select_mo_columns": 1, "get_ddl": 1}


def test_the_catalog_is_asked_for_only_where_it_has_changed(tmp_path: Path) -> None:
    with replicated(tmp_path) as (storage, emulator, workspace):
        assert sent(emulator, workspace) == KNOWN
        with storage.begin() as transaction:
            transaction.insert(DATABASE, "a", {"id": [1], "v": ["x"]})
        assert sent(emulator, workspace) == {**KNOWN, "select_mo_tables": 1}, "the names of what the point has"
        while iterate(workspace).point:  # the flush has made other objects
            pass
        assert sent(emulator, workspace) == KNOWN
        storage.comment_table(DATABASE, "b", "another")
        assert sent(emulator, workspace) == {**KNOWN, **READ}
        assert sent(emulator, workspace) == KNOWN


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1064, "SQL parser error: You have an error in your SQL syntax"),
        (20105, "not supported: function or operator 'unhex'"),
        (20203, "invalid argument aggregate function bit_xor, bad value [BLOB]"),
        (20301, "invalid input: column constraint does not exist"),
        (20101, "internal error: words that no rule knows"),
    ],
)
def test_an_upstream_that_knows_no_checksum_is_asked_once_and_its_catalog_read(
    tmp_path: Path, number: int, text: str
) -> None:
    storage = Storage()
    storage.create_database(DATABASE)
    storage.create_table(DATABASE, "a", COLUMNS, primary_key=["id"])
    storage.create_publication("p", DATABASE)
    with SimulatedUpstream(storage) as emulator, closing(subscribed(emulator.port, tmp_path, DATABASE)) as workspace:
        for kind in ("checksum_mo_tables", "checksum_mo_columns"):
            emulator.inject(FailStatement(kind, number, text, times=1000))
        assert sent(emulator, workspace) == {**READ, "checksum_mo_tables": 1}
        found = context_of(workspace).capabilities
        assert found is not None
        assert found.checksums is False
        assert "checksums of the catalog: no" in found.describe()
        for number in range(2):
            with storage.begin() as transaction:
                transaction.insert(DATABASE, "a", {"id": [number], "v": ["x"]})
            assert sent(emulator, workspace) == READ
        assert context_of(workspace).settled is None


@pytest.mark.parametrize("kind", ["checksum_mo_tables", "checksum_mo_columns"])
def test_a_checksum_that_fails_once_costs_the_reading_of_one_catalog(tmp_path: Path, kind: str) -> None:
    with replicated(tmp_path) as (_, emulator, workspace):
        emulator.inject(FailStatement(kind, 20101, "internal error: words that no rule knows"))
        assert READ.items() <= sent(emulator, workspace).items()
        assert sent(emulator, workspace) == {**KNOWN, **READ}, "of the catalog before no checksum is known"
        assert sent(emulator, workspace) == KNOWN


def test_a_past_that_is_empty_is_no_catalog_that_is_known(tmp_path: Path) -> None:
    with replicated(tmp_path) as (_, emulator, workspace):
        iterate(workspace)

        def emptied(original: Any) -> Any:
            def query(session: Any, sql: str, **options: Any) -> Any:
                answer = original(session, sql, **options)
                if "COUNT(*)" in sql and "mo_ts" in sql:
                    answer.rows[:] = [(b"0", bytes(16))]
                return answer

            return query

        with replaced("ccpr.matrixone.client.upstream_session", "Session.query", emptied):
            assert READ.items() <= sent(emulator, workspace).items()


def test_another_release_of_the_upstream_or_of_this_program_is_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replicated(tmp_path) as (_, emulator, workspace):
        assert sent(emulator, workspace) == KNOWN
        monkeypatch.setattr("ccpr.pipeline.known_catalog.RELEASE", "another")
        assert sent(emulator, workspace) == {**KNOWN, **READ}
        assert sent(emulator, workspace) == KNOWN


def test_a_proof_of_another_point_proves_nothing(tmp_path: Path) -> None:
    """A row of the log that was restored without the points, or these without it."""
    with replicated(tmp_path) as (_, _, workspace):
        iterate(workspace)
        settled = context_of(workspace).settled
        assert settled is not None
        history = PointHistory(workspace.log.engine, workspace.log.row(NAME).task_id)
        refs, _ = history.refs(0)
        number = min(refs)
        assert settled_digest("inputs", refs) != settled_digest("other", refs)
        for other in (
            {**refs, number: replace(refs[number], manifest="manifests/9/9-9.arrow")},
            {key: ref for key, ref in refs.items() if key != number},
        ):
            assert settled_digest("inputs", other) != settled_digest("inputs", refs)


@pytest.mark.parametrize("value", [[], {}, {"digest": 1, "zero_dates": {}}, {"digest": "x", "zero_dates": {"t": [1]}}])
def test_a_proof_that_is_damaged_is_an_error_that_says_so(value: Any) -> None:
    with pytest.raises(StateUnreadable):
        Context.from_text(json.dumps({"settled": value}))


def text_of_cell(cell: bytes | int | None) -> bytes | None:
    return b"%d" % cell if isinstance(cell, int) else cell


ROWS = st.lists(
    st.tuples(*[st.one_of(st.none(), st.binary(max_size=3), st.integers(-5, 300))] * 3), min_size=1, max_size=6
)


@given(ROWS, ROWS)
def test_equal_checksums_are_of_equal_rows_in_any_order(rows: Any, others: Any) -> None:
    """Of cells as texts, since that is what an answer has of them; a catalog has no row twice."""
    texts, again = ({tuple(map(text_of_cell, row)) for row in part} for part in (rows, others))
    places = range(3)
    assert (checksum_of(texts, places) == checksum_of(again, places)) is (texts == again)
    assert checksum_of(rows, places) == checksum_of(rows[::-1], places)
