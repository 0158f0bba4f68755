"""Packed keys from columns, for all rows at once: the values of composite primary keys, cluster-by columns and index
keys. docs/format/object-file.md 8.

Packed values compare bytewise as their tuples do, so the product never unpacks one.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.errors import NotWritable
from ccpr.matrixone.objects.identifiers import fixed_offsets
from ccpr.matrixone.objects.writing.column_encoding import encode
from ccpr.matrixone.objects.writing.encoded_columns import EncodedColumn
from ccpr.matrixone.schema import Column

_NULL, _FALSE, _TRUE = 0x00, 0x26, 0x27  # codes of the values themselves; all others are codes of types
_FLOAT32, _FLOAT64, _DECIMAL64, _DECIMAL128, _DECIMAL256, _UUID, _ENUM = 0x20, 0x21, 0x44, 0x45, 0x48, 0x52, 0x50
_STRING_START = bytes((0x46, 0x01))
_ZERO = 0x14  # a varint of no bytes; 0x14 + k precedes k bytes of a positive number, 0x14 - k those of a negative one
_VARINT_MAX = 8  # bytes
_SIGNED = {
    types.INT8: (0x28, "i1"),
    types.INT16: (0x29, "<i2"),
    types.INT32: (0x3A, "<i4"),
    types.INT64: (0x3B, "<i8"),
    types.DATE: (0x41, "<i4"),
    types.DATETIME: (0x42, "<i8"),
    types.TIMESTAMP: (0x43, "<i8"),
    types.TIME: (0x47, "<i8"),
    types.YEAR: (0x54, "<i2"),
}
_UNSIGNED = {
    types.UINT8: (0x3C, "u1"),
    types.UINT16: (0x3D, "<u2"),
    types.UINT32: (0x3E, "<u4"),
    types.UINT64: (0x40, "<u8"),
    types.BIT: (0x40, "<u8"),
    types.ENUM: (0x3D, "<u2"),
}
_FLOATS = {types.FLOAT32: (_FLOAT32, ">u4", "<u4"), types.FLOAT64: (_FLOAT64, ">u8", "<u8")}
_DECIMALS = {types.DECIMAL64: _DECIMAL64, types.DECIMAL128: _DECIMAL128, types.DECIMAL256: _DECIMAL256}
_SIZES = {_FLOAT32: 4, _FLOAT64: 8, _DECIMAL64: 8, _DECIMAL128: 16, _DECIMAL256: 32, _UUID: 16}


def packed_keys(columns: Sequence[Column], values: Sequence[pa.Array], *, full: bool = False) -> pa.BinaryArray:
    """The packed key of each row; `values` are the key's components, of the Arrow types that the reader returns.

    Without `full` (composite primary keys) a row with a null component has no key; with it (cluster-by columns,
    indexes) nulls are packed as well. Raises `NotWritable` for a type that no key can have, and for values that do not
    fit their column.
    """
    elements = [_element(encode(array, column), column) for array, column in zip(values, columns, strict=True)]
    if full:
        elements = [element.fill_null(bytes((_NULL,))) for element in elements]
    return pc.binary_join_element_wise(*elements, b"", null_handling="emit_null")


def _element(column: EncodedColumn, declared: Column) -> pa.BinaryArray:
    """One component of each key, its code first; null where the column is null."""
    oid = column.type.oid
    if column.values is not None:
        return _strings(column.values)
    slots = np.ascontiguousarray(column.slots).reshape(-1)
    if oid in _SIGNED:
        code, dtype = _SIGNED[oid]
        numbers = slots.view(dtype).astype(np.int64)
        negative = numbers < 0
        magnitude = np.where(negative, np.uint64(0) - numbers.view(np.uint64), numbers.view(np.uint64))
        return _varints((code,), magnitude, negative, column)
    if oid in _UNSIGNED:
        code, dtype = _UNSIGNED[oid]
        numbers = slots.view(dtype).astype(np.uint64)
        codes = (_ENUM, code) if oid == types.ENUM else (code,)
        return _varints(codes, numbers, np.zeros(column.rows, bool), column)
    if oid == types.BOOL:
        return _fixed(np.where(slots != 0, _TRUE, _FALSE).astype(np.uint8).reshape(-1, 1), column)
    if oid in _FLOATS:
        code, big, little = _FLOATS[oid]
        bits = slots.view(little)
        top = bits.dtype.type(1 << 8 * bits.itemsize - 1)
        return _fixed(_with_code(code, np.where(bits & top, ~bits, bits ^ top).astype(big)), column)
    if oid in _DECIMALS:
        body = np.ascontiguousarray(slots.view(np.uint8).reshape(-1, types.SLOT_SIZES[oid])[:, ::-1])
        body[:, 0] ^= 0x80
        return _fixed(_with_code(_DECIMALS[oid], body), column)
    if oid == types.UUID:
        return _fixed(_with_code(_UUID, slots), column)
    raise NotWritable(f"type {oid} cannot be part of a key", subject=f"column {declared.name}")


def _valid(column: EncodedColumn) -> pa.Buffer | None:
    return None if column.null is None else pa.py_buffer(np.packbits(~column.null, bitorder="little"))


def _with_code(code: int, body: np.ndarray) -> np.ndarray:
    """The code, then the body of its size, for each row: uint8 of shape (rows, 1 + size)."""
    raw = np.ascontiguousarray(body).view(np.uint8).reshape(-1, _SIZES[code])
    return np.concatenate([np.full((len(raw), 1), code, np.uint8), raw], axis=1)


def _fixed(raw: np.ndarray, column: EncodedColumn) -> pa.BinaryArray:
    offsets = fixed_offsets(column.rows, raw.shape[1])
    return pa.Array.from_buffers(
        pa.binary(), column.rows, [_valid(column), offsets, pa.py_buffer(np.ascontiguousarray(raw))]
    )


def _varints(
    codes: tuple[int, ...], magnitude: np.ndarray, negative: np.ndarray, column: EncodedColumn
) -> pa.BinaryArray:
    """0x14 plus or minus the number of bytes, then the bytes; those of a negative number are inverted."""
    body = magnitude.astype(">u8").view(np.uint8).reshape(column.rows, _VARINT_MAX)
    used = np.maximum.accumulate(body != 0, axis=1)
    sizes = used.sum(axis=1)
    before = len(codes) + 1
    raw = np.empty((column.rows, before + _VARINT_MAX), np.uint8)
    raw[:, : len(codes)] = codes
    raw[:, len(codes)] = np.where(negative, _ZERO - sizes, _ZERO + sizes)
    raw[:, before:] = np.where(negative[:, None], ~body, body)
    kept = np.ones(raw.shape, bool)
    kept[:, before:] = used
    offsets = np.zeros(column.rows + 1, np.int32)
    np.cumsum(sizes + before, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), column.rows, [_valid(column), pa.py_buffer(offsets), pa.py_buffer(raw[kept])]
    )


def _strings(values: pa.BinaryArray) -> pa.BinaryArray:
    """A zero byte is followed by 0xFF, and a zero byte ends the string."""
    escaped = pc.replace_substring(values, b"\x00", b"\x00\xff")
    return pc.binary_join_element_wise(_STRING_START, escaped, b"\x00", b"", null_handling="emit_null")
