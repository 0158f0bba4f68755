"""Comparison of decoded rows with rows as a server sent them over the MySQL text protocol.

`expected` holds binary columns with the text bytes of each value, and `mysql_types` in its schema's metadata. `actual`
is turned into the same text, column by column and without a loop over rows; then both are compared as multisets of
rows. Two things determine the text and are not in Arrow: how many bytes a bit column has, and how many fraction digits
a time type has. They are taken from the expected texts; a wrong guess shows as a difference.
"""

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MYSQL_BIT, MYSQL_DATETIME = 16, 12
_ZERO_DAY, _ZERO_MICROSECOND = -719_163, -62_135_596_800_000_001  # before 0001-01-01, as `0000-00-00` is stored
_ARROW_PLAIN_LOW, _ARROW_PLAIN_HIGH = 1e-6, 1e10


def assert_rows_equal(actual: pa.Table, expected: pa.Table) -> None:
    """Fail unless both have the same rows, equally often, in any order, and columns of the same names in the same
    order."""
    assert actual.column_names == expected.column_names
    assert actual.num_rows == expected.num_rows, f"{actual.num_rows} rows instead of {expected.num_rows}"
    ours, theirs = _rows(as_text(actual, expected)), _rows(expected)
    if ours.equals(theirs):
        return
    surplus, missing = _difference(ours, theirs), _difference(theirs, ours)
    raise AssertionError(f"{len(surplus)} rows differ, for example\n  read     {surplus[:3]}\n  expected {missing[:3]}")


def as_text(actual: pa.Table, expected: pa.Table) -> pa.Table:
    """`actual` as binary columns of text bytes, in the form in which `expected` has them."""
    metadata = expected.schema.metadata or {}
    kinds = json.loads(metadata.get(b"mysql_types", b"null")) or [None] * expected.num_columns
    columns = [
        _column(ours.combine_chunks(), theirs.combine_chunks(), kind)
        for ours, theirs, kind in zip(actual.columns, expected.columns, kinds, strict=True)
    ]
    return pa.table(columns, names=actual.column_names)


def _rows(table: pa.Table) -> pa.Array:
    """Each row as one binary value (every cell after its length, nulls marked), sorted."""
    parts: list[pa.Array] = []
    for column in table.columns:
        cells = column.combine_chunks().cast(pa.binary())
        mark = pc.fill_null(pc.binary_join_element_wise(pc.binary_length(cells).cast(pa.string()), ":", ""), "-").cast(
            pa.binary()
        )
        parts += [mark, pc.fill_null(cells, b"")]
    if not parts:
        return pa.nulls(table.num_rows)
    rows = pc.binary_join_element_wise(*parts, b"")
    return rows.take(pc.array_sort_indices(rows))


def _difference(left: pa.Array, right: pa.Array) -> list[bytes]:
    counts: dict[bytes, int] = {}
    for row in right.to_pylist():
        counts[row] = counts.get(row, 0) + 1
    surplus = []
    for row in left.to_pylist():
        counts[row] = counts.get(row, 0) - 1
        if counts[row] < 0:
            surplus.append(row)
    return surplus


def _column(values: pa.Array, expected: pa.Array, kind: int | None) -> pa.Array:
    type_ = values.type
    if pa.types.is_boolean(type_):
        text = pc.if_else(values, "1", "0")
    elif kind == MYSQL_BIT:
        return _bits(values, expected)
    elif pa.types.is_decimal(type_):
        text = _decimals(values)
    elif pa.types.is_floating(type_):
        text = _floats(values)
    elif pa.types.is_list(type_):
        text = _lists(values)
    elif pa.types.is_duration(type_):
        text = _durations(values, _fraction_digits(expected))
    elif pa.types.is_timestamp(type_):
        text = _timestamps(values, _fraction_digits(expected), kind)
    elif pa.types.is_date32(type_):
        text = pc.if_else(pc.equal(values.view(pa.int32()), _ZERO_DAY), "0000-00-00", values.cast(pa.string()))
    else:  # integers, texts, bytes
        text = values.cast(pa.string()) if not pa.types.is_binary(type_) else values
    return text.cast(pa.binary())


def _bits(values: pa.Array, expected: pa.Array) -> pa.Array:
    """Big-endian, in as many bytes as the column's width needs."""
    width = pc.max(pc.binary_length(expected)).as_py() or 8
    numbers = np.array([0 if value is None else int(value) for value in values.to_pylist()], ">u8")
    cells = np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, 8)[:, 8 - width :])
    texts = pa.Array.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(cells)]).cast(pa.binary())
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.binary()))


def _decimals(values: pa.Array) -> pa.Array:
    scale = values.type.scale
    digits = values.cast(pa.decimal256(76, scale)).view(pa.decimal256(76, 0)).cast(pa.string())
    if scale == 0:
        return digits
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    return pc.binary_join_element_wise(
        sign, pc.utf8_slice_codeunits(digits, 0, -scale), ".", pc.utf8_slice_codeunits(digits, -scale), ""
    )


def _floats(values: pa.Array) -> pa.Array:
    """Shortest digits that read back equal, never an exponent."""
    text = values.cast(pa.string())
    size = pc.abs(values)
    odd = pc.or_(
        pc.greater_equal(size, _ARROW_PLAIN_HIGH), pc.and_(pc.less(size, _ARROW_PLAIN_LOW), pc.not_equal(size, 0))
    )
    odd = pc.fill_null(odd, False)
    plain = [format(Decimal(digits), "f").removesuffix(".0") for digits in text.filter(odd).to_pylist()]
    return pc.replace_with_mask(text, odd, pa.array(plain, pa.string()))


def _lists(values: pa.Array) -> pa.Array:
    texts = pa.ListArray.from_arrays(
        values.offsets, _floats(values.values), mask=values.is_null() if values.null_count else None
    )
    return pc.binary_join_element_wise("[", pc.binary_join(texts, ", "), "]", "")


def _fraction_digits(expected: pa.Array) -> int:
    """Digits after the point in the expected texts. The longest counts, because the server omits the fraction of a
    datetime(n) if it is all zero."""
    dots = pc.max(pc.find_substring(expected, ".")).as_py()
    if dots is None or dots < 0:
        return 0
    with_dot = expected.filter(pc.fill_null(pc.match_substring(expected, "."), False))
    return pc.max(pc.subtract(pc.binary_length(with_dot), pc.add(pc.find_substring(with_dot, "."), 1))).as_py()


def _fraction(microseconds: pa.Array, digits: int) -> pa.Array:
    """`.` and the digits. If a digit that is cut off is not zero, all six are shown: else the text would hide a
    difference."""
    shown = pc.utf8_lpad(microseconds.cast(pa.string()), 6, "0")
    cut = pc.utf8_slice_codeunits(shown, 0, digits) if digits else pc.utf8_slice_codeunits(shown, 0, 0)
    lost = pc.not_equal(pc.utf8_rtrim(pc.utf8_slice_codeunits(shown, digits), "0"), "")
    return pc.if_else(
        lost, pc.binary_join_element_wise(".", shown, ""), pc.binary_join_element_wise("." if digits else "", cut, "")
    )


def _durations(values: pa.Array, digits: int) -> pa.Array:
    count = values.cast(pa.int64())
    size = pc.abs(count)
    seconds, rest = pc.divide(size, 1_000_000), pc.subtract(size, pc.multiply(pc.divide(size, 1_000_000), 1_000_000))
    minutes, hours = pc.divide(seconds, 60), pc.divide(seconds, 3600)
    parts = [hours, pc.subtract(minutes, pc.multiply(hours, 60)), pc.subtract(seconds, pc.multiply(minutes, 60))]
    clock = pc.binary_join_element_wise(*(pc.utf8_lpad(part.cast(pa.string()), 2, "0") for part in parts), ":")
    return pc.binary_join_element_wise(pc.if_else(pc.less(count, 0), "-", ""), clock, _fraction(rest, digits), "")


def _timestamps(values: pa.Array, digits: int, kind: int | None) -> pa.Array:
    # 0001-01-01 00:00:00.000000, with Z at its end if the type has a zone
    text = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.string())
    clock = pc.utf8_slice_codeunits(text, 0, 19)
    rest = pc.utf8_slice_codeunits(text, 20, 26).cast(pa.int64())
    fraction = _fraction(rest, digits)
    if kind == MYSQL_DATETIME:
        fraction = pc.if_else(pc.equal(rest, 0), "", fraction)
    zero = pc.equal(values.cast(pa.int64()), _ZERO_MICROSECOND)
    point = "." + "0" * digits if digits and kind != MYSQL_DATETIME else ""
    return pc.if_else(zero, "0000-00-00 00:00:00" + point, pc.binary_join_element_wise(clock, fraction, ""))
