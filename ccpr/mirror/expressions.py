"""The parts of an expression of Arrow, as values. pyarrow does not give them, but writes an expression as Substrait, a
published format of protobuf (https://substrait.io, messages `ExtendedExpression` and `Expression`). Of that this reads
columns, constants and calls.

What is written in another way than is known here, by this release of Arrow or a later one, is `OPAQUE`, never
something else. Source: decision filters-leave-out-blocks.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_EPOCH = datetime(1970, 1, 1)
_EXACT = Context(prec=80)
_NOT_WRITTEN = pa.binary()  # stands for a type that Substrait has not; what compares such a column is not written then


class Opaque(Enum):
    """What is not understood. It may name any column."""

    OPAQUE = "opaque"


OPAQUE = Opaque.OPAQUE


@dataclass(frozen=True, slots=True)
class ColumnOf:
    """A column by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """An int, Decimal, str, bytes, date, datetime (with a zone or without), bool or None."""

    value: Any


@dataclass(frozen=True, slots=True)
class Call:
    """A function by Substrait's name (`equal`, `not_equal`, `lt`, `lte`, `gt`, `gte`, `and`, `or`, `is_null`,
    `is_not_null`, …), `in` (a value, and those that it may be) or `if` (condition, then, else)."""

    function: str
    arguments: tuple["Node", ...]


Node = ColumnOf | Constant | Call | Opaque


def parts_of(expression: pc.Expression, schema: pa.Schema) -> Node:
    """`schema` is that of the rows to which the expression applies."""
    try:
        written = expression.to_substrait(pa.schema([field.with_type(_as_written(field.type)) for field in schema]))
    except (pa.ArrowException, ImportError):  # no such type or function in Substrait; a pyarrow without it
        return OPAQUE
    try:
        message = _Message(bytes(written))
        declared = [_Message(one) for one in message.all(2)]
        named = [one.message(3) for one in declared if one.numbers == {3}]  # the others are types
        functions = {function.number(2): function.raw(3).decode() for function in named}
        return _Reader(schema.names, functions).node(message.message(3).message(1))
    except (_Malformed, UnicodeDecodeError):
        return OPAQUE


def columns_of(node: Node) -> frozenset[str] | None:
    """The names of the columns; None if they are not known."""
    if isinstance(node, ColumnOf):
        return frozenset((node.name,))
    if isinstance(node, Constant):
        return frozenset()
    if isinstance(node, Opaque):
        return None
    found = [columns_of(argument) for argument in node.arguments]
    known = [names for names in found if names is not None]
    return frozenset().union(*known) if len(known) == len(found) else None


@lru_cache(maxsize=100)
def _as_written(kind: pa.DataType) -> pa.DataType:
    try:
        pc.is_valid(pc.field(0)).to_substrait(pa.schema([("c", kind)]))
    except pa.ArrowException:
        return _NOT_WRITTEN
    return kind


class _Malformed(ValueError):
    """Not a message of protobuf, or not as it is read here."""


class _Message:
    """A message of protobuf by the numbers of its fields. Source: https://protobuf.dev/programming-guides/encoding."""

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = defaultdict(list)
        place = 0
        while place < len(data):
            key, place = _varint(data, place)
            number, kind = key >> 3, key & 7
            if kind == 0:
                value, place = _varint(data, place)
            elif kind in (1, 2, 5):
                length, place = _varint(data, place) if kind == 2 else ({1: 8, 5: 4}[kind], place)
                value, place = data[place : place + length], place + length
            else:
                raise _Malformed
            self._fields[number].append(value)
        if place != len(data):
            raise _Malformed

    @property
    def numbers(self) -> set[int]:
        """Of the fields that are there."""
        return set(self._fields)

    def all(self, number: int) -> Sequence[bytes]:
        found = [value for value in self._fields.get(number, ()) if isinstance(value, bytes)]
        if len(found) != len(self._fields.get(number, ())):
            raise _Malformed
        return found

    def raw(self, number: int) -> bytes:
        """Empty if the field is not there."""
        found = self.all(number)
        if len(found) > 1:
            raise _Malformed
        return found[0] if found else b""

    def message(self, number: int) -> "_Message":
        return _Message(self.raw(number))

    def number(self, number: int) -> int:
        """Without a sign; 0 if the field is not there."""
        found = self._fields.get(number, [0])
        if len(found) != 1 or not isinstance(found[0], int):
            raise _Malformed
        return found[0]

    def signed(self, number: int) -> int:
        value = self.number(number)
        return value - (1 << 64) if value >> 63 else value


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 70:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
    raise _Malformed


@dataclass(frozen=True, slots=True)
class _Reader:
    names: Sequence[str]
    functions: Mapping[int, str]

    def node(self, message: _Message) -> Node:
        (kind,) = message.numbers if len(message.numbers) == 1 else (0,)
        read = {1: _literal, 2: self._column, 3: self._function, 6: self._if, 8: self._one_of}.get(kind)
        return OPAQUE if read is None else read(message.message(kind))

    def _column(self, message: _Message) -> Node:
        reference = message.message(1)  # from the root, which is the row
        place = reference.message(2)
        if message.numbers != {1, 4} or reference.numbers != {2} or not place.numbers <= {1}:
            return OPAQUE
        return ColumnOf(self.names[place.number(1)]) if place.number(1) < len(self.names) else OPAQUE

    def _function(self, message: _Message) -> Node:
        function = self.functions.get(message.number(1))
        if function is None or not message.numbers <= {1, 3, 4}:  # options would change what it does
            return OPAQUE
        arguments = [_Message(argument) for argument in message.all(4)]
        return Call(function, tuple(self.node(one.message(3)) for one in arguments))

    def _if(self, message: _Message) -> Node:
        clauses = message.all(1)
        if len(clauses) != 1 or message.numbers != {1, 2}:
            return OPAQUE
        clause = _Message(clauses[0])
        return Call("if", (self.node(clause.message(1)), self.node(clause.message(2)), self.node(message.message(2))))

    def _one_of(self, message: _Message) -> Node:
        if not message.numbers <= {1, 2}:
            return OPAQUE
        options = tuple(self.node(_Message(option)) for option in message.all(2))
        return Call("in", (self.node(message.message(1)), *options))


def _literal(message: _Message) -> Node:
    kinds = message.numbers - {50}  # whether the type has nulls
    (kind,) = kinds if len(kinds) == 1 else (0,)
    read = _LITERALS.get(kind)
    try:
        return OPAQUE if read is None else Constant(read(message, kind))
    except (OverflowError, ValueError):  # a time that Python does not have
        return OPAQUE


def _decimal(message: _Message, kind: int) -> Decimal:
    decimal = message.message(kind)
    unscaled = int.from_bytes(decimal.raw(1), "little", signed=True)
    return Decimal(unscaled).scaleb(-decimal.number(3), _EXACT)


def _date(message: _Message, kind: int) -> date:
    return date.fromordinal(_EPOCH.toordinal() + message.signed(kind))


def _datetime(message: _Message, kind: int) -> datetime:
    return _EPOCH + timedelta(microseconds=message.signed(kind))


_LITERALS: Mapping[int, Callable[[_Message, int], Any]] = MappingProxyType(
    {
        1: lambda message, kind: bool(message.number(kind)),
        **dict.fromkeys((2, 3, 5, 7), _Message.signed),
        12: lambda message, kind: message.raw(kind).decode(),
        13: _Message.raw,
        14: _datetime,
        16: _date,
        24: _decimal,
        27: lambda message, kind: _datetime(message, kind).replace(tzinfo=UTC),
        29: lambda message, kind: None,
    }
)
