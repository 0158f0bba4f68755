"""The engine against a model, a dict of rows by key, over commits, rollbacks, flushes, merges and collections in any
order.

After each step the engine's rows equal the model's, each transaction sees its own, and the objects of each snapshot
that is held, read as a client reads them, have the rows of its time; at the end the engine still knows the rows of
every commit.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject
from ccpr_emulator.engine.storage import Merge, Storage
from ccpr_emulator.engine.stored_table import MergeConflict, StoredObject
from ccpr_emulator.engine.transaction import DuplicateEntry, Transaction, WriteConflict
from tests.support.recorded import visible_batches

KEYS = st.integers(0, 12)
SCHEMA = pa.schema([("k", pa.int32()), ("v", pa.string())])


@dataclass(frozen=True, slots=True)
class Row:
    """A value, and the number of the write that made it: two writes of one value are two rows."""

    value: str
    write: int


Rows = dict[int, Row]


@dataclass
class Open:
    """A transaction, what it must see, and the writes of its snapshot that it replaced or deleted."""

    transaction: Transaction
    seen: Rows
    snapshot: frozenset[int]
    gone: set[int] = field(default_factory=set)

    def remove(self, key: int) -> Row:
        row = self.seen.pop(key)
        self.gone |= {row.write} & self.snapshot
        return row


def plain(rows: Rows) -> dict[int, str]:
    return {key: row.value for key, row in rows.items()}


def found(table: pa.Table) -> dict[int, str]:
    rows = dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))
    assert len(rows) == table.num_rows, "a key occurs twice"
    return rows


class Engine(RuleBasedStateMachine):
    """One table `t` of a key and a value, up to three transactions at once."""

    @initialize(cn_rows=st.sampled_from((2, 4, 1000)), keyed=st.booleans())
    def start(self, cn_rows: int, keyed: bool) -> None:
        self.time = 1_780_000_000_000_000_000
        self.storage = Storage(now=self.now, cn_rows=cn_rows, flush_rows=1000)
        self.storage.create_database("d")
        unique = {} if keyed else {"u": ["k"]}  # without a primary key a unique index keeps the keys apart
        self.storage.create_table(
            "d", "t", {"k": "int not null", "v": "varchar(30)"}, primary_key=["k"] if keyed else [], unique=unique
        )
        self.rows: Rows = {}
        self.writes = 0
        self.commits: list[tuple[Timestamp, Rows]] = [(self.storage.now, {})]
        self.open: list[Open] = []
        self.merges: list[Merge] = []
        self.held: dict[str, tuple[Timestamp, Rows]] = {}
        self.taken = 0

    def now(self) -> int:
        """Does not always advance: then commits have the same physical time and differ in the logical one."""
        self.time += 1
        return self.time // 3

    def chosen(self, number: int) -> Open:
        return self.open[number % len(self.open)]

    def put(self, it: Open, key: int, value: str) -> None:
        self.writes += 1
        it.seen[key] = Row(value, self.writes)

    # ---- transactions

    @precondition(lambda self: len(self.open) < 3)
    @rule()
    def begin(self) -> None:
        self.open.append(
            Open(self.storage.begin(), dict(self.rows), frozenset(row.write for row in self.rows.values()))
        )

    @precondition(lambda self: self.open)
    @rule(
        number=st.integers(0, 2),
        keys=st.lists(KEYS, min_size=1, max_size=5, unique=True),
        value=st.text("ab", max_size=3),
    )
    def insert(self, number: int, keys: list[int], value: str) -> None:
        it = self.chosen(number)
        rows = {"k": keys, "v": [value] * len(keys)}
        if it.seen.keys() & set(keys):
            with pytest.raises(DuplicateEntry):
                it.transaction.insert("d", "t", rows)
            return
        assert it.transaction.insert("d", "t", rows) == len(keys)
        for key in keys:
            self.put(it, key, value)

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, 2), keys=st.lists(KEYS, max_size=6, unique=True), value=st.text("cd", max_size=3))
    def update(self, number: int, keys: list[int], value: str) -> None:
        it = self.chosen(number)
        hit = it.seen.keys() & set(keys)
        assert it.transaction.update("d", "t", {"v": value}, pc.field("k").isin(pa.array(keys, pa.int32()))) == len(hit)
        for key in hit:
            it.remove(key)
            self.put(it, key, value)

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, 2), old=KEYS, new=KEYS)
    def update_key(self, number: int, old: int, new: int) -> None:
        it = self.chosen(number)
        if old in it.seen and new != old and new in it.seen:
            with pytest.raises(DuplicateEntry):
                it.transaction.update("d", "t", {"k": new}, pc.field("k") == old)
            return
        assert it.transaction.update("d", "t", {"k": new}, pc.field("k") == old) == (old in it.seen)
        if old in it.seen:
            self.put(it, new, it.remove(old).value)

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, 2), keys=st.lists(KEYS, max_size=6, unique=True))
    def delete(self, number: int, keys: list[int]) -> None:
        it = self.chosen(number)
        hit = it.seen.keys() & set(keys)
        assert it.transaction.delete("d", "t", pc.field("k").isin(pa.array(keys, pa.int32()))) == len(hit)
        for key in hit:
            it.remove(key)

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, 2))
    def commit(self, number: int) -> None:
        """The first to commit wins: a row that is no longer there cannot be deleted, a key that came meanwhile not be
        inserted."""
        it = self.chosen(number)
        self.open.remove(it)
        ours = {key: row for key, row in it.seen.items() if row.write not in it.snapshot}
        there = {row.write for row in self.rows.values()}
        taken = any(key in self.rows and self.rows[key].write not in it.gone for key in ours)
        if taken or not it.gone <= there:
            with pytest.raises(WriteConflict):
                it.transaction.commit()
        else:
            it.transaction.commit()
            self.rows = {key: row for key, row in self.rows.items() if row.write not in it.gone} | ours
        self.commits.append((self.storage.now, dict(self.rows)))

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, 2))
    def roll_back(self, number: int) -> None:
        it = self.chosen(number)
        self.open.remove(it)
        it.transaction.rollback()

    @rule(keys=st.lists(KEYS, min_size=1, max_size=8, unique=True), value=st.sampled_from(("x", "y", None)))
    def write_at_once(self, keys: list[int], value: str | None) -> None:
        """A transaction of one step, that meets none: it deletes the keys, and writes them again unless the value is
        None."""
        with self.storage.begin() as transaction:
            transaction.delete("d", "t", pc.field("k").isin(pa.array(keys, pa.int32())))
            if value is not None:
                transaction.insert("d", "t", {"k": keys, "v": [value] * len(keys)})
        for key in keys:
            self.rows.pop(key, None)
            if value is not None:
                self.writes += 1
                self.rows[key] = Row(value, self.writes)
        self.commits.append((self.storage.now, dict(self.rows)))

    @precondition(lambda self: len(self.open) < 2)
    @rule(keys=st.lists(KEYS, min_size=1, max_size=8, unique=True), deletes=st.booleans())
    def two_want_the_same_rows(self, keys: list[int], deletes: bool) -> None:
        self.write_at_once(keys, "z")
        for _ in range(2):
            self.begin()
        if deletes:
            self.delete(len(self.open) - 2, keys)
        else:
            self.update(len(self.open) - 2, keys, "c")
        self.delete(len(self.open) - 1, keys)
        self.commit(len(self.open) - 2)
        self.commit(len(self.open) - 1)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=8, unique=True), by_cn=st.booleans())
    def delete_while_a_merge_runs(self, keys: list[int], by_cn: bool) -> None:
        self.storage.flush("d", "t")
        merge = self.storage.start_merge("d", "t", by_cn=by_cn)
        self.write_at_once(keys, None)
        if merge is not None:
            merge.commit()

    @rule()
    def hold_flush_and_collect(self) -> None:
        if len(self.held) < 4:
            self.take_snapshot()
        self.storage.flush("d", "t")
        self.storage.collect()

    # ---- what changes no rows

    @rule()
    def flush(self) -> None:
        self.storage.flush("d", "t")

    @rule(by_cn=st.booleans(), newest=st.sampled_from((None, 2)))
    def merge(self, by_cn: bool, newest: int | None) -> None:
        self.storage.merge("d", "t", by_cn=by_cn, newest=newest)

    @rule(by_cn=st.booleans())
    def start_merge(self, by_cn: bool) -> None:
        merge = self.storage.start_merge("d", "t", by_cn=by_cn)
        if merge is not None and len(self.merges) < 3:
            self.merges.append(merge)

    @precondition(lambda self: self.merges)
    @rule(number=st.integers(0, 2))
    def end_merge(self, number: int) -> None:
        merge = self.merges.pop(number % len(self.merges))
        if all(source.live for source in merge.sources):
            merge.commit()
        else:
            with pytest.raises(MergeConflict):
                merge.commit()

    @rule()
    def merge_tombstones(self) -> None:
        self.storage.merge_tombstones("d", "t")

    @precondition(lambda self: len(self.held) < 4)
    @rule()
    def take_snapshot(self) -> None:
        self.taken += 1
        taken = self.storage.create_snapshot(f"s{self.taken}", "database", "d")
        at = self.storage.clock.time(taken.tick)
        assert at.logical == 0
        self.held[taken.name] = at, dict(self.rows)

    @precondition(lambda self: self.held)
    @rule(number=st.integers(0, 3))
    def drop_snapshot(self, number: int) -> None:
        name = list(self.held)[number % len(self.held)]
        del self.held[name]
        self.storage.drop_snapshot(name)

    @rule()
    def collect(self) -> None:
        self.storage.collect()

    # ---- what always holds

    @invariant()
    def transactions_see_their_snapshot_and_their_changes(self) -> None:
        for it in self.open:
            assert found(it.transaction.rows("d", "t")) == plain(it.seen)

    @invariant()
    def the_engine_has_the_models_rows(self) -> None:
        assert found(self.storage.rows_at("d", "t", self.storage.now)) == plain(self.rows)

    @invariant()
    def a_row_in_memory_or_in_objects_is_read_once(self) -> None:
        """Objects, and what is in memory at a snapshot's time once it is flushed: as a client reads them."""
        for at, rows in self.held.values():
            if self.storage.table("d", "t").stored.oldest_in_memory() > self.storage.clock.tick(at):
                assert found(self.read(at)) == plain(rows)

    def teardown(self) -> None:
        if not hasattr(self, "held"):
            return  # it failed before it began
        self.take_snapshot()
        for at, rows in self.commits:
            assert found(self.storage.rows_at("d", "t", at)) == plain(rows)
        for (at, rows), (later, _) in pairwise(self.commits):
            if later.physical - at.physical > 1:
                assert found(self.storage.rows_at("d", "t", Timestamp(later.physical - 1))) == plain(rows), (
                    "between two commits"
                )
        self.storage.flush("d", "t")
        self.storage.collect()
        for at, rows in self.held.values():
            assert found(self.read(at)) == plain(rows)
        index = self.storage.table("d", "t").indexes.get("u")
        if index is not None:
            keys = index.stored.values(index.stored.visible(self.storage.clock.last), index.definition.columns).column(
                0
            )
            assert sorted(keys.to_pylist()) == sorted(self.rows)

    def read(self, at: Timestamp) -> pa.Table:
        """The rows as a reader of the listed objects' files finds them."""
        entry, clock = self.storage.table("d", "t"), self.storage.clock
        tick = clock.tick(at)

        def listed(stored: StoredObject) -> ListedObject:
            deleted = clock.time(stored.deleted) if stored.deleted <= tick else None
            return ListedObject(
                ObjectStats.parse(stored.written.stats),
                clock.time(stored.created),
                deleted,
                stored.tombstones is not None,
            )

        def opened(name: str, sums: bytes | None) -> ObjectFile:
            content = self.storage.files.read(name)
            assert content is not None, name
            return ObjectFile(content)

        objects = [listed(stored) for stored in entry.stored.listed(tick)]
        return pa.Table.from_batches(visible_batches(objects, opened, entry.definition.user_columns, at), SCHEMA)


TestEngine = Engine.TestCase
TestEngine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
