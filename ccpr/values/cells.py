"""The values of a column as they stand in a file, a statement or on a screen: `cells`, by the type of the values and
the form of the destination. No value is a Python object on the way, and no loop is over rows.

| | LOAD DATA | SQL | CSV | JSON | screen |
|---|---|---|---|---|---|
| null | \\N | NULL | nothing | null | NULL |
| bool | 1 | 1 | true | true | true |
| whole number, float | digits | digits | digits | number, or "nan", "inf" | digits |
| decimal | digits, never an exponent | likewise | likewise | likewise, as text | likewise |
| date, moment | UTC, six digits | likewise | 2026-11-21 09:30:00+00:00 | with a T | as JSON |
| time of day | 26:00:00 and the digits of its column | likewise | and six digits or none | as CSV | as CSV |
| text | escaped | escaped | quotes doubled | escaped | as it is |
| bytes | hexadecimal digits | x'00ff' | hexadecimal digits | as CSV | as CSV |
| vector | [1, 2.5], never an exponent | likewise | JSON | JSON | JSON |
| list, structure, map | none | none | JSON | JSON | JSON |
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.bytejson import JSON_ESCAPES
from ccpr.matrixone.objects.convert import decimal_text
from ccpr.matrixone.objects.errors import ValueRefused
from ccpr.matrixone.sql.quoting import STRING_ESCAPES
from ccpr.values.times import date_text, moment_text, time_text, utc_text

_TEXT = pa.large_string()  # its bytes may be more than 2 GB
_TEXTS, _BYTES = (pa.string(), _TEXT, pa.string_view()), (pa.binary(), pa.large_binary(), pa.binary_view())
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), "<u2")
_NO_LINES = {mark: f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"}  # for which readers end a line


@dataclass(frozen=True, slots=True)
class Form:
    """How a destination wants its values.

    Attributes
    ----------
    quotes : around a value; `bare` are the kinds that have none: number, moment, nested.
    escapes : characters of a text that are written otherwise. A backslash comes first.
    server : it is read by a server, with the target's types.
    between : a date and its time.
    """

    null: str
    quotes: tuple[str, str] = ('"', '"')
    bare: frozenset[str] = frozenset()
    escapes: Mapping[str, str] | None = None
    server: bool = False
    between: str = "T"


LOAD_DATA = Form("\\N", escapes={"\\": "\\\\"}, server=True)  # pyarrow.csv writes nulls and quotes
# A client turns CR LF into LF and ends at a zero byte or, on Windows, at Ctrl-Z.
SQL = Form("NULL", ("'", "'"), frozenset({"number"}), {**STRING_ESCAPES, "\x1a": "\\Z"}, server=True)
CSV = Form("", bare=frozenset({"number", "moment"}), escapes={'"': '""'}, between=" ")
JSON = Form("null", bare=frozenset({"number", "nested"}), escapes={**JSON_ESCAPES, **_NO_LINES})
SCREEN = Form("NULL", ("", ""))


@dataclass(frozen=True, slots=True)
class Cells:
    """The values of a column as a destination reads them: `begin`, a text that is never null, and `end`."""

    text: pa.LargeStringArray
    begin: str = ""
    end: str = ""

    @property
    def whole(self) -> pa.LargeStringArray:
        return joined(self.begin, self.text, self.end) if self.begin or self.end else self.text


def cells(values: pa.Array | pa.ChunkedArray, form: Form, *, digits: int = 0) -> Cells:
    """The values as `form` has them. `digits` of a second are shown of a time of day, or six. Raises ValueRefused for a
    type that has no text: none of MatrixOne's."""
    values = _whole(values)
    text, kind = _written(values, form, digits)
    quotes = ("x'", "'") if kind == "bytes" and form is SQL else form.quotes
    found = Cells(text.cast(_TEXT), *(("", "") if kind in form.bare else quotes))
    if form is JSON and pa.types.is_floating(values.type):
        finite = pc.is_finite(values)
        if not pc.all(finite).as_py():  # also where all are null
            found = Cells(pc.if_else(finite, found.text, joined('"', found.text, '"')))
    return Cells(pc.fill_null(found.whole, _scalar(form.null))) if found.text.null_count else found


def written(values: pa.Array | pa.ChunkedArray, form: Form, *, digits: int = 0) -> pa.Array:
    """The values without what is around them, null where they are: as text, or as numbers whose text is plain."""
    return _written(_whole(values), form, digits)[0]


def lines(columns: Sequence[Cells], begin: str, between: Sequence[str], end: str) -> pa.LargeStringArray:
    """The text of each row: `begin`, the cells with what is `between` each two of them, `end`."""
    parts, before = list[str | pa.Array](), begin
    for column, behind in zip(columns, [*between, end], strict=True):
        parts += [before + column.begin, column.text]
        before = column.end + behind
    return joined(*parts, before)


def content(text: pa.LargeStringArray, start: int = 0, stop: int | None = None) -> pa.Buffer:
    """The bytes of some values, one behind the other."""
    ends, data = ends_of(text), text.buffers()[2]
    first, last = int(ends[start]), int(ends[-1 if stop is None else stop])
    return pa.py_buffer(b"") if data is None else data.slice(first, last - first)


def ends_of(text: pa.LargeStringArray) -> np.ndarray:
    """Where each value begins in the buffer of all, and the end of the last."""
    return np.frombuffer(text.buffers()[1], np.int64, len(text) + 1, 8 * text.offset) if len(text) else np.zeros(1, int)


def csv_head(names: Sequence[str]) -> bytes:
    """The line of names."""
    return (",".join('"' + name.replace('"', '""') + '"' for name in names) + "\n").encode()


def csv_lines(batch: pa.RecordBatch | pa.Table) -> pa.Buffer:
    """Of RFC 4180: null is nothing, an empty text is ""."""
    columns = [cells(column, CSV) for column in batch.columns]
    return content(lines(columns, "", [","] * (len(columns) - 1), "\n"))


def json_lines(batch: pa.RecordBatch | pa.Table, parsed: Collection[str] = ()) -> pa.Buffer:
    """An object a line. `parsed` are columns whose texts are JSON, and stand there as what they say."""
    columns = [
        Cells(pc.fill_null(escaped(_whole(column).cast(_TEXT), _NO_LINES), "null"))
        if name in parsed
        else cells(column, JSON)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    first, *others = (_key(name) for name in batch.schema.names)
    return content(lines(columns, "{" + first, [f", {key}" for key in others], "}\n"))


def json_rows(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """The rows as JSON has them: what a line of `json_lines` says."""
    listed = json_lines(batch).to_pybytes().removesuffix(b"\n").replace(b"\n", b",")
    return json.loads(b"[" + listed + b"]")


def is_number(kind: pa.DataType) -> bool:
    """Whether its values are aligned to the right."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def joined(*parts: str | pa.Array) -> pa.Array:
    """One behind the other; null where one is."""
    return pc.binary_join_element_wise(
        *(_scalar(part) if isinstance(part, str) else part for part in parts), _scalar("")
    )


def escaped(text: pa.Array, escapes: Mapping[str, str]) -> pa.Array:
    """Each of some characters as what is written for it; a pass over the values for each that occurs."""
    raw = content(text).to_pybytes()
    controls = bool(raw) and int(np.frombuffer(raw, np.uint8).min()) < ord(" ")
    for character, written in escapes.items():
        if (controls or character >= " ") and character.encode() in raw:
            text = pc.replace_substring(text, character, written)
    return text


def _written(values: pa.Array, form: Form, digits: int) -> tuple[pa.Array, str]:
    text, kind = _text(values, form, digits)
    if form.escapes and kind in ("text", "nested") and kind not in form.bare:
        text = escaped(text.cast(_TEXT), form.escapes)
    return text, kind


def _text(values: pa.Array, form: Form, digits: int) -> tuple[pa.Array, str]:
    """The text of each value, and its kind: number, moment, nested, bytes, text. Null where the value is."""
    kind, is_of = values.type, pa.types
    if is_of.is_dictionary(kind):
        return _text(values.dictionary_decode(), form, digits)
    if isinstance(values, pa.ExtensionArray) and is_of.is_string(kind.storage_type):
        return values.storage, "text"
    if kind in _TEXTS or is_of.is_null(kind):
        return values, "text"
    if is_of.is_boolean(kind):
        return values.cast(pa.int8()) if form.server else values, "number"
    if is_of.is_integer(kind):
        return values, "number"
    if is_of.is_floating(kind):
        return values if form.server else _float_text(values), "number"
    if is_of.is_decimal(kind):
        return _decimal_text(values), "number" if form is SQL and kind.scale == 0 and kind.precision <= 20 else "text"
    if is_of.is_date32(kind):
        return date_text(values), "moment"
    if is_of.is_timestamp(kind):
        zero = "0000-00-00 00:00:00"
        return utc_text(values, zero) if form.server else moment_text(values, form.between), "moment"
    if is_of.is_time(kind):
        values, kind = values.cast(pa.time64("us")).cast(pa.int64()).cast(pa.duration("us")), pa.duration("us")
    if is_of.is_duration(kind):
        return time_text(values, digits), "text"
    if kind in _BYTES or is_of.is_fixed_size_binary(kind):
        return _hexadecimal(values.cast(pa.large_binary())), "bytes"
    if form.server and is_of.is_list(kind):
        return _listed(values, plain_floats(values.flatten()), "[]"), "nested"
    if is_of.is_nested(kind):
        return _nested(values), "nested"
    remedy = "Leave the column out, or write CAST(… AS VARCHAR) for it."
    raise ValueRefused("its values have no text", subject=f"column of type {kind}", remedy=remedy)


def _decimal_text(values: pa.Array) -> pa.Array:
    """All digits, never an exponent."""
    scale = values.type.scale
    if scale <= 6:  # Arrow writes an exponent only below 0.000001
        return values.cast(pa.string())
    return decimal_text(values.cast(pa.decimal256(76, scale)).view(pa.decimal256(76, 0)), scale)


def _float_text(values: pa.Array) -> pa.Array:
    """The shortest digits that read back equal, in a form that is no whole number's: 1.0, 1e+20, nan, inf."""
    text = values.cast(pa.string())
    whole = pc.match_substring_regex(text, r"^-?\d+$")
    return pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text) if pc.any(whole).as_py() else text


def plain_floats(values: pa.Array) -> pa.Array:
    """Shortest digits that read back equal, never an exponent: 1e-07 is 0.0000001. One pass for each exponent that
    occurs."""
    text = values.cast(pa.string())
    with_exponent = pc.match_substring(text, "e")
    if not pc.any(with_exponent).as_py():
        return text
    parts = pc.extract_regex(
        text.filter(with_exponent), r"^(?P<sign>-?)(?P<whole>\d)(?:\.(?P<rest>\d+))?e(?P<power>[+-]?\d+)$"
    )
    sign, whole, rest, power = (parts.field(number) for number in range(4))
    digits = pc.binary_join_element_wise(whole, rest, "")
    powers = pc.utf8_ltrim(power, "+").cast(pa.int32())
    plain = digits
    for exponent in pc.unique(powers).to_pylist():
        mask = pc.equal(powers, exponent)
        chosen = digits.filter(mask)
        if exponent < 0:
            written = pc.binary_join_element_wise("0." + "0" * (-exponent - 1), chosen, "")
        else:
            point = exponent + 1
            padded = pc.utf8_rpad(chosen, point, "0")
            fraction = pc.utf8_slice_codeunits(padded, point)
            dot = pc.if_else(pc.equal(pc.utf8_length(fraction), 0), "", ".")
            written = pc.binary_join_element_wise(pc.utf8_slice_codeunits(padded, 0, point), dot, fraction, "")
        plain = pc.replace_with_mask(plain, mask, written)
    return pc.replace_with_mask(text, with_exponent, pc.binary_join_element_wise(sign, plain, ""))


def _nested(values: pa.Array) -> pa.Array:
    """As JSON. A map is an object, whose names are the texts of its keys."""
    kind = values.type
    if pa.types.is_map(kind):
        values = values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        keys, items = values.flatten().flatten()
        names = cells(keys, replace(JSON, bare=frozenset())).whole
        return _listed(values, joined(names, ": ", cells(items, JSON).whole), "{}")
    if pa.types.is_struct(kind):
        parts = [
            part
            for number, (field, column) in enumerate(zip(kind, values.flatten(), strict=True))
            for part in ((", " if number else "") + _key(field.name), cells(column, JSON).whole)
        ]
        whole = joined("{", *parts, "}")
        return pc.if_else(values.is_valid(), whole, _scalar(None))
    if pa.types.is_union(kind):
        chosen = [cells(values.field(number), JSON).whole for number in range(kind.num_fields)]
        return pc.choose(values.type_codes.cast(pa.int64()), *chosen)
    return _listed(values, cells(values.flatten(), JSON).whole, "[]")


def _listed(values: pa.Array, items: pa.Array, brackets: str) -> pa.Array:
    """Lists of what became of their items."""
    sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    texts = pa.LargeListArray.from_arrays(pa.array(offsets), items.cast(_TEXT))
    whole = joined(brackets[0], pc.binary_join(texts, _scalar(", ")), brackets[1])
    return pc.if_else(values.is_valid(), whole, _scalar(None)) if values.null_count else whole


def _hexadecimal(values: pa.LargeBinaryArray) -> pa.Array:
    if len(values) == 0:
        return pa.array([], _TEXT)
    ends, data = ends_of(values), values.buffers()[2]
    first, last = int(ends[0]), int(ends[-1])
    digits = _HEX[np.frombuffer(data, np.uint8, last - first, first)] if last > first else np.empty(0, "<u2")
    parts = [None, pa.py_buffer((ends - first) * 2), pa.py_buffer(digits)]
    text = pa.Array.from_buffers(_TEXT, len(values), parts)
    return pc.if_else(values.is_valid(), text, _scalar(None)) if values.null_count else text


def _key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False).translate(str.maketrans(_NO_LINES)) + ": "


def _scalar(text: str | None) -> pa.Scalar:
    return pa.scalar(text, _TEXT)


def _whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
