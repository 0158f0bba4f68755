"""Keys of live rows, by which a small change is checked without reading the table."""

import pyarrow as pa
import pytest

from ccpr_emulator.engine.live_keys import LiveKeys, keys_in
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.engine.transaction import DuplicateEntry, WriteConflict


@pytest.fixture
def storage() -> Storage:
    storage = Storage()
    storage.create_database("d")
    storage.create_table(
        "d", "t", {"a": "date", "b": "int", "u": "varchar(9)"}, primary_key=["a", "b"], unique={"u": ["u"]}
    )
    return storage


def day(*numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int32()).view(pa.date32())


def test_a_key_may_hold_a_date_that_python_does_not_have(storage: Storage) -> None:
    rows = {"a": day(-719_163, 0), "b": [1, 2], "u": [None, None]}
    with storage.begin() as transaction:
        transaction.insert("d", "t", rows)
        with pytest.raises(DuplicateEntry):
            transaction.insert("d", "t", rows)
    table = storage.rows_at("d", "t", storage.now)
    assert keys_in(table, ("a", "b")) == [(-719_163, 1), (0, 2)]
    assert keys_in(table, ("u",)) == [None, None]


def test_small_changes_keep_the_keys_as_a_new_reading_finds_them(storage: Storage) -> None:
    for number in range(20):
        with storage.begin() as transaction:
            transaction.insert("d", "t", {"a": day(number), "b": [number], "u": [f"u{number}"]})
            if number % 3 == 0:
                transaction.delete("d", "t", pa.compute.field("b") == number - 2)
            if number % 5 == 0:
                transaction.update("d", "t", {"u": f"x{number}"}, pa.compute.field("b") == number)
    entry = storage.table("d", "t")
    kept = entry.live_keys(storage.clock.last)
    assert kept is not None
    alive = entry.stored.visible(storage.clock.last)
    again = LiveKeys.of(entry.definition, entry.stored.values(alive, entry.definition.columns), alive)
    assert kept.rows == again.rows


def test_a_key_that_another_inserted_meanwhile_is_a_conflict(storage: Storage) -> None:
    row = {"a": day(1), "b": [1], "u": ["u"]}
    mine = storage.begin()
    with storage.begin() as other:
        other.insert("d", "t", row)
    mine.insert("d", "t", row)  # it does not see the other row
    with pytest.raises(WriteConflict):
        mine.commit()
    with storage.begin() as later, pytest.raises(DuplicateEntry):
        later.insert("d", "t", row)


def test_an_aborted_transaction_leaves_the_keys_as_they_were() -> None:
    storage = Storage(create_at="prepare", abort_column=True)
    storage.create_database("d")
    storage.create_table("d", "t", {"id": "int"}, primary_key=["id"])
    with storage.begin() as transaction:
        transaction.insert("d", "t", {"id": [1]})
    gone = storage.begin()
    gone.insert("d", "t", {"id": [2]})
    gone.delete("d", "t", pa.compute.field("id") == 1)
    gone.prepare()
    gone.rollback()
    with storage.begin() as transaction:
        transaction.insert("d", "t", {"id": [2]})
        with pytest.raises(DuplicateEntry):
            transaction.insert("d", "t", {"id": [1]})
    assert sorted(storage.rows_at("d", "t", storage.now).column("id").to_pylist()) == [1, 2]
