"""A recording of MatrixOne 4.2.0 with transactions that were open while snapshots were taken: every point equals the
rows that were true. Random histories of such transactions are in tests/histories."""

from pathlib import Path

import pytest

from tests.support.replica import replaying

pytestmark = pytest.mark.recordings


def test_every_point_of_long_transactions_equals_the_source(recordings: Path, home: Path) -> None:
    folder = recordings.parent / "recordings-4.2" / "long_transactions"
    if not folder.is_dir():
        pytest.skip("the recordings of 4.2.0 are not there")
    with replaying(folder, home) as replica:
        replica.subscribe()
        for snapshot in range(1, replica.about.snapshots + 1):
            replica.run()
            replica.assert_equal_to_source(snapshot)
