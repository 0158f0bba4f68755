"""Every table of every recorded snapshot, read by the reader alone, equals what the server answered."""

from pathlib import Path

import pytest

from tests.support.expected import assert_rows_equal
from tests.support.recorded import Snapshot
from tests.support.recordings_location import recordings_folder

_FOLDER = recordings_folder()
_PAIRS = [
    pytest.param(snapshot, table, id=f"{folder.parent.name}-{folder.name[-3:]}-{table}")
    for folder in sorted(_FOLDER.glob("*/snapshot-*") if _FOLDER else ())
    for snapshot in [Snapshot(folder)]
    if snapshot.listed
    for table in snapshot.expected_tables()
]


@pytest.mark.recordings
@pytest.mark.parametrize(("snapshot", "table"), _PAIRS)
def test_visible_rows_equal_the_servers_answer(snapshot: Snapshot, table: str) -> None:
    assert_rows_equal(snapshot.read(table), snapshot.expected(table))


def test_the_recordings_hold_every_known_scenario(recordings: Path) -> None:
    if recordings.name == "recordings" and recordings.parent.name == "tests":
        pytest.skip("a sample only")
    assert len(_PAIRS) >= 170
