"""How many rows of a table a reader sees at a point: what is stored, less what tombstones hide, what was committed
later and what was rolled back; of these, with filters, the rows that satisfy all.

As few columns as possible are read: of an object its metadata, of tombstones the row ids, of appendable objects the
commit times. With filters their columns, only in those blocks whose zone maps say neither that no
row satisfies them nor that each does.
"""

from collections.abc import Sequence
from functools import cache

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import visible_blocks
from ccpr.mirror.filters import Filter, conditions, mask_of
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror, files_of
from ccpr.mirror.pruning import prune

MOST_OBJECTS = 1_000
MOST_ROWS_READ = 5_000_000  # row ids and commit times; some tens of MB


def count_rows(
    mirror: Mirror, manifest: Manifest, at: Timestamp, filters: Sequence[Filter] = (), *, limit: int | None = None
) -> int:
    """The number of rows that `Mirror.rows` gives at that time with these filters, or `limit` if it is less.

    Raises BadFilter, MirrorDamaged, ObjectDamaged, ObjectMismatch, ObjectUnsupported, StoreFailed. Values of a column
    without a filter are not looked at, so what is wrong with them is no error.
    """
    tests, pruning = conditions(filters, manifest.table), prune(filters, manifest.table.columns)
    count = 0
    with files_of(manifest.table.qualified_name):
        objects = mirror.objects_for(manifest, filters)
        for visible in visible_blocks(objects, mirror.open_object, at, choose=pruning.blocks):
            if limit is not None and count >= limit:
                return limit
            if pruning.covers(visible.file, visible.blocks[0]):
                count += visible.count
            else:
                count += mask_of(tests, cache(visible.column)).true_count
    return count if limit is None else min(count, limit)


def count_visible(
    mirror: Mirror,
    manifest: Manifest,
    at: Timestamp,
    *,
    most_objects: int = MOST_OBJECTS,
    most_rows_read: int = MOST_ROWS_READ,
) -> int | None:
    """As `count_rows`. None if more objects, or more row ids and commit times, would have to be read for it."""
    if manifest.objects.num_rows > most_objects:
        return None
    objects = [listed for listed in manifest.listed_objects() if listed.takes_part(at)]
    if sum(listed.stats.rows for listed in objects if listed.tombstone or listed.stats.appendable) > most_rows_read:
        return None
    return count_rows(mirror, manifest, at)
