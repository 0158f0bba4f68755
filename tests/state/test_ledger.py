"""The ledger of a mirror's files: which tables refer to an object, and which files may be deleted."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
import sqlalchemy as sa

from ccpr.mirror.layout import LEDGER_SCHEMA
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff
from ccpr.state.database import transaction
from ccpr.state.ledger import Ledger, LedgerEntry, Reference
from ccpr.state.migrations import open_database

pytestmark = pytest.mark.integration

SUM = bytes(range(32))
FAR = 2**40
Pairs = Iterable[tuple[int, str]]


@pytest.fixture
def ledger(catalog_url: str) -> Iterator[Ledger]:
    engine = open_database(catalog_url)
    yield Ledger(engine, "task")
    engine.dispose()


def listed(pairs: Pairs) -> pa.Table:
    """Rows of (table id, object name)."""
    ids, names = (list(column) for column in zip(*pairs, strict=True)) if pairs else ([], [])
    empty = {field.name: pa.nulls(len(ids), field.type) for field in LISTED_SCHEMA}
    return pa.table({**empty, "table_id": ids, "name": names}, schema=LISTED_SCHEMA)


def record(ledger: Ledger, lsn: int, added: Pairs = (), removed: Pairs = (), gone: Iterable[int] = ()) -> None:
    names = sorted({name for _, name in added})
    copied = pa.table([names, [7] * len(names), [SUM] * len(names)], schema=LEDGER_SCHEMA)
    kept = {table_id for table_id, _ in (*added, *removed)} - {99}
    with transaction(ledger.engine) as connection:
        ledger.record(connection, lsn, copied, ObjectDiff(listed(added), listed(removed)), kept, gone)


def test_an_object_is_garbage_when_its_last_reference_has_ended(ledger: Ledger) -> None:
    record(ledger, 0, [(1, "a"), (1, "b"), (2, "a"), (3, "c"), (99, "d")])
    record(ledger, 1, removed=[(1, "a"), (1, "b")])
    record(ledger, 2, added=[(1, "b")], removed=[(2, "a")], gone=[3])
    assert ledger.references_to("a") == [Reference("a", 1, 0, 1), Reference("a", 2, 0, 2)]
    assert ledger.references_to("b") == [Reference("b", 1, 0, 1), Reference("b", 1, 2, None)]
    assert ledger.references_to("c") == [Reference("c", 3, 0, 2)]
    assert ledger.references_to("d") == [], "the mirror does not keep the objects of that table"
    with transaction(ledger.engine) as connection:
        assert ledger.end_references(connection, 1) == []
        assert ledger.end_references(connection, 2) == ["a", "c"]
    assert ledger.references_to("b") == [Reference("b", 1, 2, None)]


def test_more_objects_than_one_statement_has_names(ledger: Ledger) -> None:
    names = [f"{number:05}" for number in range(1203)]
    record(ledger, 0, [(table_id, name) for table_id in (1, 2) for name in names])
    record(ledger, 1, removed=[(1, name) for name in names], gone=[2])
    assert ledger.references_to(names[-1]) == [Reference(names[-1], 1, 0, 1), Reference(names[-1], 2, 0, 1)]
    assert [entry.name for entry in ledger.stored_objects()] == names
    assert ledger.look_up([*names, "unknown"]) == {name: LedgerEntry(name, 7, SUM) for name in names}
    assert ledger.stored_bytes() == 7 * len(names)
    with transaction(ledger.engine) as connection:
        assert ledger.end_references(connection, 1) == names


def test_an_object_that_is_copied_again_is_no_longer_garbage_and_a_file_keeps_its_first_time(ledger: Ledger) -> None:
    record(ledger, 0, [(1, "a")])
    with transaction(ledger.engine) as connection:
        ledger.schedule_deletion(connection, ["objects/a", "manifests/1/0-1.arrow"], 10)
        ledger.schedule_deletion(connection, ["manifests/1/0-1.arrow"], 20)
    assert ledger.due_garbage(9, FAR)[0] == []
    assert sorted(ledger.due_garbage(10, FAR)[0]) == ["manifests/1/0-1.arrow", "objects/a"]
    record(ledger, 1, [(2, "a")])
    assert ledger.due_garbage(10, FAR)[0] == ["manifests/1/0-1.arrow"]
    ledger.forget("manifests/1/0-1.arrow")
    assert ledger.waiting() == (0, 0, 0)


def test_an_orphan_object_waits_again_each_time_and_one_that_a_table_names_is_not_one(ledger: Ledger) -> None:
    record(ledger, 0, [(1, "named")])
    with transaction(ledger.engine) as connection:
        ledger.schedule_orphans(connection, ["orphan", "named"], 10)
        ledger.schedule_orphans(connection, ["orphan"], 30)
    assert ledger.due_garbage(29, FAR)[0] == []
    assert ledger.due_garbage(30, FAR)[0] == ["objects/orphan"]


def test_subscriptions_do_not_see_each_other(ledger: Ledger) -> None:
    other = Ledger(ledger.engine, "other")
    for one in (ledger, other):
        record(one, 0, [(1, "a")])
    record(ledger, 1, removed=[(1, "a")])
    with transaction(ledger.engine) as connection:
        assert ledger.end_references(connection, 1) == ["a"]
    ledger.forget("objects/a")
    assert other.references_to("a") == [Reference("a", 1, 0, None)]
    assert [entry.name for entry in other.stored_objects()] == ["a"]
    with sa.Connection(ledger.engine) as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM ccpr_objects")) == 1
