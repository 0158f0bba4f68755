"""Markdown tables and lists of the generated pages, and what stands in them."""

from collections.abc import Iterable, Sequence

from ccpr.state.setting_entry import Setting


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table. A vertical bar in a cell is escaped; cells are otherwise Markdown."""
    cells = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    return [_line(columns), _line(["---"] * len(columns)), *map(_line, cells)]


def described(rows: Iterable[tuple[str, str]]) -> list[str]:
    """A list of names with what they are."""
    return [f"* {name}: {text}{'' if text.endswith('.') else '.'}" for name, text in rows]


def code(text: str) -> str:
    """As code; empty stays empty."""
    return f"`{text}`" if text else ""


def listed(names: Iterable[str]) -> str:
    """Names as code, in one line."""
    return ", ".join(map(code, names))


def default_of(one: Setting) -> str:
    """What a setting is if it is not given."""
    plain = one.kind.plain(one.default)
    if isinstance(plain, bool):
        return str(plain).lower()
    return "" if plain in ("", [], None) else str(plain)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
