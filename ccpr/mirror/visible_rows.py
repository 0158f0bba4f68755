"""How many rows of a table a reader sees at a point: what is stored, less what tombstones hide, what was committed
later and what was rolled back. No column is read: of an object its metadata, of tombstones the row ids, of appendable
objects the commit times.
"""

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import check_deletions, deleted_rows, open_listed, visible_mask
from ccpr.mirror.mirror import Manifest, Mirror, files_of

MOST_OBJECTS = 1_000
MOST_ROWS_READ = 5_000_000  # row ids and commit times; some tens of MB


def count_visible(
    mirror: Mirror,
    manifest: Manifest,
    at: Timestamp,
    *,
    most_objects: int = MOST_OBJECTS,
    most_rows_read: int = MOST_ROWS_READ,
) -> int | None:
    """The number of rows that `Mirror.rows` gives at that time. None if more objects, or more row ids and commit times,
    would have to be read for it.

    Raises MirrorDamaged, ObjectDamaged, ObjectMismatch, ObjectUnsupported, StoreFailed.
    """
    if manifest.objects.num_rows > most_objects:
        return None
    objects = [listed for listed in manifest.listed_objects() if listed.takes_part(at)]
    if sum(listed.stats.rows for listed in objects if listed.tombstone or listed.stats.appendable) > most_rows_read:
        return None
    data = [listed for listed in objects if not listed.tombstone]
    visible = 0
    with files_of(manifest.table.qualified_name):
        hidden = deleted_rows(objects, mirror.open_object, at, of=frozenset(one.stats.object_id for one in data))
        for listed in data:
            file, deletions = open_listed(listed, mirror.open_object), hidden.get(listed.stats.object_id)
            check_deletions(listed, file, deletions)
            for block in file.blocks:
                mask = visible_mask(listed, file, block.number, deletions, at)
                visible += block.rows if mask is None else int(mask.sum())
    return visible
