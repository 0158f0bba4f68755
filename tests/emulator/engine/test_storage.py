"""The storage engine compared with facts from recordings of a real upstream, and its transactions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject
from ccpr.matrixone.server.answers import StatementError
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.engine.stored_table import MergeConflict, StoredObject
from ccpr_emulator.engine.transaction import DuplicateEntry, WriteConflict
from ccpr_emulator.simulated_upstream import EngineBacking
from tests.support.recorded import visible_batches

Fact = tuple[bool, bool, bool, bool, bool, int]  # tombstone, appendable, sorted, by a compute node, deleted, rows


def facts(rows: list[Any]) -> list[Fact]:
    """What an object list says of each object, without names and times; sorted."""
    found = []
    for _, _, stats, _, deleted, tombstone in rows:
        one = ObjectStats.parse(bytes(stats))
        gone = (deleted if isinstance(deleted, str) else deleted.decode()) != "0-0"
        found.append((bool(tombstone), one.appendable, one.sorted, one.created_by_cn, gone, one.rows))
    return sorted(found)


def recorded(recordings: Path, scenario: str, snapshot: int, name: str) -> list[Fact]:
    path = recordings / scenario / f"snapshot-{snapshot:03}" / name
    rows = json.loads(path.read_text())["rows"]
    return facts([(*row[:2], bytes.fromhex(row[2]["hex"]), row[3].encode(), row[4].encode(), row[5]) for row in rows])


@pytest.mark.recordings
def test_object_lists_go_through_the_life_that_a_recording_shows(recordings: Path) -> None:
    """The statements of recording `dml`, with its numbers of rows: objects come and go with the same flags and rows."""
    storage = Storage(cn_rows=5000)
    storage.create_database("d")
    storage.create_table("d", "acc", {"id": "bigint", "n": "int"}, primary_key=["id"])
    backing = EngineBacking(storage)
    taken = 0

    def insert(ids: Any) -> None:
        with storage.begin() as txn:
            txn.insert("d", "acc", {"id": pa.array(ids, pa.int64()), "n": pa.array(np.zeros(len(ids)), pa.int32())})

    def delete(count: int) -> None:
        with storage.begin() as txn:
            ids = txn.rows("d", "acc").column("id").slice(0, count)
            txn.delete("d", "acc", pc.field("id").isin(ids.combine_chunks()))

    def compare() -> None:
        nonlocal taken
        taken += 1
        storage.create_snapshot(f"s{taken}", "database", "d")
        storage.flush("d", "acc")
        target = backing.find_snapshot("sys", f"s{taken}")
        assert facts(list(backing.object_list("sys", target, None))) == recorded(
            recordings, "dml", taken, "object_list.json"
        )
        if taken > 1:
            base = backing.find_snapshot("sys", f"s{taken - 1}")
            against = recorded(recordings, "dml", taken, "object_list_against_previous.json")
            assert facts(list(backing.object_list("sys", target, base))) == against

    insert(range(50_000))
    compare()  # an object of the compute node
    insert(range(100_000, 100_600))
    compare()  # an appendable one
    with storage.begin() as txn:
        ids = txn.rows("d", "acc").column("id").slice(0, 4600).combine_chunks()
        txn.update("d", "acc", {"n": 1}, pc.field("id").isin(ids))
    compare()  # rows and tombstones, appendable; the one before is replaced by a merged one
    delete(5155)
    compare()  # tombstones of the compute node
    storage.merge("d", "acc", by_cn=True)
    compare()  # one object instead of three; tombstones stay


def read(storage: Storage, at: Timestamp, table: str = "t") -> pa.Table:
    """The rows as a reader of the listed objects finds them."""
    tick = storage.clock.tick(at)
    entry, definition = next((e, d) for e, d in storage.tables_at(at) if d.name == table)

    def listed(stored: StoredObject) -> ListedObject:
        deleted = storage.clock.time(stored.deleted) if stored.deleted <= tick else None
        return ListedObject(
            ObjectStats.parse(stored.written.stats),
            storage.clock.time(stored.created),
            deleted,
            stored.tombstones is not None,
        )

    objects = [listed(stored) for stored in entry.stored.listed(tick)]

    def opened(name: str, sums: bytes | None) -> ObjectFile:
        content = storage.files.read(name)
        assert content is not None, name
        return ObjectFile(content)

    batches = visible_batches(objects, opened, definition.user_columns, at)
    return pa.Table.from_batches(batches, storage.rows_at("d", table, at).schema).sort_by("id")


@pytest.fixture
def storage() -> Storage:
    storage = Storage(cn_rows=100)
    storage.create_database("d")
    storage.create_table("d", "t", {"id": "bigint", "v": "varchar(20)"}, primary_key=["id"])
    with storage.begin() as txn:
        txn.insert("d", "t", {"id": list(range(20)), "v": ["old"] * 20})
    return storage


def truth(storage: Storage, at: Timestamp, table: str = "t") -> pa.Table:
    return storage.rows_at("d", table, at).sort_by("id")


def test_a_rollback_leaves_nothing(storage: Storage) -> None:
    before = truth(storage, storage.now)
    txn = storage.begin()
    txn.insert("d", "t", [{"id": 100, "v": "x"}])
    txn.delete("d", "t")
    assert txn.rows("d", "t").num_rows == 0
    txn.rollback()
    assert truth(storage, storage.now) == before
    with pytest.raises(StatementError):
        txn.commit()


def test_a_transaction_sees_its_snapshot_and_its_own_changes(storage: Storage) -> None:
    reader = storage.begin()
    with storage.begin() as txn:
        txn.delete("d", "t", pc.field("id") < 10)
        txn.insert("d", "t", [{"id": 3, "v": "again"}])
        txn.update("d", "t", {"v": "twice"}, pc.field("id") == 3)
        assert txn.rows("d", "t", pc.field("id") < 10).to_pylist() == [{"id": 3, "v": "twice"}]
    assert reader.rows("d", "t").num_rows == 20
    assert storage.begin().rows("d", "t").num_rows == 11


def test_conflicting_writes_raise_and_change_nothing(storage: Storage) -> None:
    first, second, third = storage.begin(), storage.begin(), storage.begin()
    first.update("d", "t", {"v": "first"}, pc.field("id") == 1)
    second.update("d", "t", {"v": "second"}, pc.field("id") == 1)
    third.insert("d", "t", [{"id": 50, "v": "third"}])
    with pytest.raises(DuplicateEntry):
        third.insert("d", "t", [{"id": 5, "v": "taken"}])
    first.insert("d", "t", [{"id": 50, "v": "first"}])
    first.commit()
    for late in (second, third):
        with pytest.raises(WriteConflict):
            late.commit()
    assert {"id": 50, "v": "first"} in storage.rows_at("d", "t", storage.now).to_pylist()
    stale = storage.begin()
    stale.delete("d", "t")
    storage.truncate("d", "t")
    with pytest.raises(WriteConflict):
        stale.commit()


def test_rows_deleted_while_a_merge_runs_are_deleted_at_their_new_places(storage: Storage) -> None:
    storage.flush("d", "t")
    merge, rival = storage.start_merge("d", "t"), storage.start_merge("d", "t")
    assert merge is not None
    assert rival is not None
    with storage.begin() as txn:
        txn.delete("d", "t", pc.field("id") < 5)
    between = storage.now
    merge.commit()
    after = storage.now
    with pytest.raises(MergeConflict):
        rival.commit()
    storage.flush("d", "t")
    for at, rows in ((between, 15), (after, 15), (storage.now, 15)):
        assert read(storage, at) == truth(storage, at)
        assert truth(storage, at).num_rows == rows


def test_collection_spares_what_a_snapshot_protects(storage: Storage) -> None:
    storage.create_snapshot("kept", "database", "d")
    at = storage.now
    storage.flush("d", "t")
    with storage.begin() as txn:
        txn.delete("d", "t", pc.field("id") < 5)
    storage.flush("d", "t")
    storage.merge("d", "t")
    storage.collect()
    assert read(storage, at) == truth(storage, at)
    files = len(storage.files)
    storage.drop_snapshot("kept")
    assert storage.collect() > 0
    assert len(storage.files) < files
    assert read(storage, storage.now) == truth(storage, storage.now)


def test_tables_of_many_small_objects_are_tidied_and_others_left_alone(storage: Storage) -> None:
    storage.create_table("d", "few", {"id": "int"}, primary_key=["id"])
    for number in range(20):
        for name in ("t", "few") if number < 3 else ("t",):
            with storage.begin() as txn:
                txn.insert("d", name, {"id": [1000 + number]})
                txn.delete("d", "t", pc.field("id") == number)
            storage.flush("d", name)
    storage.create_snapshot("kept", "database", "d")
    at, before = storage.now, len(storage.files)
    assert storage.tidy() == 1
    assert read(storage, at) == truth(storage, at)
    storage.drop_snapshot("kept")
    assert storage.tidy() == 0
    assert len(storage.files) < before / 2
    for name in ("t", "few"):
        assert read(storage, storage.now, name) == truth(storage, storage.now, name)


def test_an_account_snapshot_protects_the_account_that_took_it_and_not_the_publisher() -> None:
    """docs/upstream.md 4.3, the reason why replication takes snapshots of databases."""
    storage = Storage()
    storage.create_account("acc1")
    storage.create_database("d", account="acc1")
    storage.create_table("d", "t", {"id": "int"}, account="acc1")
    with storage.begin("acc1") as txn:
        txn.insert("d", "t", {"id": [1]})
    storage.create_snapshot("s", "account", account="acc1", caller="sys")
    storage.flush("d", "t", account="acc1")
    assert storage.collect() == 1, "the appendable object that the snapshot shows"


def test_a_clone_shares_its_objects_and_their_files_stay_for_it(storage: Storage) -> None:
    storage.flush("d", "t")
    with storage.begin() as txn:
        txn.delete("d", "t", pc.field("id") == 7)
    storage.clone_table("d", "t", "copy")
    with storage.begin() as txn:
        txn.insert("d", "copy", [{"id": 7, "v": "new"}])
        txn.delete("d", "copy", pc.field("id") < 3)
    names = [
        {stored.written.name for stored in storage.table("d", table).stored.mergeable()} for table in ("t", "copy")
    ]
    assert names[0] == names[1]
    storage.drop_table("d", "t")
    storage.flush("d", "copy")
    storage.collect()
    assert read(storage, storage.now, "copy") == truth(storage, storage.now, "copy")
    assert truth(storage, storage.now, "copy").num_rows == 17
