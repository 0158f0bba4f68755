"""A view of the upstream as one of DuckDB's: its query in DuckDB's words, if it reads nothing but tables and views of
the same point.

A view's query is an upstream's text, and DuckDB's SQL reads files of this machine. So only one SELECT is taken whose
sources are all known by name, and which calls no function that sqlglot does not know.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from ccpr.base.extras import require
from ccpr.matrixone.definitions import View
from ccpr.mirror.duckdb_rows import quoted
from ccpr.mirror.errors import QueryFailed

if TYPE_CHECKING:
    from sqlglot import exp


def create_view(view: View, database: str, known: Collection[str]) -> str:
    """CREATE VIEW for DuckDB. `known` are the tables and views that may be read, `db.t` in lower case.

    Raises QueryFailed for a query that is not taken, and ExtraMissing without sqlglot.
    """
    require("duckdb", "sqlglot", otherwise="Tables can be queried without it.")
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    subject = f"view {database}.{view.name}"
    try:
        trees = sqlglot.parse(view.query, dialect="mysql")
        tree = trees[0] if len(trees) == 1 else None
        if not isinstance(tree, exp.Query):
            raise QueryFailed("it is not one SELECT", subject=subject, remedy=_REMEDY)
        _check(tree, view.default_database or database, known, subject)
        query = tree.sql(dialect="duckdb", identify=True)
    except (SqlglotError, RecursionError) as error:
        raise QueryFailed("its SELECT is not understood", subject=subject, remedy=_REMEDY) from error
    columns = f" ({', '.join(map(quoted, view.columns))})" if view.columns else ""
    return f"CREATE OR REPLACE VIEW {quoted(database)}.{quoted(view.name)}{columns} AS {query}"


def _check(tree: "exp.Query", database: str, known: Collection[str], subject: str) -> None:
    """Names all tables with their database. Raises QueryFailed."""
    from sqlglot import exp

    if (other := next(tree.find_all(exp.Anonymous, exp.Command, exp.UDTF, exp.Parameter), None)) is not None:
        raise QueryFailed(f"it has {other.sql():.60}, which is not known", subject=subject, remedy=_REMEDY)
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or table.catalog:
            raise QueryFailed(f"it reads {table.sql():.60}, no table", subject=subject, remedy=_REMEDY)
        if not table.db and table.name.lower() in own:
            continue
        of = table.db or database
        if f"{of}.{table.name}".lower() not in known:
            raise QueryFailed(f"it reads {of}.{table.name}, which is not there", subject=subject, remedy=_REMEDY)
        table.set("db", exp.to_identifier(of, quoted=True))


_REMEDY = "`ccpr tables NAME --ddl` shows its definition; query the tables that it reads."
