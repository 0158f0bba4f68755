"""How a value looks in each form of output, and whether it is the one that was put in: a rule for each family of types
and form, written from the documentation (docs/reference/types.md), without the product's code."""

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from tests.matrix.values import ZERO_DATE, stored

_FOLDED = 1000  # characters
_EPOCH, _DAY_US = dt.date(1970, 1, 1).toordinal(), 86_400_000_000
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(?:Z|\+00:00)?")
_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")


class Form(StrEnum):
    """What a reader gives."""

    MYSQL = "MySQL's text protocol: bytes"
    ARROW = "Arrow, dates and times as numbers"
    JSON = "JSON"
    CSV = "CSV"
    SCREEN = "a screen"


def is_right(family: str, form: Form, truth: Any, seen: Any) -> bool:
    """Whether what was seen is the value that was put in, or what the documentation says it becomes."""
    if form is Form.SCREEN and seen == "NULL" and not (family == "text" and truth):
        seen = None
    if truth is None or seen is None:
        return seen is None and (truth is None or _documented_null(form, truth))
    if form is Form.SCREEN and family == "text":
        return _is_shown(stored_text(truth), seen)
    try:
        found = _READERS[family](seen.decode() if isinstance(seen, bytes) and _is_text(family) else seen, form)
    except (ValueError, ArithmeticError, TypeError, AttributeError):
        return False
    if family == "json":
        return found == json.loads(truth)
    if family in ("float", "single"):
        return _same_float(truth, found, signed=form is not Form.MYSQL)
    if family in ("vector", "vector of singles"):
        found = [float(np.float32(number)) for number in found] if family == "vector of singles" else found
        return len(truth) == len(found) and all(map(_same_float, truth, found))
    return type(found) is type(truth) and found == truth


def _documented_null(form: Form, truth: Any) -> bool:
    """The zero date is null everywhere but in a target (`--zero-dates`)."""
    return isinstance(truth, str) and truth.startswith(ZERO_DATE) and form is not Form.MYSQL


def _is_text(family: str) -> bool:
    return family not in ("bit", "bytes")


def _same_float(truth: float, found: float, *, signed: bool = True) -> bool:
    """`signed`: -0.0 is another value than 0.0. MariaDB has no -0."""
    if math.isnan(truth):
        return math.isnan(found)
    return truth == found and (not signed or math.copysign(1, truth) == math.copysign(1, found))


def stored_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _is_shown(text: str, seen: str) -> bool:
    """What a terminal would obey is shown as an escape, a byte that is no letter as a letter of ours. A long text is
    folded, at blanks where it has some, so neither blanks nor what is shown of them are compared there."""
    if len(text) > _FOLDED:
        found, wanted = (re.sub(r"\\n|\\r|\\x00|[\s\0]", "", one) for one in (seen, text))
        return found == wanted.translate({0xDC00 + byte: 0x10FE00 + byte for byte in range(128, 256)})
    escape = r"\\(?:[nrt]|x[0-9a-f]{2}|u[0-9a-f]{4,8}|U[0-9a-f]{8})"
    ours = "[\U0010fe80-\U0010feff]"
    parts = [
        re.escape(character) if character.isprintable() else f"(?:{escape}|{ours}{{1,4}}|{re.escape(character)})"
        for character in text.strip(" ")
    ]
    return re.fullmatch("".join(parts), seen.strip(" "), re.DOTALL) is not None


def _whole(cell: Any, form: Form) -> int:
    return {"true": 1, "false": 0, "True": 1, "False": 0}.get(str(cell), -1) if str(cell).isalpha() else int(cell)


def _bit(cell: Any, form: Form) -> int:
    return int.from_bytes(cell, "big") if form is Form.MYSQL and isinstance(cell, bytes) else int(cell)


def _single(cell: Any, form: Form) -> float:
    return float(np.float32(float(cell)))


def _date(cell: Any, form: Form) -> str:
    if form is not Form.ARROW:
        return str(cell)
    return (
        dt.date.fromordinal(cell + _EPOCH).isoformat()
        if cell + _EPOCH > 0
        else ZERO_DATE
        if cell + _EPOCH == 0
        else f"day {cell}"
    )


def _moment(cell: Any, form: Form) -> str:
    if form is Form.ARROW:
        days, rest = divmod(cell, _DAY_US)
        if days + _EPOCH == 0 and rest == _DAY_US - 1:
            return f"{ZERO_DATE} 00:00:00.000000"
        time = dt.datetime.min + dt.timedelta(microseconds=rest)
        return f"{_date(days, form)} {time:%H:%M:%S.%f}"
    if cell == ZERO_DATE:
        return f"{cell} 00:00:00.000000"
    found = _MOMENT.fullmatch(cell)
    return f"{found[1]} {found[2]}.{(found[3] or '').ljust(6, '0')}" if found else cell


def _time(cell: Any, form: Form) -> int:
    if form is Form.ARROW:
        return cell
    found = _TIME.fullmatch(cell)
    if found is None:
        raise ValueError(cell)
    sign, hours, minutes, seconds, fraction = found.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    number = whole * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return -number if sign else number


def _bytes(cell: Any, form: Form) -> bytes:
    return cell if isinstance(cell, bytes) else bytes.fromhex(cell)


def _vector(cell: Any, form: Form) -> list[float]:
    return [float(number) for number in (json.loads(cell, parse_int=float) if isinstance(cell, str) else cell)]


_READERS: Mapping[str, Callable[[Any, Form], Any]] = {
    "int": _whole,
    "bit": _bit,
    "float": lambda cell, form: float(cell),
    "single": _single,
    "decimal": lambda cell, form: Decimal(cell),
    "date": _date,
    "moment": _moment,
    "time": _time,
    "text": lambda cell, form: stored(cell),
    "bytes": _bytes,
    "json": lambda cell, form: json.loads(cell),
    "vector": _vector,
    "vector of singles": _vector,
}


def plain(table: pa.Table) -> list[list[Any]]:
    """Rows of Python values that no type of Python bounds: days, and microseconds, as numbers."""
    return [list(row) for row in zip(*(_numbers(column).to_pylist() for column in table.columns), strict=True)]


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _numbers(column.cast(kind.value_type))
    if pa.types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    return column.cast(pa.int64()) if pa.types.is_duration(kind) else column
