"""Coordinates as the server prints them: Go's `strconv.FormatFloat(value, 'g', -1, 64)`, the shortest digits that read
back equal, with an exponent of two digits or more below 1e-4 and from 1e6 on."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PLAIN, _EXPONENT, _ARROWS_EXPONENT = 1e-4, 1e6, 1e10  # where Go writes an exponent, and Arrow does, too
_DIGITS = 2  # of an exponent at least


def number_texts(values: np.ndarray) -> pa.StringArray:
    """The text of each double. Arrow writes the same digits; where it writes them in another form they are moved."""
    texts, sizes = pa.array(values).cast(pa.string()), np.abs(values)
    large = (sizes >= _EXPONENT) & (sizes < _ARROWS_EXPONENT)
    if large.any():
        texts = pc.replace_with_mask(texts, pa.array(large), _with_exponent(texts.filter(pa.array(large))))
    odd = ~np.isfinite(values) | ((sizes < _PLAIN) & (values != 0))
    if odd.any():  # no coordinates of anything
        distinct, places = np.unique(values[odd], return_inverse=True)
        known = pa.array([_odd_text(value) for value in distinct.tolist()], pa.string())
        texts = pc.replace_with_mask(texts, pa.array(odd), known.take(pa.array(places)))
    return texts


def _with_exponent(texts: pa.StringArray) -> pa.StringArray:
    """Of numbers without an exponent, at least 1."""
    sign = pc.if_else(pc.starts_with(texts, "-"), "-", "")
    digits = pc.utf8_ltrim(texts, "-")
    point = pc.find_substring(digits, ".")
    whole = pc.if_else(pc.less(point, 0), pc.binary_length(digits), point)
    digits = pc.utf8_rtrim(pc.replace_substring(digits, ".", ""), "0")
    rest = pc.utf8_slice_codeunits(digits, 1)
    dot = pc.if_else(pc.equal(rest, ""), "", ".")
    exponent = pc.utf8_lpad(pc.subtract(whole, 1).cast(pa.string()), _DIGITS, "0")
    return pc.binary_join_element_wise(sign, pc.utf8_slice_codeunits(digits, 0, 1), dot, rest, "e+", exponent, "")


def _odd_text(value: float) -> str:
    if not np.isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    sign, digits, power = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    exponent = len(digits) + int(power) - 1
    return f"{'-' if sign else ''}{mantissa}e-{abs(exponent):0{_DIGITS}}"
