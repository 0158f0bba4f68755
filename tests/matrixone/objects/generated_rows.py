"""Columns of every type and rows of every shape, for property tests: values by hypothesis, spread over any number of
rows by numpy."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.convert import decimal_text
from ccpr.matrixone.objects.types import arrow_type
from ccpr.matrixone.schema import Column, SqlType

_POOL = 12  # distinct values of a column; rows repeat them
_MIDNIGHT = datetime(1, 1, 1)
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999999)
_labels = st.lists(
    st.text(st.characters(exclude_characters=",", exclude_categories=("Cs",)), min_size=1, max_size=8),
    min_size=1,
    unique=True,
)
_text = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _text,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",)), max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)

INTEGERS = {
    types.INT8: (-(2**7), 2**7 - 1),
    types.INT16: (-(2**15), 2**15 - 1),
    types.INT32: (-(2**31), 2**31 - 1),
    types.INT64: (-(2**63), 2**63 - 1),
    types.UINT8: (0, 2**8 - 1),
    types.UINT16: (0, 2**16 - 1),
    types.UINT32: (0, 2**32 - 1),
    types.UINT64: (0, 2**64 - 1),
}
ALL_TYPES = (*types.SLOT_SIZES, "set", "packed")


@dataclass(frozen=True)
class Generated:
    """A column and some values that it can hold, as Python objects that Arrow takes."""

    column: Column
    values: list[Any]

    def array(self, rows: int, nulls: float, seed: int) -> pa.Array:
        """`rows` of these values in any order; about the given part of them null."""
        random = np.random.default_rng(seed)
        pool = pa.array(self.values, arrow_type(self.column))
        return pool.take(pa.array(random.integers(0, len(pool), rows), mask=random.random(rows) < nulls))


@st.composite
def generated(draw: st.DrawFn, kind: int | str, seqnum: int = 0, name: str = "c") -> Generated:
    oid, width, scale, labels, hidden = kind if isinstance(kind, int) else types.UINT64, 0, 0, (), False
    pool = lambda values: draw(st.lists(values, min_size=1, max_size=_POOL))  # noqa: E731
    if kind == "packed":
        oid, hidden, values = types.VARCHAR, True, pool(st.binary(max_size=40))
    elif kind == "set":
        labels = tuple(draw(_labels))[:64]
        members = st.lists(st.sampled_from(range(len(labels))), unique=True).map(sorted)
        values = [",".join(labels[place] for place in chosen) for chosen in pool(members)]
    elif oid == types.ENUM:
        labels = tuple(draw(_labels))
        values = pool(st.sampled_from(["", *labels]))
    elif oid == types.BOOL:
        values = pool(st.booleans())
    elif oid == types.BIT:
        width = draw(st.integers(1, 64))
        values = [Decimal(value) for value in pool(st.integers(0, 2**width - 1))]
    elif oid in INTEGERS:
        values = pool(st.integers(*INTEGERS[oid]) | st.sampled_from(INTEGERS[oid]))
        values = [Decimal(value) for value in values] if oid == types.UINT64 else values
    elif oid in (types.FLOAT32, types.FLOAT64):
        values = pool(st.floats(width=32 if oid == types.FLOAT32 else 64, allow_nan=False))
    elif oid in types.MAX_PRECISION:
        width = draw(st.integers(1, types.MAX_PRECISION[oid]))
        scale = draw(st.integers(0, width))
        largest = 10**width - 1
        unscaled = pool(st.integers(-largest, largest) | st.sampled_from((-largest, 0, largest)))
        if oid == types.DECIMAL256:
            values = decimal_text(pa.array(map(Decimal, unscaled), pa.decimal256(76, 0)), scale).to_pylist()
        else:
            values = [
                Decimal(value).scaleb(-scale) if len(str(value)) < 28 else Decimal(f"{value}E-{scale}")
                for value in unscaled
            ]
    elif oid == types.DATE:
        values = pool(st.dates() | st.sampled_from((date.min, date.max)))
    elif oid == types.TIME:
        values = pool(st.integers(-(2**62), 2**62).map(lambda us: np.timedelta64(us, "us")))
    elif oid in (types.DATETIME, types.TIMESTAMP):
        zone = UTC if oid == types.TIMESTAMP else None
        values = [
            value.replace(tzinfo=zone)
            for value in pool(st.datetimes(_MIDNIGHT, _LAST) | st.sampled_from((_MIDNIGHT, _LAST)))
        ]
    elif oid == types.YEAR:
        values = pool(st.just(0) | st.integers(1901, 2155))
    elif oid == types.UUID:
        values = [str(value) for value in pool(st.uuids())]
    elif oid == types.JSON:
        values = [json.dumps(value, ensure_ascii=draw(st.booleans())) for value in pool(_json)]
    elif oid in types.TEXT_TYPES:
        width = 60 if oid in (types.CHAR, types.VARCHAR) else 0
        values = pool(_text)
    elif oid in types.BINARY_TYPES:
        width = 200 if oid in (types.BINARY, types.VARBINARY) else 0
        values = pool(st.binary(max_size=200))
    elif oid in types.GEOMETRY_TYPES:
        values = pool(st.sampled_from(("POINT(24 12)", "LINESTRING(0 0,1 1)", "SRID=4326;POINT(1 2)")))
    elif oid in types.VECTOR_TYPES:
        width = draw(st.integers(1, 9))
        item = {
            types.VECF32: st.floats(width=32, allow_nan=False),
            types.VECF64: st.floats(allow_nan=False),
            types.VECF16: st.integers(-2048, 2048).map(lambda number: number / 2),
            types.VECBF16: st.integers(-128, 128).map(float),
            types.VECINT8: st.integers(-128, 127),
            types.VECUINT8: st.integers(0, 255),
        }[oid]
        values = pool(st.lists(item, min_size=width, max_size=width))
    else:
        size = types.SLOT_SIZES[oid]
        values = pool(st.binary(min_size=size, max_size=size))
    column = Column(name, seqnum, SqlType(oid, width, scale), hidden, labels)
    return Generated(column, values)
