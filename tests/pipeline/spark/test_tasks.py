"""Rows in tasks: each number's are in one of its own, whether they travel with the task or are distributed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ccpr.pipeline.spark import tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("few_bytes", [0, 1000])
@pytest.mark.parametrize("numbers", [[], [0], [0, 0, 1, 0, 2], [3, 1, 3]])
def test_each_number_is_a_task(
    spark: "SparkSession", numbers: list[int], few_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_FEW_BYTES", few_bytes)
    rows = pa.table({"task": pa.array(numbers, pa.int32()), "value": list(range(len(numbers)))})

    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [row for batch in batches for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pydict({"seen": [repr(sorted((row["task"], row["value"]) for row in found))]})

    schema = pa.schema([pa.field("seen", pa.string())])
    found = tasks.in_tasks(spark, rows, seen, schema).toArrow().column("seen").to_pylist()
    expected = [
        repr(sorted((task, value) for value, task in enumerate(numbers) if task == number)) for number in set(numbers)
    ]
    assert sorted(text for text in found if text != "[]") == sorted(expected)
