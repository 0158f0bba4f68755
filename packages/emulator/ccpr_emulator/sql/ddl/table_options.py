"""What follows the brackets of CREATE TABLE."""

from dataclasses import dataclass, field

from ccpr.matrixone.server.tokens import Tokens
from ccpr_emulator.engine.partitioning import Partitioning
from ccpr_emulator.sql.ddl.columns import text_in_brackets
from ccpr_emulator.sql.ddl.partitions import partition_by
from ccpr_emulator.sql.names import key_columns


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
