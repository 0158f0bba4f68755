from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ccpr.cli import row_files
from ccpr.cli.row_files import write_rows
from ccpr.mirror import table_read

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def batch(start: int, rows: int, text: str = "x") -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(start, start + rows)), pa.array([text] * rows)], schema=SCHEMA)


def groups(file: Path) -> list[int]:
    shown = pq.ParquetFile(file).metadata
    return [shown.row_group(number).num_rows for number in range(shown.num_row_groups)]


def test_small_batches_share_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_read, "GROUP_ROWS", 100)
    monkeypatch.setattr(row_files, "_GROUP_BYTES", 10_000)
    file, told = tmp_path / "rows.parquet", []
    batches = [batch(start, 30) for start in range(0, 270, 30)] + [batch(270, 1, "y" * 20_000), batch(271, 2)]
    assert write_rows(file, SCHEMA, iter(batches), told.append) == 273
    assert groups(file) == [120, 120, 31, 2]
    assert told == [*range(30, 271, 30), 271, 273]
    assert pq.read_table(file).equals(pa.Table.from_batches(batches))


def test_a_file_without_rows_has_the_columns(tmp_path: Path) -> None:
    file = tmp_path / "none.parquet"
    assert write_rows(file, SCHEMA, iter(())) == 0
    assert groups(file) == []
    assert pq.read_schema(file).equals(SCHEMA)


def test_a_file_appears_only_if_all_rows_are_in_it(tmp_path: Path) -> None:
    def ends_early():
        yield batch(0, 10)
        raise ValueError("the mirror is gone")

    with pytest.raises(ValueError, match="gone"):
        write_rows(tmp_path / "rows.parquet", SCHEMA, ends_early())
    assert list(tmp_path.iterdir()) == []
