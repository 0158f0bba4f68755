"""The settings in docs/reference/sql.md. The rest of that page is written by hand."""

from pathlib import Path
from typing import Any

from ccpr.cli.reference.tables import code, table
from ccpr.matrixone.sql.quoting import quote_string
from ccpr.state.setting_entry import Setting
from ccpr.state.setting_kinds import Choice, Flag
from ccpr.state.settings import SETTINGS

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "sql.md"
_BEGIN, _END = "<!-- settings, by `make reference` -->\n", "<!-- end of settings -->\n"


def page() -> str:
    """The text of docs/reference/sql.md."""
    before, _, rest = _PAGE.read_text("utf-8").partition(_BEGIN)
    after = rest.partition(_END)[2]
    rows = table(("setting", "values", "default", ""), map(_row, SETTINGS.values()))
    return "".join((before, _BEGIN, "\n", "\n".join(rows), "\n\n", _END, after))


def _row(one: Setting) -> tuple[str, ...]:
    kind, values = one.kind, one.kind.words
    if isinstance(kind, Flag):
        values = ", ".join(map(_literal, (True, False)))
    elif isinstance(kind, Choice):
        values = ", ".join(map(_literal, kind.values))
    return code(one.name.upper()), values, _literal(kind.plain(one.default)), one.sentence + one.about_empty


def _literal(value: Any) -> str:
    return code(quote_string(value) if isinstance(value, str) else str(value).upper())
