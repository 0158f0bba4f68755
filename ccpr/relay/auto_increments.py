"""Where AUTO_INCREMENT goes on in a copy that is written to.

A MatrixOne counts from where its CREATE TABLE says, and does not look at rows that came as objects: it would give
their numbers again. So the text of such a copy says where to go on: after the greatest number in the table's objects,
those of deleted rows included. Source: docs/upstream.md, "A MatrixOne behind the relay".
"""

import pyarrow.compute as pc

from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.zonemap import parse_zonemap
from ccpr.matrixone.schema import FAKE_KEY, Column, Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror, files_of
from ccpr.relay.errors import RelayText
from ccpr.relay.served_points import ServedPoint

_GREATEST = 2**63 - 1  # that a MatrixOne reads in a table's options


def next_number(mirror: Mirror, state: ServedPoint, table_id: int) -> int | None:
    """The number that the table has not used yet; None if it counts nothing, or has used none above 0. Looks at the
    zone maps of its objects. Raises RelayText, MirrorDamaged."""
    table = state.tables[table_id]
    counted = _counted(table)
    if not counted:
        return None
    objects = mirror.manifest(state.ref(table_id)).data_objects
    kept = objects.filter(pc.is_valid(objects.column("sha256")))
    with files_of(table.qualified_name):
        files = (mirror.open_object(one.stats.name, one.sums) for one in Manifest(table, kept).listed_objects())
        used = max((_greatest(file, column) for file in files for column in counted), default=0)
    return min(used + 1, _GREATEST) if used > 0 else None


def _counted(table: Table) -> list[Column]:
    """The columns with AUTO_INCREMENT; of a table without one and without primary key its hidden key."""
    try:
        columns = create_table_of(table).columns
    except DdlUnreadable as error:
        raise RelayText(
            "its CREATE TABLE text does not say for certain which columns are AUTO_INCREMENT",
            subject=f"table {table.qualified_name}",
            remedy="Load the other tables without it: --table T, once for each.",
        ) from error
    names = {column.name for column in columns if column.auto_increment}
    chosen = [column for column in table.columns if column.name in names]
    return chosen or [column for column in table.columns if column.hidden and column.name == FAKE_KEY]


def _greatest(file: ObjectFile, column: Column) -> int:
    if column.seqnum > min(file.max_seqnum, len(file.columns) - 1):
        return 0
    zone = parse_zonemap(file.columns["zonemap"][column.seqnum].tobytes())
    return zone.maximum if zone is not None and zone.oid == column.type.oid else 0
