"""Where the recordings of a real upstream are: in CCPR_RECORDINGS, else in ../shared/recordings next to the repository,
else in tests/recordings. Those of MatrixOne 4.2.0 are beside them, in a folder of the same name with `-4.2`."""

import os
from pathlib import Path

from tests.support.ci import UNDER_CI

_TESTS = Path(__file__).resolve().parents[1]
SAMPLE = _TESTS / "recordings"
SUFFIX_4_2 = "-4.2"


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


def folder_of_4_2(older: Path | None) -> Path | None:
    """The recordings of 4.2.0 beside the older ones. Under CI=true they are required: raises FileNotFoundError."""
    found = None if older is None else older.parent / f"{older.name}{SUFFIX_4_2}"
    if found is not None and found.is_dir():
        return found
    if UNDER_CI:
        raise FileNotFoundError(f"no recordings of 4.2.0 at {found}")
    return None


def scenarios() -> dict[str, str]:
    """Every scenario of both releases that can be replicated: a name for the test's id, and its path from the folder of
    recordings, so that it can be joined to that."""
    older = recordings_folder()
    names = {name: name for name in _names(older)}
    newer = folder_of_4_2(older)
    if newer is not None:
        names |= {f"4.2.0/{name}": f"../{newer.name}/{name}" for name in _names(newer)}
    return names


def _names(folder: Path | None) -> list[str]:
    found = folder.glob("*/about.json") if folder else ()
    return sorted(path.parent.name for path in found if path.parent.name != "partitioned")
