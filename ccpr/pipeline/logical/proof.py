"""Whether a table of the mirror has the values that the upstream has at the snapshot of the same point: sums that do
not depend on the order of rows, computed on both sides (decision logical-mode). In logical mode each table is proven
once in PROVEN_EVERY iterations, another one each time."""

import logging

import pyarrow as pa

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.errors import BadAnswer, StatementFailed
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.ddl.definition import ColumnType
from ccpr.matrixone.objects.invalid_text import stored_bytes
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Table
from ccpr.mirror.column_sums import ColumnSum
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror
from ccpr.schema.choices import Dialect

PROVEN_EVERY = 1_440  # with an interval of a minute once a day
_LONGEST = 60  # digits

_log = logging.getLogger(__name__)


def is_due(table_id: int, lsn: int) -> bool:
    return (lsn + table_id) % PROVEN_EVERY == 0


def unproven(session: Session, mirror: Mirror, manifest: Manifest, at: Timestamp, table: Table, snapshot: str) -> str:
    """How the mirror's table at a point differs from the upstream's at its snapshot, for people; empty if not.

    Parameters
    ----------
    table : as it is called there.
    """
    columns = [column for column in manifest.table.user_columns if column.unread is None]
    sums = [ColumnSum(one.name, ColumnType.of(one), Dialect.MATRIXONE) for one in columns]
    ours = [(0,) * len(one.expressions) for one in sums]
    for batch in mirror.rows(manifest, columns, at):
        arrays = (stored_bytes(values) if pa.types.is_string(values.type) else values for values in batch.columns)
        found = [one.of(values) for one, values in zip(sums, arrays, strict=True)]
        ours = [tuple(map(sum, zip(*pair, strict=True))) for pair in zip(ours, found, strict=True)]
    try:
        session.query(upstream_sql.UTC_SESSION)
        theirs = iter(_theirs(session, table, snapshot, [text for one in sums for text in one.expressions]))
    except StatementFailed as error:
        _log.warning("table %s is not proven: %s", table.qualified_name, error)
        return ""
    for one, expected in zip(sums, ours, strict=True):
        if tuple(next(theirs) for _ in expected) != expected:
            return f"column {one.name} has other values than upstream"
    return ""


def _theirs(session: Session, table: Table, snapshot: str, expressions: list[str]) -> list[int]:
    """Whole numbers; of decimals without their point."""
    answer = session.read(upstream_sql.select_sums(table.database, table.name, expressions, snapshot))
    what = f"sums of table {table.qualified_name}"
    if len(answer.rows) != 1 or len(answer.rows[0]) != len(expressions):
        raise BadAnswer(f"they are {len(answer.rows)} rows", subject=what)
    found = list[int]()
    for cell in answer.rows[0]:
        number = (cell or b"0").replace(b".", b"")
        if not number.removeprefix(b"-").isdigit():
            raise BadAnswer(f"one is no number: {number!r:.60}", subject=what)
        found.append(int(number[:_LONGEST]))
    return found
