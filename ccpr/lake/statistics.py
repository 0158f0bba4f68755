"""What the log says of the values in a file, made of the statistics that its Parquet footer has.

Bounds are of all rows that were written, visible or not: they exclude nothing that is there. Left out are floats, whose
statistics pass over NaN, decimals that JSON readers round, long texts, and times outside the calendar. Source: the
protocol of Delta Lake, "Per-file Statistics"; decision lake-statistics.
"""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MOST_COLUMNS = 32  # as Delta Lake has it: the log of a wide table would be larger than its changes
_TEXT_BYTES = 32
_EXACT = 10**15  # of so many digits a float of 64 bits, for which readers may take a number, has each number
_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS = 1_000


def statistics_of(footer: pq.FileMetaData, schema: pa.Schema) -> dict[str, Any]:
    """`stats` of an `add`, for a file with this schema."""
    found: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for number, field in enumerate(_flat(schema)):
        groups = [footer.row_group(group).column(number).statistics for group in range(footer.num_row_groups)]
        if field is None or not all(group is not None and group.has_null_count for group in groups):
            continue
        found["nullCount"][field.name] = sum(group.null_count for group in groups)
        bounds = _bounds(field.type, groups)
        if bounds is not None:
            found["minValues"][field.name], found["maxValues"][field.name] = bounds
    return {**found, "tightBounds": False}


def stats_text(found: dict[str, Any]) -> str:
    """As an `add` has it. Letters are not escaped: Arrow's reader of JSON takes those beyond U+1FFFF for others, and
    the engines that use it then leave out files."""
    return json.dumps(found, ensure_ascii=False)


def mended_stats(text: str, schema: pa.Schema) -> str:
    """`stats` of a former release, whose bounds of decimals could be rounded inwards, and whose letters were
    escaped."""
    found = json.loads(text)
    for field in schema:
        ends = [found[key].get(field.name) for key in ("minValues", "maxValues")]
        if pa.types.is_decimal(field.type) and any(
            isinstance(end, float) and abs(Decimal(repr(end)).scaleb(field.type.scale)) >= _EXACT for end in ends
        ):
            for key in ("minValues", "maxValues"):
                found[key].pop(field.name, None)
    return stats_text(found)


def _flat(schema: pa.Schema) -> list[pa.Field | None]:
    """The first columns of the file; None for a list, which has a column of its own there."""
    return [None if pa.types.is_nested(field.type) else field for field in schema][:MOST_COLUMNS]


def _bounds(kind: pa.DataType, groups: list[pq.Statistics]) -> tuple[Any, Any] | None:
    shown = _shown(kind)
    with_values = [group for group in groups if group.num_values]
    if shown is None or not with_values or not all(group.has_min_max for group in with_values):
        return None
    low = min(group.min_raw for group in with_values)
    high = max(group.max_raw for group in with_values)
    ends = shown(low, False), shown(high, True)
    return None if None in ends else ends


def _shown(kind: pa.DataType) -> Callable[[Any, bool], Any] | None:
    if pa.types.is_integer(kind):
        return lambda value, _: value
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_timestamp(kind):
        return _zoned if kind.tz else _local
    if pa.types.is_decimal(kind) and kind.precision <= 18:
        return _decimal(kind.scale)
    return _text if pa.types.is_string(kind) else None


def _date(days: int, _: bool) -> str | None:
    try:
        return (_EPOCH_DAY + timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def _instant(micros: int, is_high: bool) -> datetime | None:
    """To the millisecond, as some readers have it; the greatest one rounded up."""
    micros = -(-micros // _MICROS) * _MICROS if is_high else micros // _MICROS * _MICROS
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


def _zoned(micros: int, is_high: bool) -> str | None:
    found = _instant(micros, is_high)
    return None if found is None else found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _local(micros: int, is_high: bool) -> str | None:
    found = _instant(micros, is_high)
    return None if found is None else found.replace(tzinfo=None).isoformat(timespec="milliseconds")


def _decimal(scale: int) -> Callable[[Any, bool], Any]:
    def shown(value: Any, _: bool) -> float | int | None:
        if not isinstance(value, int) or abs(value) >= _EXACT:
            return None
        exact = Decimal(value).scaleb(-scale)
        return float(exact) if scale else int(exact)

    return shown


def _text(raw: bytes, _: bool) -> str | None:
    return raw.decode() if len(raw) <= _TEXT_BYTES else None
