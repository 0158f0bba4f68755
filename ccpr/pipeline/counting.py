"""How many rows the tables have that a point changes, as far as that is known at once: for a later drill to compare
with (decision a-restore-is-tried)."""

import logging
from collections.abc import Iterable

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.row_sums import RowSum
from ccpr.mirror.visible_rows import count_visible
from ccpr.state.point_rows import TablePoint

_MOST_OBJECTS, _OF_A_TABLE, _MOST_ROWS = 32, 16, 100_000  # some hundredths of a second in all
_log = logging.getLogger(__name__)


def count_changed(mirror: Mirror, points: Iterable[TablePoint], at: Timestamp) -> dict[int, RowSum]:
    """By id, of tables with few objects, in a folder; in a bucket each of them would be a request. What cannot be
    counted is left out: its readers say why."""
    left = 0 if mirror.store.folder is None else _MOST_OBJECTS
    found: dict[int, RowSum] = {}
    tables = [point.ref for point in points if point.ref is not None and point.ref.kind is Kind.TABLE]
    for ref in sorted(tables, key=lambda one: one.objects):
        if ref.objects > min(left, _OF_A_TABLE):
            break
        left -= ref.objects
        try:
            rows = count_visible(mirror, mirror.manifest(ref), at, most_rows_read=_MOST_ROWS)
        except CcprError as error:
            _log.info("rows of %s are not counted: %s", ref.qualified_name, error)
            continue
        if rows is not None:
            found[ref.table_id] = RowSum(rows)
    return found
