"""Whether a table of the mirror has the values that the upstream has at the snapshot of the same point: sums that do
not depend on the order of rows, computed on both sides (decision logical-mode). In logical mode each table is proven
once in PROVEN_EVERY iterations, another one each time."""

import logging
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.errors import BadAnswer, StatementFailed
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.invalid_text import stored_bytes
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Column, Table
from ccpr.mirror.crc32 import crc32_sum
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror

PROVEN_EVERY = 1_440  # with an interval of a minute once a day
_LONGEST = 60  # digits
_BYTES = types.TEXT_TYPES | types.BINARY_TYPES

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _ColumnSums:
    """How many values are not null; and of whole numbers and decimals of one word their sum, of texts and bytes that of
    their CRC-32."""

    column: Column

    @property
    def expressions(self) -> tuple[str, ...]:
        name, oid = upstream_sql.identifier(self.column.name), self.column.type.oid
        if (oid in types.WHOLE_NUMBERS and not self.column.labels) or oid == types.DECIMAL64:
            return f"COUNT({name})", f"SUM(CAST({name} AS DECIMAL(38, {max(self.column.type.scale, 0)})))"
        return (f"COUNT({name})", f"SUM(CRC32({name}))") if oid in _BYTES else (f"COUNT({name})",)

    def of(self, values: pa.Array) -> list[int]:
        found = [len(values) - values.null_count]
        if len(self.expressions) > 1 and self.column.type.oid in _BYTES:
            found.append(crc32_sum(stored_bytes(values) if pa.types.is_string(values.type) else values))
        elif len(self.expressions) > 1:
            scale = values.type.scale if pa.types.is_decimal(values.type) else 0
            total = pc.sum(values.cast(pa.decimal256(76, scale))).as_py() or 0
            found.append(int(total * 10**scale))
        return found


def is_due(table_id: int, lsn: int) -> bool:
    return (lsn + table_id) % PROVEN_EVERY == 0


def unproven(session: Session, mirror: Mirror, manifest: Manifest, at: Timestamp, table: Table, snapshot: str) -> str:
    """How the mirror's table at a point differs from the upstream's at its snapshot, for people; empty if not.

    Parameters
    ----------
    table : as it is called there.
    """
    sums = [_ColumnSums(column) for column in manifest.table.user_columns if column.unread is None]
    ours = [[0] * len(one.expressions) for one in sums]
    for batch in mirror.rows(manifest, [one.column for one in sums], at):
        found = (one.of(values) for one, values in zip(sums, batch.columns, strict=True))
        ours = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(ours, found, strict=True)]
    try:
        theirs = iter(_theirs(session, table, snapshot, [text for one in sums for text in one.expressions]))
    except StatementFailed as error:
        _log.warning("table %s is not proven: %s", table.qualified_name, error)
        return ""
    for one, expected in zip(sums, ours, strict=True):
        if [next(theirs) for _ in expected] != expected:
            return f"column {one.column.name} has other values than upstream"
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
