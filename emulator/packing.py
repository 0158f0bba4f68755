"""Packed tuples: the values of `__mo_cpkey_col`, cluster-by and index keys. spec/object-format.md 8. No loop over rows.

`matrixone.objects.keys.unpack_key` is the inverse, one key at a time.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from emulator.definitions import BadDefinition
from matrixone.objects import types
from matrixone.objects.encode import encode
from matrixone.schema import Column

pc: Any = pyarrow.compute  # its functions are made at import, where type checkers do not see them

_ZERO: Final = 0x14
_SIGNED: Final = {
    types.INT8: (0x28, "<i1"),
    types.INT16: (0x29, "<i2"),
    types.INT32: (0x3A, "<i4"),
    types.INT64: (0x3B, "<i8"),
    types.DATE: (0x41, "<i4"),
    types.DATETIME: (0x42, "<i8"),
    types.TIMESTAMP: (0x43, "<i8"),
    types.TIME: (0x47, "<i8"),
    types.YEAR: (0x54, "<i2"),
}
_UNSIGNED: Final = {
    types.UINT8: (0x3C, "<u1"),
    types.UINT16: (0x3D, "<u2"),
    types.UINT32: (0x3E, "<u4"),
    types.UINT64: (0x40, "<u8"),
    types.BIT: (0x40, "<u8"),
    types.ENUM: (0x3D, "<u2"),
}
_TOP: Final = np.uint64(1 << 63)
_POWERS: Final = np.uint64(1) << np.arange(0, 64, 8, dtype=np.uint64)


def pack(columns: Sequence[Column], values: Sequence[pa.Array], *, nulls: bool = False) -> pa.BinaryArray:
    """One key a row. A null component makes the key null; with `nulls` it is an element of its own (`serial_full`)."""
    elements = []
    for column, array in zip(columns, values, strict=True):
        element = _element(column, array)
        elements.append(pc.fill_null(element, b"\x00") if nulls else element)
    return pc.binary_join_element_wise(*elements, b"")


def _element(column: Column, values: pa.Array) -> pa.BinaryArray:
    oid = column.type.oid
    if oid == types.BOOL:
        return pc.if_else(values, b"\x27", b"\x26")
    if types.is_packed(column) or oid in types.TEXT_TYPES or oid in types.BINARY_TYPES:
        escaped = pc.replace_substring(values.cast(pa.binary()), b"\x00", b"\x00\xff")
        return pc.binary_join_element_wise(b"\x46\x01", escaped, b"\x00", b"")
    slots = encode(values, column).slots
    if oid in _SIGNED or oid in _UNSIGNED:
        code, form = _SIGNED.get(oid) or _UNSIGNED[oid]
        numbers = np.ascontiguousarray(slots).reshape(-1).view(form)
        element = _varints(code, numbers)
        element = pc.binary_join_element_wise(b"\x50", element, b"") if oid == types.ENUM else element
    elif oid == types.DECIMAL64:
        element = _fixed(0x44, (slots.reshape(-1).view("<u8") ^ _TOP).astype(">u8").reshape(-1, 1))
    elif oid == types.DECIMAL128:
        limbs = slots.reshape(-1).view("<u8").reshape(-1, 2)
        element = _fixed(0x45, np.stack([limbs[:, 1] ^ _TOP, limbs[:, 0]], axis=1).astype(">u8"))
    elif oid == types.UUID:
        element = _fixed(0x52, slots.reshape(-1, 16))
    elif oid in (types.FLOAT32, types.FLOAT64):
        size, code = (4, 0x20) if oid == types.FLOAT32 else (8, 0x21)
        bits = slots.reshape(-1).view(f"<u{size}")
        top = np.array(1 << (8 * size - 1), bits.dtype)
        element = _fixed(code, np.where(bits & top != 0, ~bits, bits ^ top).astype(f">u{size}").reshape(-1, 1))
    else:
        raise BadDefinition(f"column {column.name} cannot be part of a packed key")
    return pc.if_else(values.is_valid(), element, pa.scalar(None, pa.binary())) if values.null_count else element


def _fixed(code: int, body: np.ndarray) -> pa.BinaryArray:
    rows = np.ascontiguousarray(body).view(np.uint8).reshape(len(body), -1) if len(body) else np.empty((0, 1), np.uint8)
    flat = np.concatenate([np.full((len(rows), 1), code, np.uint8), rows], axis=1)
    return _binary(flat.reshape(-1), np.full(len(rows), flat.shape[1], np.int32))


def _varints(code: int, numbers: np.ndarray) -> pa.BinaryArray:
    """`code`, then 0x14 ± k and k big-endian bytes; of a negative number the complement of its size."""
    negative = numbers < 0
    size = np.where(negative, np.uint64(0) - numbers.astype(np.uint64), numbers.astype(np.uint64))
    count = (size[:, None] >= _POWERS).sum(axis=1, dtype=np.int32)
    body = np.where(negative, ~size, size).astype(">u8").view(np.uint8).reshape(-1, 8)
    heads = np.stack([np.full(len(size), code), np.where(negative, _ZERO - count, _ZERO + count)], axis=1).astype(np.uint8)
    kept = np.concatenate([np.ones((len(size), 2), bool), np.arange(8) >= 8 - count[:, None]], axis=1)
    return _binary(np.concatenate([heads, body], axis=1)[kept], (count + 2).astype(np.int32))


def _binary(flat: np.ndarray, lengths: np.ndarray) -> pa.BinaryArray:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(flat))])
