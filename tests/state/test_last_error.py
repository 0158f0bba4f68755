"""The failure of the last attempt, read back from the text that the log has."""

from typing import Any

import pytest

from ccpr.base.errors import Failure
from ccpr.matrixone.client.errors import SnapshotGone
from ccpr.state.log_rows import LastError, parse_failure


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (None, None),
        (
            f"N:7:{SnapshotGone('m', subject='s [t]')}",
            ("SNAPSHOT_GONE", "m", "s [t]", SnapshotGone.default_remedy, False, 1, 7.0, 7.0),
        ),
        ("R:3:5:9:BUSY: m [s] r", ("BUSY", "m", "s", "r", True, 3, 5.0, 9.0)),
        ("R:3:5:9:BUSY: cut in the mid", ("BUSY", "cut in the mid", "", "", True, 3, 5.0, 9.0)),
        ("no text of ours", ("CCPR", "no text of ours", "", "", False, 1, 0.0, 0.0)),
        ("N:x:", ("CCPR", "N:x:", "", "", False, 1, 0.0, 0.0)),
    ],
)
def test_an_error_message_is_read_back(message: str | None, expected: tuple[Any, ...] | None) -> None:
    assert LastError.parse(message) == (None if expected is None else LastError(*expected))


def test_the_text_of_a_failure_is_parsed_into_it_again() -> None:
    for failure in (Failure("GONE", "m: [x] y", "table a.b", "Run it. [Or not]"), Failure("A_1", "", "", "")):
        assert str(parse_failure(str(failure))) == str(failure)
