"""Steps of a history other than rows and merges: modified columns, indexes, checkpoints, snapshots of others, halves of
commits."""

import re
from typing import TYPE_CHECKING

from ccpr.matrixone.server.answers import StatementError
from ccpr_emulator.engine.definitions import BadDefinition
from ccpr_emulator.engine.storage import SYS
from tests.histories.values import KEYS, TYPES

if TYPE_CHECKING:
    from tests.histories.history import History

_WANTED = {
    "varchar": ("varchar(500)", "varchar(199)"),
    "char": ("char(90)", "char(60)"),
    "tinyint": ("bigint",),
    "int": ("bigint",),
}


def modify_column(history: "History") -> None:
    """A text column is widened in place. Narrowing it, INT to BIGINT, and the same type again are done by a copy."""
    found = history.table()
    column = found and history.free_column(found[1])
    if not found or not column:
        return
    name, text = found[1].name, found[1].type_texts[column]
    kind = re.sub(r"\(.*", "", text)
    wanted = history.rng.choice((*_WANTED.get(kind, ()), text))
    if not found[1].column(column).nullable:
        wanted += " not null"
    try:
        history.storage.modify_column(history.database, name, column, wanted, account=history.account)
    except (BadDefinition, StatementError) as error:  # for example a text that is now too long
        history.note(f"modify {name}.{column} {text} to {wanted}: {error}")
        return
    plain = wanted.removesuffix(" not null")
    if plain in ("bigint", "varchar(199)"):
        history.makers[name][column] = TYPES["bigint"] if plain == "bigint" else KEYS["varchar(20)"]
    history.note(f"modify {name}.{column} {text} to {wanted}")


def swap_columns(history: "History") -> None:
    """Two columns change names, in place."""
    found = history.table()
    one, other = (found and history.free_column(found[1]) for _ in range(2))
    if not found or not one or not other or one == other:
        return
    name, makers = found[1].name, history.makers[found[1].name]
    for former, later in ((one, "between"), (other, one), ("between", other)):
        history.storage.rename_column(history.database, name, former, later, account=history.account)
    makers[one], makers[other] = makers[other], makers[one]
    history.note(f"swap {name}.{one} and {other}")


def replace_column(history: "History") -> None:
    """A column goes, and another one gets its name."""
    found = history.table()
    column = found and history.free_column(found[1])
    if not found or not column or len(found[1].user_columns) < 2:
        return
    name, kind = found[1].name, history.rng.choice(list(TYPES))
    for change, about in ((history.storage.drop_column, (column,)), (history.storage.add_column, (column, kind))):
        in_place = history.rng.random() < 0.7
        change(history.database, name, *about, in_place=in_place, account=history.account)
    history.makers[name][column] = TYPES[kind]
    history.note(f"replace {name}.{column} by {kind}")


def create_index(history: "History") -> None:
    found = history.table()
    if found and found[1].partitioning is not None:
        return
    if found and (found[1].primary_key or history.rng.random() < 0.3) and not found[1].indexes:
        columns = history.rng.choice((["n"], [*found[1].primary_key, "n"]))
        unique = len(columns) > 1 and history.rng.random() < 0.5
        history.storage.create_index(
            history.database, found[1].name, "added", columns, unique=unique, account=history.account
        )
        history.note(f"create index on {found[1].name} {columns} {unique=}")


def drop_index(history: "History") -> None:
    found = history.table()
    if found and found[1].indexes:
        name = history.rng.choice(found[1].indexes).name
        history.storage.drop_index(history.database, found[1].name, name, account=history.account)
        history.note(f"drop index {name} of {found[1].name}")


def checkpoint(history: "History") -> None:
    history.storage.checkpoint()
    history.note("checkpoint")


def hold(history: "History") -> None:
    """A snapshot of somebody else, of any level and account."""
    history.names += 1
    level = history.rng.choice(("cluster", "account", "database", "table"))
    found = history.table()
    if level == "table" and not found:
        return
    database = history.database if level in ("database", "table") else ""
    table = found[1].name if found and level == "table" else ""
    name = f"held{history.names}"
    history.storage.create_snapshot(
        name, level, database, table, account=history.account, caller=history.rng.choice((None, SYS))
    )
    history.held.append(name)
    history.note(f"snapshot {name} of {level} {table}")


def expire(history: "History") -> None:
    if history.held:
        name = history.held.pop(history.rng.randrange(len(history.held)))
        if (history.account, name) in history.storage.snapshots:  # else a fault dropped it
            history.storage.drop_snapshot(name, account=history.account)
        history.note(f"drop snapshot {name}")


def prepare(history: "History") -> None:
    """The first half of a commit: the objects of its rows are created. The other half comes any number of snapshots
    later."""
    waiting = [transaction for transaction in history.open if transaction.open and not transaction.prepared]
    if waiting:
        history.rng.choice(waiting).prepare()
        history.note("prepare")


def roll_back_prepared(history: "History") -> None:
    """Leaves an object without rows, which those of later transactions will be in."""
    prepared = [transaction for transaction in history.open if transaction.open and transaction.prepared]
    if prepared:
        transaction = history.rng.choice(prepared)
        history.open.remove(transaction)
        transaction.rollback()
        history.note("roll back what was prepared")


def replay_wal(history: "History") -> None:
    history.storage.replay_wal()
    history.note("the write-ahead log is replayed")
