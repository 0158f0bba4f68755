"""A table `b.t` of eight columns, which the emulator's storage engine writes as MatrixOne would: objects of 131,072
rows if not told otherwise, sorted by the key."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr_emulator.engine.storage import Storage
from tests.support.simulated_mirror import SimulatedMirror

_OBJECT_ROWS = 16 * 8192
TYPES = {
    "id": "bigint", "name": "varchar(40)", "amount": "decimal(12,2)", "score": "double", "kind": "int", "born": "date",
    "at": "datetime(6)", "note": "varchar(100)",
}  # fmt: skip
_START_NS = 1_780_000_000_000_000_000


def wide_table(mirror: Path, rows: int, rng: np.random.Generator, object_rows: int = _OBJECT_ROWS) -> SimulatedMirror:
    """With one point, at which the table has so many rows; their keys are even."""
    simulated = SimulatedMirror(Storage(now=times(), cn_rows=object_rows, object_rows=object_rows), mirror)
    storage = simulated.storage
    storage.create_database("b")
    storage.create_table("b", "t", dict(TYPES), primary_key=["id"])
    for start in range(0, rows, object_rows):
        transaction = storage.begin()
        transaction.insert("b", "t", values(np.arange(start, min(start + object_rows, rows)) * 2, rng))
        transaction.commit()
    simulated.take_points()
    return simulated


def times() -> Callable[[], int]:
    """A clock, which goes on by a second with each question; nanoseconds."""
    return iter(range(_START_NS, 2 * _START_NS, 1_000_000_000)).__next__


def values(keys: np.ndarray, rng: np.random.Generator) -> pa.Table:
    """Rows with these keys."""
    count = len(keys)
    unscaled = pa.array(rng.integers(0, 10**9, count)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 0), safe=False)
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "name": pc.binary_join_element_wise("customer", pa.array(keys).cast(pa.string()), "-"),
            "amount": unscaled.view(pa.decimal128(12, 2)),
            "score": pa.array(rng.random(count)),
            "kind": pa.array(rng.integers(0, 50, count), pa.int32()),
            "born": pa.array(rng.integers(0, 20_000, count), pa.int32()).cast(pa.date32()),
            "at": pa.array(rng.integers(0, 1 << 50, count)).cast(pa.timestamp("us")),
            "note": pa.array(
                np.char.mod("note %d of a length that does not fit in a slot", rng.integers(0, 1000, count))
            ),
        }
    )
