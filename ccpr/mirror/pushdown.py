"""What an expression of Arrow says about columns of a table, as filters: objects and blocks that cannot hold a row of
which it is true need not be read.

Each filter is true of each row that satisfies the expression; if they do not say all of it, Arrow applies it to the
rows. Values are compared as they are shown, and filters compare what is stored: a column whose two forms may
differ gives no filter. Source: decision filters-leave-out-blocks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ccpr.matrixone.objects.types import ZERO_DATE_TYPES, arrow_type, is_decimal_text
from ccpr.matrixone.schema import Column, InvalidText, Reading, ZeroDates
from ccpr.mirror.expressions import Call, ColumnOf, Constant, Node
from ccpr.mirror.filters import Compare, Filter, IsIn, IsNotNull, IsNull, Operator

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
        return reading.invalid_text in (InvalidText.ESCAPE, InvalidText.REPLACE) and not is_decimal_text(column)
    return True


def _compares(value: Any, column: Column) -> bool:
    kind = arrow_type(column)
    return any(of_kind(kind) and fits(value) for of_kind, fits in _COMPARED)
