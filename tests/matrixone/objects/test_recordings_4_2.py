"""Recordings of MatrixOne 4.2.0: every table at every snapshot equals what the server printed."""

from pathlib import Path

import pytest

from tests.support.ci import UNDER_CI
from tests.support.expected import assert_rows_equal
from tests.support.recorded import snapshots
from tests.support.recordings_location import folder_of_4_2, recordings_folder

FOLDER = folder_of_4_2(recordings_folder())
SNAPSHOTS = [] if FOLDER is None else [shown for shown in snapshots(FOLDER) if shown.listed]


def test_the_recordings_are_there_under_ci() -> None:
    assert SNAPSHOTS or not UNDER_CI


@pytest.mark.recordings
@pytest.mark.parametrize(
    "folder", [shown.folder for shown in SNAPSHOTS], ids=lambda one: f"{one.parent.name}/{one.name}"
)
def test_every_table_is_what_the_server_printed(folder: Path) -> None:
    (shown,) = [one for one in SNAPSHOTS if one.folder == folder]
    for table in shown.expected_tables():
        assert_rows_equal(shown.read(table), shown.expected(table))
