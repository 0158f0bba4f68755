"""Prepared statements of a connection: what a client sends for their parameters, and rows as it reads them then."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Final, TypeAlias

from ccpr.matrixone.server.answers import BIGINT, INT, SMALL, TINY, Cell, ResultColumn, StatementError
from ccpr.matrixone.server.packets import Fields, encoded, length_prefix

Parameter: TypeAlias = str | bytes | int | float | Decimal | date | datetime | None
MOST_STATEMENTS: Final = 500  # of a connection
MOST_PARAMETERS: Final = 1000
MOST_LONG_BYTES: Final = 16 << 20


class Unsigned(int):
    """A whole number that was sent as one without a sign: what MySQL computes of it has none, either."""


_UNSIGNED: Final = 0x8000
_WHOLE: Final = {1: 1, 2: 2, 13: 2, 3: 4, 9: 4, 8: 8}  # bytes of each type
_FLOATS: Final = {4: "<f", 5: "<d"}
_NULL, _DATE, _MOMENTS, _DECIMALS, _BLOBS = 6, 10, (7, 10, 12), (0, 246), range(249, 253)
_TEXTS: Final = (15, 245, 247, 248, 253, 254)
_FORMS: Final = {TINY: "<b", SMALL: "<h", INT: "<i", BIGINT: "<q"}


@dataclass(slots=True)
class _Prepared:
    text: bytes
    count: int
    types: list[int] = field(default_factory=list)
    long_data: dict[int, bytearray] = field(default_factory=dict)


class PreparedStatements:
    """Those of one connection, by number."""

    def __init__(self) -> None:
        self._known: dict[int, _Prepared] = {}
        self._last = 0

    def add(self, text: bytes, count: int) -> Iterator[bytes]:
        """The packets that say so. What columns there are is said with the rows. Raises StatementError 1461, 1390."""
        if len(self._known) >= MOST_STATEMENTS:
            raise StatementError(1461, f"{MOST_STATEMENTS} statements are prepared on this connection", "42000")
        if count > MOST_PARAMETERS:
            raise StatementError(1390, f"a prepared statement has at most {MOST_PARAMETERS} parameters")
        self._last += 1
        self._known[self._last] = _Prepared(text, count)
        numbers = self._last.to_bytes(4, "little") + bytes(2) + count.to_bytes(2, "little")
        yield b"\x00" + numbers + bytes(3)
        if count:
            for _ in range(count):
                yield b"\x03def\0\0\0\x01?\0\x0c" + b"\x3f\0" + bytes(4) + b"\xfd" + bytes(5)
            yield b"\xfe\x00\x00\x02\x00"

    def note(self, is_end: bool, payload: bytes) -> None:
        """A statement ends, or a piece of a long parameter comes; neither has an answer."""
        fields = Fields(payload[1:])
        number = fields.number(4)
        if is_end:
            self._known.pop(number, None)
            return
        place, prepared = fields.number(2), self._known.get(number)
        if prepared is None or place >= prepared.count:
            return
        if sum(map(len, prepared.long_data.values())) <= MOST_LONG_BYTES:  # what is above is refused with the statement
            prepared.long_data.setdefault(place, bytearray()).extend(payload[7:])

    def reset(self, payload: bytes) -> None:
        self._of(Fields(payload[1:]).number(4)).long_data.clear()

    def bound(self, payload: bytes) -> tuple[bytes, list[Parameter]]:
        """The text and the values of its parameters. Raises StatementError; ProtocolError for what is no packet."""
        fields = Fields(payload[1:])
        prepared = self._of(fields.number(4))
        fields.take(5)
        if not prepared.count:
            return prepared.text, []
        nulls, sizes = fields.take((prepared.count + 7) // 8), sum(map(len, prepared.long_data.values()))
        if fields.number(1):
            prepared.types = [fields.number(2) for _ in range(prepared.count)]
        if len(prepared.types) != prepared.count or sizes > MOST_LONG_BYTES:
            raise StatementError(1210, "Incorrect arguments to EXECUTE")
        values = list[Parameter]()
        for place, kind in enumerate(prepared.types):
            if place in prepared.long_data:
                content = bytes(prepared.long_data[place])
                values.append(content if kind & 0xFF in _BLOBS else _text(content))
            elif nulls[place // 8] >> place % 8 & 1:
                values.append(None)
            else:
                values.append(_value(fields, kind))
        return prepared.text, values

    def _of(self, number: int) -> _Prepared:
        found = self._known.get(number)
        if found is None:
            raise StatementError(1243, f"Unknown prepared statement handler ({number}) given to EXECUTE")
        return found


def _value(fields: Fields, kind: int) -> Parameter:
    code, is_unsigned = kind & 0xFF, bool(kind & _UNSIGNED)
    if code in _WHOLE:
        number = int.from_bytes(fields.take(_WHOLE[code]), "little", signed=not is_unsigned)
        return Unsigned(number) if is_unsigned else number
    if code in _FLOATS:
        form = _FLOATS[code]
        return struct.unpack(form, fields.take(struct.calcsize(form)))[0]
    if code == _NULL:
        return None
    if code in _MOMENTS:
        return _moment(fields.take(fields.number(1)), is_date=code == _DATE)
    if code in _DECIMALS:
        try:
            return Decimal(_text(fields.length_encoded()))
        except InvalidOperation as error:
            raise StatementError(1210, "Incorrect arguments to EXECUTE: a decimal") from error
    if code in _BLOBS:
        return fields.length_encoded()
    if code in _TEXTS:
        return _text(fields.length_encoded())
    raise StatementError(1210, f"Incorrect arguments to EXECUTE: a parameter of type {code}")


def _moment(content: bytes, *, is_date: bool) -> date | datetime:
    """What is 0 at the end may be left out."""
    try:
        if is_date:
            return date(*struct.unpack("<HBB", content[:4]))
        form = {4: "<HBB", 7: "<HBBBBB"}.get(len(content), "<HBBBBBI")
        return datetime(*struct.unpack(form, content))
    except (ValueError, struct.error) as error:
        raise StatementError(1210, "Incorrect arguments to EXECUTE: a time") from error


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise StatementError(1210, "Incorrect arguments to EXECUTE: text that is not UTF-8") from error


def binary_row_of(columns: Sequence[ResultColumn], cells: Sequence[Cell]) -> bytes:
    nulls, parts = bytearray((len(columns) + 9) // 8), list[bytes]()
    for place, (column, cell) in enumerate(zip(columns, cells, strict=True), 2):
        if cell is None:
            nulls[place // 8] |= 1 << place % 8
        elif column.type in _FORMS:
            parts.append(struct.pack(_FORMS[column.type], int(str(cell))))
        else:
            content = (
                encoded(cell) if isinstance(cell, str) else encoded(str(cell)) if isinstance(cell, int) else bytes(cell)
            )
            parts += [length_prefix(len(content)), content]
    return b"\0" + bytes(nulls) + b"".join(parts)
