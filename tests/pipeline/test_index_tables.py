"""Index tables, whose objects are listed and not copied."""

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.replicating import iterate, subscribed

pytestmark = pytest.mark.integration


def test_an_index_table_with_a_decimal_is_recorded_without_its_objects(tmp_path: Path) -> None:
    storage = Storage()
    storage.create_database("d")
    columns = {"id": "decimal(10,2)", "v": "varchar(20)"}
    storage.create_table("d", "t", columns, primary_key=["id"], unique={"ix": ["v"]})
    storage.create_publication("p", "d")
    with storage.begin() as transaction:
        transaction.insert("d", "t", {"id": pa.array([1], pa.decimal128(10, 2)), "v": ["a"]})
    with SimulatedUpstream(storage) as emulator, closing(subscribed(emulator.port, tmp_path, "d")) as workspace:
        assert iterate(workspace).point
