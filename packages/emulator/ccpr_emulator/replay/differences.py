"""Object lists between recorded snapshots: composed from the recorded differences, by table id.

A recorded list has the names of tables at its snapshot. Over several snapshots a name can mean different tables: after
a rename, a truncate, or a drop and a create. So rows are kept by table id, and have the names at the target snapshot;
objects of tables that do not exist there are skipped, as in the upstream's own difference (docs/upstream.md 5.7).
"""

from collections.abc import Sequence

from ccpr.matrixone.objects.identifiers import OBJECT_ID_SIZE
from ccpr.matrixone.server.answers import Cell
from ccpr_emulator.replay.recording import RecordedSnapshot

Row = tuple[Cell, ...]


def full_list(snapshots: Sequence[RecordedSnapshot], shown: int, target: int) -> list[Row]:
    """The objects on storage at `shown` (<= target; -1 = none), with the names at `target`. Equal to the recorded list
    if both are the same."""
    if shown < 0:
        return []
    recorded = snapshots[shown].object_list
    rows = [] if recorded is None else list(recorded.rows)
    if shown == target:
        return rows
    by_id = _by_table(snapshots[shown], rows)
    return _named(snapshots[target], list(by_id))


def difference(snapshots: Sequence[RecordedSnapshot], base: int, shown: int, target: int) -> list[Row]:
    """The objects created or deleted after snapshot `base` up to `shown`, with the names at `target`. Empty if `shown`
    is not after `base`.

    Adjacent snapshots give the recorded rows unchanged. Otherwise there is one row for each object of a table and kind;
    of several rows the one with a delete is used.
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
    """Rows with their table id; without those whose table is not in the snapshot's `mo_tables`."""
    id_of = snapshot.id_of
    return [(id_of[row[0], row[1]], row) for row in rows if (row[0], row[1]) in id_of]  # type: ignore[index]


def _named(snapshot: RecordedSnapshot, rows: Sequence[tuple[int, Row]]) -> list[Row]:
    name_of = {table.id: (table.database, table.name) for table in snapshot.tables}
    return [(*name_of[table_id], *row[2:]) for table_id, row in rows if table_id in name_of]


def _object_id(row: Row) -> bytes:
    stats = row[2]
    return bytes(stats[:OBJECT_ID_SIZE]) if isinstance(stats, bytes | memoryview) else b""
