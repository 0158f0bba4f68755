"""What a server counts of a column, so that it can be compared with rows that are here: how many values are not null,
and the sum of the CRC-32 of what is stored, as text or bytes. The sum does not depend on the order of rows. A column
whose values the server writes in a way of its own is only counted."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.ddl.definition import ColumnType
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr.mirror.crc32 import crc32_sum
from ccpr.schema.choices import Dialect
from ccpr.values.cells import Form, cells, plain_floats

_STORED = Form("", ("", ""), server=True)  # a null adds nothing to a sum, as an empty text does
_AS_THEY_ARE = frozenset(
    ("varchar", "char", "longtext", "text", "tinytext", "varbinary", "longblob", "blob", "enum", "set")
)
_FLOATS, _VECTORS = ("float", "double"), ("vecf32", "vecf64")


@dataclass(frozen=True, slots=True)
class ColumnSum:
    """A column as a server of this dialect has it."""

    name: str
    type: ColumnType
    dialect: Dialect

    @property
    def is_summed(self) -> bool:
        if self.dialect is Dialect.MATRIXONE:  # which rounds a FLOAT(7,2) when it casts it
            is_odd = self.type.name.startswith("vec") or (self.type.name == "float" and self.type.parameters)
            return not is_odd or self.type.name in _VECTORS
        return self.type.name != "json"

    @property
    def expressions(self) -> tuple[str, ...]:
        name, kind = in_backquotes(self.name), self.type.name
        counted = f"COUNT({name})"
        if not self.is_summed:
            return (counted,)
        if self.dialect is not Dialect.MATRIXONE:
            stored = {"bit": f"{name} + 0", "float": f"{name} + 0e0", "double": f"{name} + 0e0"}.get(kind, name)
        elif kind in _AS_THEY_ARE or kind in _VECTORS:
            stored = name
        else:
            inner = {"bit": f"CAST({name} AS UNSIGNED)", "float": f"CAST({name} AS DOUBLE)"}.get(kind, name)
            stored = f"CAST({inner} AS TEXT)"
        return counted, f"SUM(CRC32({stored}))"

    def of(self, values: pa.Array | pa.ChunkedArray) -> tuple[int, ...]:
        """The values of the expressions."""
        counted = len(values) - values.null_count
        if not self.is_summed:
            return (counted,)
        stored = self._stored(values)
        return counted, sum(map(crc32_sum, _chunks(stored)))

    def _stored(self, values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """The bytes or texts of values, as the server takes them into CRC32()."""
        if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
            return values
        if self.dialect is Dialect.MATRIXONE and self.type.name in _VECTORS:
            return pa.chunked_array([_content(chunk) for chunk in _chunks(values)], pa.large_binary())
        if self.type.name in _FLOATS:
            whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            return _float_text(whole.cast(pa.float64()), self.dialect)
        if self.type.name == "year":
            values = pc.utf8_lpad(values.cast(pa.string()), 4, "0")
        digits = self.type.parameters[0] if self.type.parameters else 0
        text = cells(values, _STORED, digits=digits).text
        if self.type.name not in ("datetime", "timestamp"):
            return text
        text = pc.if_else(pc.equal(text, "0000-00-00 00:00:00"), "0000-00-00 00:00:00.000000", text)
        return pc.utf8_slice_codeunits(text, 0, 20 + digits if digits else 19)


def _chunks(values: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


def _content(values: pa.Array) -> pa.Array:
    """The bytes of each vector."""
    values = values.cast(pa.large_list(values.type.value_type))
    width = values.type.value_type.bit_width // 8
    ends = pc.multiply(values.offsets, width)
    validity = pc.if_else(values.is_valid(), True, None)
    buffers = [None, ends.buffers()[1], values.values.buffers()[1]]
    content = pa.Array.from_buffers(pa.large_binary(), len(values), buffers, offset=0)
    return pc.if_else(validity, content, pa.scalar(None, pa.large_binary()))


def _float_text(values: pa.Array, dialect: Dialect) -> pa.Array:
    """The shortest digits that read back equal, as the servers write them: without an exponent from 1e-15 to 1e15, and
    in MySQL and MariaDB as long as there are digits behind the point. Their -0 is 0."""
    if dialect.speaks_mysql:
        values = pc.add(values, 0.0)
    text = values.cast(pa.string())
    if not pc.all(pc.is_finite(values)).as_py():  # only a MatrixOne has these, and where all are null
        for ours, theirs in (("nan", "NaN"), ("inf", "+Inf"), ("-inf", "-Inf")):
            text = pc.if_else(pc.equal(text, ours), theirs, text)
    with_exponent = pc.match_substring(text, "e")
    if not pc.any(with_exponent).as_py():
        return text
    odd, written = values.filter(with_exponent), text.filter(with_exponent)
    size = pc.abs(odd)
    is_plain = pc.and_(pc.less(size, 1e15), pc.greater_equal(size, 1e-15))
    if dialect.speaks_mysql:
        is_plain = pc.or_(is_plain, pc.and_(pc.greater_equal(size, 1e15), pc.not_equal(pc.trunc(odd), odd)))
        short = pc.replace_substring(written, "e+", "e")
    else:
        short = pc.replace_substring(written, "e", "E")
    return pc.replace_with_mask(text, with_exponent, pc.if_else(is_plain, plain_floats(odd), short))
