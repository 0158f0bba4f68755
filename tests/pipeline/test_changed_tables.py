"""How many tables a point changes: compared with the rows themselves, over merges, index tables and definitions."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ccpr.matrixone.schema import Kind
from ccpr.mirror.delta import delta
from ccpr_emulator.engine.storage import Storage
from tests.histories.replicating import NAME, iterate
from tests.support.lakes import Source, source

DATABASE = "shop"
SCHEMA = (
    "CREATE TABLE shop.a (id INT PRIMARY KEY, v VARCHAR(20), KEY k (v))",
    "CREATE TABLE shop.b (id INT PRIMARY KEY, v VARCHAR(20))",
    "CREATE TABLE shop.c (id INT, v VARCHAR(20))",
)
FILL = tuple(
    f"INSERT INTO shop.{name} SELECT result, concat('v', result) FROM generate_series(1, 60) g" for name in "abc"
)
pytestmark = pytest.mark.integration


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def shop(storage: Storage, tmp_path: Path) -> Iterator[Source]:
    """Three tables with rows, one of them with an index table, and their newest point."""
    with source(tmp_path, *SCHEMA, storage=storage) as shop:
        shop.sql(*FILL)
        while iterate(shop.workspace).point:
            pass
        yield shop


def rows(shop: Source) -> dict[str, list[tuple]]:
    """Of each table at the newest point, sorted."""
    mirror, point = shop.mirror, shop.mirror.point()
    found = {}
    for ref in point.tables.values():
        if ref.kind is Kind.TABLE:
            manifest = mirror.manifest(ref)
            batches = mirror.rows(manifest, manifest.table.user_columns, point.at)
            found[ref.name] = sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())
    return found


def changed(shop: Source) -> int:
    outcome = iterate(shop.workspace)
    assert outcome.point
    return outcome.tables_changed


def names_of_changes(shop: Source, lsn: int) -> tuple[set[str], set[str]]:
    """What has changed in a point, by the catalog database and by the mirror."""
    point, refs = shop.mirror.point(), shop.workspace.of(NAME).history.refs(lsn)[0]
    if point.lsn != lsn:
        return set(), set()  # an idle iteration
    found = ([ref for ref in those.values() if ref.changed_lsn == lsn] for those in (refs, point.tables))
    of_catalog, of_mirror = ({one.qualified_name for one in those if one.kind is Kind.TABLE} for those in found)
    return of_catalog, of_mirror


def test_a_merge_changes_no_table_and_an_index_table_is_none(shop: Source, storage: Storage) -> None:
    before = rows(shop)
    for name in ("a", "b", "c"):
        storage.flush(DATABASE, name)
        assert storage.merge(DATABASE, name)
    assert changed(shop) == 0
    assert rows(shop) == before
    shop.sql("UPDATE shop.a SET v = 'other' WHERE id = 1")
    assert changed(shop) == 1, "its index table has other rows, too"


def test_an_update_that_was_merged_away_is_a_change(shop: Source, storage: Storage) -> None:
    """As many rows as before, no tombstone, and no object that tells of it."""
    for name in ("b", "c"):
        shop.sql(f"UPDATE shop.{name} SET v = 'other' WHERE id = 1")
        storage.flush(DATABASE, name)
        assert storage.merge(DATABASE, name)
    assert changed(shop) == 2


def test_definitions_count_and_a_truncated_table_counts_once(shop: Source) -> None:
    shop.sql("TRUNCATE TABLE shop.a", "ALTER TABLE shop.b ADD COLUMN w INT", "CREATE TABLE shop.d (id INT PRIMARY KEY)")
    assert changed(shop) == 3
    shop.sql("DROP TABLE shop.d", "RENAME TABLE shop.c TO shop.e")
    assert changed(shop) == 2


def test_what_would_take_too_much_reading_counts(
    shop: Source, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "MOST_BYTES", 10)
    storage.flush(DATABASE, "c")
    assert storage.merge(DATABASE, "c")
    assert changed(shop) == 0, "commit times tell it"
    monkeypatch.setattr(delta, "MOST_TIMES", 10)
    storage.flush(DATABASE, "b")
    assert storage.merge(DATABASE, "b")
    assert changed(shop) == 1


@pytest.mark.parametrize("seed", range(6))
def test_as_many_tables_have_changed_as_have_other_rows(shop: Source, storage: Storage, seed: int) -> None:
    chosen = random.Random(seed)
    numbers = iter(range(1000, 10_000))

    def insert(name: str) -> None:
        shop.sql(f"INSERT INTO shop.{name} VALUES ({next(numbers)}, 'new')")

    def update(name: str) -> None:
        shop.sql(f"UPDATE shop.{name} SET v = 'u{next(numbers)}' WHERE id = {chosen.randint(1, 60)}")

    def delete(name: str) -> None:
        shop.sql(f"DELETE FROM shop.{name} WHERE id = {chosen.randint(1, 60)}")

    def merge(name: str) -> None:
        storage.flush(DATABASE, name)
        storage.merge(DATABASE, name)

    def merge_tombstones(name: str) -> None:
        storage.merge_tombstones(DATABASE, name)

    acts: list[Callable[[str], None]] = [insert, update, delete, merge, merge, merge_tombstones]
    before = rows(shop)
    for _ in range(8):
        for _ in range(chosen.randint(1, 5)):
            chosen.choice(acts)(chosen.choice("abc"))
        outcome, after = iterate(shop.workspace), rows(shop)
        differ = {f"shop.{name}" for name in "abc" if before[name] != after[name]}
        assert outcome.tables_changed == len(differ)
        assert names_of_changes(shop, outcome.lsn) == (differ, differ)
        assert outcome.tables == 3, "its index table is none"
        before = after
