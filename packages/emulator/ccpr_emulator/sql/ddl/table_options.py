"""What follows the brackets of CREATE TABLE, with PARTITION BY, and ALTER TABLE … ADD, DROP and TRUNCATE PARTITION.
Partitions are by whole numbers of one column only."""

from dataclasses import dataclass, field
from functools import partial

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.tokens import Tokens
from ccpr_emulator.engine.partitioning import Part, Partitioning, by_hash
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.sql.ddl.acts import Act
from ccpr_emulator.sql.ddl.columns import text_in_brackets
from ccpr_emulator.sql.names import key_columns, list_of


@dataclass(slots=True)
class Options:
    """What follows the brackets of CREATE TABLE."""

    comment: str = ""
    cluster_by: list[str] = field(default_factory=list)
    auto_increment: int = 1
    partitioning: Partitioning | None = None


def read_options(tokens: Tokens) -> Options:
    options = Options()
    while not tokens.at_end() and not tokens.at(";", "as", "select", "with", "("):
        tokens.accept(",")
        if tokens.accept("comment"):
            tokens.accept("=")
            options.comment = tokens.text()
        elif tokens.accept("auto_increment"):
            tokens.accept("=")
            options.auto_increment = tokens.number()
        elif tokens.accept("cluster", "by"):
            options.cluster_by = key_columns(tokens)
        elif tokens.accept("partition", "by"):
            options.partitioning = partition_by(tokens)
        elif tokens.accept("properties"):
            text_in_brackets(tokens)
        elif not ignored_option(tokens):
            raise tokens.unknown()
    return options


_IGNORED_OPTIONS = (
    "engine", "charset", "collate", "row_format", "checksum", "key_block_size", "max_rows", "min_rows",
    "avg_row_length", "pack_keys", "stats_persistent", "encryption", "compression",
)  # fmt: skip


def ignored_option(tokens: Tokens) -> bool:
    """An option that has no effect."""
    tokens.accept("default")
    if not tokens.accept("character", "set"):
        if not tokens.at(*_IGNORED_OPTIONS):
            return False
        tokens.next()
    tokens.accept("=")
    tokens.next()
    return True


def skip_options(tokens: Tokens) -> None:
    while not tokens.at_end() and not tokens.at(";") and ignored_option(tokens):
        pass


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
