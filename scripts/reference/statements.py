"""The names of settings in docs/reference/sql.md. The rest of that page is written by hand."""

import textwrap
from pathlib import Path

from ccpr.state.settings import SETTINGS
from scripts.reference.tables import listed

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "sql.md"
_BEGIN, _END = "<!-- settings, by `make reference` -->\n", "<!-- end of settings -->\n"


def page() -> str:
    """The text of docs/reference/sql.md."""
    before, _, rest = _PAGE.read_text("utf-8").partition(_BEGIN)
    after = rest.partition(_END)[2]
    names = textwrap.fill(listed(name.upper() for name in SETTINGS), 100)
    return "".join((before, _BEGIN, "\n", names, "\n\n", _END, after))
