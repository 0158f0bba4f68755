"""What a session of a server answers to a statement: rows, a count, an error."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

# Type codes of MySQL.
TINY, SMALL, INT, TIMESTAMP, BIGINT, VARCHAR, BLOB_TEXT, VAR_STRING, STRING = 1, 2, 3, 7, 8, 15, 252, 253, 254


@dataclass(frozen=True, slots=True)
class Streamed:
    """A large cell that is read while it is sent, so that it is never in memory as a whole.

    Attributes
    ----------
    size : bytes of all pieces together.
    pieces : reads them, one after the other. What cannot be read any more raises ConnectionError, which breaks the
        connection: the answer has begun, and there is no place in it for an error.
    """

    size: int
    pieces: Callable[[], Iterator[memoryview]]

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces())


Bytes: TypeAlias = bytes | memoryview | Streamed
Cell: TypeAlias = Bytes | str | int | None


def text_of_cell(cell: Cell) -> str:
    return bytes(cell).decode("utf-8", "replace") if isinstance(cell, bytes | memoryview) else str(cell)


class StatementError(Exception):
    """A statement's error as it is sent: any number, five letters of SQLSTATE, a text."""

    def __init__(self, number: int, text: str, state: str = "HY000") -> None:
        super().__init__(number, text)
        self.number = number
        self.text = text
        self.state = state


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """One result column: its name, MySQL type code and character set (0 for MatrixOne's internal statements, 33 = UTF-8
    text, 63 = binary), flags (32 = without a sign) and digits behind the point."""

    name: str
    type: int
    charset: int = 0
    flags: int = 0
    decimals: int = 0


@dataclass(frozen=True, slots=True)
class ResultSet:
    """A result set. Large cells may be memoryviews, which are sent without a copy, or `Streamed`."""

    columns: tuple[ResultColumn, ...]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class FramedRows:
    """A result set that is made while it is sent.

    Attributes
    ----------
    frames : from the number of the next packet, packets of rows with their headers, and the number that follows. What
        cannot be read any more raises StatementError, which is sent in the place of the next row.
    seconds : for which sending may go on; then the connection ends.
    """

    columns: tuple[ResultColumn, ...]
    frames: Callable[[int], Iterator[tuple[memoryview, int]]]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The answer to a statement without rows: how many rows it changed, the session's state after it, and how many
    warnings the session has of it."""

    affected: int = 0
    autocommit: bool = True
    in_transaction: bool = False
    insert_id: int = 0
    warnings: int = 0


@dataclass(frozen=True, slots=True)
class LocalFile:
    """The client is asked for a file of its own (LOAD DATA LOCAL); `then` answers when it has come."""

    name: str
    then: Callable[[bytes], Done]


Answer: TypeAlias = ResultSet | FramedRows | Done | LocalFile
