"""Errors of statements at the port for MySQL clients."""

from ccpr.matrixone.errors import Terminal


class StatementRefused(Terminal):
    """A statement has something for which MySQL and what answers here differ, or that is not done here."""

    code = "STATEMENT_REFUSED"
    about = "a statement of a MySQL client"
    default_remedy = "Write it in another way (docs: Connect a tool), or use `ccpr query`, which takes DuckDB's SQL."
