"""PARTITION BY, and ALTER TABLE … ADD, DROP and TRUNCATE PARTITION. By whole numbers of one column only."""

from functools import partial

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.tokens import Tokens
from ccpr_emulator.engine.partitioning import Part, Partitioning, by_hash
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.sql.ddl.acts import Act
from ccpr_emulator.sql.names import list_of


def partition_by(tokens: Tokens) -> Partitioning:
    """What follows PARTITION BY."""
    tokens.accept("linear")
    if tokens.accept("hash") or tokens.accept("key"):
        column = _column(tokens)
        count = tokens.number() if tokens.accept("partitions") else 1
        if count < 1:
            raise StatementError(20301, "invalid input: a table needs a partition")
        return by_hash(column, count)
    is_list = tokens.accept("list")
    if not is_list:
        tokens.expect("range")
    tokens.accept("columns")
    column = _column(tokens)
    return Partitioning("list" if is_list else "range", column, _parts(tokens))


def alter_partitions(tokens: Tokens, storage: Storage, names: tuple[str, str], account: str) -> Act | None:
    """The act of a change that concerns partitions; None for another."""
    if tokens.accept("add", "partition"):
        return partial(storage.add_partitions, *names, _parts(tokens), account=account)
    if tokens.accept("drop", "partition"):
        return partial(storage.drop_partitions, *names, _names(tokens), account=account)
    if tokens.accept("truncate", "partition"):
        given = [] if tokens.accept("all") else _names(tokens)
        return partial(storage.truncate_partitions, *names, given, account=account)
    return None


def _names(tokens: Tokens) -> list[str]:
    return list_of(tokens, tokens.name)


def _column(tokens: Tokens) -> str:
    tokens.expect("(")
    column = tokens.name()
    if not tokens.accept(")"):
        raise StatementError(20105, "not supported: the emulator partitions by one column, without an expression")
    return column


def _parts(tokens: Tokens) -> tuple[Part, ...]:
    tokens.expect("(")
    parts = list_of(tokens, lambda: _part(tokens))
    tokens.expect(")")
    return tuple(parts)


def _part(tokens: Tokens) -> Part:
    tokens.expect("partition")
    name = tokens.name()
    tokens.expect("values")
    if tokens.accept("less", "than", "maxvalue"):
        return Part(name)
    if tokens.accept("less", "than"):
        tokens.expect("(")
        values = [] if tokens.accept("maxvalue") else [_number(tokens)]
    else:
        tokens.expect("in")
        tokens.expect("(")
        values = list_of(tokens, lambda: _number(tokens))
    tokens.expect(")")
    return Part(name, tuple(values))


def _number(tokens: Tokens) -> int:
    return -tokens.number() if tokens.accept("-") else tokens.number()
