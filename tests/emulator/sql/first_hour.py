"""What the statements of somebody's first hour give on a simulated upstream, as first-hour.md lists it.

`python -m tests.emulator.sql.first_hour` writes the page again.
"""

import re
from pathlib import Path

import pymysql

from ccpr_emulator.simulated_upstream import SimulatedUpstream

STATEMENTS = Path(__file__).with_name("first-hour.sql")
PAGE = Path(__file__).with_name("first-hour.md")
_HEAD = """# Statements of a first hour

<!-- written by python -m tests.emulator.sql.first_hour: do not edit -->

What a newcomer types in the first hour, in one session, and what `ccpr emulator --living` answers.
A real MatrixOne refuses 12 of them. A test executes them and compares this page with the answers.

| statement | answer |
|---|---|
"""


def outcomes() -> list[tuple[str, str]]:
    """Each statement with its answer."""
    with SimulatedUpstream() as emulator:
        connection = pymysql.connect(
            host="127.0.0.1", port=emulator.port, user="root", autocommit=True, local_infile=True
        )
        with connection, connection.cursor() as cursor:
            return [(text, _outcome(cursor, text)) for text in STATEMENTS.read_text().splitlines()]


def _outcome(cursor: pymysql.cursors.Cursor, text: str) -> str:
    try:
        count = cursor.execute(text)
    except pymysql.MySQLError as error:
        if "infile" in text:
            return "asks the client for the file"
        shown = re.sub(r"[|`]", "", str(error.args[1]))
        return f"**refused**, {error.args[0]}: {shown}"
    if text.startswith("explain"):
        return "a plan"
    if cursor.description is not None:
        return f"{count} row{'s' * (count != 1)}"
    return f"{count} changed" if count else "done"


def page(found: list[tuple[str, str]]) -> str:
    refused = sum("refused" in outcome for _, outcome in found)
    rows = "".join(f"| `{text}` | {outcome} |\n" for text, outcome in found)
    return f"{_HEAD}{rows}\n{len(found)} statements, {refused} refused.\n"


if __name__ == "__main__":
    PAGE.write_text(page(outcomes()))
