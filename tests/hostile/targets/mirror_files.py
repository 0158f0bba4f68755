"""The mirror's own files, damaged: manifests and ledgers (Arrow), points and the head (JSON)."""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind, Table
from ccpr.mirror.files import sealed
from ccpr.mirror.layout import (
    HEAD,
    IDENTITY,
    LEDGER_SCHEMA,
    MANIFEST_SCHEMA_1,
    Identity,
    digest_of,
    ledger_path,
    lsn_of_point,
    manifest_path,
    point_path,
)
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import as_listed
from ccpr.mirror.points import Point, TableRef
from ccpr.mirror.store import Store, StoredFile
from tests.hostile.mutate import mutated, mutated_json, packed, set_number, unpacked
from tests.support.publishing import publish, publish_idle, write_manifest
from tests.support.recorded import Snapshot
from tests.support.recordings_location import SAMPLE


class MemoryStore:
    """What a test needs of `ccpr.mirror.store.Store`, in memory."""

    url = "memory:"

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self.files = dict(files or {})

    def put(self, name: str, chunks: Iterable[bytes], *, check: object = None) -> StoredFile:
        self.files[name] = b"".join(chunks)
        return StoredFile(len(self.files[name]), bytes(32))

    def replace(self, name: str, content: bytes) -> None:
        self.files[name] = content

    def sync(self, folder: str) -> None:
        pass

    def read(self, name: str) -> pa.Buffer:
        from ccpr.mirror.errors import MirrorDamaged

        if name not in self.files:
            raise MirrorDamaged("a file of the mirror is missing", subject=name)
        return pa.py_buffer(self.files[name])

    def size(self, name: str) -> int | None:
        return len(self.files[name]) if name in self.files else None

    def names(self, folder: str) -> Iterator[str]:
        return iter(sorted(name for name in self.files if name.startswith(f"{folder}/")))

    each_name = names


def mirror_of(store: MemoryStore) -> Mirror:
    return Mirror(cast(Store, store))


def _table_and_objects() -> tuple[Table, pa.Table]:
    snapshot = Snapshot(SAMPLE / "dml" / "snapshot-003")
    name, listed = next((name, listed) for name, listed in snapshot.objects.items() if len(listed) > 2)
    objects = pa.table(
        {
            "stats": [entry.stats.raw for entry in listed] * 5,
            "create_physical": [entry.created.physical for entry in listed] * 5,
            "create_logical": [entry.created.logical for entry in listed] * 5,
            "is_tombstone": [entry.tombstone for entry in listed] * 5,
        }
    )
    return snapshot.tables[name], objects


class ArrowFiles:
    """The first byte: 0 a manifest, 1 a ledger."""

    name = "arrow_files"
    decoded_bytes = 0

    def __init__(self) -> None:
        table, objects = _table_and_objects()
        store = MemoryStore()
        mirror = mirror_of(store)
        write_manifest(mirror, table, objects.cast(MANIFEST_SCHEMA_1), 1)
        names = [f"{number:08x}-0000-0000-0000-000000000000_00000" for number in range(300)]
        columns = [pa.array(names), pa.array(range(300), pa.int64()), pa.array([bytes(32)] * 300, pa.binary(32))]
        mirror.write_ledger(pa.Table.from_arrays(columns, schema=LEDGER_SCHEMA), 1, 1)
        other = pa.BufferOutputStream()
        odd = pa.table(
            {
                "d": pa.array(["a", "b", "a"] * 50).dictionary_encode(),
                "l": [[1, 2], None, []] * 50,
                "v": pa.array([b"x"] * 150, pa.binary_view()),
            }
        )
        with pa.ipc.new_file(other, odd.schema) as writer:
            writer.write_table(odd)
        self._seeds = [*store.files.values()]
        self._others = [*self._seeds, other.getvalue().to_pybytes()]

    def make(self, chance: random.Random) -> bytes:
        kind = chance.randrange(2)
        data = bytearray(self._seeds[kind] if chance.random() < 0.95 else chance.choice(self._others))
        choice = chance.random()
        if choice < 0.5:  # the framing and the flatbuffers: aligned numbers
            for _ in range(chance.choice((1, 1, 2, 4))):
                width = chance.choice((2, 4, 8))
                set_number(data, chance.randrange(len(data)) // width * width, width, chance)
            return bytes((kind,)) + bytes(data)
        return bytes((kind,)) + mutated(bytes(data), chance, self._others, gentle=choice < 0.85)

    def run(self, data: bytes) -> str:
        name = manifest_path(1, 1, 1, digest_of(data[1:]))
        mirror = mirror_of(MemoryStore({name: data[1:]}))
        if data[0]:
            ledger = mirror.files.read_arrow(name, LEDGER_SCHEMA)
            self.decoded_bytes = ledger.nbytes
            ledger.to_pylist()
            return "rows"
        manifest = mirror.manifest(TableRef(1, "db", "t", Kind.TABLE, 1, name, 1, 1, 1))
        self.decoded_bytes = manifest.objects.nbytes
        first = "rows"
        try:
            manifest.listed_objects()
        except CcprError as error:
            first = error.code
        as_listed(1, manifest.objects).to_pylist()
        hash(manifest.table)
        return first

    def close(self) -> None:
        pass


def _sealed_again(content: bytes) -> bytes:
    """With the digest that belongs to it, if it is an object at all."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content
    return sealed(value) if isinstance(value, dict) else content


class Points:
    """An input: names and contents of head, identity and points in turn. Mostly with the digests that belong to the
    contents, so that more than the comparison of these is reached."""

    name = "points"
    decoded_bytes = 0

    def __init__(self) -> None:
        store = MemoryStore()
        mirror = mirror_of(store)
        tables: dict[int, TableRef] = {}
        for lsn in range(1, 6):
            changed = TableRef(lsn, "db", f"t{lsn}", Kind.TABLE, lsn, manifest_path(lsn, lsn, 1, "0" * 16), 1, 2, 3)
            tables[lsn] = changed
            at = datetime(2026, 1, 1, 0, lsn, tzinfo=UTC)
            ledger = ledger_path(lsn, 1, "0" * 16)
            point = Point(lsn, Timestamp(10**18 + lsn), f"xr_{lsn}", at, ledger, dict(tables))
            publish(mirror, point, {lsn: changed, lsn + 9: None})
        publish_idle(mirror, 7, 10**18 + 9)
        mirror.write_identity(Identity("4f2c", "shop", "0a1b2c3d"))
        self._files = store.files
        self._order = [*sorted(name for name in store.files if name.startswith("points/")), HEAD, IDENTITY]

    def make(self, chance: random.Random) -> bytes:
        chosen = chance.choices(self._order, k=chance.choice((1, 1, 2)))
        belongs = chance.random() < 0.9  # the digests
        files: dict[str, bytes] = {}
        renamed: dict[str, str] = {}
        for name in self._order:  # a point after those that it names
            content = self._files[name]
            for old, new in renamed.items():
                content = content.replace(old.encode(), new.encode())
            if name in chosen:
                content = self._mutated(content, chance)
            if belongs and name.startswith("points/"):
                renamed[name] = point_path(lsn_of_point(name) or 0, digest_of(content))
            elif belongs:
                content = _sealed_again(content)
            files[renamed.get(name, name)] = content
        if chance.random() < 0.1:
            files.pop(chance.choice(list(files)))
        if chance.random() < 0.1:
            files[f"points/{chance.choice(('x', '٣', '9' * 25, '-1', ''))}.json"] = chance.choice([*files.values()])
        return packed([part for name, content in files.items() for part in (name.encode(), content)])

    def _mutated(self, content: bytes, chance: random.Random) -> bytes:
        choice = chance.random()
        if choice < 0.65:
            try:
                return json.dumps(mutated_json(json.loads(content), chance)).encode()
            except (ValueError, RecursionError):
                return b"{}"
        if choice < 0.85:
            value: Any = json.loads(content)
            for key in ("earlier", "complete", "point", "oldest_point", "newest_point", "format"):
                if isinstance(value, dict) and key in value and chance.random() < 0.4:
                    other = json.loads(self._files[chance.choice(self._order[:-1])])
                    odd = (
                        1,
                        2,
                        6,
                        -1,
                        True,
                        4.0,
                        "",
                        [],
                        [["points/000000000009.json", 7]],
                        [[self._order[0], 10**18]],
                    )
                    value[key] = chance.choice((*odd, other.get(key)))
            return json.dumps(value).encode()
        if choice < 0.9:
            return chance.choice((b"[" * 100_000, b'{"a":' * 50_000, b"9" * 10_000, b"", b"null", b'{"format": NaN}'))
        return mutated(content, chance)

    def run(self, data: bytes) -> str:
        parts = unpacked(data)
        mirror = mirror_of(MemoryStore({parts[at].decode(): parts[at + 1] for at in range(0, len(parts), 2)}))
        first = "rows"
        try:
            hash(mirror.identity())
            mirror.points()
        except CcprError as error:
            first = error.code
        for at in (None, 3, 6, 10**18 + 3, datetime(2001, 9, 9, 1, 46, 40, 1, tzinfo=UTC), 10**18 + 2):
            try:
                point = mirror.point(at)
                for ref in point.tables.values():
                    hash(ref)
                    str(ref.qualified_name)
                assert isinstance(point.ledger, str)
                mirror.points_not_needed(3)
                point.table("db.t1")
            except CcprError as error:
                first = error.code if first == "rows" else first
        return first

    def close(self) -> None:
        pass
