"""A mirror whose files are not what was written, or are gone, is rows or an error of ccpr; never another exception."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import ccpr
from tests.api.shop import Shop
from tests.hostile.mutate import mutated

CASES = 60


def read_all(root: Path) -> None:
    """Everything that this package reads."""
    mirror = ccpr.open_mirror(root)
    for point in mirror.points():
        for table in mirror.tables(point):
            opened = mirror.table(table.name, at=point)
            opened.to_arrow()
            opened.count(filters=[(table.columns[0], "is not null")])
            opened.to_arrow(at=point.time, filters=[(table.columns[0], "is not null")])
            opened.changes(None, point).to_arrow()
    orders = mirror.table("shop.orders")
    orders.to_arrow(filters=[("id", ">", 2000), ("customer", "!=", "x")])
    orders.changes(1).to_arrow()


def outcome(root: Path) -> str:
    try:
        read_all(root)
    except ccpr.CcprError as error:
        return error.code if error.remedy and error.subject else f"{error.code} without a subject or a remedy"
    return "rows"


def test_an_undamaged_mirror_is_read(shop: Shop) -> None:
    assert outcome(shop.root) == "rows"


@pytest.mark.parametrize("folder", ["head.json", "points", "manifests", "objects"])
def test_a_damaged_file_is_rows_or_a_typed_error(shop: Shop, folder: str) -> None:
    chance = random.Random(folder)
    place = shop.root / folder
    files = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
    outcomes: Counter[str] = Counter()
    for _ in range(CASES):
        path = chance.choice(files)
        content = path.read_bytes()
        path.unlink()  # a new file: an open one may be mapped
        path.write_bytes(mutated(content, chance, [content], gentle=chance.random() < 0.5))
        outcomes[outcome(shop.root)] += 1
        path.unlink()
        path.write_bytes(content)
    assert outcome(shop.root) == "rows"
    assert not [code for code in outcomes if " " in code], outcomes
    assert len(outcomes) > 1 or "rows" not in outcomes, "some damage is found"


def gone(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [gone, emptied])
def test_a_file_that_is_missing_or_empty_is_a_typed_error_that_names_it(
    shop: Shop, orders: ccpr.Table, harm: Callable[[Path], None]
) -> None:
    data = [path for path in sorted((shop.root / "objects").iterdir()) if path.is_file()]
    for path in data:
        harm(path)
    with pytest.raises(ccpr.CcprError, match=r"shop\.orders|object [0-9a-f-]{36}_") as damaged:
        orders.to_arrow()
    assert damaged.value.code in ("MIRROR_DAMAGED", "OBJECT_DAMAGED")
    (manifest,) = {ref.manifest for ref in shop.published[-1].tables.values() if ref.name == "orders"}
    harm(shop.root / manifest)
    with pytest.raises(ccpr.MirrorDamaged, match=r"table shop\.orders") as damaged:
        orders.to_batches()
    assert "ccpr resync NAME --table shop.orders" in damaged.value.remedy
    newest = shop.simulated.mirror.point_files().newest()
    assert newest is not None
    harm(shop.root / newest.path)
    with pytest.raises(ccpr.MirrorDamaged, match=newest.path):
        ccpr.open_mirror(shop.root).table("shop.orders")
