"""How many tables a point changes, as users see it: those that are new, gone or defined differently, and those whose
rows differ. The upstream merges objects all the time: then a table has other files, a manifest and a row in the point,
and the same rows. The object list does not tell: an update that was merged away leaves as many rows and no tombstone.
And how many rows the changed tables have, as far as that is known at once: for a later drill to compare with (decision
a-restore-is-tried)."""

import logging
from collections.abc import Collection, Iterable, Mapping

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind
from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.row_sums import RowSum
from ccpr.mirror.visible_rows import count_visible
from ccpr.state.point_rows import TablePoint

MOST_BYTES = 4_000_000  # of objects that are read to find out about one table; a larger merge counts as a change
_MOST_OBJECTS, _OF_A_TABLE, _MOST_ROWS = 32, 16, 100_000  # some hundredths of a second in all
_log = logging.getLogger(__name__)


def count_changed_tables(
    mirror: Mirror,
    points: Iterable[TablePoint],
    before: Mapping[int, TablePoint],
    since: Timestamp | None,
    at: Timestamp,
    redefined: Collection[int],
    merged: Collection[int],
) -> int:
    """A truncated table, which went under one id and came under another, counts once; hidden index tables do not count.

    Parameters
    ----------
    points : of the tables that have a row in the point at the time `at`, those that are gone included.
    before : the tables of the last point, by id, whose time is `since`; None if there is none.
    redefined : ids of tables with another definition than there, and of those that it does not show.
    merged : ids of tables that have lost objects. Of others, what came are rows, or deletions.
    """
    changed = set[int]()
    for point in points:
        table, last = point.table, before.get(point.table.id)
        if table.kind is Kind.INDEX or table.logical_id in changed:
            continue
        then = None if last is None or last.ref is None or since is None else TableAt(last.ref, since)
        now = None if point.ref is None else TableAt(point.ref, at)
        certain = table.id in redefined or table.id not in merged
        if certain or then is None or now is None or _differs(mirror, then, now):
            changed.add(table.logical_id)
    return len(changed)


def _differs(mirror: Mirror, then: TableAt, now: TableAt) -> bool:
    """Whether a table has other rows. What cannot be found out, or would take too much reading, counts as a change."""
    if mirror.store.folder is None:
        return True  # each object would be downloaded
    try:
        delta = table_delta(mirror, then, now)
        if delta.bytes > MOST_BYTES:
            return True
        return any(part.upserts.num_rows or part.deletes.num_rows for part in delta.parts())
    except CcprError:
        return True


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
