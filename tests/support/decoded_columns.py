"""Notes which columns a reader decodes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.schema import Column


@dataclass(frozen=True)
class Decoded:
    object_id: bytes
    block: int
    column: str


def note_decoded(monkeypatch: pytest.MonkeyPatch) -> set[Decoded]:
    """What is decoded from now on; it fills."""
    seen: set[Decoded] = set()
    column, values = ObjectFile.column, ObjectFile.values

    def one(file: ObjectFile, block: int, wanted: Column, rows: np.ndarray | None = None) -> pa.Array:
        seen.add(Decoded(file.object_id, block, wanted.name))
        return column(file, block, wanted, rows)

    def several(file: ObjectFile, blocks: Sequence[int], wanted: Column) -> pa.Array:
        seen.update(Decoded(file.object_id, block, wanted.name) for block in blocks)
        return values(file, blocks, wanted)

    monkeypatch.setattr(ObjectFile, "column", one)
    monkeypatch.setattr(ObjectFile, "values", several)
    return seen
