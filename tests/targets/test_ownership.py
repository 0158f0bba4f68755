"""A table that another user dropped, altered or owns is reported, and never touched."""

import pytest

from ccpr.schema.sync_mark import MarkEdited
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.base import TableState
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.errors import (
    TargetTableAltered,
    TargetTableDropped,
    TargetTableForeign,
    TargetTableUnknown,
)
from tests.targets.history import FIRST, RENAMED, WIDER, keys, rows
from tests.targets.target_database import Part, Place, load_part

pytestmark = pytest.mark.integration


def test_a_table_dropped_locally_is_reported_and_not_touched(place: Place, live: DatabaseTarget):
    place.query("DROP TABLE t")
    for _ in range(2):
        with pytest.raises(TargetTableDropped):
            live.apply(1, [Part(rows([3], ["c"]), keys())], Location(1, 20))
    live.close()
    live.open()
    entry = live.tables()[1]
    assert (entry.state, entry.location, live.points()) == (TableState.DROPPED, Location(0, 10), {})
    with pytest.raises(TargetTableDropped):
        live.apply(1, [], Location(1, 20))
    with pytest.raises(TargetTableUnknown):
        live.create(place.table(FIRST), [], Location(1, 20))
    assert place.query("SHOW TABLES LIKE 't'") == []
    live.forget([1])
    assert live.create(place.table(FIRST), [load_part([9], ["z"])], Location(1, 20)).upserted == 1


def test_a_mark_that_was_edited_stops_the_table(place: Place, live: DatabaseTarget):
    place.query("ALTER TABLE t COMMENT = 'mine now'")
    for act in (
        lambda: live.apply(1, [Part(rows([3], ["c"]), keys())], Location(1, 20)),
        lambda: live.drop([1]),
        lambda: live.release(1),
        lambda: live.alter([place.table(WIDER)]),
        lambda: live.create(place.table(FIRST, 2), [], Location(1, 20), replaces=[1]),
    ):
        with pytest.raises(MarkEdited):
            act()
    assert place.rows("t") == [(1, "a"), (2, None)]


def test_a_name_that_somebody_has_is_never_taken(place: Place, live: DatabaseTarget):
    place.query("CREATE TABLE t2 (theirs int)")
    with pytest.raises(TargetTableForeign):
        live.alter([place.table(RENAMED)])
    with pytest.raises(TargetTableForeign):
        live.create(place.table(RENAMED, 2), [], Location(1, 20), replaces=[1])
    with pytest.raises(TargetTableForeign):  # one of ours counts, too
        live.create(place.table(FIRST, 2), [], Location(1, 20))
    with place.target("other", lock_seconds=0.2) as other, pytest.raises(TargetTableForeign):
        other.create(place.table(FIRST), [], Location(0, 10))
    assert place.rows("t") == [(1, "a"), (2, None)]


@pytest.mark.parametrize(
    ("alteration", "message"),
    [
        ("MODIFY v varchar(5)", "it is now varchar\\(5\\)"),
        ("MODIFY v varchar(20) COLLATE utf8mb4_general_ci", "it is now varchar\\(20\\) utf8mb4_general_ci"),
        ("DROP COLUMN v", "column v was .*; it does not exist any more"),
        ("ADD COLUMN w int NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (id, w)", "column w was added to its key"),
    ],
)
def test_a_column_that_is_not_as_we_made_it_stops_the_table(
    alteration: str, message: str, place: Place, live: DatabaseTarget
) -> None:
    place.query(f"ALTER TABLE t {alteration}")
    before = place.rows("t")
    with pytest.raises(TargetTableAltered, match=message):
        live.apply(1, [Part(rows([3], ["c"]), keys())], Location(1, 20))
    assert place.rows("t") == before
    assert live.points() == {1: Location(0, 10)}


def test_what_others_add_does_not_count(place: Place, live: DatabaseTarget) -> None:
    place.query("ALTER TABLE t ADD COLUMN theirs int, ADD INDEX theirs (v)")
    assert live.apply(1, [Part(rows([3], ["c"]), keys())], Location(1, 20)).upserted == 1
    assert place.rows("t") == [(1, "a", None), (2, None, None), (3, "c", None)]
