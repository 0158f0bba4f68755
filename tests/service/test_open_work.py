"""What an open iteration still has to copy, by single look-ups and by a list of the store: the same as by sets."""

from typing import cast
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.mirror.layout import object_path
from ccpr.mirror.object_rows import LISTED_SCHEMA
from ccpr.service import open_work
from tests.hostile.targets.mirror_files import MemoryStore, mirror_of

ROWS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), max_size=12)  # table id, number of an object


@pytest.mark.parametrize("lookups", [0, 500])
@given(rows=ROWS, hidden=st.sets(st.integers(1, 3)), there=st.sets(st.integers(0, 12)), page=st.integers(1, 5))
def test_pending_objects_are_those_of_copied_tables_that_are_not_there(
    lookups: int, rows: list[tuple[int, int]], hidden: set[int], there: set[int], page: int
) -> None:
    columns = {
        **{field.name: pa.nulls(len(rows), field.type) for field in LISTED_SCHEMA},
        "table_id": pa.array([table for table, _ in rows], pa.int64()),
        "name": pa.array([str(number) for _, number in rows], pa.string()),
        "size": pa.array([10 + number for _, number in rows], pa.int64()),
    }
    mirror = mirror_of(MemoryStore({object_path(str(number)): b"" for number in there}))
    wanted = {number for table, number in rows if table not in hidden}
    expected = len(wanted - there), sum(10 + number for number in wanted - there), sum(10 + n for n in wanted)
    limits = patch.multiple(open_work, _MOST_SINGLE_LOOKUPS=lookups, _LISTED_NAMES=page)
    with limits:
        not_copied = cast(pa.Array, pa.array(sorted(hidden), pa.int64()))
        assert open_work._pending(mirror, pa.table(columns, LISTED_SCHEMA), not_copied) == expected
