"""A TIME as MatrixOne prints it."""

import pyarrow as pa
import pyarrow.compute as pc


def time_text(values: pa.Array, digits: int) -> pa.Array:
    """-838:59:59.000000 with so many digits after the point, more if they are not zero. Hours are not limited."""
    count = values.cast(pa.duration("us")).cast(pa.int64())
    size = pc.abs_checked(count)
    seconds = pc.divide(size, 1_000_000)
    rest = pc.subtract(size, pc.multiply(seconds, 1_000_000))
    minutes, hours = pc.divide(seconds, 60), pc.divide(seconds, 3600)
    parts = (hours, pc.subtract(minutes, pc.multiply(hours, 60)), pc.subtract(seconds, pc.multiply(minutes, 60)))
    clock = pc.binary_join_element_wise(*(pc.utf8_lpad(part.cast(pa.string()), 2, "0") for part in parts), ":")
    shown = pc.utf8_lpad(rest.cast(pa.string()), 6, "0")
    digits = digits if 0 <= digits <= 6 else 6
    kept = pc.utf8_slice_codeunits(shown, 0, digits) if digits else pa.nulls(len(values), pa.string()).fill_null("")
    lost = pc.not_equal(pc.utf8_rtrim(pc.utf8_slice_codeunits(shown, digits), "0"), "")
    fraction = pc.if_else(lost, shown, kept)
    point = pc.if_else(pc.equal(fraction, ""), "", ".")
    return pc.binary_join_element_wise(pc.if_else(pc.less(count, 0), "-", ""), clock, point, fraction, "")
