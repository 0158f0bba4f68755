"""What can be wrong with SQL text."""

from ccpr.matrixone.errors import Terminal

_NAMES = {"'": "string", '"': "string", "`": "quoted name", "/*": "comment"}


class SqlUnclosed(ValueError):
    """A string, a quoted name or a comment that has no end. Each parser turns it into an error of its own.

    The message holds nothing of the text: a password may be in it.

    Attributes
    ----------
    opening : its first characters: a quote, or ``/*``.
    start : where it begins, in characters.
    """

    def __init__(self, opening: str, start: int, line: int) -> None:
        super().__init__(f"a {_NAMES[opening]} has no end, at character {start} in line {line}")
        self.opening = opening
        self.start = start


class DdlUnreadable(Terminal):
    """A table's definition is not a CREATE TABLE that we can read, or contradicts the catalog. Nothing was changed."""

    code = "DDL_UNREADABLE"
    about = "table"
    default_remedy = (
        "Run SHOW CREATE TABLE upstream, look at the named place, and report the text. The mirror has the table; "
        "in targets it waits."
    )
