"""Histories of several databases of an account, and what replicates them: events strike between the statements of an
iteration, too."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from ccpr.pipeline.committing import IterationOutcome
from ccpr.service import subscriptions
from ccpr.state.context import Context
from ccpr_emulator.engine.entries import SUBSCRIPTION
from ccpr_emulator.engine.storage import SYS
from ccpr_emulator.engine.stored_table import ALIVE
from ccpr_emulator.engine.transaction import CreateAt, Transaction
from tests.histories.history import Choice, Circumstances, History
from tests.histories.replicating import NAME, Replica, play
from tests.support.meanwhile import before_statements

NAMES = ("db_1", "db_2", "db_ 3", "db_`4", "other", "zä")
PARTITIONED = NAMES[0]
PATTERNS = {  # of databases: what they match of NAMES
    "": frozenset(NAMES),
    "db_*": frozenset(NAMES[:4]),
    "Db_[12],o*": frozenset(("db_1", "db_2", "other")),
    "*[!1r]": frozenset(("db_2", "db_ 3", "db_`4", "zä")),
}


class SeveralHistory(History):
    """As `History`, but each event, and each statement of a transaction, is in one of several databases, which come and
    go. Garbage is collected after each event."""

    @property
    def subscribed(self) -> str:
        return "*"

    @property
    def has_partitions(self) -> bool:
        return super().has_partitions and self.database == PARTITIONED

    def step(self) -> None:
        if self.live():
            self._go_to_another()
            super().step()
        else:
            self._add_database()
        self.storage.collect()

    def strike(self) -> None:
        """An event between two statements of an iteration."""
        self._go_to_another()
        steps = (self._swap_and_back, self._drop_database, self._renew_database, self._begun_and_flushed, self.step)
        self.rng.choices(steps, (3, 1, 2, 3, 9))[0]()
        self.storage.collect()

    def live(self) -> list[str]:
        """The databases that are there."""
        return [
            entry.name
            for entry in self.storage.databases
            if (entry.account, entry.dropped, entry.kind) == (self.account, ALIVE, "")
        ]

    def _go_to_another(self) -> None:
        if live := self.live():
            self.database = self.rng.choice(live)

    def _create_namesake(self) -> None:
        for self.database in NAMES:
            super()._create_namesake()

    def _create_all(self) -> None:
        self.counts: dict[str, int] = {}
        for name in self.rng.sample(NAMES, self.rng.randint(2, 4)):
            self.database = name
            self._create_database()

    def _weighted_steps(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            *super()._weighted_steps(),
            (4, self._add_database),
            (3, self._drop_database),
            (3, self._renew_database),
            (3, self._clone_elsewhere),
            (2, self._swap_and_back),
            (1, self._subscribe_database),
        ]

    def _statement(self, transaction: Transaction) -> None:
        if self.rng.random() < 0.5:
            self._go_to_another()
        super()._statement(transaction)

    def _new_name(self) -> str:
        """Tables of several databases have the same names."""
        names, self.names = self.names, self.counts.get(self.database, 0)
        name = super()._new_name()
        while name in self.makers:  # a clone has it
            name = super()._new_name()
        self.counts[self.database], self.names = self.names, names
        return name

    def note(self, text: str) -> None:
        super().note(f"{self.database}: {text}")

    # ---- databases

    def _add_database(self) -> None:
        taken = {
            entry.name for entry in self.storage.databases if entry.account == self.account and entry.dropped == ALIVE
        }
        if missing := [name for name in NAMES if name not in taken]:
            self.database = self.rng.choice(missing)
            self.note("create database")
            self._create_database()

    def _drop_database(self) -> None:
        if self.database in self.live():
            self.storage.drop_database(self.database, account=self.account)
            self.known_makers.pop(self.database, None)
            self.note("drop database")

    def _renew_database(self) -> None:
        """Dropped and created again, with tables of the same names."""
        self._drop_database()
        self.counts.pop(self.database, None)
        self._create_database()

    def _subscribe_database(self) -> None:
        """One whose tables are another account's, and in no catalog of this one."""
        if self.database in self.live() and len(self.live()) > 2:
            self._drop_database()
            self.storage.create_database(self.database, account=self.account, kind=SUBSCRIPTION)
            self.note("create database from a publication")

    # ---- tables

    def _clone_elsewhere(self) -> None:
        found, others = self.table(), [name for name in self.live() if name != self.database]
        if found and others and not found[1].indexes and found[1].partitioning is None:
            source, definition = self.database, found[1]
            makers = self.makers[definition.name]
            self.database = self.rng.choice(others)
            same = self.rng.random() < 0.5 and definition.name not in self.makers and not self.has_partitions
            name = definition.name if same else self._new_name()
            self.storage.clone_table(source, definition.name, name, target=self.database, account=self.account)
            self.makers[name] = dict(makers)
            self.note(f"clone {source}.{definition.name} as {name}")

    def _swap_and_back(self) -> None:
        """Two tables change their names, have rows written, and change them again."""
        tables = self._tables()
        if len(tables) > 1:
            one, other = (definition.name for _, definition in self.rng.sample(tables, 2))
            here, between = self.database, self._new_name()
            for _ in range(self.rng.choice((1, 2, 2))):
                self.database = here
                self._renamed(one, between)
                self._renamed(other, one)
                self._renamed(between, other)
                self._transaction()

    def _begun_and_flushed(self) -> None:
        """A new table with rows in memory only, or rows that are merged at once."""
        self.rng.choice((self._create, self._transaction))()
        self._transaction()
        self.rng.choice((self._flush, self._merge, self._merge_tombstones, lambda: None))()


@dataclass
class SeveralReplica(Replica):
    """A replica of a history of several databases."""

    kinds: ClassVar[tuple[str, ...]] = (*Replica.kinds, "select_mo_snapshots")

    def __post_init__(self) -> None:
        super().__post_init__()
        assert isinstance(self.history, SeveralHistory)
        self.several = self.history
        self.owners.add(SYS)
        self.started = 0  # tick
        self.may_lose = False

    def _alter(self, rng: random.Random) -> None:
        super()._alter(rng)
        pattern = rng.choice(list(PATTERNS))
        self.history.choice = replace(self.history.choice, databases=PATTERNS[pattern])
        subscriptions.alter(self.workspace, NAME, subscriptions.SettingsChange(settings={"databases": pattern}))
        self.history.note(f"  altered: databases {pattern}")

    def iterate(self) -> IterationOutcome | None:
        with self._striking(self.rng.choice((0, 0, 1, 2, 4, 8))):
            return self.iterate_in_peace()

    def iterate_in_peace(self) -> IterationOutcome | None:
        """As `iterate`, and nothing happens in between but faults."""
        self.started = self.history.storage.clock.last
        outcome = super().iterate()
        if outcome is not None and not self.history.circumstances.faults:
            self._assert_nothing_left()
        return outcome

    @contextmanager
    def _striking(self, most: int) -> Iterator[None]:
        """So many events strike, each before a statement of this thread; where faults do, somebody may also drop one of
        our snapshots."""
        rng, left = random.Random(self.history.seed + len(self.history.done)), most

        def strike(_: str) -> None:
            nonlocal left
            if left and rng.random() < 0.15:
                left -= 1
                self.history.done.append("  between two statements:")
                ours = [name for _, name in self.history.storage.snapshots if name.startswith("xr_")]
                if self.may_lose and ours and rng.random() < 0.3:
                    self._lose(rng.choice(ours))
                else:
                    self.several.strike()

        with before_statements(strike):
            yield

    def _strike(self) -> None:
        self.may_lose = True
        super()._strike()

    def _calm(self) -> None:
        self.may_lose = False
        super()._calm()

    def _without_table(self) -> None:
        """At some time of the iteration there was nothing of what is chosen."""
        history, clock = self.several, self.history.storage.clock
        times = [clock.time(tick) for tick in range(self.started, clock.last + 1)]
        there = [history.storage.tables_at(at, account=history.account) for at in times]
        assert any(not any(history.replicates(definition, history.choice) for _, definition in one) for one in there)

    def _assert_nothing_left(self) -> None:
        """Upstream there are the snapshots of the last two iterations, an account's and its marker, and no other."""
        known = Context.from_text(self.workspace.log.row(NAME).context)
        kept = {name for ref in (known.current, known.previous) if ref for name in (ref.name, ref.marker)}
        ours = {name for _, name in self.history.storage.snapshots if name.startswith("xr_")}
        assert (ours, known.to_drop) == (kept, ())


def replicate_several(seed: int, folder: Path, create_at: CreateAt) -> None:
    """As `replicate`."""
    circumstances = replace(Circumstances.of(seed), one_table=False, large=False, with_indexes=False)
    history, pattern = SeveralHistory(seed, circumstances, create_at), random.Random(seed + 5).choice(list(PATTERNS))
    history.choice = Choice(databases=PATTERNS[pattern])
    history.done.append(f"databases {pattern}")
    play(history, folder, replica_of=SeveralReplica, databases=pattern)
