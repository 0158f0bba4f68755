"""Where the recordings of a real upstream are: CCPR_RECORDINGS, else ../shared/recordings beside the repository, else
tests/recordings."""

import os
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
SAMPLE = _TESTS / "recordings"


def recordings_folder() -> Path | None:
    """The folder with one folder a scenario; None if there is none. Under CI=true the full recordings are a must:
    FileNotFoundError without them."""
    named = os.environ.get("CCPR_RECORDINGS")
    beside = Path(named) if named else _TESTS.parent.parent / "shared" / "recordings"
    if beside.is_dir():
        return beside
    if named or os.environ.get("CI", "").lower() == "true":
        raise FileNotFoundError(f"no recordings at {beside}")
    return SAMPLE if SAMPLE.is_dir() else None
