"""Checkpoints, and what leaves: never a file of a kept point, nor one that a reader of the last hour may need."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.retention.retention import Retention
from tests.support.lakes import Published, source

pytestmark = pytest.mark.long

HOUR = 3600 * 10**9
POINTS = 45


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mirror, list[Point]]]:
    """A table that changes at every point, one that does not, and one that is dropped."""
    schema = [f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, n INT)" for name in ("busy", "still", "gone")]
    with source(tmp_path_factory.mktemp("long"), *schema) as found:
        fill = [f"INSERT INTO shop.{name} VALUES (1, 0), (2, 0)" for name in ("busy", "still", "gone")]
        points = [found.point(*fill), found.point("UPDATE shop.still SET n = 1", "DROP TABLE shop.gone")]
        points += [
            found.point(f"UPDATE shop.busy SET n = {number}", f"INSERT INTO shop.busy VALUES ({number + 10}, 1)")
            for number in range(POINTS - 2)
        ]
        yield found.mirror, points


@pytest.fixture
def lake(long: tuple[Mirror, list[Point]], tmp_path: Path) -> Published:
    return Published(long[0], tmp_path / "lake", retention=Retention(points=3))


def files(lake: Published, table: str) -> set[str]:
    return {path.name for path in (lake.folder / table).rglob("*") if path.is_file()}


def test_checkpoints_are_written_and_read_by_all(lake: Published, long: tuple[Mirror, list[Point]]) -> None:
    for point in long[1]:
        lake.publish(point)
    assert any(name.endswith(".checkpoint.parquet") for name in files(lake, "shop.busy"))
    lake.assert_shows(*long[1])  # nothing is an hour old


def test_what_no_kept_point_needs_leaves_after_an_hour(lake: Published, long: tuple[Mirror, list[Point]]) -> None:
    points = long[1]
    for point in points[:-1]:
        lake.publish(point)
    kept = files(lake, "shop.busy")
    for _ in range(2):  # the second time nothing is left to do
        lake.publish(points[-1], points[-1].at.physical + 2 * HOUR)
    assert not (lake.folder / "shop.gone").exists()
    lake.note_all(*points[-3:])
    lake.assert_shows(*points[-3:])
    assert len(files(lake, "shop.still")) < len(kept)


def test_a_busy_table_does_not_grow_beyond_its_rows(lake: Published, long: tuple[Mirror, list[Point]]) -> None:
    """Its points are hours apart."""
    points = long[1]
    sizes = []
    for number, point in enumerate(points):
        lake.publish(point, point.at.physical + 2 * HOUR)
        sizes.append(len(files(lake, "shop.busy")) - len(lake.lake().log("shop.busy").read().live))
        lake.note_all(*points[max(0, number - 2) : number + 1])
        lake.assert_shows(*points[max(0, number - 2) : number + 1])
    assert max(sizes[32:]) <= max(sizes[20:32]) + 2
    assert f"{0:020}.json" not in files(lake, "shop.busy")


def test_the_table_of_points_is_merged_and_forgets_old_points(
    lake: Published, long: tuple[Mirror, list[Point]]
) -> None:
    import polars as pl

    for point in long[1]:
        lake.publish(point, point.at.physical + 2 * HOUR)
    table = pl.read_delta(str(lake.folder / "ccpr.points"))
    newest = table.filter(pl.col("table").is_null()).sort("point")
    assert newest["point"].to_list()[-3:] == [point.lsn for point in long[1][-3:]]
    assert len(newest) < POINTS
    assert len(list((lake.folder / "ccpr.points" / "data").iterdir())) < POINTS
    row = table.filter(pl.col("table") == "shop.still").sort("at")
    assert row["version"].to_list()[-1] == lake.version("shop.still")


def test_without_retention_every_point_stays(lake: Published, long: tuple[Mirror, list[Point]]) -> None:
    lake = replace(lake, retention=Retention())
    for point in long[1]:
        lake.publish(point, point.at.physical + 2 * HOUR)
    lake.note_all(*long[1])
    lake.assert_shows(*long[1])


def test_orphans_leave_with_the_next_checkpoint(lake: Published, long: tuple[Mirror, list[Point]]) -> None:
    for point in long[1][:5]:
        lake.publish(point)
    orphan = lake.folder / "shop.busy" / "data" / "0193-00000-0123456789abcdef.parquet"
    orphan.write_bytes(b"of an attempt that came to nothing")
    for point in long[1][5:20]:
        lake.publish(point)
    assert not orphan.exists()


def test_a_table_without_its_pointer_to_the_checkpoint_goes_on(
    lake: Published, long: tuple[Mirror, list[Point]]
) -> None:
    points = long[1]
    for point in points[:-1]:
        lake.publish(point, point.at.physical + 2 * HOUR)
    assert f"{0:020}.json" not in files(lake, "shop.busy")
    for folder in ("shop.busy", "ccpr.points"):
        (lake.folder / folder / "_delta_log" / "_last_checkpoint").unlink()
    lake.publish(points[-1])
    lake.note_all(*points[-3:])
    lake.assert_shows(*points[-3:])
