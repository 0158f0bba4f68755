"""Which tables a point changes, as users see it: those that are new, gone or defined differently, and those whose rows
differ. The upstream flushes and merges objects all the time: then a table has other files, a manifest and a row in the
point, and the same rows. The object list does not tell: an update that was merged away leaves as many rows and no
tombstone.

And how many rows the changed tables have, as far as that is known at once: for a later drill to compare with (decision
a-restore-is-tried)."""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind
from ccpr.mirror.delta.delta import TableAt, differ
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.row_sums import RowSum
from ccpr.mirror.table_read import count_visible
from ccpr.state.point_rows import TablePoint

_MOST_OBJECTS, _OF_A_TABLE, _MOST_ROWS = 32, 16, 100_000  # some hundredths of a second in all
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MovedTables:
    """What is known of tables from the last point to the time of a new one.

    Attributes
    ----------
    redefined : ids of tables with another definition, and of those that the last point does not show.
    came, went : ids of tables that have new objects, that have lost objects. Where objects came only, they are rows, or
        deletions.
    """

    redefined: Collection[int]
    came: Collection[int]
    went: Collection[int]

    def has_changed(self, table_id: int) -> bool:
        """Whether that is known without a look at rows."""
        return table_id in self.redefined or (table_id in self.came and table_id not in self.went)


def with_changes(
    mirror: Mirror,
    points: Iterable[TablePoint],
    before: Mapping[int, TablePoint],
    since: Timestamp | None,
    at: Timestamp,
    moved: MovedTables,
) -> tuple[tuple[TablePoint, ...], int]:
    """The points, each with the lsn of its last change of rows or definition; and how many tables have changed: one
    that was truncated, which went under one id and came under another, counts once, hidden index tables do not count.

    Parameters
    ----------
    points : of the tables that have a row in the point at the time `at`, those that are gone included.
    before : the tables of the last point, by id, whose time is `since`; None if there is none.
    """
    changed, found = set[int](), list[TablePoint]()
    for point in points:
        last = before.get(point.table.id)
        then = None if last is None or last.ref is None or since is None else TableAt(last.ref, since)
        now = None if point.ref is None else TableAt(point.ref, at)
        if then is None or now is None or moved.has_changed(point.table.id) or _differ(mirror, then, now):
            changed |= set() if point.table.kind is Kind.INDEX else {point.table.logical_id}
            found.append(point)
        else:
            found.append(replace(point, ref=replace(now.ref, same_since=then.ref.changed_lsn)))
    return tuple(found), len(changed)


def _differ(mirror: Mirror, then: TableAt, now: TableAt) -> bool:
    """Whether a table has other rows. What cannot be found out, or would take too much reading, counts as a change, and
    so does each merge of a hidden index table."""
    if now.ref.kind is Kind.INDEX:
        return True
    try:
        return differ(mirror, then, now)
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
