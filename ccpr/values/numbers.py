"""Floats and decimals as text that reads back as the same number."""

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.convert import decimal_text


def decimals_text(values: pa.Array) -> pa.Array:
    """All digits, never an exponent."""
    scale = values.type.scale
    if scale <= 6:  # Arrow writes an exponent only below 0.000001
        return values.cast(pa.string())
    return decimal_text(values.cast(pa.decimal256(76, scale)).view(pa.decimal256(76, 0)), scale)


def float_text(values: pa.Array) -> pa.Array:
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
