"""Where the recordings of a real upstream are: in CCPR_RECORDINGS, else in ../shared/recordings next to the repository,
else in tests/recordings."""

import os
from pathlib import Path

from tests.support.ci import UNDER_CI

_TESTS = Path(__file__).resolve().parents[1]
SAMPLE = _TESTS / "recordings"


def recordings_folder() -> Path | None:
    """The folder with a folder for each scenario; None if there is none. Under CI=true the full recordings are
    required: raises FileNotFoundError without them."""
    named = os.environ.get("CCPR_RECORDINGS")
    full = Path(named) if named else _TESTS.parent.parent / "shared" / "recordings"
    if full.is_dir():
        return full
    if named or UNDER_CI:
        raise FileNotFoundError(f"no recordings at {full}")
    return SAMPLE if SAMPLE.is_dir() else None
