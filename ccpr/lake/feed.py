"""The changes of one version: which files moved rows only, and the file of the changes, where it is asked for.

Source: decision lake-change-data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import pyarrow as pa

from ccpr.lake.changed_rows import (
    NOT_MATCHED,
    TableChange,
    changes_file,
    changes_path,
    deleted_files,
    feed_rows,
)
from ccpr.lake.commit import OBJECT, Lake, TablePlace
from ccpr.lake.errors import LakeChanged
from ccpr.lake.lake_columns import LakeColumns
from ccpr.lake.lake_log import Action
from ccpr.lake.parquet import FileShape
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.delta.change_rows import Image
from ccpr.mirror.manifests import Manifest

Adds = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """
    Attributes
    ----------
    unchanged : paths of files that come or go without a change of rows.
    actions : the file of the changes.
    size : its bytes.
    """

    unchanged: frozenset[str] = frozenset()
    actions: tuple[Action, ...] = ()
    size: int = 0


@dataclass(frozen=True)
class VersionFeed:
    """
    Attributes
    ----------
    version : that is to be committed.
    shape : of the table's files at that version.
    columns, live : those of the version before, and its files; None and empty before the first.
    before : the table as the version before shows it, at `place.at`; None if that is not known.
    now : as this version shows it; None for a table that is gone.
    again : the files of the version before may be damaged.
    """

    lake: Lake
    place: TablePlace
    version: int
    shape: FileShape
    columns: LakeColumns | None
    live: Adds
    before: Manifest | None
    now: Manifest | None
    at: Timestamp
    again: bool = False

    def changes(self, removes: Adds, adds: Adds) -> VersionChanges:
        """`removes` and `adds` are files as the log has them. Raises what reading the mirror raises, StoreFailed."""
        change = self._change
        unchanged = frozenset[str]() if change is None else _moved(change, removes, adds)
        if not self.lake.rules.change_data:
            return VersionChanges(unchanged)
        everything = frozenset(add["path"] for add in (*removes, *adds))
        continues = self.columns is None or self.shape.columns.continues(self.columns)
        if change is not None and continues:
            try:
                found = self._written(feed_rows(change.images(), self.shape))
            except NOT_MATCHED:
                pass
            else:
                return VersionChanges(everything) if found is None else VersionChanges(unchanged, *found)
        if continues and not any("deletionVector" in add for add in (*removes, *adds)):
            return VersionChanges()  # readers see the changes by the files
        try:
            found = self._written(chain(self._deleted(), self._inserted()))
        except LakeChanged:
            if not self.again:
                raise
            found = self._written(self._inserted())
        return VersionChanges(everything) if found is None else VersionChanges(frozenset(), *found)

    def _deleted(self) -> Iterator[pa.RecordBatch]:
        if self.columns is not None:
            yield from deleted_files(self.lake.store.files, self.shape, self.columns, self.live)

    def _inserted(self) -> Iterator[pa.RecordBatch]:
        if self.now is not None:
            rows = self.lake.mirror.rows(self.now, self.shape.table.user_columns, self.at)
            yield from feed_rows(((Image.INSERT, batch) for batch in rows), self.shape)

    @cached_property
    def _change(self) -> TableChange | None:
        """None unless it is one table with one id."""
        if self.before is None or self.now is None or self.before.table.id != self.now.table.id:
            return None
        return TableChange(self.lake.mirror, self.before, Timestamp(self.place.at), self.now, self.at)

    def _written(self, rows: Iterator[pa.RecordBatch]) -> tuple[tuple[Action], int] | None:
        """The action of the file, and its bytes; None if nothing changed."""
        content = changes_file(rows, self.shape)
        if content is None:
            return None
        name, files = changes_path(self.version), self.lake.store.files
        stored = files.put(f"{self.place.folder}/{name}", content, overwrite=True)
        files.sync(f"{self.place.folder}/_change_data")
        action = {"path": name, "partitionValues": {}, "size": stored.size, "dataChange": False}
        return ({"cdc": action},), stored.size


def _moved(change: TableChange, removes: Adds, adds: Adds) -> frozenset[str]:
    """The paths of files that are gone and of files that are new, whose rows are the same."""
    before, after = ({add["tags"][OBJECT]: add["path"] for add in found} for found in (removes, adds))
    names = change.moved(before.keys() - after.keys(), after.keys() - before.keys())
    return frozenset(path for found in (before, after) for name, path in found.items() if name in names)
