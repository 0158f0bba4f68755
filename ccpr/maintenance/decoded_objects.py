"""Whether the rows of a mirror's tables can be read with the types that their columns have: what no checksum says."""

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.errors import ObjectUnsupported
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import unreadable_columns
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import TableRef


class DecodedObjects:
    """Reads tables and throws the rows away; each object once, as long as the columns of its table stay the same.
    Columns of types that this release does not know are skipped."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._seen: dict[tuple[int, str], set[str]] = {}

    def problem_of(self, ref: TableRef, at: Timestamp) -> str | None:
        """Why the rows that a table has at a time cannot be read; None if they can. Memory: one block."""
        unknown = {}
        try:
            manifest = self._mirror.manifest(ref)
            table = manifest.table
            unknown = unreadable_columns(table.columns)
            columns = [column for column in table.columns if column.name not in unknown]
            seen = self._seen.setdefault((table.id, str([column.to_json() for column in table.columns])), set())
            names = [one.stats.name for one in manifest.listed_objects() if not one.tombstone]
            names = [name for name in names if name not in seen]
            for _ in self._mirror.rows(manifest, columns, at, names=names):
                pass
            seen.update(names)
        except CcprError as error:
            if isinstance(error, ObjectUnsupported) and unknown:  # which is reported as such, and is no damage
                return None
            return f"its rows cannot be read: {error.message} ({error.subject})"
        return None
