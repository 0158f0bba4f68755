"""Filters on the rows of a table: how they are written, checked against its columns, and applied to decoded rows.

A filter compares one column with values of the caller; a row is wanted if all filters are true of it. What a comparison
means: a null satisfies `is null` and nothing else, and a zero date (`0000-00-00`) counts as null. Numbers, dates and
times are compared exactly, whatever digits the value has more than the column. Floats follow IEEE 754: `!=` is the only
comparison that is true of a NaN. Texts and bytes are compared byte by byte as they are stored (UTF-8, so letter case
counts); enums and sets by their labels, json as it is printed. A decimal of more than 38 digits is text here: it has no
order.

`ccpr.mirror.pruning` finds out from the same filters which objects and blocks need not be read.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.base.wording import meant
from ccpr.matrixone.objects.convert import without_zero_dates
from ccpr.matrixone.objects.invalid_text import original, stored_bytes
from ccpr.matrixone.objects.types import ZERO_DATE_TYPES, arrow_type, is_decimal_text
from ccpr.matrixone.schema import Column, Table
from ccpr.mirror.errors import BadFilter

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
FilterTuple = tuple[str, str] | tuple[str, str, Any]

_OPERATORS: Mapping[str, str] = {"==": "=", "<>": "!=", **{name: name for name in get_args(Operator)}}
_FUNCTIONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_LONGEST_EXPONENT = 200  # of a decimal that is compared exactly; 10**exponent is computed
_EXACT = Context(prec=80)
_DIGITS_OF_64 = 18
_EPOCH = datetime(1970, 1, 1)
_UTC_EPOCH = _EPOCH.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Compare:
    """`column operator value`. Values as Arrow's `as_py` gives them: int, Decimal, str, bytes, date, datetime (of a
    timestamp with a zone, of a datetime without), timedelta.
    """

    column: str
    operator: Operator
    value: Any


@dataclass(frozen=True, slots=True)
class IsIn:
    """`column IN values`; values as in `Compare`."""

    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class IsNotIn:
    """`column NOT IN values`; values as in `Compare`."""

    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str


@dataclass(frozen=True, slots=True)
class IsNotNull:
    column: str


Filter = Compare | IsIn | IsNotIn | IsNull | IsNotNull


# ---- as they are written


def parse_filters(filters: Iterable[FilterTuple | Filter] | None) -> tuple[Filter, ...]:
    """Tuples `(column, operator[, value])` as values; what is a value already is kept. None = no filter.

    Operators are = == != <> < <= > >=, `in`, `not in` (values: any iterable but a text) and, without a value,
    `is null`, `is not null`; letter case does not count. Values of numpy and Arrow become Python's. Raises BadFilter.
    """
    if filters is None:
        return ()
    if isinstance(filters, str | bytes | Mapping) or not isinstance(filters, Iterable):
        raise BadFilter(f"filters are a list of tuples, not {type(filters).__name__}", subject="filters")
    written = list(filters)
    if written and isinstance(written[0], str):
        raise BadFilter(
            "filters are a list of tuples, not one tuple",
            subject=f"filter {filters!r:.200}",
            remedy='Write filters=[("column", "operator", value)].',
        )
    return tuple(_parsed(one) for one in written)


def _parsed(written: FilterTuple | Filter) -> Filter:
    if isinstance(written, Filter):
        return written
    subject = f"filter {written!r:.200}"
    if not isinstance(written, tuple | list) or len(written) not in (2, 3):
        raise BadFilter("a filter has two or three parts: column, operator, value", subject=subject)
    column, operator, *values = written
    if not isinstance(column, str) or not isinstance(operator, str):
        raise BadFilter("the column and the operator of a filter are texts", subject=subject)
    name = re.sub(r"\s+", " ", operator.strip().lower())
    if name in ("is null", "is not null"):
        if values:
            raise BadFilter(f"{name} takes no value", subject=subject)
        return IsNull(column) if name == "is null" else IsNotNull(column)
    if name not in ("in", "not in", *_OPERATORS):
        raise BadFilter(f"there is no operator {operator!r:.40}", subject=subject)
    if not values:
        raise BadFilter(f"{name} needs a value", subject=subject)
    if name in ("in", "not in"):
        listed = values[0]
        if isinstance(listed, str | bytes | bytearray) or not isinstance(listed, Iterable):
            raise BadFilter(f"{name} takes a list of values, not {type(listed).__name__}", subject=subject)
        plain = tuple(_plain(value) for value in listed)
        return IsIn(column, plain) if name == "in" else IsNotIn(column, plain)
    return Compare(column, _OPERATORS[name], _plain(values[0]))  # pyright: ignore[reportArgumentType]


def _plain(value: Any) -> Any:
    """A value of numpy or Arrow as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    return value.as_py() if isinstance(value, pa.Scalar) else value


# ---- values against columns


@dataclass(frozen=True, slots=True)
class _Form:
    """How the values of a column are compared.

    Attributes
    ----------
    accepts : what a value has to be, for people.
    convert : the value as it is compared; None if it is of another type.
    ordered : whether < and > mean anything.
    whole : values are whole numbers of some unit; what they are compared with may be a fraction of it.
    """

    accepts: str
    convert: Callable[[Any], Any]
    ordered: bool = True
    whole: bool = False


def value_of(column: Column, value: Any) -> Any:
    """A value in the unit in which the column's are compared; None if it is of another type.

    Numbers: int or Fraction, of a decimal in units of its last digit. Dates: days since 1970. Times: microseconds, of
    dates with a time since 1970. Of texts the stored bytes. Else float, bool or bytes.
    """
    form = _form_of(column)
    return None if form is None else form.convert(value)


def _form_of(column: Column) -> _Form | None:
    """None for a column that cannot be compared."""
    kind = arrow_type(column)
    if pa.types.is_integer(kind):
        return _Form("an int or a Decimal", lambda value: _number(value, 0), whole=True)
    if pa.types.is_decimal(kind):
        return _Form("an int or a Decimal", lambda value: _number(value, kind.scale), whole=True)
    if pa.types.is_timestamp(kind):
        return _ZONED if kind.tz else _UNZONED
    if is_decimal_text(column):
        return _DIGITS
    found = [form for test, form in _FORMS if test(kind)]
    return found[0] if found else None


def _number(value: Any, scale: int) -> int | Fraction | None:
    """In units of 10^-scale, exactly."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if isinstance(value, Decimal) and (
        not value.is_finite() or abs(value.adjusted()) + len(value.as_tuple().digits) > _LONGEST_EXPONENT
    ):
        return None
    scaled = Fraction(value) * 10**scale
    return scaled.numerator if scaled.denominator == 1 else scaled


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an int beyond the largest float
        return None


def _text(value: Any) -> bytes | None:
    """Its bytes as they are stored: a text with escapes stands for bytes that are not UTF-8."""
    if not isinstance(value, str):
        return None
    try:
        return original(value)
    except UnicodeEncodeError:  # half of a surrogate pair
        return None


def _bytes(value: Any) -> bytes | None:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def _date(value: Any) -> int | None:
    plain = isinstance(value, date) and not isinstance(value, datetime)
    return value.toordinal() - _EPOCH.toordinal() if plain else None


def _datetime(value: Any) -> int | None:
    if not isinstance(value, datetime) or value != value or value.tzinfo is not None:  # pandas' NaT
        return None
    return (value - _EPOCH) // _MICROSECOND


def _timestamp(value: Any) -> int | None:
    if not isinstance(value, datetime) or value != value or value.utcoffset() is None:
        return None
    return (value - _UTC_EPOCH) // _MICROSECOND


def _duration(value: Any) -> int | None:
    return value // _MICROSECOND if isinstance(value, timedelta) and value == value else None


_ZONED = _Form("a datetime with a zone", _timestamp, whole=True)
_UNZONED = _Form("a datetime without a zone", _datetime, whole=True)
_DIGITS = _Form("a str with all digits (a decimal of more than 38 digits is text)", _text, ordered=False)
_FORMS: Sequence[tuple[Callable[[pa.DataType], bool], _Form]] = (
    (pa.types.is_boolean, _Form("a bool", lambda value: value if isinstance(value, bool) else None)),
    (pa.types.is_floating, _Form("a float or an int", _float)),
    (pa.types.is_string, _Form("a str", _text)),
    (pa.types.is_binary, _Form("bytes", _bytes)),
    (pa.types.is_fixed_size_binary, _Form("bytes", _bytes)),
    (pa.types.is_date32, _Form("a date", _date, whole=True)),
    (pa.types.is_duration, _Form("a timedelta", _duration, whole=True)),
)


# ---- applied to rows


@dataclass(frozen=True, slots=True)
class ColumnCondition:
    """A filter that was checked against a table. `mask` is bool, without nulls, one a value."""

    column: Column
    mask: Callable[[pa.Array], pa.Array]


def conditions(filters: Iterable[Filter], table: Table) -> tuple[ColumnCondition, ...]:
    """Raises BadFilter, which names the column, for one that the table does not have (hidden ones count) and for a
    value that it cannot be compared with."""
    by_name = {column.name: column for column in table.columns}
    tests = []
    for filter_ in filters:
        subject = f"column {filter_.column} of table {table.qualified_name}"
        if filter_.column not in by_name:
            raise BadFilter(
                f"the table has no column {filter_.column}",
                subject=subject,
                remedy=meant(filter_.column, (column.name for column in table.user_columns), "columns"),
            )
        column = by_name[filter_.column]
        tests.append(ColumnCondition(column, _mask_of(filter_, column, subject)))
    return tuple(tests)


def mask_of(tests: Sequence[ColumnCondition], values: Callable[[Column], pa.Array]) -> pa.BooleanArray:
    """bool, without nulls, one a row: which satisfy all of some conditions. `values` gives a column's."""
    mask = tests[0].mask(_filtered(values(tests[0].column), tests[0].column))
    for test in tests[1:]:
        if not mask.true_count:
            break
        mask = pc.and_(mask, test.mask(_filtered(values(test.column), test.column)))
    return mask


def _filtered(values: pa.Array, column: Column) -> pa.Array:
    return without_zero_dates(values) if column.type.oid in ZERO_DATE_TYPES else values


def _mask_of(filter_: Filter, column: Column, subject: str) -> Callable[[pa.Array], pa.Array]:
    match filter_:
        case IsNull():
            return pc.is_null
        case IsNotNull():
            return pc.is_valid
    form = _form_of(column)
    if form is None:
        message = f"a column of {arrow_type(column)} cannot be compared"
        raise BadFilter(message, subject=subject, remedy='Ask for "is null" or "is not null".')
    values = filter_.values if isinstance(filter_, IsIn | IsNotIn) else (filter_.value,)
    converted = [_converted(form, value, column, subject) for value in values]
    if isinstance(filter_, Compare):
        if not form.ordered and filter_.operator not in ("=", "!="):
            message = "a decimal of more than 38 digits is text here, and its order is not that of the numbers"
            remedy = "Read the column, and compare it after a cast to decimal256."
            raise BadFilter(message, subject=subject, remedy=remedy)
        return _comparison(filter_.operator, converted[0], form, column)
    return _membership(converted, form, column, negated=isinstance(filter_, IsNotIn))


def _converted(form: _Form, value: Any, column: Column, subject: str) -> Any:
    if value is None:
        remedy = 'Write ("column", "is null") or ("column", "is not null"): a null satisfies nothing else.'
        raise BadFilter("a column cannot be compared with None", subject=subject, remedy=remedy)
    converted = form.convert(value)
    if converted is None:
        message = f"{type(value).__name__} {value!r:.80} cannot be compared with a column of {arrow_type(column)}"
        raise BadFilter(message, subject=subject, remedy=f"Give {form.accepts}.")
    return converted


def _comparison(operator: Operator, value: Any, form: _Form, column: Column) -> Callable[[pa.Array], pa.Array]:
    kind = arrow_type(column)
    if form.whole:
        bound = _whole_bound(operator, value, *_limits(kind))
        if isinstance(bound, bool):
            return pc.is_valid if bound else _none
        value = _whole(bound, kind)
    scalar = pa.scalar(value, _compared_type(kind))
    compare = _FUNCTIONS[operator]

    def mask(values: pa.Array) -> pa.Array:
        found = compare(_compared(values), scalar)
        return pc.fill_null(found, False) if found.null_count else found

    return mask


def _membership(values: Sequence[Any], form: _Form, column: Column, *, negated: bool) -> Callable[[pa.Array], pa.Array]:
    kind = arrow_type(column)
    if form.whole:
        low, high = _limits(kind)
        whole = [value for value in values if isinstance(value, int) and low <= value <= high]
        wanted = pa.array([_whole(value, kind) for value in whole], _compared_type(kind))
    elif pa.types.is_floating(kind):
        numbers = [value for value in values if value == value]  # nothing is equal to a NaN
        wanted = pa.array([*numbers, *(-value for value in numbers if value == 0)], pa.float64())
    else:
        wanted = pa.array(values, _compared_type(kind))
    if not negated:
        return lambda values: pc.is_in(_compared(values), value_set=wanted)
    return lambda values: pc.and_(pc.is_valid(values), pc.invert(pc.is_in(_compared(values), value_set=wanted)))


def _whole_bound(operator: Operator, value: int | Fraction, low: int, high: int) -> int | bool:
    """The whole number within the limits with which a whole number compares as with `value`. True or False if all or
    none do."""
    if operator in ("=", "!="):
        return int(value) if value.denominator == 1 and low <= value <= high else operator == "!="
    bound = ceil(value) if operator in ("<", ">=") else floor(value)
    if low <= bound <= high:
        return bound
    return (operator in ("<", "<=")) == (bound > high)


def _limits(kind: pa.DataType) -> tuple[int, int]:
    """Of the whole numbers that a type can hold."""
    if pa.types.is_decimal(kind):
        return -(10**kind.precision) + 1, 10**kind.precision - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


def _whole(value: int, kind: pa.DataType) -> int | Decimal:
    """A whole number of units as Arrow takes it."""
    wide = pa.types.is_decimal(kind) and not _fits_64(kind)
    return Decimal(value).scaleb(-kind.scale, _EXACT) if wide else value


def _fits_64(kind: pa.DataType) -> bool:
    """Whether it is a decimal whose units fit 64 bits: those are compared in a fourth of the time."""
    return pa.types.is_decimal128(kind) and kind.precision <= _DIGITS_OF_64


def _compared_type(kind: pa.DataType) -> pa.DataType:
    if _fits_64(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_temporal(kind):
        return pa.int32() if pa.types.is_date32(kind) else pa.int64()
    return pa.binary() if pa.types.is_fixed_size_binary(kind) or pa.types.is_string(kind) else kind


def _compared(values: pa.Array) -> pa.Array:
    kind, compared = values.type, _compared_type(values.type)
    if _fits_64(kind):
        lower = np.frombuffer(values.buffers()[1], "<i8")[2 * values.offset : 2 * (values.offset + len(values)) : 2]
        units = pa.Array.from_buffers(compared, len(values), [None, pa.py_buffer(lower.copy())])
        return pc.if_else(values.is_valid(), units, None) if values.null_count else units
    if compared == kind or pa.types.is_decimal(kind):
        return values
    if pa.types.is_string(kind):
        return stored_bytes(values)
    return values.view(compared) if pa.types.is_temporal(kind) else values.cast(compared)


def _none(values: pa.Array) -> pa.Array:
    return pa.repeat(pa.scalar(False), len(values))
