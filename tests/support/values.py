"""Values that tests of this room share."""

from collections.abc import Callable
from datetime import UTC, datetime

import sqlalchemy as sa

from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.schema import Column, Kind, SqlType, Table
from ccpr.state.context import Context
from ccpr.state.database import transaction
from ccpr.state.log import CcprLog
from ccpr.state.log_rows import Claim
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def a_subscription(name: str = "sub", table: str | None = None) -> Subscription:
    endpoint = Endpoint("127.0.0.1", 6001, "sys", "dump")
    task_id = "00000000-0000-4000-8000-000000000001"
    return Subscription(task_id, name, endpoint, "sealed", Publication("pub", "sys", 0), "db", table, Settings())


def a_table(
    table_id: int = 1, name: str = "t", *, logical_id: int | None = None, kind: Kind = Kind.TABLE, columns: str = "a"
) -> Table:
    stored = tuple(Column(column, seqnum, SqlType(22, 32, -1)) for seqnum, column in enumerate(columns))
    return Table(table_id, table_id if logical_id is None else logical_id, "db", name, kind, stored)


def nothing(connection: sa.Connection) -> None:
    """Adds nothing to a commit."""


def commit(log: CcprLog, claim: Claim, watermark: int, write: Callable[[sa.Connection], None] = nothing) -> None:
    """End an iteration as the engine does: the row, and what it adds, in one transaction."""
    with transaction(log.engine) as connection:
        log.commit_row(connection, claim, Context(), watermark)
        write(connection)
