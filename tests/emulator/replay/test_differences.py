"""Differences over several recorded snapshots say the same as the recorded lists."""

from pathlib import Path

import pytest

from ccpr_emulator.recorded_upstream import RecordedUpstream
from ccpr_emulator.replay import state as differences
from ccpr_emulator.replay.recording import RecordedSnapshot, Recording, open_recording
from tests.support.wire_client import Connect, folder_of, recorded, scenario_names

pytestmark = [pytest.mark.integration, pytest.mark.recordings]


def live(snapshot: RecordedSnapshot) -> set[tuple[int, bytes, object]]:
    """(table id, object id, is tombstone) of the recorded full list."""
    assert snapshot.object_list is not None
    return {(snapshot.id_of[row[0], row[1]], row[2][:18], row[5]) for row in snapshot.object_list.rows}  # type: ignore[index]


def applied(recording: Recording, base: int, target: int) -> set[tuple[int, bytes, object]]:
    """The list at `base` with the composed difference applied, by table id; tables that are new at `target` come with
    their objects."""
    at_target = recording.snapshots[target]
    alive = {table.id for table in at_target.tables}
    state = {entry for entry in live(recording.snapshots[base]) if entry[0] in alive}
    for row in differences.difference(recording.snapshots, base, target, target):
        entry: tuple[int, bytes, object] = (at_target.id_of[row[0], row[1]], row[2][:18], row[5])  # type: ignore[index]
        state = state | {entry} if row[4] == b"0-0" else state - {entry}
    return state


@pytest.mark.parametrize("scenario", scenario_names())
def test_a_difference_applied_to_the_older_list_gives_the_newer_one(recordings: Path, scenario: str) -> None:
    recording = open_recording(recordings / scenario)
    if any(snapshot.object_list is None for snapshot in recording.snapshots):
        return  # the upstream could list nothing here
    for base in range(len(recording.snapshots)):
        for target in range(base, len(recording.snapshots)):
            assert applied(recording, base, target) == live(recording.snapshots[target]), (base + 1, target + 1)


@pytest.mark.parametrize("scenario", scenario_names())
def test_a_composed_difference_has_each_object_once_and_true_to_its_times(recordings: Path, scenario: str) -> None:
    recording = open_recording(recordings / scenario)
    for base in range(len(recording.snapshots)):
        for target in range(base + 1, len(recording.snapshots)):
            rows = differences.difference(recording.snapshots, base, target, target)
            assert len({(row[0], row[1], row[2][:18], row[5]) for row in rows}) == len(rows)  # type: ignore[index]
            low, high = recording.snapshots[base].ts, recording.snapshots[target].ts
            for row in rows:
                created, deleted = (int(bytes(cell).partition(b"-")[0]) for cell in (row[3], row[4]))  # type: ignore[arg-type]
                assert created <= high
                assert created >= low or low <= deleted <= high


def test_dml_from_the_first_to_the_third_snapshot_on_the_wire(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "dml") as emulator:
        client = connect(emulator.port)
        for number in (1, 2, 3):
            client.rows(f"create snapshot s{number} for database gd_dml from sys publication p")
            client.rows("select mo_ctl('dn','checkpoint','')")
        rows = client.rows("__++__internal_object_list s3 s1 sys p")
        steps = [
            recorded(recordings / "dml" / f"snapshot-00{number}" / "object_list_against_previous.json")[2]
            for number in (2, 3)
        ]
        gone = {row[2] for row in steps[1] if row[4] != b"0-0"}
        expected = {row[2] for step in steps for row in step}
        assert {row[2] for row in rows} == expected
        assert {row[2] for row in rows if row[4] != b"0-0"} == gone


def test_renamed_and_dropped_tables_keep_to_their_ids(recordings: Path) -> None:
    recording = open_recording(folder_of(recordings, "ddl", 6))
    # born (snapshot 3) is called reborn in snapshot 4 with the same id: its object comes under the new name.
    names = {row[1] for row in differences.difference(recording.snapshots, 1, 3, 3)}
    assert b"reborn" in names
    assert b"born" not in names
    # In snapshot 5 reborn is another table: the objects of the old one are in no difference up to there.
    born = recording.snapshots[2].table("gd_schema", "born")
    assert born is not None
    assert recording.snapshots[2].object_list is not None
    old = {row[2][:18] for row in recording.snapshots[2].object_list.rows if row[1] == b"born"}  # type: ignore[index]
    assert old
    assert not old & {row[2][:18] for row in differences.difference(recording.snapshots, 1, 4, 4)}  # type: ignore[index]
    # Objects of t1 as it was before the copying ALTER, and of the dropped table, vanish with their ids.
    targets = {row[1] for row in differences.difference(recording.snapshots, 0, 4, 4)}
    assert b"gone" not in targets


def test_a_list_of_what_was_flushed_earlier_has_the_newer_names(recordings: Path) -> None:
    recording = open_recording(folder_of(recordings, "ddl", 6))
    shown = differences.full_list(
        recording.snapshots, 2, 3
    )  # snapshot 4 before its flush: the rows of born, now called reborn
    assert {row[1] for row in shown} <= {b"t1", b"reborn"}
    assert b"reborn" in {row[1] for row in shown}
    assert differences.full_list(recording.snapshots, -1, 3) == []
    assert differences.difference(recording.snapshots, 2, 1, 3) == []
