"""The sample objects are what stands beside them: rows as Parquet, columns and stats as JSON."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emulator.sample_objects import write_samples
from matrixone.objects import types
from matrixone.objects.reader import ObjectFile
from matrixone.objects.stats import ObjectStats
from matrixone.schema import Column


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("samples")
    write_samples(made)
    return made


def test_every_sample_reads_as_its_rows(folder: Path) -> None:
    kinds = set()
    for sample in sorted(folder.iterdir()):
        about = json.loads((sample / "about.json").read_text())
        rows = pq.read_table(sample / "rows.parquet")
        stats = ObjectStats.parse(bytes.fromhex(about["stats"]))
        file = ObjectFile.open(sample / about["object"])
        file.check(stats, inflate=True, deep=True)
        columns = [Column.from_json(column) for column in about["columns"]]
        for column in columns:
            found = pa.chunked_array([file.column(block.number, column) for block in file.blocks])
            if column.type.oid == types.JSON:
                found = pa.chunked_array([[None if text is None else json.dumps(json.loads(text)) for text in found.to_pylist()]])
                expected = [None if text is None else json.dumps(json.loads(text)) for text in rows[column.name].to_pylist()]
                assert found.to_pylist() == expected
            else:
                assert found.equals(rows[column.name]), (sample.name, column.name)
        times = [file.commit_timestamps(block.number) for block in file.blocks]
        if times[0] is not None:
            whole = np.concatenate([block for block in times if block is not None])
            assert whole["physical"].tolist() == rows["commit_physical"].to_pylist()
            assert whole["logical"].tolist() == rows["commit_logical"].to_pylist()
        assert (stats.rows, stats.blocks, stats.size) == (rows.num_rows, about["blocks"], about["size"])
        kinds.add(
            (about["kind"].split(",")[0], stats.appendable, stats.sorted, stats.created_by_cn, times[0] is not None, stats.blocks > 1)
        )
    for kind in (
        ("data", True, False, False, True, False),
        ("data", False, True, False, True, False),
        ("data", False, True, False, True, True),
        ("data", False, True, True, False, False),
        ("data", False, True, False, False, False),
        ("data", False, False, False, True, False),
        ("tombstones", True, True, False, True, False),
        ("tombstones", False, True, False, True, True),
        ("tombstones", False, True, True, False, False),
    ):
        assert kind in kinds


def test_there_is_a_sample_of_every_type(folder: Path) -> None:
    found = set()
    for about in folder.glob("type-*/about.json"):
        (_, column) = json.loads(about.read_text())["columns"]
        found.add(column["type"][0])
    assert found == set(types.SLOT_SIZES) - {types.TS, types.ROWID, types.BLOCK_ID}, "these three are no types of a user's column"
