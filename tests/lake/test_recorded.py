"""Recordings of a real MatrixOne as Iceberg tables: readers give their rows at every point."""

from pathlib import Path

import pytest

from tests.support.iceberg_published import IcebergPublished, marks
from tests.support.lake_engines import Query, duckdb_reads
from tests.support.lake_readers import assert_same_rows, truth
from tests.support.recorded_mirror import mirror_of_recording
from tests.support.replica import SIZED_SCENARIOS

pytestmark = [pytest.mark.long, pytest.mark.recordings]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("scenario", SIZED_SCENARIOS)
def test_every_recorded_table_is_read_at_every_point(
    scenario: str, version: int, recordings: Path, tmp_path: Path
) -> None:
    mirror = mirror_of_recording(recordings / scenario, tmp_path / "mirror")
    lake = IcebergPublished(mirror, tmp_path / "lake", readers=(), version=version)
    points = mirror.points()
    for point in points:
        lake.publish(point)
        lake.assert_pinned(point)
    lake.assert_pinned(*points)
    queries, wanted = [], []
    for (name, metadata), snapshots in lake.snapshots().items():
        for one in snapshots:
            point = mirror.point(int(marks(one)["ccpr.point"]))
            if name in lake.shown[point.lsn]:
                queries.append(Query(metadata, one.snapshot_id, iceberg=True))
                wanted.append((name, point))
    assert queries
    for rows, (name, point) in zip(duckdb_reads(queries), wanted, strict=True):
        assert_same_rows(rows, truth(mirror, point, name), f"DuckDB: {name} at lsn {point.lsn}")
