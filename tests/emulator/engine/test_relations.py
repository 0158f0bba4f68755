import pytest

from ccpr_emulator.engine.entries import TableEntry
from ccpr_emulator.engine.storage import Storage


@pytest.fixture
def storage() -> Storage:
    storage = Storage()
    storage.create_database("d")
    return storage


def row(storage: Storage, entry: TableEntry) -> tuple[int, bool]:
    """The last value, and whether NEXTVAL was called."""
    (found,) = storage.rows_at("d", entry.definition.name, storage.now).to_pylist()
    return found["last_seq_num"], found["is_called"]


def test_a_sequence_counts_from_its_start_and_its_row_says_how_far(storage: Storage) -> None:
    entry = storage.create_sequence("d", "s", start=10, increment=2)
    assert row(storage, entry) == (10, False)
    assert [storage.next_value(entry) for _ in range(3)] == [10, 12, 14]
    assert row(storage, entry) == (14, True)


def test_a_value_that_is_set_comes_next_unless_nextval_was_called(storage: Storage) -> None:
    """docs/upstream.md, "Views, sequences, functions, grants"."""
    entry = storage.create_sequence("d", "s", increment=5)
    storage.set_value(entry, 20)
    assert (row(storage, entry), storage.next_value(entry)) == ((20, False), 20)
    storage.set_value(entry, 30)
    assert (row(storage, entry), storage.next_value(entry)) == ((30, True), 35)
    storage.set_value(entry, 40, called=False)
    assert (row(storage, entry), storage.next_value(entry)) == ((40, False), 40)


def test_a_sequence_at_a_time_has_the_value_of_that_time(storage: Storage) -> None:
    entry = storage.create_sequence("d", "s")
    storage.next_value(entry)
    before = storage.now
    storage.next_value(entry)
    (found,) = storage.rows_at("d", "s", before).to_pylist()
    assert found["last_seq_num"] == 1
