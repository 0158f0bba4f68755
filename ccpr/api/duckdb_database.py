"""All tables of a point in a connection of DuckDB (`Mirror.to_duckdb`)."""

import warnings
from typing import TYPE_CHECKING

from ccpr.base.extras import require
from ccpr.matrixone.schema import Reading
from ccpr.mirror.errors import BadOption, QueryFailed
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point

if TYPE_CHECKING:
    import duckdb


def opened(
    mirror: Mirror, point: Point, reading: Reading, connection: "duckdb.DuckDBPyConnection | None", *, views: bool
) -> "duckdb.DuckDBPyConnection":
    """As `Mirror.to_duckdb`."""
    require("duckdb", "duckdb")
    import duckdb

    from ccpr.mirror.sql import ZONE, PointDatabase

    if not isinstance(connection, duckdb.DuckDBPyConnection | None):
        message = f"{type(connection).__name__} is not a connection of DuckDB"
        raise BadOption(message, subject=mirror.store.url, remedy="Give what duckdb.connect() returns, or nothing.")
    databases = {ref.database for ref in point.tables.values()}
    only = next(iter(databases)) if len(databases) == 1 else ""
    shown = PointDatabase(mirror, point, only, reading, ZONE if connection is None else None, connection)
    shown.show_all()
    if views:
        _add_views(mirror, point, shown.connection, {name.lower() for name in shown.tables})
    return shown.connection


def _add_views(mirror: Mirror, point: Point, connection: "duckdb.DuckDBPyConnection", known: set[str]) -> None:
    import duckdb

    from ccpr.matrixone.definitions import views_in_order
    from ccpr.mirror.duckdb_rows import quoted
    from ccpr.mirror.duckdb_views import create_view

    for each in mirror.definitions(point):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(each.database)}")
        for view in views_in_order(each.views):
            try:
                connection.execute(create_view(view, each.database, known))
            except (QueryFailed, duckdb.Error) as error:
                why = error.message if isinstance(error, QueryFailed) else " ".join(str(error).split())
                warnings.warn(f"view {each.database}.{view.name} is left out: {why:.300}", stacklevel=4)
                continue
            known.add(f"{each.database}.{view.name}".lower())
