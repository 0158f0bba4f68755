"""Which version of this program a process has loaded: a digest of its source files.

Spark's workers import the program by themselves, from where they run and when they start: a session that is older than
an upgrade runs the former version. So each task that writes compares its digest with that of the program that asked
(decision spark-dataframes).
"""

import hashlib
import sys
from functools import cache
from pathlib import Path

CODE_FOLDER = Path(__file__).resolve().parents[3]
_ROOMS = (  # which a task imports
    *("base", "lake", "maintenance", "matrixone", "mirror", "pipeline", "schema", "state", "targets", "values"),
)


@cache
def loaded_code() -> str:
    """A digest of the files: names and contents, and the version of Python. They are read at the first call in this
    process, which is to be soon after it has imported the code."""
    digest = hashlib.sha256(f"{sys.version_info[0]}.{sys.version_info[1]}".encode())
    for room in _ROOMS:
        for path in sorted((CODE_FOLDER / "ccpr" / room).rglob("*.py")):
            digest.update(f"\0{path.relative_to(CODE_FOLDER).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
