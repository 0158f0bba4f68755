"""Object lists between recorded snapshots: composed from the recorded differences, by table id.

A recorded list names tables as they were called at its snapshot. Over several snapshots names lie: a rename moves one
to another table, a truncate or a drop gives it a new table. So rows are carried by table id and get their names at the
target; objects of tables that are gone there vanish, as the upstream's own difference has it
(spec/upstream-interface.md 5.7).
"""

from collections.abc import Sequence

from emulator.replay.recording import RecordedSnapshot
from wire.server import Cell

OBJECT_ID_BYTES = 18
Row = tuple[Cell, ...]


def full_list(snapshots: Sequence[RecordedSnapshot], shown: int, target: int) -> list[Row]:
    """What is live at `target` of what was on storage at `shown` (<= target; -1 = nothing). Equal to the recorded list
    when both are the same."""
    if shown < 0:
        return []
    recorded = snapshots[shown].object_list
    rows = [] if recorded is None else list(recorded.rows)
    if shown == target:
        return rows
    by_id = _by_table(snapshots[shown], rows)
    return _named(snapshots[target], list(by_id))


def difference(snapshots: Sequence[RecordedSnapshot], base: int, shown: int, target: int) -> list[Row]:
    """What came and went after snapshot `base` up to `shown`, with names as of `target`. Empty when `shown` is not
    after `base`.

    Adjacent snapshots give the recorded rows unchanged. Else an object stands once a table and kind; of several rows
    the one with a delete wins.
    """
    recorded = snapshots[target].against_previous
    if base + 1 == shown == target and recorded is not None:
        return list(recorded.rows)
    merged: dict[tuple[int, bytes, Cell], tuple[int, Row]] = {}
    for snapshot in snapshots[base + 1 : shown + 1]:
        rows = () if snapshot.against_previous is None else snapshot.against_previous.rows
        for table_id, row in _by_table(snapshot, rows):
            key = (table_id, _object_id(row), row[5])
            known = merged.get(key)
            if known is None or known[1][4] == b"0-0":
                merged[key] = (table_id, row)
    return _named(snapshots[target], list(merged.values()))


def of_tables(rows: Sequence[Row], names: set[tuple[bytes, bytes]]) -> list[Row]:
    """The rows of these (database, table) names."""
    return [row for row in rows if (row[0], row[1]) in names]


def _by_table(snapshot: RecordedSnapshot, rows: Sequence[Row]) -> list[tuple[int, Row]]:
    """Rows whose name the snapshot's `mo_tables` does not know are left out: no id means no table to carry them to."""
    id_of = snapshot.id_of
    return [(id_of[row[0], row[1]], row) for row in rows if (row[0], row[1]) in id_of]  # type: ignore[index]


def _named(snapshot: RecordedSnapshot, rows: Sequence[tuple[int, Row]]) -> list[Row]:
    name_of = {table.id: (table.database, table.name) for table in snapshot.tables}
    return [(*name_of[table_id], *row[2:]) for table_id, row in rows if table_id in name_of]


def _object_id(row: Row) -> bytes:
    stats = row[2]
    return bytes(stats[:OBJECT_ID_BYTES]) if isinstance(stats, bytes | memoryview) else b""
