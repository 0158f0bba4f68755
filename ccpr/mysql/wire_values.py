"""Rows of Arrow as packets of the MySQL protocol, text and binary, a batch at a time: no loop is over rows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.server.answers import BIGINT, BLOB_TEXT, VAR_STRING, ResultColumn, StatementError
from ccpr.matrixone.server.packets import MAX_FRAME
from ccpr.mysql.select_scope import ShownColumn
from ccpr.mysql.statement_text import refused
from ccpr.mysql.value_kinds import ROUNDED
from ccpr.values.cells import LOAD_DATA, content, plain_floats, written
from ccpr.values.times import date_text, time_text, utc_text

_BYTES = pa.large_binary()
_PLAIN = replace(LOAD_DATA, escapes=None)
_DECIMAL, _DOUBLE, _FLOAT, _DATE, _TIME, _DATETIME, _TIMESTAMP, _YEAR = 246, 5, 4, 10, 11, 12, 7, 13
_TINY, _JSON = 1, 245
_UTF8, _BINARY = 45, 63
_UNSIGNED, _BYTES_FLAGS = 32, 128 + 16  # BINARY_FLAG and BLOB_FLAG
_NAMED = {"bool": _TINY, "year": _YEAR, "float": _FLOAT, "timestamp": _TIMESTAMP, "json": _JSON, "time": _TIME}
_TYPES = {"int": BIGINT, "uint": BIGINT, "decimal": _DECIMAL, "double": _DOUBLE, "date": _DATE, "datetime": _DATETIME}
PIECE_BYTES = 4 << 20


def described(column: ShownColumn) -> ResultColumn:
    """Raises StatementRefused for a type whose form on the wire is not known here."""
    kind = column.kind
    if kind.name in ("bit", "geometry", "unknown"):
        raise refused(f"a {kind.name} column", "its form for clients is not known")
    if kind.base == "opaque" and kind.name == "quotient":
        return ResultColumn(column.name, _DECIMAL, _BINARY, decimals=kind.digits)
    if kind.base == "opaque" and kind.name == "binary":
        return ResultColumn(column.name, BLOB_TEXT, _BINARY, _BYTES_FLAGS)
    code = _NAMED.get(kind.name) or _TYPES.get(kind.base, VAR_STRING)
    if code in (BLOB_TEXT, VAR_STRING, _JSON):
        return ResultColumn(column.name, code, _UTF8)
    flags = _UNSIGNED if kind.base == "uint" else 0
    digits = 31 if kind.base == "double" and kind.name != ROUNDED else kind.digits
    return ResultColumn(column.name, code, _BINARY, flags, digits)


def framed(
    batch: pa.RecordBatch, columns: Sequence[ShownColumn], sequence: int, *, binary: bool
) -> tuple[memoryview, int]:
    """The packets of the rows, and the number of the one that follows."""
    found = zip(batch.columns, columns, strict=True)
    payload = _binary_rows(list(found), batch.num_rows) if binary else _text_rows(list(found), batch.num_rows)
    sizes = pc.binary_length(payload).to_numpy()
    if len(sizes) and int(sizes.max()) >= MAX_FRAME:
        raise StatementError(1153, f"a row of more than {MAX_FRAME} bytes is not sent", "08S01")
    numbers = (sequence + np.arange(len(sizes), dtype=np.uint32)) & 0xFF
    headers = _fixed((sizes.astype("<u4") | (numbers << 24)).astype("<u4"), 4)
    return memoryview(content(_joined([headers, payload]))), (sequence + len(sizes)) & 0xFF


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", _BYTES))


def _fixed(values: np.ndarray, width: int) -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.binary(width), len(values), [None, buffer]).cast(_BYTES)


def _prefixed(cell: pa.Array) -> pa.Array:
    """With their lengths before them; null where they are."""
    sizes = pc.fill_null(pc.binary_length(cell), 0).to_numpy(zero_copy_only=False).astype("<u8")
    raw = sizes.view(np.uint8).reshape(-1, 8)
    prefix = _fixed(raw[:, :1], 1)
    if len(sizes) and int(sizes.max()) >= 0xFB:
        for least, mark, width in ((0xFB, 0xFC, 2), (1 << 16, 0xFD, 3), (1 << 24, 0xFE, 8)):
            marks = np.full((len(sizes), 1), mark, np.uint8)
            longer = _fixed(np.hstack([marks, raw[:, :width]]), width + 1)
            prefix = pc.if_else(pa.array(sizes >= least), longer, prefix)
    return _joined([prefix, cell])


def _text_rows(cells: Sequence[tuple[pa.Array, ShownColumn]], count: int) -> pa.Array:
    """The cells of all columns get their lengths together: of few rows, each call into Arrow takes as long."""
    texts = pa.concat_arrays([text_of(values, column) for values, column in cells])
    prefixed = pc.fill_null(_prefixed(texts), pa.scalar(b"\xfb", _BYTES))
    return _joined([prefixed.slice(place * count, count) for place in range(len(cells))])


def text_of(values: pa.Array, column: ShownColumn) -> pa.Array:
    kind, type_ = column.kind, values.type
    if kind.name == "time":
        text = time_text(values.cast(pa.int64()).cast(pa.duration("us")), kind.digits)
    elif pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return values.cast(_BYTES)
    elif pa.types.is_timestamp(type_):
        digits = kind.digits
        text = pc.utf8_slice_codeunits(utc_text(values, "").cast(pa.string()), 0, 20 + digits if digits else 19)
    elif pa.types.is_date32(type_):
        text = date_text(values)
    elif kind.name == "year":
        text = pc.utf8_lpad(values.cast(pa.string()), 4, "0")
    elif kind.name == ROUNDED:
        text = written(values.cast(pa.decimal128(38, kind.digits)), _PLAIN)
    elif pa.types.is_floating(type_):
        text = _float_text(values)
    else:
        text = written(values, _PLAIN)
    return text.cast(pa.large_string()).cast(_BYTES)


def _float_text(values: pa.Array) -> pa.Array:
    """As MySQL: an exponent below 1e-15 and from 1e15 on only, and no + in it."""
    size = pc.abs(values)
    is_plain = pc.or_(pc.equal(size, 0), pc.and_(pc.greater_equal(size, 1e-15), pc.less(size, 1e15)))
    short = pc.replace_substring_regex(values.cast(pa.string()), r"e([-+])0*(\d)", r"e\1\2")
    return pc.if_else(is_plain, plain_floats(values), pc.replace_substring(short, "e+", "e"))


def _binary_rows(cells: Sequence[tuple[pa.Array, ShownColumn]], count: int) -> pa.Array:
    nulls = np.zeros((count, (len(cells) + 9) // 8 * 8), np.uint8)
    parts = list[pa.Array]()
    for place, (values, column) in enumerate(cells, 2):
        nulls[:, place] = values.is_null().to_numpy(zero_copy_only=False)
        parts.append(pc.fill_null(_binary_cell(values, column), pa.scalar(b"", _BYTES)))
    bitmap = np.packbits(nulls, axis=1, bitorder="little")
    start = np.hstack([np.zeros((count, 1), np.uint8), bitmap])
    return _joined([_fixed(start, start.shape[1]), *parts])


def _binary_cell(values: pa.Array, column: ShownColumn) -> pa.Array:
    code, valid = described(column).type, values.is_valid()
    whole = {BIGINT: (pa.uint64() if column.kind.base == "uint" else pa.int64(), 8), _TINY: (pa.int8(), 1)}
    whole |= {_YEAR: (pa.int16(), 2), _DOUBLE: (pa.float64(), 8), _FLOAT: (pa.float32(), 4)}
    if code in whole:
        kind, width = whole[code]
        cell = _fixed(pc.fill_null(values.cast(kind), pa.scalar(0, kind)).to_numpy(zero_copy_only=False), width)
    elif code in (_DATE, _DATETIME, _TIMESTAMP):
        cell = _moments(values, with_time=code != _DATE)
    elif code == _TIME:
        cell = _times(values)
    else:
        return _prefixed(text_of(values, column))
    return pc.if_else(valid, cell, pa.scalar(None, _BYTES))


def _moments(values: pa.Array, *, with_time: bool) -> pa.Array:
    micros = pc.fill_null(values.cast(pa.timestamp("us")).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    days, rest = np.divmod(micros, 86_400_000_000)
    moment = days.astype("datetime64[D]")
    years, months = moment.astype("datetime64[Y]"), moment.astype("datetime64[M]")
    form = [("size", "u1"), ("year", "<u2"), ("month", "u1"), ("day", "u1")]
    form += [("hour", "u1"), ("minute", "u1"), ("second", "u1"), ("micro", "<u4")] if with_time else []
    cells = np.zeros(len(micros), np.dtype(form))
    cells["size"] = cells.itemsize - 1
    cells["year"] = years.astype(int) + 1970
    cells["month"] = months.astype(int) % 12 + 1
    cells["day"] = (moment - months).astype(int) + 1
    if with_time:
        _fill_clock(cells, rest)
    return _fixed(cells, cells.itemsize)


def _times(values: pa.Array) -> pa.Array:
    micros = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    form = [("size", "u1"), ("minus", "u1"), ("days", "<u4"), ("hour", "u1"), ("minute", "u1"), ("second", "u1")]
    cells = np.zeros(len(micros), np.dtype([*form, ("micro", "<u4")]))
    days, rest = np.divmod(np.abs(micros), 86_400_000_000)
    cells["size"], cells["minus"], cells["days"] = 12, micros < 0, days
    _fill_clock(cells, rest)
    return _fixed(cells, cells.itemsize)


def _fill_clock(cells: np.ndarray, micros: np.ndarray) -> None:
    seconds, cells["micro"] = np.divmod(micros, 1_000_000)
    minutes, cells["second"] = np.divmod(seconds, 60)
    cells["hour"], cells["minute"] = np.divmod(minutes, 60)
