"""Every column type with its hardest values, and every way in which a table can be odd.

The values are what was put in: numbers, `Decimal`, bytes of texts and of binaries, numbers of a vector; days and
moments as the text that MatrixOne prints, times as microseconds. None of them is made or read by the product.
"""

import datetime as dt
import struct
import sys
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

HOUR_US = 3_600_000_000
MOST_TIME = 839 * HOUR_US - 1  # 838:59:59.999999
LONG = 3 << 20
ZERO_DATE = "0000-00-00"
_WIDE = Context(prec=80)
_DAY_ONE, _EPOCH = dt.datetime(1, 1, 1), dt.datetime(1970, 1, 1)
_ESCAPES = 0x10FE00  # and a byte: what stands for a byte that is not part of a character (docs/reference/types.md)


@dataclass(frozen=True)
class Value:
    """Attributes
    ----------
    some : whether `make test` tries it, too.
    """

    value: Any
    some: bool = False


@dataclass(frozen=True)
class Kind:
    """A column type, and values of it: the rows 1, 2, … of a table `id, v`, beside a null in row 0.

    Attributes
    ----------
    family : says how a value of it is written and read, see `tests.matrix.forms`.
    label : where one type has several tables, since some of its values are not everywhere.
    """

    type: str
    family: str
    values: tuple[Value, ...]
    label: str = ""

    @property
    def name(self) -> str:
        return f"{self.type}, {self.label}" if self.label else self.type


@dataclass(frozen=True)
class Oddity:
    """A table whose name or columns are odd. Its first column is `id`; row 1 has a value in each column, row 2 none."""

    label: str
    table: str
    columns: dict[str, str] = field(default_factory=lambda: {"v": "varchar(20)"})
    some: bool = False

    def row(self, number: int) -> dict[str, Any]:
        value: dict[str, Any] = {"int": number, "varchar(20)": f"text {number}", "varchar(200)": f"text {number}"}
        return {name: value[kind] if number == 1 else None for name, kind in self.columns.items()}


def _some(*values: Any) -> tuple[Value, ...]:
    return tuple(Value(value, some=True) for value in values)


def _more(*values: Any) -> tuple[Value, ...]:
    return tuple(map(Value, values))


def _integers(bits: int, *, signed: bool) -> tuple[Value, ...]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return _some(low, high) + _more(0, 1, low + 1, high - 1)


def _decimal(precision: int, scale: int) -> Kind:
    most = Decimal(10**precision - 1).scaleb(-scale, _WIDE)
    least = Decimal(1).scaleb(-scale, _WIDE)
    return Kind(
        f"decimal({precision},{scale})", "decimal", _some(most, most.copy_negate(), least) + _more(-least, Decimal(0))
    )


def _single(number: float) -> float:
    return struct.unpack("<f", struct.pack("<f", number))[0]


DAYS = ("0001-01-01", "1582-10-04", "1582-10-15", "1969-12-31", "1970-01-01", "2038-01-19", "2262-04-12", "9999-12-31")
_MOMENTS = _some(f"{DAYS[0]} 00:00:00.000000", f"{DAYS[-1]} 23:59:59.999999") + _more(
    *(f"{day} {time}" for day in DAYS for time in ("00:00:00.000000", "03:14:08.000001", "23:59:59.999999"))
)
_ZERO_MOMENT = _some(f"{ZERO_DATE} 00:00:00.000000", "2026-01-01 00:00:00.000000")
_TEXTS = (
    *_some(b"", b"NULL", b"nul \0 inside", b"cr lf\r\nlf\nlone cr\rend", b"\\ \\N \\' ''", b"' and \" and `"),
    *_some(b"not utf-8 \xff\x00\xfe", "line\u2028paragraph\u2029next\x85".encode(), b"ctrl-z \x1a"),
    *_some("\ufeffbom".encode(), "emoji 🦆👩‍👩‍👧 naïve nai\u0308ve".encode()),
    *_more(b"null", b"\\N", b"\\", b"\\\\", b"\0", b"\r", b"\n", b"\r\n", b"'", b'"', b"''", b'""', b"`", b" "),
    *_more(b"  ends  ", b"a,b;c\td|e", b"=1+1", b"-1", b"%s {} $1 :x ?", b"-- /* # */", b"\x7f\x08\x0b\x1b[31m"),
    *_more(b"[i]x[/i]", b"\xed\xa0\x80 half a pair", b"cut \xe2\x82", "\U0010ffff last".encode()),
    *_more("\U0010fe80\U0010feff ours".encode(), "\u202eright to left".encode(), b"\xef\xbf\xbd"),
    *_more(b"True", b"NaN", b"1e5", b"00012", b"2026-01-01"),
)  # fmt: skip
_BYTES = (
    *_some(b"", b"\xff\x00\xfe", b"\r\n\\'\"\x1a", b"\0"),
    *_more(b"\xef\xbb\xbf", b"NULL", b"\\N", b"text", b"  ", bytes(range(60))),
)
_JSON = (
    *_some('{"a": [1, null, true, -1.5], "b": {"c": "x"}}', '"quote \\" back \\\\ nul \\u0000 cr \\r\\n \u2028 🦆"'),
    *_some("null"),
    *_more("[]", "{}", '""', "0", "-9223372036854775808", "18446744073709551615", "1e300", "0.1", '{"": {"": ""}}'),
    *_more('"\\u001a"', "false", "[" * 60 + "]" * 60),
)  # fmt: skip
_LABELS = ("red", "it's", 'dou"ble', "a b", "back\\slash", "naïve 🦆", "NULL")
_MEMBERS = tuple(label.encode() for label in _LABELS)
_DECLARED = "('red','it''s','dou\"ble','a b','back\\\\slash','naïve 🦆','NULL')"
_SINGLES = tuple(map(_single, (0.0, -0.0, 1.1, -1.5, 3.4028234e38, 1.17549435e-38, 1e-45, 16777216.0)))
_MOST, _LEAST = sys.float_info.max, sys.float_info.min
_DOUBLES = (0.0, -0.0, 0.1, -1.5, _MOST, _LEAST, 5e-324, 9007199254740993.0, 1e15, 1e16)
_NOT_FINITE = _some(float("nan"), float("inf"), float("-inf"))
_SHAPES = (
    b"POINT(1 2)",
    b"POLYGON((0 0,4 0,4 4,0 0),(1 1,2 1,2 2,1 1))",
    b"LINESTRING(-1.5 2,3 4)",
    b"POINT(0.1 1e+30)",
)
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DIGITS = ((1, 0), (12, 2), (16, 16), (18, 1), (38, 0), (38, 10), (38, 38), (65, 0), (65, 30), (60, 45))


KINDS = (
    Kind("bool", "int", _some(0, 1)),
    Kind("bit(1)", "bit", _some(0, 1)),
    Kind("bit(10)", "bit", _some(0, 5, 53, 1023)),
    Kind("bit(64)", "bit", _some(0, 5, 53, 1 << 63, (1 << 64) - 1) + _more(1023, 0x0D0A)),
    *(Kind(name, "int", _integers(bits, signed=True)) for name, bits in _BITS.items()),
    *(Kind(f"{name} unsigned", "int", _integers(bits, signed=False)) for name, bits in _BITS.items()),
    Kind("float", "single", tuple(Value(value, number < 4) for number, value in enumerate(_SINGLES))),
    Kind("float", "single", _NOT_FINITE, "not finite"),
    Kind("double", "float", tuple(Value(value, number < 4) for number, value in enumerate(_DOUBLES))),
    Kind("double", "float", _NOT_FINITE, "not finite"),
    *(_decimal(*digits) for digits in _DIGITS),
    Kind("date", "date", _some(DAYS[0], DAYS[-1]) + _more(*DAYS)),
    Kind("date", "date", _some(ZERO_DATE, "2026-01-01"), "zero"),
    Kind("datetime(6)", "moment", _MOMENTS),
    Kind("datetime", "moment", _MOMENTS[:1] + _some("2038-01-19 03:14:08.000000")),
    Kind("datetime(6)", "moment", _ZERO_MOMENT, "zero"),
    Kind("timestamp(6)", "moment", _MOMENTS),
    Kind("timestamp(6)", "moment", _ZERO_MOMENT, "zero"),
    Kind("time(6)", "time", _some(0, MOST_TIME, -MOST_TIME, -1) + _more(1, 26 * HOUR_US, -HOUR_US // 2, 500_000)),
    Kind("time(6)", "time", _some(MOST_TIME + 1, -MOST_TIME - 1, 2_562_047 * HOUR_US), "beyond 838:59:59"),
    Kind("year", "int", _some(0, 1901, 2155)),
    *(Kind(name, "text", _TEXTS) for name in ("char(60)", "varchar(200)")),
    Kind("text", "text", (*_TEXTS, *_more(b"3 MB '\\\r\n\0" * (LONG // 10), b"3 MB of a \xff" * (LONG // 11)))),
    Kind("datalink", "text", _some(b"file:///a/b.csv?offset=1", b"stage://s/it's.csv")),
    Kind("json", "json", (*_JSON, *_more('{"long": "' + "j\\n" * (LONG // 3) + '"}'))),
    Kind("uuid", "text", _some(b"00000000-0000-0000-0000-000000000000", b"ffffffff-ffff-ffff-ffff-ffffffffffff")),
    *(Kind(name, "bytes", _BYTES) for name in ("binary(60)", "varbinary(200)")),
    Kind("blob", "bytes", (*_BYTES, *_more(bytes(range(256)) * (LONG // 256)))),
    Kind(f"enum{_DECLARED}", "text", _some(*_MEMBERS)),
    Kind("enum('a')", "text", _some(b"", b"a"), "no member"),
    Kind(f"set{_DECLARED}", "text", _some(b"", *_MEMBERS, b",".join(_MEMBERS))),
    *(Kind(name, "text", _some(*_SHAPES)) for name in ("geometry", "geometry32")),
    Kind("vecf32(3)", "vector of singles", _some(list(_SINGLES[:3]), list(_SINGLES[3:6]))),
    Kind("vecf64(3)", "vector", _some(list(_DOUBLES[:3]), list(_DOUBLES[3:6]), list(_DOUBLES[5:8]))),
    Kind("vecbf16(2)", "vector", _some([1.0, -2.5], [0.0, 128.0])),
    Kind("vecf16(2)", "vector", _some([1.0, -2.5], [0.5, 65504.0])),
    Kind("vecint8(2)", "vector", _some([-128, 127], [0, 1])),
    Kind("vecuint8(2)", "vector", _some([0, 255], [1, 2])),
)  # fmt: skip

_SIGNS = {
    "slash": "/", "backslash": "\\", "backquote": "`", "quote": "'", "double quote": '"', "dot": ".", "semicolon": ";",
    "percent": "%", "blank": " ", "hash": "#", "question mark": "?", "colon": ":", "star": "*", "equals": "=",
    "bracket": "[", "brace": "{", "dollar": "$", "comma": ",", "at": "@", "ampersand": "&", "tilde": "~", "emoji": "🦆",
    "line end": "\n",
}  # fmt: skip
_SOME_SIGNS = ("slash", "backquote", "dot")
_RESERVED = (
    "_change_type", "_commit_version", "_commit_timestamp", "_metadata", "__mo_x", "__ccpr_kind",
    "__ccpr_deleted", "ccpr_x", "ccpr_key", "filename", "file_row_number", "rowid", "__mo_fake_pk_col", "__ccpr_key",
    "__mo_cbkey_x", "__mo_index_idx_col",
)  # fmt: skip
_SOME_RESERVED = ("_change_type", "__mo_x", "__ccpr_kind", "__mo_fake_pk_col")
_RESERVED_TABLES = ("select", "ccpr_points", "ccpr_tables", "_ccpr", "con", "null", "mo_tables")
_TEXT, _WORDS = "varchar(20)", ("select", "table", "null", "order", "key", "values")
ODDITIES = (
    *(Oddity(f"name with {what}", f"a{sign}b", some=what in _SOME_SIGNS) for what, sign in _SIGNS.items()),
    Oddity("name that ends with a blank", "end ", some=True),
    Oddity("name that begins with a dash", "-x"),
    Oddity("name that begins with a dot", ".x"),
    Oddity("name that is two dots", ".."),
    Oddity("name that begins with an underscore", "_x"),
    Oddity("name of 64 letters", "n" * 64),
    Oddity("name of 64 characters of four bytes", "🦆" * 64),
    Oddity("names that differ by case, lower", "case_only", some=True),
    Oddity("names that differ by case, upper", "CASE_only", some=True),
    *(Oddity(f"name {name}", name) for name in _RESERVED_TABLES),
    *(
        Oddity(f"column {name}", f"c_{number}", {name: _TEXT}, some=name in _SOME_RESERVED)
        for number, name in enumerate(_RESERVED)
    ),
    Oddity("columns with each sign", "signs", {f"c{sign}d": _TEXT for sign in _SIGNS.values()}, some=True),
    Oddity("columns reserved by SQL", "words", dict.fromkeys(_WORDS, "int")),
    Oddity("column of 64 letters", "long_column", {"c" * 64: "int"}),
    Oddity("column that ends with a blank", "blank_column", {"end ": "int"}),
    Oddity("column with a dot beside its parts", "dotted", {"a": "int", "a.b": "int"}),
    Oddity("1,100 columns", "deep", {f"c{number}": "int" for number in range(1100)}),
    Oddity("300 columns VARCHAR(200)", "wide", {f"c{number}": "varchar(200)" for number in range(300)}),
)  # fmt: skip


def escaped(raw: bytes) -> str:
    """Stored bytes as a text of Python: each byte that is not part of a character is a private one."""
    text = raw.decode("utf-8", "surrogateescape")
    private = {code: "".join(chr(_ESCAPES + byte) for byte in chr(code).encode()) for code in range(0x10FE80, 0x10FF00)}
    return text.translate(private | {0xDC00 + byte: chr(_ESCAPES + byte) for byte in range(0x80, 0x100)})


def stored(text: str) -> bytes:
    """The bytes of a text, as they are in the source."""
    codes = {_ESCAPES + byte: chr(0xDC00 + byte) for byte in range(0x80, 0x100)}
    return text.translate(codes).encode("utf-8", "surrogateescape")


def to_arrow(kind: Kind, values: list[Any], arrow: pa.DataType) -> pa.Array:
    """Values as the engine of the emulator takes them."""
    if kind.family in ("date", "moment"):
        number = days_of if kind.family == "date" else microseconds_of
        plain = pa.int32() if kind.family == "date" else pa.int64()
        return pa.array([None if value is None else number(value) for value in values], plain).view(arrow)
    if kind.family == "time":
        return pa.array(values, pa.int64()).view(arrow)
    if kind.family == "text":
        values = [None if value is None else escaped(value) for value in values]
    elif kind.family == "decimal" and pa.types.is_string(arrow):
        values = [None if value is None else format(value, "f") for value in values]
    elif kind.type == "bool":
        values = [None if value is None else bool(value) for value in values]
    return pa.array(values, arrow)


def days_of(text: str) -> int:
    """Since 1970; the zero date is the day before the first one."""
    first = _DAY_ONE.toordinal()
    return (first - 1 if text.startswith(ZERO_DATE) else dt.date.fromisoformat(text).toordinal()) - _EPOCH.toordinal()


def microseconds_of(text: str) -> int:
    """Since 1970; the zero date is the microsecond before the first day."""
    moment = _DAY_ONE if text.startswith(ZERO_DATE) else dt.datetime.fromisoformat(text)
    return (moment - _EPOCH) // dt.timedelta(microseconds=1) - text.startswith(ZERO_DATE)
