"""Dates, moments and times of day as text, for every value that Arrow has: also for those that Python's own types have
not, and those for which Arrow's own text is wrong (years beyond 32767, zones after 2037, offsets with seconds)."""

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.base.errors import require
from ccpr.matrixone.objects.convert import is_zero_date

if TYPE_CHECKING:
    import duckdb

FIRST_DAY, DAY_AFTER_LAST = -719_528, 2_932_897  # since 1970: 0000-01-01, and the day after 9999-12-31
_SECONDS = 86_400  # of a day
_UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}  # and how many digits of a second they have
_UTC = ("UTC", "Etc/UTC", "+00:00")


def outside_calendar(values: pa.Array) -> pa.BooleanArray:
    """Which dates or moments are outside the years 0 to 9999."""
    a_day = 1 if pa.types.is_date32(values.type) else _SECONDS * 10 ** _UNITS[values.type.unit]
    stored = _stored(values)
    ends = (min(max(day * a_day, -(1 << 63)), (1 << 63) - 1) for day in (FIRST_DAY, DAY_AFTER_LAST))
    first, end = (pa.scalar(one, pa.int64()) for one in ends)
    return pc.or_(pc.less(stored, first), pc.greater_equal(stored, end))


def date_text(values: pa.Array, zero: str = "0000-00-00") -> pa.Array:
    """2026-11-21, and `zero` for the zero date."""
    return _with_words(_calendar_text(values), values, zero)


def utc_text(values: pa.Array, zero: str) -> pa.Array:
    """2026-11-21 09:30:00.000000, in UTC where they have a zone, and `zero` for the zero date."""
    return _with_words(_calendar_text(_plain(values)), values, zero)


def moment_text(values: pa.Array, between: str = "T") -> pa.Array:
    """2026-11-21T09:30:00 with the digits of the second where they are not all zero, and +01:00 behind it for moments
    of a zone. `between` date and time."""
    zone, shown, offset = values.type.tz, _plain(values), ""
    if zone in _UTC:
        offset = "+00:00"
    elif zone is not None:
        local = _local(shown, zone)
        shown, offset = local, _offset_text(pc.subtract(local.view(pa.int64()), shown.view(pa.int64())))
    text = _calendar_text(shown)
    nothing = "." + "0" * _UNITS[values.type.unit]
    whole = pc.ends_with(text, nothing)
    if len(nothing) > 1 and pc.any(whole).as_py():
        text = pc.if_else(whole, pc.utf8_slice_codeunits(text, 0, -len(nothing)), text)
    if between != " ":
        text = pc.replace_substring(text, " ", between, max_replacements=1)
    return _with_words(text if zone is None else pc.binary_join_element_wise(text, offset, ""), values, "0000-00-00")


def time_text(values: pa.Array, digits: int) -> pa.Array:
    """-838:59:59.000000 with so many digits after the point, more if they are not zero. Hours are not limited."""
    count = values.cast(pa.duration("us")).cast(pa.int64())
    signed = pc.divide(count, 1_000_000)
    seconds = pc.abs(signed)
    rest = pc.abs(pc.subtract(count, pc.multiply(signed, 1_000_000)))  # the least number itself has no size
    minutes, hours = pc.divide(seconds, 60), pc.divide(seconds, 3600)
    parts = (hours, pc.subtract(minutes, pc.multiply(hours, 60)), pc.subtract(seconds, pc.multiply(minutes, 60)))
    text = pc.binary_join_element_wise(*(pc.utf8_lpad(part.cast(pa.string()), 2, "0") for part in parts), ":")
    digits = digits if 0 <= digits <= 6 else 6
    step = 10 ** (6 - digits)
    lost = pc.not_equal(rest, pc.multiply(pc.divide(rest, step), step))
    shown = pc.binary_join_element_wise(".", pc.utf8_lpad(rest.cast(pa.string()), 6, "0"), "")
    fraction = pc.utf8_slice_codeunits(shown, 0, digits + 1) if digits else pa.scalar("")
    if pc.any(lost).as_py():
        fraction = pc.if_else(lost, shown, fraction)
    text = pc.binary_join_element_wise(text, fraction, "")
    negative = pc.less(count, 0)
    sign = pc.if_else(negative, "-", "") if pc.any(negative).as_py() else ""
    return pc.binary_join_element_wise(sign, text, "")


def _plain(values: pa.Array) -> pa.Array:
    """The same moments without a zone, as UTC shows them."""
    return values.view(pa.timestamp(values.type.unit))


def _with_words(text: pa.Array, values: pa.Array, zero: str) -> pa.Array:
    """With `zero` for the zero date, and DuckDB's infinities as it writes them."""
    if pa.types.is_date32(values.type) or values.type.unit == "us":  # no column of MatrixOne's has another unit
        text = _replaced(text, is_zero_date(values), zero)
    most = (1 << values.type.bit_width - 1) - 1
    stored = _stored(values)
    return _replaced(_replaced(text, pc.equal(stored, most), "infinity"), pc.equal(stored, -most), "-infinity")


def _stored(values: pa.Array) -> pa.Array:
    return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())


def _replaced(text: pa.Array, mask: pa.Array, word: str) -> pa.Array:
    return pc.if_else(mask, word, text) if pc.any(mask).as_py() else text


def _calendar_text(values: pa.Array) -> pa.Array:
    """Dates, or moments without a zone. Arrow's text is right for five digits of a year at most, numpy's for all."""
    if not pc.any(outside_calendar(values)).as_py():
        return values.cast(pa.string())
    text = pa.array(np.datetime_as_string(values.to_numpy(zero_copy_only=False)))
    text = pc.replace_substring_regex(pc.replace_substring(text, "T", " "), r"^-(\d{3})-", r"-0\1-")
    return pc.if_else(values.is_valid(), text, None)


@cache
def _clocks() -> "duckdb.DuckDBPyConnection":
    """Knows the zones. Arrow knows them up to 2037."""
    require("duckdb", "duckdb")
    import duckdb

    return duckdb.connect()


def _local(utc: pa.Array, zone: str) -> pa.Array:
    """What the clocks of a zone show then."""
    with _clocks().cursor() as clocks:
        clocks.register("moments", pa.table({"utc": utc.cast(pa.timestamp("us"))}))
        name = zone.replace("'", "''")
        shown = clocks.sql(f"SELECT timezone('{name}', timezone('UTC', utc)) FROM moments").to_arrow_table()
    return shown.column(0).combine_chunks().cast(utc.type)


def _offset_text(micros: pa.Array) -> pa.Array:
    """+01:00; with the seconds that offsets had before there were zones. Different ones are few."""
    few = micros.dictionary_encode()
    texts = [None if one is None else _offset(one // 1_000_000) for one in few.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(few.indices)


def _offset(seconds: int) -> str:
    minutes, rest = divmod(abs(seconds), 60)
    text = f"{'-' if seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{rest:02}" if rest else text
