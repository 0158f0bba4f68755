"""Partitioned tables in a history: by column `n`, whose values are 0 to 100."""

from typing import TYPE_CHECKING

from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.entries import TableEntry
from ccpr_emulator.engine.partitioning import Part, Partitioning, by_hash

if TYPE_CHECKING:
    from tests.histories.history import History


def drawn(history: "History") -> Partitioning | None:
    """How a new table is partitioned; None for most."""
    rng = history.rng
    if not history.has_partitions or rng.random() < 0.4:
        return None
    return rng.choice(
        (
            by_hash("n", rng.randint(1, 4)),
            Partitioning("range", "n", (Part("a", (30,)), Part("b", (60,)), Part("c"))),
            Partitioning("range", "n", (Part("a", (40,)), Part("b", (90,)))),
            Partitioning("list", "n", (Part("a", tuple(range(0, 101, 2))), Part("b", tuple(range(1, 91, 2))))),
        )
    )


def stored_name(history: "History", found: tuple[TableEntry, Definition]) -> str:
    """The table, or one of its partitions: what has objects."""
    entry, definition = found
    return history.rng.choice([part.definition.name for part in entry.partitions.values()] or [definition.name])


def add(history: "History") -> None:
    found = _partitioned(history)
    if found is None or found[1].method == "hash":
        return
    name, old = found
    if old.method == "range":
        if not old.parts[-1].values:
            return
        values = (old.parts[-1].values[0] + 20,)
    else:
        values = tuple(set(range(101)) - {value for part in old.parts for value in part.values})
    added = Part(f"p{len(history.done)}", values)
    history.storage.add_partitions(history.database, name, [added], account=history.account)
    history.note(f"add partition {added.name} to {name}")


def drop(history: "History") -> None:
    found = _partitioned(history)
    if found is not None and found[1].method != "hash" and len(found[1].parts) > 1:
        part = history.rng.choice(found[1].parts).name
        history.storage.drop_partitions(history.database, found[0], [part], account=history.account)
        history.note(f"drop partition {part} of {found[0]}")


def truncate(history: "History") -> None:
    found = _partitioned(history)
    if found is not None:
        names = [history.rng.choice(found[1].parts).name] if history.rng.random() < 0.7 else []
        history.storage.truncate_partitions(history.database, found[0], names, account=history.account)
        history.note(f"truncate partition {names or 'all'} of {found[0]}")


CHANGES = (add, drop, truncate)


def _partitioned(history: "History") -> tuple[str, Partitioning] | None:
    found = history.table()
    if found is None or found[1].partitioning is None:
        return None
    return found[1].name, found[1].partitioning
