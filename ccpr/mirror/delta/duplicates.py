"""Visible rows of one point that have the same key. The upstream does not check keys in LOAD DATA, so there can be some
(docs/upstream.md). A database with a primary key can have one of them only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects.identifiers import rowid_order
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ROW_BITS, ListedObject, open_listed, visible_blocks
from ccpr.mirror.delta.row_keys import RowKey, key_codes, row_key
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror, files_of
from ccpr.mirror.points import TableRef

_SHOWN = 200  # characters of a key in a message


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Rows whose key a later row has.

    Attributes
    ----------
    rows : by the id of their object: sorted, unique `block << 32 | row` (uint64), as `deleted_rows` has them. Of the
        rows of one key all but the last: the order is that of commit times, then of objects, then of rows.
    keys : how many keys have several rows.
    example : one of them, with its rows' objects, for people; empty if there is none.
    """

    rows: Mapping[bytes, np.ndarray] = field(default_factory=dict)
    keys: int = 0
    example: str = ""


@dataclass(frozen=True, slots=True)
class _Rows:
    """The visible rows of one block, with their places and commit times."""

    listed: ListedObject
    keys: pa.Array
    places: np.ndarray
    times: np.ndarray  # of shape (2, rows): physical, logical


def find_duplicates(mirror: Mirror, ref: TableRef, at: Timestamp) -> Duplicates:
    """Reads the keys of all rows of a table that are visible at a time, and has them in memory.

    Raises TableWithoutKey, DdlUnreadable, MirrorDamaged, ObjectDamaged, ObjectMismatch.
    """
    with files_of(ref.qualified_name):
        manifest = mirror.manifest(ref)
        key = row_key(manifest.table)
        if key.hidden:  # the server counts it up by itself
            return Duplicates()
        pieces = _visible(mirror, manifest, key, at)
        if not pieces:
            return Duplicates()
        codes = key_codes([piece.keys for piece in pieces], key.match, f"table {ref.qualified_name}")
        order = np.argsort(codes, kind="stable")
        equal = codes[order][1:] == codes[order][:-1]
        if not equal.any():
            return Duplicates()
        several = np.zeros(len(codes), bool)
        several[order[1:][equal]] = several[order[:-1][equal]] = True
        return _without_last(mirror, key, pieces, codes, np.flatnonzero(several))


def _visible(mirror: Mirror, manifest: Manifest, key: RowKey, at: Timestamp) -> list[_Rows]:
    listed = sorted(manifest.listed_objects(), key=lambda one: rowid_order(one.stats.object_id))
    data, found = {one.stats.object_id: one for one in listed if not one.tombstone}, list[_Rows]()
    for visible in visible_blocks(listed, mirror.open_object, at):
        one, file, (block,) = data[visible.file.object_id], visible.file, visible.blocks
        rows = np.arange(block.rows) if visible.rows is None else visible.rows
        stored = None if one.stats.created_by_cn else file.commit_timestamps(block.number)
        times = np.empty((2, len(rows)), np.uint64)
        times[0] = one.created.physical if stored is None else stored["physical"][rows]
        times[1] = one.created.logical if stored is None else stored["logical"][rows]
        places = np.uint64(block.number) << np.uint64(ROW_BITS) | rows.astype(np.uint64)
        found.append(_Rows(one, visible.column(key.match), places, times))
    return found


def _without_last(mirror: Mirror, key: RowKey, pieces: list[_Rows], codes: np.ndarray, rows: np.ndarray) -> Duplicates:
    """`rows` : numbers of all rows whose key another row has, too; they are in the order of objects and places."""
    starts = np.cumsum([0, *(len(piece.places) for piece in pieces)])
    times = np.concatenate([piece.times for piece in pieces], axis=1)[:, rows]
    ranked = rows[np.lexsort((rows, times[1], times[0], codes[rows]))]
    grouped = codes[ranked]
    is_last = np.append(grouped[1:] != grouped[:-1], True)
    lost: dict[bytes, list[np.ndarray]] = {}
    losing = np.sort(ranked[~is_last])
    bounds = np.searchsorted(losing, starts)
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        piece, chosen = pieces[number], losing[bounds[number] : bounds[number + 1]] - starts[number]
        lost.setdefault(piece.listed.stats.object_id, []).append(piece.places[chosen])
    merged = {object_id: np.sort(np.concatenate(parts)) for object_id, parts in lost.items()}
    example = _example(mirror, key, pieces, starts, ranked[:2])
    return Duplicates(merged, int(np.count_nonzero(is_last)), example)


def _shown(value: pa.Scalar) -> str:
    """For people; Python has no dates beyond the year 9999."""
    kind = value.type
    as_text = pa.types.is_temporal(kind) and not pa.types.is_duration(kind)
    return str(value.cast(pa.string())) if as_text else repr(value.as_py())


def _example(mirror: Mirror, key: RowKey, pieces: list[_Rows], starts: np.ndarray, rows: np.ndarray) -> str:
    """Two rows of one key as text."""
    places, values = [], ""
    for row in rows.tolist():
        number = int(np.searchsorted(starts, row, side="right")) - 1
        listed, place = pieces[number].listed, int(pieces[number].places[row - starts[number]])
        block, line = divmod(place, 1 << ROW_BITS)
        places.append(f"row {line} of block {block} of object {listed.stats.name}")
        file = open_listed(listed, mirror.open_object)
        values = ", ".join(
            f"{column.name} = {_shown(file.column(block, column, np.array([line]))[0])}" for column in key.columns
        )
    return f"{values:.{_SHOWN}}: {' and '.join(places)}"
