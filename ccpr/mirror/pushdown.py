"""What an expression of Arrow says about columns of a table, as filters: objects and blocks that cannot hold a row of
which it is true need not be read.

Each filter is true of each row that satisfies the expression; if they do not say all of it, Arrow applies it to the
rows. Values are compared as they are shown, and filters compare what is stored: a column whose two forms may
differ gives no filter. Source: decision filters-leave-out-blocks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.types import ZERO_DATE_TYPES, arrow_type, is_decimal_text
from ccpr.matrixone.protobuf import NotProtobuf, ProtobufMessage
from ccpr.matrixone.schema import Column, InvalidText, Reading, ZeroDates
from ccpr.mirror.filters import Compare, Filter, IsIn, IsNotNull, IsNull, Operator

# ---- the parts of an expression, as values
#
# pyarrow does not give them, but writes an expression as Substrait, a published format of protobuf
# (https://substrait.io, messages `ExtendedExpression` and `Expression`). Of that this reads columns, constants and
# calls. What is written in another way than is known here, by this release of Arrow or a later one, is `OPAQUE`,
# never something else.

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
        message = ProtobufMessage(bytes(written))
        declared = [ProtobufMessage(one) for one in message.all(2)]
        named = [one.message(3) for one in declared if one.numbers == {3}]  # the others are types
        functions = {function.number(2): function.raw(3).decode() for function in named}
        return _ExpressionReader(schema.names, functions).node(message.message(3).message(1))
    except (NotProtobuf, UnicodeDecodeError):
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


@dataclass(frozen=True, slots=True)
class _ExpressionReader:
    names: Sequence[str]
    functions: Mapping[int, str]

    def node(self, message: ProtobufMessage) -> Node:
        (kind,) = message.numbers if len(message.numbers) == 1 else (0,)
        read = {1: _literal, 2: self._column, 3: self._function, 6: self._if, 8: self._one_of}.get(kind)
        return OPAQUE if read is None else read(message.message(kind))

    def _column(self, message: ProtobufMessage) -> Node:
        reference = message.message(1)  # from the root, which is the row
        place = reference.message(2)
        if message.numbers != {1, 4} or reference.numbers != {2} or not place.numbers <= {1}:
            return OPAQUE
        return ColumnOf(self.names[place.number(1)]) if place.number(1) < len(self.names) else OPAQUE

    def _function(self, message: ProtobufMessage) -> Node:
        function = self.functions.get(message.number(1))
        if function is None or not message.numbers <= {1, 3, 4}:  # options would change what it does
            return OPAQUE
        arguments = [ProtobufMessage(argument) for argument in message.all(4)]
        return Call(function, tuple(self.node(one.message(3)) for one in arguments))

    def _if(self, message: ProtobufMessage) -> Node:
        clauses = message.all(1)
        if len(clauses) != 1 or message.numbers != {1, 2}:
            return OPAQUE
        clause = ProtobufMessage(clauses[0])
        return Call("if", (self.node(clause.message(1)), self.node(clause.message(2)), self.node(message.message(2))))

    def _one_of(self, message: ProtobufMessage) -> Node:
        if not message.numbers <= {1, 2}:
            return OPAQUE
        options = tuple(self.node(ProtobufMessage(option)) for option in message.all(2))
        return Call("in", (self.node(message.message(1)), *options))


def _literal(message: ProtobufMessage) -> Node:
    kinds = message.numbers - {50}  # whether the type has nulls
    (kind,) = kinds if len(kinds) == 1 else (0,)
    read = _LITERALS.get(kind)
    try:
        return OPAQUE if read is None else Constant(read(message, kind))
    except (OverflowError, ValueError):  # a time that Python does not have
        return OPAQUE


def _decimal(message: ProtobufMessage, kind: int) -> Decimal:
    decimal = message.message(kind)
    unscaled = int.from_bytes(decimal.raw(1), "little", signed=True)
    return Decimal(unscaled).scaleb(-decimal.number(3), _EXACT)


def _datetime(message: ProtobufMessage, kind: int) -> datetime:
    return _EPOCH + timedelta(microseconds=message.signed(kind))


_LITERALS: Mapping[int, Callable[[ProtobufMessage, int], Any]] = MappingProxyType(
    {
        1: lambda message, kind: bool(message.number(kind)),
        **dict.fromkeys((2, 3, 5, 7), ProtobufMessage.signed),
        12: lambda message, kind: message.raw(kind).decode(),
        13: ProtobufMessage.raw,
        14: _datetime,
        16: lambda message, kind: date.fromordinal(_EPOCH.toordinal() + message.signed(kind)),
        24: _decimal,
        27: lambda message, kind: _datetime(message, kind).replace(tzinfo=UTC),
        29: lambda message, kind: None,
    }
)


# ---- the filters

_OPERATORS: Mapping[str, Operator] = {
    "equal": "=",
    "not_equal": "!=",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
}
# What a constant has to be, so that it compares with shown values as with stored ones. A text that is not UTF-8 is
# shown otherwise than it is stored, but the first such byte, and what is shown of it, is above all of ASCII.
_COMPARED: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], bool]]] = (
    (pa.types.is_integer, lambda value: type(value) is int),
    (pa.types.is_decimal, lambda value: type(value) is Decimal),
    (pa.types.is_date32, lambda value: type(value) is date),
    (pa.types.is_timestamp, lambda value: type(value) is datetime),
    (pa.types.is_string, lambda value: type(value) is str and value.isascii()),
    (pa.types.is_binary, lambda value: type(value) is bytes),
)


def implied_filters(node: Node, columns: Sequence[Column], reading: Reading) -> tuple[Filter, ...]:
    """`columns` are those of the table that are shown."""
    shown = {column.name: column for column in columns if _shown_as_stored(column, reading)}
    return tuple(found for part in _conjuncts(node) if (found := _filter(part, shown)) is not None)


def say_all(filters: Sequence[Filter], node: Node) -> bool:
    """Whether each row that satisfies the filters implied by an expression satisfies the expression."""
    parts = list(_conjuncts(node))
    return len(filters) == len(parts) and all(map(_is_one_test, parts))


def _is_one_test(node: Node) -> bool:
    """Whether a filter that is made of it says all that it says."""
    match node:
        case Call("or", arguments):
            return all(map(_is_one_test, arguments))
        case Call(function):
            return function in _OPERATORS or function in ("in", "is_null", "is_not_null")
    return False


def _conjuncts(node: Node) -> Iterator[Node]:
    """What is true where the node is."""
    match node:
        case Call("and", arguments):
            for argument in arguments:
                yield from _conjuncts(argument)
        case Call("if", (condition, then, Constant(None | False))):
            yield from _conjuncts(condition)
            yield from _conjuncts(then)
        case _:
            yield node


def _filter(node: Node, columns: Mapping[str, Column]) -> Filter | None:
    match node:
        case Call("is_null", (ColumnOf(name),)) if name in columns:
            return IsNull(name)
        case Call("is_not_null", (ColumnOf(name),)) if name in columns:
            return IsNotNull(name)
        case Call(function, (ColumnOf(name), Constant(value))) if function in _OPERATORS:
            known = name in columns and _compares(value, columns[name])
            return Compare(name, _OPERATORS[function], value) if known else None
        case Call("in" | "or"):
            found = _membership(node)
            if found is None or found.column not in columns:
                return None
            return found if all(_compares(value, columns[found.column]) for value in found.values) else None
    return None


def _membership(node: Node) -> IsIn | None:
    """One column is one of some values."""
    match node:
        case Call("equal", (ColumnOf(name), Constant(value))):
            return IsIn(name, (value,))
        case Call("in", (ColumnOf(name), *options)):
            values = tuple(option.value for option in options if isinstance(option, Constant))
            return IsIn(name, values) if len(values) == len(options) else None
        case Call("if", (_, then, Constant(None | False))):
            return _membership(then)
        case Call("or", arguments):
            found = [part for part in map(_membership, arguments) if part is not None]
            if len(found) == len(arguments) and len({part.column for part in found}) == 1:
                return IsIn(found[0].column, tuple(value for part in found for value in part.values))
    return None


def _shown_as_stored(column: Column, reading: Reading) -> bool:
    """Whether filters are true of the same values as they are shown."""
    if column.type.oid in ZERO_DATE_TYPES:
        return reading.zero_dates is ZeroDates.NULL
    if pa.types.is_string(arrow_type(column)):
        return reading.invalid_text is not InvalidText.BINARY and not is_decimal_text(column)
    return True


def _compares(value: Any, column: Column) -> bool:
    kind = arrow_type(column)
    return any(of_kind(kind) and fits(value) for of_kind, fits in _COMPARED)
