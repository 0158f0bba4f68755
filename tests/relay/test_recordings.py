"""The relay over the mirror of each recording answers what the recorded upstream answered, for each pair of points."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from ccpr.matrixone.schema import Kind, Partition, Table
from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.backing import CatalogAnswer, Snapshot
from ccpr.relay.mirror_publication import ACCOUNT, MirrorPublication
from ccpr.relay.served_catalog import served_catalog
from ccpr.relay.served_points import ServedPoint
from ccpr_emulator.replay.recording import Recording, open_recording
from ccpr_emulator.replay.state import difference, full_list
from tests.support.recordings_location import scenarios
from tests.support.relayed import publication_of_recording

pytestmark = pytest.mark.recordings
# An upstream lists no objects where a table is partitioned, and no iteration makes a point there.
SCENARIOS = [pytest.param(path, id=name) for name, path in scenarios().items() if name != "partitioned"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_pair_of_points_has_the_recorded_lists_texts_and_indexes(
    scenario: str, recordings: Path, tmp_path: Path
) -> None:
    recording = open_recording(recordings / scenario)
    served = publication_of_recording(recordings / scenario, tmp_path / "mirror")
    shots = [pin(served, number) for number in range(1, len(recording.snapshots) + 1)]
    for number, shot in enumerate(shots):
        expected, answered = recording.snapshots[number], served.catalog(ACCOUNT, shot)
        assert {row[0] for row in answered.databases.rows} == {row[0] for row in expected.databases.rows}
        kinds = {table.name: table.kind for table in expected.tables}
        assert sorted(answered.ddl.rows) == sorted(row for row in expected.ddl.rows if kinds[row[1]] in (b"r", b"i"))
        for table in expected.tables:
            if table.kind == b"r":
                assert rows(answered.indexes_of(table.id)) == rows(expected.indexes_of(table.id))
        whole = served.object_list(ACCOUNT, shot, None)
        assert live(whole) == live(full_list(recording.snapshots, number, number))
        for row in whole:
            name = bytes(row[2])[18:60].decode()
            size = served.object_size(name)
            path = recording.object_path(name)
            assert path is not None
            assert size == path.stat().st_size
            assert bytes(served.read_object(name, 0, size)) == path.read_bytes()
    for first, second in combinations(range(len(shots)), 2):
        answered = served.object_list(ACCOUNT, shots[second], shots[first])
        assert changes(recording, first, answered) == changes(
            recording, first, difference(recording.snapshots, first, second, second)
        ), f"from point {first + 1} to {second + 1}"


def pin(served: MirrorPublication, lsn: int) -> Snapshot:
    """A snapshot of a point, as one that was taken when it was the newest."""
    name = f"xr_{lsn}"
    served._at = lsn
    served.create_snapshot(ACCOUNT, name, "database", served.database, "", caller="sys", if_not_exists=False)
    served._at = None
    return served.find_snapshot(ACCOUNT, name)


def rows(result: Any) -> list[tuple[Any, ...]]:
    """Texts for what may be NULL or empty."""
    return sorted(tuple(b"" if cell is None else cell for cell in row) for row in result.rows)


def live(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((text(row[0]), text(row[1]), bytes(row[2]), text(row[3]), row[5]) for row in rows)


def changes(recording: Recording, base: int, rows: Any) -> dict[tuple[str, bytes, int], tuple[str, bool]]:
    """By table, object and kind: its create time, and whether it is gone. Without what no client can miss: objects that
    came and went between the two, and those of a table without rows in either."""
    found: dict[tuple[str, bytes, int], tuple[str, bool]] = {}
    start = recording.snapshots[base].ts
    for row in rows:
        key = (text(row[1]), bytes(row[2])[:18], int(row[5]))
        gone = text(row[4]) != "0-0"
        if gone and int(text(row[3]).partition("-")[0]) > start:
            found.pop(key, None)
            continue
        if key not in found or gone:
            found[key] = (text(row[3]), gone)
    return found


def text(cell: Any) -> str:
    return cell if isinstance(cell, str) else bytes(cell).decode()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_table_whose_index_tables_the_mirror_lacks_is_refused_and_no_other(
    scenario: str, recordings: Path, tmp_path: Path
) -> None:
    """A MatrixOne would create them from the text, and they would stay empty."""
    newest = open_recording(recordings / scenario).snapshots[-1]
    state = publication_of_recording(recordings / scenario, tmp_path / "mirror").shown()
    tables = {one.id: replace(one, indexes=None) for one in state.tables.values() if one.kind is not Kind.INDEX}
    catalog = served_catalog(ServedPoint(state.point, tables, {}), "d", 1, name="shop", writable=False, replica=False)
    for number in tables:
        if any(row[-1] for row in newest.indexes_of(number).rows):
            with pytest.raises(StatementError, match="with-indexes"):
                catalog.indexes[number]
        else:
            assert rows(catalog.indexes[number]) == []


def test_a_partitioned_table_with_indexes_is_refused_with_what_to_do(recordings: Path, tmp_path: Path) -> None:
    """Its hidden tables would be empty at the other end."""
    state = publication_of_recording(recordings / "dml", tmp_path / "mirror").shown()
    table = next(table for table in state.tables.values() if table.kind is Kind.TABLE)
    partitioned = replace(table, indexes=None, partitions=(Partition("p0", 1),))
    indexed = replace(partitioned, ddl=partitioned.ddl.replace("PRIMARY KEY", "UNIQUE KEY `u`"))

    def answer(table: Table) -> CatalogAnswer:
        changed = ServedPoint(state.point, {**state.tables, table.id: table}, state.parents)
        return served_catalog(changed, "d", 1, name="shop", writable=False, replica=False).indexes[table.id]

    assert rows(answer(partitioned)) == []
    with pytest.raises(StatementError, match=r"is partitioned and has indexes.*ccpr run shop"):
        answer(indexed)
