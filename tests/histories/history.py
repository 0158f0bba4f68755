"""A random history of an upstream, drawn from a seed: tables of all kinds and types, transactions, DDL, flushes,
merges, garbage collections."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow.compute as pc

from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.entries import TableEntry
from ccpr_emulator.engine.partitioning import NoPartition
from ccpr_emulator.engine.storage import SYS, Merge, Storage
from ccpr_emulator.engine.stored_table import MergeConflict
from ccpr_emulator.engine.transaction import CreateAt, DuplicateEntry, Transaction, WriteConflict
from tests.histories import events, partitions
from tests.histories.values import DATABASE, KEYS, TYPES, Maker

CN_ROWS = 60  # so that a compute node writes an object for few rows
_WITH_ABORT_COLUMN = 4  # one in so many histories of 4.2 is of a release after it
_START = 1_780_000_000_000_000_000


@dataclass
class Ticking:
    """A clock that sometimes does not advance."""

    rng: random.Random
    at: int = _START

    def __call__(self) -> int:
        self.at += self.rng.choice((0, 1, 1000, 5_000_000, 2_000_000_000))
        return self.at


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What kind of history it is, and how it is replicated. Drawn with a generator other than that of the steps.

    Attributes
    ----------
    account : the owner of the database; if it is not sys, sys has a database of the same name.
    one_table : the subscription is to one table, which may be dropped and created again.
    with_indexes : index tables are replicated, too.
    isolated : a table that fails stays behind.
    faults : a fault may strike an iteration, which is then run again.
    large : there is a table whose objects have several blocks.
    partitioned : some tables are partitioned.
    patterns : the subscription is to tables whose names match, and the patterns are altered now and then.
    """

    account: str
    one_table: bool
    with_indexes: bool
    isolated: bool
    faults: bool
    large: bool
    partitioned: bool = False
    patterns: bool = False

    @classmethod
    def of(cls, seed: int) -> "Circumstances":
        rng = random.Random(seed + 2)
        account = rng.choice((SYS, SYS, SYS, "acc1"))
        chances = (0.15, 0.4, 0.2, 0.4, 0.04, 0.25, 0.3)
        return cls(account, *(rng.random() < chance for chance in chances))


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a history is replicated for the time being.

    Attributes
    ----------
    excluded : last characters of the names of tables that are not.
    databases : the databases that are; None for all.
    """

    excluded: str = ""
    databases: frozenset[str] | None = None


PLAIN = Circumstances(SYS, one_table=False, with_indexes=False, isolated=False, faults=False, large=False)


@dataclass
class History:
    """Call `step` for the next event; `done` lists the events so far, for the report of a failure.

    With `create_at` "prepare" the upstream is a MatrixOne 4.2: transactions stay open between their two halves, are
    rolled back after the first, and the write-ahead log is replayed; geometries are WKB. Every fourth is of a release
    after 4.2: what is rolled back after the first half is in objects, marked as aborted.
    """

    seed: int
    circumstances: Circumstances = PLAIN
    create_at: CreateAt = "commit"
    plain_names: bool = False  # of tables: no capitals and no backticks
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.ticking = Ticking(random.Random(self.seed + 1))
        self.storage = Storage(
            now=self.ticking,
            seed=self.seed,
            cn_rows=CN_ROWS,
            flush_rows=self.rng.choice((40, 150, 100_000)),
            object_rows=self.rng.choice((8192, 8192 * 2, 8192 * 128)),
            create_at=self.create_at,
            abort_column=self.create_at == "prepare" and self.seed % _WITH_ABORT_COLUMN == 1,
            wkb=self.create_at == "prepare",
        )
        self.database = DATABASE  # of the next event
        self.known_makers: dict[str, dict[str, dict[str, Maker]]] = {}  # by database, by table, by column
        self.names = 0
        self.open: list[Transaction] = []
        self.merges: list[Merge] = []
        self.held: list[str] = []
        self.account = self.circumstances.account
        if self.account != SYS:
            self.storage.create_account(self.account)
            self._create_namesake()
        self._create_all()
        self.scope = self._tables()[0][1].name if self.circumstances.one_table else None
        self.choice = Choice()
        self.storage.create_publication("p", self.subscribed, account=self.account)
        self.steps = self._weighted_steps()

    @property
    def subscribed(self) -> str:
        """What is subscribed to: the database."""
        return DATABASE

    @property
    def has_partitions(self) -> bool:
        """Whether some tables of the database are partitioned."""
        return self.circumstances.partitioned

    @property
    def makers(self) -> dict[str, dict[str, Maker]]:
        """By table of the database, by column."""
        return self.known_makers.setdefault(self.database, {})

    def _create_all(self) -> None:
        self._create_database()
        if self.circumstances.large:
            self._create_large()

    def _create_database(self) -> None:
        self.storage.create_database(self.database, account=self.account)
        for _ in range(self.rng.randint(1, 3)):
            self._create()

    def step(self) -> None:
        weights = [weight for weight, _ in self.steps]
        ((_, step),) = self.rng.choices(self.steps, weights)
        step()

    def _weighted_steps(self) -> list[tuple[int, Callable[[], None]]]:
        of_4_2: list[tuple[int, Callable[[], None]]] = [
            (8, self._begin),
            (12, partial(events.prepare, self)),
            (5, partial(events.roll_back_prepared, self)),
            (3, partial(events.replay_wal, self)),
        ]
        of_partitions = [(3, partial(change, self)) for change in partitions.CHANGES]
        return [
            *(of_4_2 if self.create_at == "prepare" else ()),
            *(of_partitions if self.circumstances.partitioned else ()),
            (30, self._transaction),
            (6, self._begin),
            (8, self._end),
            (10, self._flush),
            (5, self._merge),
            (3, self._start_merge),
            (4, self._commit_merge),
            (4, self._merge_tombstones),
            (3, self._collect),
            (3, self._create),
            (2, self._drop),
            (2, self._drop_and_create),
            (3, self._truncate),
            (3, self._rename),
            (2, self._swap),
            (3, self._add_column),
            (3, self._drop_column),
            (2, self._rename_column),
            (3, partial(events.modify_column, self)),
            (2, partial(events.create_index, self)),
            (2, partial(events.drop_index, self)),
            (2, self._clone),
            (2, self._comment),
            (3, partial(events.checkpoint, self)),
            (3, partial(events.hold, self)),
            (2, partial(events.expire, self)),
        ]

    # ---- tables

    def _tables(self) -> list[tuple[TableEntry, Definition]]:
        found = self.storage.tables_at(self.storage.now, account=self.account)
        return [(entry, definition) for entry, definition in found if definition.database == self.database]

    def replicates(self, definition: Definition, choice: Choice) -> bool:
        chosen = choice.databases is None or definition.database in choice.databases
        name = definition.name
        return chosen and self.scope in (None, name) and name[-1] not in choice.excluded

    def table(self) -> tuple[TableEntry, Definition] | None:
        tables = self._tables()
        return self.rng.choice(tables) if tables else None

    def _new_name(self) -> str:
        self.names += 1
        name = self.rng.choice(("t{}", "T{}", "tab le{}", "tä{}", "t`{}")).format(self.names)
        if self.has_partitions:
            return name.lower()  # a single table is listed by its name
        return name.lower().replace("`", "") if self.plain_names else name

    def note(self, text: str) -> None:
        self.done.append(text)

    # ---- transactions

    def _rows(self, definition: Definition, count: int) -> dict[str, list[Any]]:
        makers = self.makers[definition.name]
        return {
            column.name: [
                None if column.nullable and self.rng.random() < 0.2 else makers[column.name](self.rng)
                for _ in range(count)
            ]
            for column in definition.user_columns
        }

    def _statement(self, transaction: Transaction) -> None:
        found = self.table()
        if found is None:
            return
        _, definition = found
        name, rng = definition.name, self.rng
        kind = rng.choice(("insert", "insert", "insert", "update", "update key", "delete"))
        try:
            if kind == "insert":
                count = rng.choice((1, 3, 20, 70))
                self._insert(transaction, definition, count)
                return
            n = pc.field("n")
            low = rng.randint(0, 100)
            where = rng.choice(
                (n == low, n < low, (n >= low) & (n < low + 15), n.isin([rng.randint(0, 100) for _ in range(8)]), None)
            )
            if kind == "delete":
                self.note(f"delete {name}: {transaction.delete(self.database, name, where)}")
                return
            columns = [
                c for c in definition.user_columns if (c.name in definition.primary_key) == (kind == "update key")
            ]
            if columns:
                column = rng.choice(columns)
                value = self.makers[name][column.name](rng)
                count = transaction.update(self.database, name, {column.name: value}, where)
                self.note(f"{kind} {name}.{column.name}: {count}")
        except (DuplicateEntry, NoPartition) as error:
            self.note(f"{kind} {name}: {error.text}")

    def _insert(self, transaction: Transaction, definition: Definition, count: int) -> None:
        """Insert rows whose keys the transaction does not see yet."""
        rows = self._rows(definition, count)
        keys = definition.primary_key
        unique = (
            [keys, *(index.columns for index in definition.indexes if index.unique)]
            if keys
            else [index.columns for index in definition.indexes if index.unique]
        )
        seen = transaction.rows(self.database, definition.name).to_pydict()
        known = [set(zip(*(seen[name] for name in names), strict=True)) for names in unique]
        kept = []
        for number in range(count):
            values = [tuple(rows[name][number] for name in names) for names in unique]
            if any(value in taken for value, taken in zip(values, known, strict=True) if None not in value):
                continue
            for value, taken in zip(values, known, strict=True):
                taken.add(value)
            kept.append(number)
        if kept:
            transaction.insert(
                self.database, definition.name, {name: [values[n] for n in kept] for name, values in rows.items()}
            )
            self.note(f"insert {definition.name}: {len(kept)}")

    def _transaction(self) -> None:
        transaction = self.storage.begin(self.account)
        self._work(transaction, self.rng.randint(1, 3))
        self._finish(transaction)

    def _work(self, transaction: Transaction, statements: int) -> None:
        try:
            for _ in range(statements):
                self._statement(transaction)
        except WriteConflict as error:
            self.note(error.text)
            transaction.rollback()

    def _begin(self) -> None:
        transaction = self.storage.begin(self.account)
        self.open.append(transaction)
        self._work(transaction, 2)

    def _end(self) -> None:
        if self.open:
            transaction = self.open.pop(self.rng.randrange(len(self.open)))
            if transaction.open and not transaction.prepared:
                self._work(transaction, 1)
            if transaction.open:
                self._finish(transaction)

    def _finish(self, transaction: Transaction) -> None:
        if not transaction.open:
            return
        if self.rng.random() < 0.15:
            transaction.rollback()
            self.note("rollback")
            return
        try:
            transaction.commit()
            self.note("commit")
        except WriteConflict as error:
            self.note(error.text)

    # ---- flush and merge

    def _flush(self) -> None:
        if found := self.table():
            self.note(
                f"flush {found[1].name}: {self.storage.flush(self.database, found[1].name, account=self.account)}"
            )

    def _merge(self) -> None:
        if found := self.table():
            by_cn, newest = self.rng.random() < 0.5, self.rng.choice((None, 2))
            name = partitions.stored_name(self, found)
            done = self.storage.merge(self.database, name, by_cn=by_cn, newest=newest, account=self.account)
            self.note(f"merge {found[1].name} {by_cn=} {newest=}: {done}")

    def _start_merge(self) -> None:
        found = self.table()
        merge = found and self.storage.start_merge(
            self.database, partitions.stored_name(self, found), by_cn=self.rng.random() < 0.5, account=self.account
        )
        if found and merge:
            self.merges.append(merge)
            self.note(f"start merge of {found[1].name}")

    def _commit_merge(self) -> None:
        if self.merges:
            merge = self.merges.pop(self.rng.randrange(len(self.merges)))
            try:
                merge.commit()
                self.note(f"merge of {merge.entry.definition.name} ends")
            except MergeConflict as error:
                self.note(f"merge: {error}")

    def _merge_tombstones(self) -> None:
        if found := self.table():
            name = partitions.stored_name(self, found)
            done = self.storage.merge_tombstones(self.database, name, account=self.account)
            self.note(f"merge tombstones of {found[1].name}: {done}")

    def _collect(self) -> None:
        self.note(f"collect: {self.storage.collect()}")

    # ---- DDL

    def _create(self, name: str | None = None) -> None:
        rng, name = self.rng, name or self._new_name()
        columns: dict[str, str] = {"n": "int not null"}
        makers: dict[str, Maker] = {"n": lambda rng: rng.randint(0, 100)}
        keys = [f"k{number}" for number in range(rng.choice((0, 1, 1, 1, 2, 3)))]
        for key in keys:
            columns[key] = rng.choice(list(KEYS)[: len(KEYS) - 2] if len(keys) == 1 else list(KEYS))
            makers[key] = KEYS[columns[key]]
        for number in range(rng.randint(0, 6)):
            kind = rng.choice(list(TYPES))
            columns[f"C {number}" if rng.random() < 0.1 else f"c{number}"] = kind + rng.choice(("", "", " not null"))
            makers[list(columns)[-1]] = TYPES[kind]
        cluster = [] if keys or rng.random() < 0.6 else rng.choice((["n"], ["n", "x"]))
        if len(cluster) == 2:
            columns["x"], makers["x"] = "varchar(20)", KEYS["varchar(20)"]
        indexes, unique = {}, {}
        if keys and rng.random() < 0.3:
            columns["i"], makers["i"] = "varchar(20)", KEYS["varchar(20)"]
            (indexes if rng.random() < 0.5 else unique)["ix"] = rng.choice((["i"], ["i", "n"]))
        items = list(columns.items())
        rng.shuffle(items)
        partitioning = None if indexes or unique else partitions.drawn(self)
        self.storage.create_table(
            self.database,
            name,
            dict(items),
            primary_key=keys,
            cluster_by=cluster,
            indexes=indexes,
            unique=unique,
            partitioning=partitioning,
            account=self.account,
        )
        self.makers[name] = makers
        self.note(f"create {name}: {dict(items)} key {keys} cluster {cluster} indexes {indexes} unique {unique}")
        if partitioning is not None:
            self.note(f"  {partitioning}")

    def _create_namesake(self) -> None:
        """The same names in another account, whose rows the replica must never show."""
        self.storage.create_database(self.database)
        for name in ("t1", "T1", "t2"):
            self.storage.create_table(self.database, name, {"n": "int"})
            with self.storage.begin() as transaction:
                transaction.insert(self.database, name, {"n": [-1]})
            self.storage.flush(self.database, name)

    def _create_large(self) -> None:
        rng = self.rng
        columns = {"n": "int not null", "id": "bigint", "c": rng.choice(list(TYPES))}
        keyed = rng.random() < 0.7
        self.storage.create_table(
            self.database, "large", columns, primary_key=["id"] if keyed else [], account=self.account
        )
        self.makers["large"] = {
            "n": lambda rng: rng.randint(0, 100),
            "id": lambda rng: rng.getrandbits(50),
            "c": TYPES[columns["c"]],
        }
        self.note(f"create large: {columns}, {keyed=}")
        (definition,) = (definition for _, definition in self._tables() if definition.name == "large")
        with self.storage.begin(self.account) as transaction:
            self._insert(transaction, definition, rng.randint(8_193, 20_000))

    def _drop(self) -> None:
        if found := self.table():
            self.storage.drop_table(self.database, found[1].name, account=self.account)
            self.note(f"drop {found[1].name}")

    def _drop_and_create(self) -> None:
        if found := self.table():
            self.storage.drop_table(self.database, found[1].name, account=self.account)
            self.note(f"drop {found[1].name}")
            self._create(found[1].name)

    def _truncate(self) -> None:
        if found := self.table():
            self.storage.truncate(self.database, found[1].name, account=self.account)
            self.note(f"truncate {found[1].name}")

    def _rename(self) -> None:
        if found := self.table():
            self._renamed(found[1].name, self._new_name())

    def _renamed(self, old: str, new: str) -> None:
        self.storage.rename_table(self.database, old, new, account=self.account)
        self.makers[new] = self.makers.pop(old)
        self.note(f"rename {old} to {new}")

    def _swap(self) -> None:
        tables = self._tables()
        if len(tables) > 1:
            one, other = (definition.name for _, definition in self.rng.sample(tables, 2))
            between = self._new_name()
            self._renamed(one, between)
            self._renamed(other, one)
            self._renamed(between, other)

    def _add_column(self) -> None:
        if found := self.table():
            name, kind, in_place = f"a{len(self.done)}", self.rng.choice(list(TYPES)), self.rng.random() < 0.5
            self.storage.add_column(self.database, found[1].name, name, kind, in_place=in_place, account=self.account)
            self.makers[found[1].name][name] = TYPES[kind]
            self.note(f"add {found[1].name}.{name} {kind} {in_place=}")

    def free_column(self, definition: Definition) -> str | None:
        taken = {
            "n",
            *definition.primary_key,
            *definition.cluster_by,
            *(name for index in definition.indexes for name in index.columns),
        }
        free = [column.name for column in definition.user_columns if column.name not in taken]
        return self.rng.choice(free) if free else None

    def _drop_column(self) -> None:
        found = self.table()
        column = found and self.free_column(found[1])
        if found and column:
            in_place = self.rng.random() < 0.5
            self.storage.drop_column(self.database, found[1].name, column, in_place=in_place, account=self.account)
            self.note(f"drop {found[1].name}.{column} {in_place=}")

    def _rename_column(self) -> None:
        found = self.table()
        column = found and self.free_column(found[1])
        if found and column:
            name = f"r{len(self.done)}"
            self.storage.rename_column(self.database, found[1].name, column, name, account=self.account)
            makers = self.makers[found[1].name]
            makers[name] = makers[column]
            self.note(f"rename {found[1].name}.{column} to {name}")

    def _clone(self) -> None:
        found = self.table()
        if found and not found[1].indexes and found[1].partitioning is None:
            name = self._new_name()
            self.storage.clone_table(self.database, found[1].name, name, account=self.account)
            self.makers[name] = dict(self.makers[found[1].name])
            self.note(f"clone {found[1].name} as {name}")

    def _comment(self) -> None:
        if found := self.table():
            self.storage.comment_table(self.database, found[1].name, f"comment {len(self.done)}", account=self.account)
            self.note(f"comment {found[1].name}")
