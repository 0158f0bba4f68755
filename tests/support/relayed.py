"""A mirror of a recording as a publication, and the answers that the recording itself has."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from ccpr.matrixone.client.catalog_cells import ddl_from_created
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.schema import Kind, Table
from ccpr.matrixone.server.wrong_passwords import password_digest
from ccpr.mirror.layout import MANIFEST_SCHEMA, object_path
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point, TableRef
from ccpr.relay.client_port import Listen
from ccpr.relay.mirror_publication import MirrorPublication
from ccpr.relay.offers import Logins, Offers
from ccpr.relay.relay_backing import StateFolder
from ccpr.relay.relay_server import Relay
from ccpr.retention.pinning import PinsInMemory
from ccpr.service.workspace import Workspace
from ccpr.state.ledger import LedgerEntry
from ccpr.state.subscription import Subscription
from ccpr_emulator.replay.recording import Recording, open_recording
from tests.support.native_client import NativeCopies, NativeTask
from tests.support.publishing import publish, write_manifest
from tests.support.recorded import Snapshot

_REPLICATED = (Kind.TABLE, Kind.INDEX)


def publication_of_recording(folder: Path, root: Path, **options: Any) -> MirrorPublication:
    """What a subscription made with `--with-indexes` keeps of a recording: point n shows snapshot n."""
    root.mkdir(parents=True)
    (root / "objects").symlink_to(folder / "objects")
    mirror, recording = Mirror(LocalStore(root)), open_recording(folder)
    for lsn, path in enumerate(sorted(folder.glob("snapshot-*")), start=1):
        snapshot = Snapshot(path)
        kept = [table for table in snapshot.tables.values() if table.kind in _REPLICATED]
        refs = {table.id: _write(mirror, snapshot, _indexed(recording, lsn, table), lsn) for table in kept}
        publish(mirror, Point(lsn, snapshot.at, f"xr_test_{lsn}_0", datetime.now(UTC), "", refs))
    about = json.loads((folder / "about.json").read_text())

    def entry(name: str) -> LedgerEntry | None:
        if mirror.store.size(object_path(name)) is None:
            return None
        content = mirror.store.read(object_path(name))
        return LedgerEntry(name, content.size, hashlib.sha256(content).digest())

    return MirrorPublication(
        "relayed", mirror, about["database"], about["table"], PinsInMemory(), entry, lambda: 1.8e9, **options
    )


def _indexed(recording: Recording, lsn: int, table: Table) -> Table:
    if table.kind is not Kind.TABLE:
        return table
    answer = recording.snapshots[lsn - 1].indexes.get(table.id)
    rows = () if answer is None else answer.rows
    texts = tuple((_text(name), _text(kind), _text(hidden)) for _, name, kind, hidden in rows)
    return replace(table, indexes=texts, ddl=table.ddl or ddl_from_created(table, table.ddl))


def _text(cell: Any) -> str:
    return b"".decode() if cell is None else bytes(cell).decode()


def _write(mirror: Mirror, snapshot: Snapshot, table: Table, lsn: int) -> TableRef:
    live = [listed for listed in snapshot.objects.get(table.name, []) if listed.deleted is None]
    sums = [mirror.store.read(object_path(listed.stats.name)) for listed in live]
    values = [
        [listed.stats.raw for listed in live],
        [listed.created.physical for listed in live],
        [listed.created.logical for listed in live],
        [listed.tombstone for listed in live],
        [hashlib.sha256(content).digest() for content in sums],
        [ObjectFile(content).sums() for content in sums],
    ]
    columns = [pa.array(value, field.type) for value, field in zip(values, MANIFEST_SCHEMA, strict=True)]
    manifest = write_manifest(mirror, table, pa.Table.from_arrays(columns, schema=MANIFEST_SCHEMA), lsn)
    rows, size = sum(listed.stats.rows for listed in live), sum(listed.stats.size for listed in live)
    return TableRef(table.id, table.database, table.name, table.kind, lsn, manifest, len(live), rows, size)


# ---- a relay over a state folder, and a subscription of ours to it


@contextmanager
def relaying(workspace: Workspace, port: int = 0, **options: Any) -> Iterator[Relay]:
    """Serves a state folder on this machine; its logins, and user `dump` with the password 111."""
    known, logins = {"dump": password_digest("111")}, Logins(workspace)

    def digest(name: str) -> bytes | None:
        return known.get(name) or logins.digest(name)

    folder = StateFolder(Offers(workspace, **options))

    def seen_by(name: str) -> StateFolder:
        return folder if name.lower() in known else folder.seen_by(name)

    with Relay(folder, digest, Listen(port=port), seen_by=seen_by) as relay:
        yield relay


def subscribe_through(port: int, folder: Path, before: Subscription, name: str = "again", **changes: Any) -> Workspace:
    """A state folder with a subscription to a relayed one, with its settings."""
    workspace = Workspace(folder)
    endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{port}")
    publication = Publication(before.name, "sys", 0)
    subscription = Subscription.new(
        name,
        endpoint,
        "111",
        workspace.vault,
        publication,
        before.database,
        before.table,
        replace(before.settings, mirror="", **changes),
    )
    workspace.log.insert(subscription.to_row(datetime.now(UTC)))
    return workspace


def assert_has_point(client: NativeCopies, task: NativeTask, mirror: Mirror, point: Point | None = None) -> int:
    """The copy has the tables and rows of a point, by default the newest. Returns how many rows that are."""
    point, count = point or mirror.point(), 0
    shown = {ref.name for ref in point.tables.values() if ref.kind is Kind.TABLE}
    assert {name for name, table in task.tables.items() if table.text} == shown
    for ref in point.tables.values():
        if ref.kind is not Kind.TABLE:
            continue
        definition = mirror.manifest(ref).table
        _, batches = mirror.read(point, ref.qualified_name)
        ours = Counter(repr(row) for batch in batches for row in batch.to_pylist())
        assert Counter(map(repr, client.rows(task.database, definition, point.at))) == ours, ref.name
        count += ours.total()
    return count


def assert_same_point(first: Mirror, second: Mirror, *, same_time: bool = True) -> None:
    """Both mirrors have the same tables at their newest points: definitions, indexes, objects with create times, and
    the bytes of those that are kept."""
    one, other = first.point(), second.point()
    assert not same_time or one.at == other.at
    assert one.tables.keys() == other.tables.keys()
    for table_id, ref in one.tables.items():
        ours, theirs = first.manifest(ref), second.manifest(other.tables[table_id])
        assert replace(ours.table, partitions=()) == theirs.table, "a relay serves a partitioned table as a plain one"
        assert ours.table.indexes == theirs.table.indexes
        rows = [sorted(map(repr, manifest.objects.to_pylist())) for manifest in (ours, theirs)]
        assert rows[0] == rows[1], ours.table.qualified_name
        for listed in ours.listed_objects():
            path = object_path(listed.stats.name)
            if first.store.size(path) is not None:
                assert first.store.read(path) == second.store.read(path)
