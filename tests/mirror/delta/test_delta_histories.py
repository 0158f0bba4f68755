"""Row deltas over random histories of a simulated upstream: between any two points they are exactly what changed in
its rows."""

from itertools import combinations
from pathlib import Path

import pyarrow.compute as pc
import pytest

from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr_emulator.engine.storage import Storage
from tests.histories.history import History
from tests.mirror.delta.histories import COUNT, FIRST, points_of
from tests.support.delta_truth import Rows, assert_is_delta, together
from tests.support.simulated_mirror import SimulatedMirror


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_delta_is_what_changed_between_two_points_of_a_history(seed: int, tmp_path: Path) -> None:
    history = History(seed)
    simulated = points_of(history, tmp_path)
    try:
        for former, later in combinations(simulated.points, 2):
            for table_id, ref in later.tables.items():
                before = TableAt.of(former, table_id) if table_id in former.tables else None
                delta = table_delta(
                    simulated.mirror,
                    before,
                    TableAt.of(later, table_id),
                    split_rows=history.rng.choice((1, 50, 1 << 20)),
                )
                key = tuple(delta.shape.delete_schema.names)
                rows = Rows(simulated.rows(later, table_id, delta.shape.columns), key)
                old = Rows(
                    simulated.rows(former, table_id, delta.shape.columns) if before else rows.table.slice(0, 0), key
                )
                history.done.append(f"delta of {ref.qualified_name} from {former.at} to {later.at}")
                assert_is_delta(together(delta.parts(), delta.shape), old, rows)
    except Exception:
        print(f"history of seed {seed}:", *history.done, sep="\n  ")
        raise


@pytest.mark.parametrize("key", [["k"], ["k", "n"]])
def test_rows_are_matched_by_keys_with_a_decimal256(key: list[str], tmp_path: Path) -> None:
    storage = Storage()
    storage.create_database("d")
    columns = {"k": "decimal(60,2) not null", "n": "int not null", "v": "varchar(9)"}
    storage.create_table("d", "t", columns, primary_key=key)
    simulated = SimulatedMirror(storage, tmp_path / "mirror")
    numbers = [f"{sign}{10**50 * part}.0{part}" for part in range(9, 0, -1) for sign in ("", "-")]
    with storage.begin() as transaction:
        transaction.insert("d", "t", {"k": numbers, "n": [1] * len(numbers), "v": ["a"] * len(numbers)})
    simulated.take_points()
    with storage.begin() as transaction:
        transaction.delete("d", "t", pc.field("k") == numbers[0])
        transaction.update("d", "t", {"v": "b"}, pc.field("k") == numbers[1])
    simulated.take_points()
    storage.merge("d", "t")
    simulated.take_points()
    for former, later in combinations(simulated.points, 2):
        (table_id,) = later.tables
        delta = table_delta(simulated.mirror, TableAt.of(former, table_id), TableAt.of(later, table_id))
        named = tuple(delta.shape.delete_schema.names)
        rows = [Rows(simulated.rows(point, table_id, delta.shape.columns), named) for point in (former, later)]
        assert_is_delta(together(delta.parts(), delta.shape), *rows)
        assert len(rows[0].texts - rows[1].texts) == (2 if former is simulated.points[0] else 0)
