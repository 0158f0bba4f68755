"""The changes of a table between two points, whatever was done to it in between: rows, TRUNCATE, ALTER, RENAME, DROP,
CREATE; over random histories of a simulated upstream, and one by one."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ccpr.matrixone.objects.types import arrow_type
from ccpr.mirror.delta.between import TableChanges, changes_between, removal_delta
from ccpr.mirror.delta.change_rows import DELETE, KIND, UPSERT, change_batches, change_schema, part_of
from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr.mirror.delta.row_keys import RowKey, row_key
from ccpr.mirror.delta.split import DeltaPart
from ccpr.mirror.errors import KeyChanged, PointNotReached, TableMissingInMirror
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import LaggingTable, Point
from ccpr_emulator.engine.entries import TableEntry
from ccpr_emulator.engine.storage import Storage
from tests.histories.history import History
from tests.mirror.delta.histories import COUNT, FIRST, points_of
from tests.support.delta_truth import assert_is_delta, row_texts, rows_at, together
from tests.support.simulated_mirror import SimulatedMirror
from tests.support.spark_fixtures import RecordedMirror

# ---- what it has to be


@dataclass(frozen=True)
class Pair:
    """A table at two points, found by somebody who knows the engine's ids: the truth about what `changes_between` finds
    in manifests."""

    before: TableAt | None
    after: TableAt | None

    @property
    def same(self) -> bool:
        return (
            self.before is not None and self.after is not None and self.before.ref.table_id == self.after.ref.table_id
        )


def pairs(simulated: SimulatedMirror, former: Point, later: Point) -> Iterator[tuple[str, Pair]]:
    """By every name that a table has at one of the points."""
    logical = {entry.id: entry.logical_id for entry in simulated.storage.tables}
    names = sorted({ref.qualified_name for point in (former, later) for ref in point.tables.values()})
    for name in names:
        at_later = [table_id for table_id, ref in later.tables.items() if ref.qualified_name == name]
        at_former = [table_id for table_id, ref in former.tables.items() if ref.qualified_name == name]
        if at_later:
            (after,) = at_later
            known = [table_id for table_id in former.tables if logical[table_id] == logical[after]] or at_former
            before = known[0] if known else None
        else:
            (before,) = at_former
            known = [table_id for table_id in later.tables if logical[table_id] == logical[before]]
            after = known[0] if known else None
        yield (
            name,
            Pair(
                None if before is None else TableAt.of(former, before),
                None if after is None else TableAt.of(later, after),
            ),
        )


def key_at(mirror: Mirror, table: TableAt) -> RowKey:
    return row_key(mirror.manifest(table.ref).table)


def keys_of(mirror: Mirror, table: TableAt | None, key: RowKey | None = None) -> Counter[str]:
    """Texts of the keys that a table has, columns by name as `key` has them."""
    if table is None:
        return Counter()
    manifest = mirror.manifest(table.ref)
    by_name = {column.name: column for column in manifest.table.columns}
    columns = [by_name[column.name] for column in (key or row_key(manifest.table)).columns]
    schema = pa.schema([(column.name, arrow_type(column)) for column in columns])
    return Counter(row_texts(pa.Table.from_batches(mirror.rows(manifest, columns, table.at), schema)))


def names_stay(mirror: Mirror, pair: Pair) -> bool:
    """Whether each column that both points have is called the same, and no other one has a name of before."""
    assert pair.before is not None
    assert pair.after is not None
    then, now = (mirror.manifest(one.ref).table.user_columns for one in (pair.before, pair.after))
    return all((one.name == other.name) == (one.seqnum == other.seqnum) for one in then for other in now)


def check(mirror: Mirror, changes: TableChanges, pair: Pair) -> None:
    """That the changes are those of the pair, and exactly what leads from the one to the other."""
    assert (changes.before, changes.after) == (pair.before, pair.after)
    change = together(changes.parts(), changes.shape)
    if pair.before is None or (pair.same and names_stay(mirror, pair)):
        assert changes.replaced is None
        assert_is_delta(change, rows_at(mirror, pair.before, changes.shape), rows_at(mirror, pair.after, changes.shape))
        return
    assert (changes.replaced is None) == (pair.after is None)
    now = rows_at(mirror, pair.after, changes.shape).texts if pair.after else Counter()
    assert Counter(row_texts(change.upserts)) == now, "all rows of the new table are upserts"
    present = keys_of(mirror, pair.after, changes.shape.key)
    gone = keys_of(mirror, pair.before, changes.shape.key) - present
    assert Counter(row_texts(change.deletes)) == gone, "the keys that only the old table has are deletes"


def same_key(mirror: Mirror, pair: Pair) -> bool:
    if pair.before is None or pair.after is None or pair.same:
        return True
    one, two = (
        {column.name: arrow_type(column) for column in key_at(mirror, table).columns}
        for table in (pair.before, pair.after)
    )
    return one == two


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_changes_lead_from_one_point_of_a_history_to_another(seed: int, tmp_path: Path) -> None:
    history = History(seed)
    simulated = points_of(history, tmp_path)
    mirror = simulated.mirror
    try:
        for former, later in combinations(simulated.points, 2):
            for name, pair in pairs(simulated, former, later):
                history.done.append(f"changes of {name} from {former.at} to {later.at}")
                split_rows = history.rng.choice((1, 50, 1 << 20))
                if same_key(mirror, pair):
                    check(mirror, changes_between(mirror, name, former, later, split_rows=split_rows), pair)
                else:
                    with pytest.raises(KeyChanged, match="replaced by a table with another key"):
                        changes_between(mirror, name, former, later)
    except Exception:
        print(f"history of seed {seed}:", *history.done, sep="\n  ")
        raise


# ---- one by one


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedMirror:
    """A table `d.t` of 300 rows, some deleted, in several objects, at point 0; `n` is its key."""
    storage = Storage(cn_rows=100, now=iter(range(10**18, 2 * 10**18, 10**9)).__next__)
    storage.create_database("d")
    create(storage)
    insert(storage, range(300))
    insert(storage, range(1000, 1003))
    with storage.begin() as transaction:
        transaction.delete("d", "t", pc.field("n") < 10)
    simulated = SimulatedMirror(storage, tmp_path / "mirror")
    simulated.take_points()
    return simulated


def create(storage: Storage, name: str = "t", **options: object) -> TableEntry:
    columns = {"n": "bigint", "m": "varchar(20)"}
    return storage.create_table("d", name, columns, primary_key=["n"], **options)  # pyright: ignore[reportArgumentType]


def insert(storage: Storage, numbers: range, name: str = "t") -> None:
    with storage.begin() as transaction:
        transaction.insert("d", name, {"n": list(numbers), "m": [f"{name} {number}" for number in numbers]})
    storage.flush("d", name)


def changes_of(simulated: SimulatedMirror, name: str = "d.t", since: int = 0) -> DeltaPart:
    """From a point to the state of now, which becomes one; checked."""
    simulated.take_points()
    former, later = simulated.points[since], simulated.points[-1]
    found = dict(pairs(simulated, former, later))[name]
    changes = changes_between(simulated.mirror, name, former, later, split_rows=50)
    check(simulated.mirror, changes, found)
    return together(changes.parts(), changes.shape)


def counts(change: DeltaPart) -> tuple[int, int]:
    return change.upserts.num_rows, change.deletes.num_rows


def test_a_new_table_is_all_upserts(shop: SimulatedMirror) -> None:
    create(shop.storage, "u")
    insert(shop.storage, range(5), "u")
    assert counts(changes_of(shop, "d.u")) == (5, 0)


def test_before_the_first_point_there_was_nothing(shop: SimulatedMirror) -> None:
    changes = changes_between(shop.mirror, "d.t", None, shop.points[0])
    assert changes.before is None
    assert counts(together(changes.parts(), changes.shape)) == (293, 0)


def test_a_dropped_table_is_all_deletes(shop: SimulatedMirror) -> None:
    shop.storage.drop_table("d", "t")
    change = changes_of(shop)
    assert counts(change) == (0, 293)
    assert change.deletes.column_names == ["n"]


def test_a_truncated_table_keeps_the_keys_that_it_has_again(shop: SimulatedMirror) -> None:
    shop.storage.truncate("d", "t")
    insert(shop.storage, range(200, 400))
    change = changes_of(shop)
    assert counts(change) == (200, 193), "of 293 keys 100 are there again"
    assert not set(change.upserts.column("n").to_pylist()) & set(change.deletes.column("n").to_pylist())


def test_a_truncated_table_that_stays_empty_is_all_deletes(shop: SimulatedMirror) -> None:
    shop.storage.truncate("d", "t")
    assert counts(changes_of(shop)) == (0, 293)


def test_a_table_that_was_dropped_and_created_again_is_another_one_of_the_same_name(shop: SimulatedMirror) -> None:
    shop.storage.drop_table("d", "t")
    create(shop.storage)
    insert(shop.storage, range(290, 310))
    assert counts(changes_of(shop)) == (20, 283)


def test_a_renamed_table_has_changed_in_its_rows_only(shop: SimulatedMirror) -> None:
    shop.storage.rename_table("d", "t", "u")
    insert(shop.storage, range(400, 402), "u")
    assert counts(changes_of(shop, "d.u")) == (2, 0)
    assert counts(changes_of(shop, "d.t")) == (2, 0), "by its old name it is found, too"


def test_a_table_that_was_renamed_and_truncated_is_found_by_its_logical_id(shop: SimulatedMirror) -> None:
    shop.storage.rename_table("d", "t", "u")
    shop.storage.truncate("d", "u")
    insert(shop.storage, range(12, 20), "u")
    for name in ("d.u", "d.t"):
        assert counts(changes_of(shop, name)) == (8, 285)


def test_a_table_that_took_the_name_of_one_that_was_renamed_replaces_it_under_that_name(shop: SimulatedMirror) -> None:
    shop.storage.rename_table("d", "t", "old")
    create(shop.storage)
    insert(shop.storage, range(20))
    assert counts(changes_of(shop)) == (20, 283)
    assert counts(changes_of(shop, "d.old")) == (0, 0)


def test_an_alter_that_copies_gives_all_rows_with_the_new_column(shop: SimulatedMirror) -> None:
    shop.storage.add_column("d", "t", "extra", "int")
    change = changes_of(shop)
    assert counts(change) == (293, 0)
    assert change.upserts.column_names == ["n", "m", "extra"]


def test_a_table_without_a_key_is_matched_by_the_servers_own(shop: SimulatedMirror) -> None:
    shop.storage.create_table("d", "k", {"a": "int"})
    with shop.storage.begin() as transaction:
        transaction.insert("d", "k", {"a": [1, 1, 2]})
    shop.take_points()
    shop.storage.truncate("d", "k")
    with shop.storage.begin() as transaction:
        transaction.insert("d", "k", {"a": [7]})
    change = changes_of(shop, "d.k", since=1)
    assert change.upserts.num_rows == 1
    assert change.deletes.column_names == ["__mo_fake_pk_col"]


def test_another_key_is_an_error_that_names_both(shop: SimulatedMirror) -> None:
    shop.storage.drop_table("d", "t")
    shop.storage.create_table("d", "t", {"n": "bigint", "m": "varchar(20)"}, primary_key=["n", "m"])
    shop.take_points()
    with pytest.raises(KeyChanged, match="n int64 before, n int64, m string after") as refused:
        changes_between(shop.mirror, "d.t", *shop.points)
    assert refused.value.subject == "table d.t"
    shop.storage.drop_table("d", "t")
    shop.storage.create_table("d", "t", {"n": "varchar(9)"}, primary_key=["n"])
    shop.take_points()
    with pytest.raises(KeyChanged, match="n int64 before, n string after"):
        changes_between(shop.mirror, "d.t", shop.points[0], shop.points[-1])


def test_composite_keys_of_two_tables_are_matched_by_their_columns(shop: SimulatedMirror) -> None:
    """Of every type that a key may have."""
    types = {"i": "int", "u": "bigint unsigned", "x": "decimal(12,2)", "s": "varchar(9)", "b": "varbinary(9)"}
    types |= {"d": "date", "t": "datetime(6)", "z": "timestamp(6)", "c": "time(6)", "g": "uuid"}
    for text, left, right in (("shared", [1, 2], 2), ("all again", [1, 2], 3)):
        shop.storage.create_table("d", text, types, primary_key=list(types))
        fill(shop.storage, text, left, types)
        shop.take_points()
        shop.storage.truncate("d", text)
        fill(shop.storage, text, list(range(1, right)), types)
        change = changes_of(shop, f"d.{text}", since=-2)
        assert counts(change) == (right - 1, 3 - right)


def fill(storage: Storage, table: str, numbers: list[int], types: dict[str, str]) -> None:
    values = {
        "i": pa.array(numbers, pa.int32()),
        "u": pa.array(numbers).cast(pa.decimal128(20, 0)),
        "x": pa.array(numbers).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
        "s": pa.array([f"s{number}" for number in numbers]),
        "b": pa.array([bytes([number]) for number in numbers]),
        "d": pa.array(numbers, pa.int32()).cast(pa.date32()),
        "t": pa.array(numbers).cast(pa.timestamp("us")),
        "z": pa.array(numbers).cast(pa.timestamp("us", "UTC")),
        "c": pa.array(numbers).cast(pa.duration("us")),
        "g": pa.array([f"00000000-0000-0000-0000-{number:012}" for number in numbers]),
    }
    with storage.begin() as transaction:
        transaction.insert("d", table, pa.table({name: values[name] for name in types}))


def test_a_table_that_lags_at_a_point_is_an_error_that_names_it(shop: SimulatedMirror) -> None:
    table_id, ref = next(iter(shop.points[0].tables.items()))
    shop.storage.rename_table("d", "t", "u")
    shop.take_points()
    here, lagging = shop.points[1], {table_id: LaggingTable("d", "u", 0)}
    there = replace(here, tables={}, behind=lagging)
    for name in ("d.t", "d.u"):
        with pytest.raises(PointNotReached, match=r"table d\.u at point 1"):
            changes_between(shop.mirror, name, shop.points[0], there)
    before = replace(shop.points[0], tables={}, behind={table_id: LaggingTable("d", "t", None)})
    for name in ("d.t", "d.u"):
        with pytest.raises(PointNotReached, match=r"table d\.t at point 0"):
            changes_between(shop.mirror, name, before, here)
    shop.storage.truncate("d", "u")
    shop.take_points()
    with pytest.raises(PointNotReached, match=r"table d\.u at point 1"):  # known under its former id
        changes_between(shop.mirror, "d.u", there, shop.points[2])
    assert ref.table_id not in shop.points[2].tables


def test_a_name_that_neither_point_has_is_an_error(shop: SimulatedMirror) -> None:
    with pytest.raises(TableMissingInMirror, match=r"no such table at either point \[table d\.nope up to point 0\]"):
        changes_between(shop.mirror, "d.nope", None, shop.points[0])
    shop.take_points()
    with pytest.raises(TableMissingInMirror):
        changes_between(shop.mirror, "d.nope", *shop.points)


# ---- as rows


def test_changes_as_rows_are_upserts_and_deletes_again(shop: SimulatedMirror) -> None:
    with shop.storage.begin() as transaction:
        transaction.delete("d", "t", pc.field("n") < 20)
        transaction.update("d", "t", {"m": "new"}, pc.field("n") < 25)
    shop.take_points()
    one, two = shop.points
    delta = table_delta(shop.mirror, *(TableAt.of(point, next(iter(one.tables))) for point in (one, two)))
    rows = pa.Table.from_batches(change_batches(delta.shape, delta.parts()), change_schema(delta.shape))
    assert Counter(rows.column(KIND).to_pylist()) == {UPSERT: 5, DELETE: 10}
    deleted = rows.filter(pc.equal(rows.column(KIND), DELETE))
    assert sorted(deleted.column("n").to_pylist()) == list(range(10, 20))
    assert deleted.column("m").null_count == 10
    part, parts = part_of(rows, delta.shape), together(delta.parts(), delta.shape)
    assert part.upserts.sort_by("n").equals(parts.upserts.sort_by("n"))
    assert part.deletes.sort_by("n").equals(parts.deletes.sort_by("n"))


@pytest.mark.recordings
@pytest.mark.parametrize("scenario", ["dml", "keys", "all_types", "cut_inside_object"])
@pytest.mark.parametrize("split_rows", [1, 3000, 1 << 20])
def test_all_rows_of_a_recorded_table_are_deletes_of_a_removal(
    recorded_mirror: RecordedMirror, scenario: str, split_rows: int
) -> None:
    mirror = recorded_mirror(scenario)
    point = mirror.point()
    compared = 0
    for ref in point.tables.values():
        if ref.kind != "table":
            continue
        table = TableAt(ref, point.at)
        delta = removal_delta(mirror, table, split_rows=split_rows)
        change = together(delta.parts(), delta.shape)
        assert change.upserts.num_rows == 0
        assert Counter(row_texts(change.deletes)) == keys_of(mirror, table)
        compared += 1
    assert compared
