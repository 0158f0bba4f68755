"""The Iceberg tables of a lake in a REST catalog that is not this program's, by Iceberg's own client."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ccpr.lake.commit import Lake
from ccpr.lake.errors import LakeForeign
from ccpr.lake.iceberg import TASK, ChangedTable, IcebergChange, IcebergMetadata, iceberg_schema, name_aside, unreadable
from ccpr.lake.iceberg_jvm import IcebergJvm, exception_name, java_errors, java_exception
from ccpr.matrixone.errors import CcprError

_ABSENT = ("NoSuchTableException", "NoSuchNamespaceException")


class RestTables:
    """
    Parameters
    ----------
    properties : of the catalog: `uri`, `warehouse`, `token`, those of a store.
    """

    def __init__(self, lake: Lake, version: int, jvm: IcebergJvm, properties: Mapping[str, str]) -> None:
        self.lake, self.version, self.jvm = lake, version, jvm
        self.subject = f"catalog {properties.get('uri', '')}"
        with java_errors(self.subject):
            self.catalog = jvm.catalog(properties)
            self.files = jvm.files(properties)
        self.location = lake.store.location

    def find(self, table: ChangedTable) -> IcebergMetadata | None:
        """Under its name of now; it is made if there is none. Raises LakeForeign."""
        found = self._table(table)
        if found is None:
            return None
        base = found.operations().current()
        content = self.jvm.iceberg.TableMetadataParser.toJson(base)
        return IcebergMetadata(base.metadataFileLocation() or "", content, found)

    def commit(self, changes: Sequence[IcebergChange]) -> Mapping[str, CcprError]:
        commits, failed = [], dict[str, CcprError]()
        for one in changes:
            if one.asked is not None and one.known is not None:
                files = one.known.source.io() if self.lake.store.url.startswith("s3:") else self.files
                (staged,) = found = self.jvm.staged(files, [one.asked])
                ((content, why),) = self.jvm.contents(found)
                if content is None:
                    failed[one.table.folder] = unreadable(one.table, why)
                    continue
                identifier = self.jvm.identifier(one.table.name)
                commits.append(self.jvm.iceberg.catalog.TableCommit.create(identifier, staged.base(), staged.current()))
        if commits:
            self.catalog.commitTransaction(commits)
        for one in changes:
            if one.table.dropped:
                self.drop(one.table.name, one.table.folder)
        return failed

    def unneeded(self, known: IcebergMetadata, names: Iterable[str]) -> Iterable[str]:
        """Its metadata files are that program's."""
        return ()

    def drop(self, name: str, folder: str) -> None:
        for identifier in (self.jvm.identifier(name), self._aside(name, folder)):
            if self._at(identifier, folder) is not None:
                self.catalog.dropTable(identifier, False)

    def _table(self, one: ChangedTable) -> Any:
        wanted = self.jvm.identifier(one.name)
        there = self._loaded(wanted)
        if there is not None and there.location() == self.location(one.folder):
            return there
        if one.dropped:
            return self._at(self._aside(one.name, one.folder), one.folder)
        if there is not None:
            self._make_way(one.name, wanted, there)
        for former in (self.jvm.identifier(one.former), self._aside(one.name, one.folder)):
            if (found := self._at(former, one.folder)) is not None:
                self.catalog.renameTable(former, wanted)
                return self._loaded(wanted) or found
        schema = self.jvm.iceberg.SchemaParser.fromJson(json.dumps(iceberg_schema(one.state.metadata)))
        spec, namespace = self.jvm.iceberg.PartitionSpec.unpartitioned(), wanted.namespace()
        if not self.catalog.namespaceExists(namespace):
            self.catalog.createNamespace(namespace, {})
        properties = {"format-version": str(self.version), TASK: self.lake.task}
        return self.catalog.createTable(wanted, schema, spec, self.location(one.folder), properties)

    def _make_way(self, name: str, identifier: Any, there: Any) -> None:
        """Another table of the lake has the name: it was dropped, or will get its own name in a moment."""
        folder = there.location().removeprefix(self.location(""))
        if there.properties().get(TASK) != self.lake.task or folder == there.location():
            raise LakeForeign("the catalog has another table of this name", subject=f"table {name}")
        self.catalog.renameTable(identifier, self._aside(name, folder))

    def _aside(self, name: str, folder: str) -> Any:
        return self.jvm.identifier(f"{name.partition('.')[0]}.{name_aside(folder)}")

    def _at(self, identifier: Any, folder: str) -> Any:
        """The table of this name if it is in the folder."""
        found = self._loaded(identifier)
        return found if found is not None and found.location() == self.location(folder) else None

    def _loaded(self, identifier: Any) -> Any:
        """None if there is no such table."""
        try:
            return self.catalog.loadTable(identifier)
        except Exception as error:
            thrown = java_exception(error)
            if thrown is not None and exception_name(thrown) in _ABSENT:
                return None
            raise
