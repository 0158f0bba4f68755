"""Defects that the source has, and a right replica has with it: two visible rows with one primary key, which the
upstream is known to make (matrixorigin/matrixone 26804 and 27278; LOAD DATA does not check keys). Source:
docs/upstream.md."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.objects.errors import ObjectUnsupported
from ccpr.matrixone.objects.types import unreadable_columns
from ccpr.matrixone.schema import Column, Kind
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.mirror.row_sums import row_hashes

UPSTREAM_ISSUES = ("26804", "27278")


@dataclass(frozen=True, slots=True)
class DoubledKeys:
    """A table whose rows share a primary key.

    Attributes
    ----------
    keys : how many values of the key have several rows.
    example : one of them, by column.
    """

    table: str
    keys: int
    example: dict[str, str]


def doubled_keys(mirror: Mirror, point: Point) -> Iterator[DoubledKeys]:
    """The tables of a point with such rows. Reads the columns of keys; memory: 16 bytes a row of the largest table.
    Tables without a key, and those that cannot be read, are left out: what is damaged is said elsewhere."""
    for ref in sorted(point.tables.values(), key=lambda one: one.qualified_name):
        if ref.kind is not Kind.TABLE:
            continue
        try:
            manifest = mirror.manifest(ref)
            names = create_table_of(manifest.table).primary_key
            columns = [column for column in manifest.table.user_columns if column.name in names]
            if columns and not unreadable_columns(columns):
                found = _doubled(mirror, manifest, columns, point)
                if found is not None:
                    yield found
        except (DdlUnreadable, MirrorDamaged, ObjectUnsupported):
            continue


def _doubled(mirror: Mirror, manifest: Manifest, columns: Sequence[Column], point: Point) -> DoubledKeys | None:
    names = [column.name for column in columns]
    hashes = [row_hashes(batch, names) for batch in mirror.rows(manifest, columns, point.at)]
    if not hashes:
        return None
    ordered = np.sort(np.concatenate(hashes))
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(twice):
        return None
    chosen = [
        batch.filter(pa.array(np.isin(row_hashes(batch, names), twice)))
        for batch in mirror.rows(manifest, columns, point.at)
    ]
    counted = pa.Table.from_batches(chosen).group_by(names).aggregate([([], "count_all")])
    doubled = counted.filter(pc.greater(counted.column("count_all"), 1))
    if not doubled.num_rows:
        return None  # other keys with the same hash
    example = {name: str(doubled.column(name)[0].as_py()) for name in names}
    return DoubledKeys(manifest.table.qualified_name, doubled.num_rows, example)
