"""The changes of one version: which files moved rows only, and the file of the changes, where it is asked for.

Source: decisions lake-data-change, lake-change-data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.delta.images import Image
from ccpr.mirror.manifests import Manifest
from ccpr.targets.lake.changes import (
    NOT_MATCHED,
    TableChange,
    all_images,
    changes_file,
    changes_path,
    has_reserved_names,
)
from ccpr.targets.lake.commit import OBJECT, Lake, TablePlace
from ccpr.targets.lake.log import Action
from ccpr.targets.lake.parquet import FileShape

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
    before : the table as the version before shows it, at `place.at`; None if that is not known.
    now : as this version shows it; None for a table that is gone.
    """

    lake: Lake
    place: TablePlace
    version: int
    shape: FileShape
    before: Manifest | None
    now: Manifest | None
    at: Timestamp

    def changes(self, removes: Adds, adds: Adds) -> VersionChanges:
        """`removes` and `adds` are files as the log has them. Raises what reading the mirror raises, StoreFailed."""
        change = self._change
        unchanged = frozenset[str]() if change is None else _moved(change, removes, adds)
        if not self.lake.rules.change_data or has_reserved_names(self.shape.table):
            return VersionChanges(unchanged)
        everything = frozenset(add["path"] for add in (*removes, *adds))
        if change is not None:
            try:
                found = self._written(change.images())
            except NOT_MATCHED:
                pass
            else:
                return VersionChanges(everything) if found is None else VersionChanges(unchanged, *found)
        if not any("deletionVector" in add for add in (*removes, *adds)):
            return VersionChanges()  # readers see the changes by the files
        before = None if self.before is None else (self.before, Timestamp(self.place.at))
        now = None if self.now is None else (self.now, self.at)
        columns = self.shape.table.user_columns
        found = self._written(all_images(self.lake.mirror, columns, self.shape.reading, before, now))
        return VersionChanges(everything) if found is None else VersionChanges(frozenset(), *found)

    @cached_property
    def _change(self) -> TableChange | None:
        """None unless it is one table with one id."""
        if self.before is None or self.now is None or self.before.table.id != self.now.table.id:
            return None
        return TableChange(self.lake.mirror, self.before, Timestamp(self.place.at), self.now, self.at)

    def _written(self, images: Iterator[tuple[Image, pa.RecordBatch]]) -> tuple[tuple[Action], int] | None:
        """The action of the file, and its bytes; None if nothing changed."""
        content = changes_file(images, self.shape)
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
