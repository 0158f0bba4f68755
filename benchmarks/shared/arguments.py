"""What the benchmarks over recordings share: their command line, and the check for the recordings that they need."""

import argparse
from pathlib import Path

from tests.support.recordings_location import recordings_folder


def arguments_of(text: str | None, rounds: int) -> argparse.Namespace:
    """`json` and `rounds` from the command line; `text` is the module's docstring."""
    parser = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser.parse_args()


def recordings_with(*scenarios: str) -> Path:
    """The folder of the recordings. Ends the program if one of these scenarios is missing."""
    folder = recordings_folder()
    missing = [name for name in scenarios if folder is None or not (folder / name).is_dir()]
    if folder is None or missing:
        raise SystemExit(
            f"this needs the full recordings ({', '.join(missing)} not found): set CCPR_RECORDINGS to their folder"
        )
    return folder
