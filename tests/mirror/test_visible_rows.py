"""The count of visible rows equals the number of rows that are read."""

from pathlib import Path

import pyarrow.compute as pc
import pytest

from ccpr.mirror.table_read import count_visible
from tests.api.shop import Shop

ID = pc.field("id")


def test_inserted_deleted_and_merged_rows_are_counted_as_they_are_read(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.create()
    shop.publish()
    shop.insert(range(5000))
    shop.publish()
    shop.delete((ID >= 100) & (ID < 400))
    shop.publish()
    shop.insert(range(6000, 6010))
    shop.delete(ID >= 6005)
    shop.publish()
    mirror = shop.simulated.mirror
    counts = []
    for point in shop.published:
        manifest = mirror.manifest(point.table("shop.orders"))
        counts.append(count_visible(mirror, manifest, point.at))
        assert counts[-1] == shop.rows(point).num_rows
    assert counts == [0, 5000, 4700, 4705]


@pytest.mark.parametrize("limit", ["most_objects", "most_rows_read"])
def test_a_table_that_takes_too_much_reading_is_not_counted(limit: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.create()
    shop.insert(range(5000))
    shop.delete(ID < 10)
    point = shop.publish()
    mirror = shop.simulated.mirror
    manifest = mirror.manifest(point.table("shop.orders"))
    assert count_visible(mirror, manifest, point.at, **{limit: 0}) is None
