"""Manifests that have parts: what a change writes, in how many files, and files that are not what was written."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from ccpr.matrixone.schema import Kind
from ccpr.mirror import manifests
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.files import arrow_file, read_arrow_file
from ccpr.mirror.layout import CHANGES_SCHEMA, MANIFEST_SCHEMA, MANIFEST_SCHEMA_1, digest_of, manifest_path
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import TableRef
from tests.matrixone.objects.building import stats_bytes
from tests.support.manifest_parts import divided
from tests.support.values import a_table

TABLE = a_table(1, "t")


def objects(*numbers: int) -> pa.Table:
    rows = [
        {
            "stats": stats_bytes(b"x" * 500, rows=1, blocks=1, object_id=number.to_bytes(18)),
            "create_physical": number,
            "create_logical": 0,
            "is_tombstone": False,
            "sha256": number.to_bytes(32),
        }
        for number in numbers
    ]
    return pa.Table.from_pylist(rows, schema=MANIFEST_SCHEMA)


def ref_of(path: str, count: int, parts: tuple[str, ...] = ()) -> TableRef:
    return TableRef(1, "db", "t", Kind.TABLE, 0, path, count, 0, 0, parts)


def changed(mirror: Mirror, before: TableRef, added: pa.Table, removed: pa.Table, lsn: int) -> TableRef:
    path, parts = mirror.write_changes(TABLE, before, added, removed, lsn, 1)
    return ref_of(path, before.objects + added.num_rows - removed.num_rows, parts)


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(LocalStore(tmp_path))


@pytest.fixture
def three(mirror: Mirror) -> TableRef:
    """A manifest of three files: ten objects; one came; one came and one went."""
    ref = ref_of(mirror.write_manifest(TABLE, objects(*range(10)), 0, 1), 10)
    with divided():
        ref = changed(mirror, ref, objects(10), objects(), 1)
        return changed(mirror, ref, objects(11), objects(3), 2)


def numbers_of(mirror: Mirror, ref: TableRef) -> list[int]:
    return mirror.manifest(ref).objects.column("create_physical").to_pylist()


def test_a_manifest_is_all_of_its_files_in_order(mirror: Mirror, three: TableRef) -> None:
    assert len(three.files) == 3
    assert numbers_of(mirror, three) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]


def test_a_change_of_a_large_table_writes_little_and_needs_few_files(mirror: Mirror) -> None:
    """Lists of all objects would be a million rows."""
    start, steps = manifests.LONGEST_WHOLE * 2, 250
    live = list(range(start))
    ref = ref_of(mirror.write_manifest(TABLE, objects(*live), 0, 1), start)
    written = most = 0
    for lsn in range(1, steps + 1):
        came, went = start + lsn, live.pop(lsn)
        ref = changed(mirror, ref, objects(came), objects(went), lsn)
        live.append(came)
        written += mirror.files.read_arrow(ref.manifest, CHANGES_SCHEMA).num_rows
        most = max(most, len(ref.files))
    assert numbers_of(mirror, ref) == live
    assert written < 20 * 2 * steps
    assert most <= 6


def test_a_table_with_few_objects_is_one_file(mirror: Mirror) -> None:
    ref = ref_of(mirror.write_manifest(TABLE, objects(*range(9)), 0, 1), 9)
    ref = changed(mirror, ref, objects(9), objects(0), 1)
    assert ref.parts == ()
    assert numbers_of(mirror, ref) == list(range(1, 10))


def test_the_parts_are_in_the_point(three: TableRef) -> None:
    assert TableRef.from_json(1, json.loads(json.dumps(three.to_json()))) == three


@pytest.mark.parametrize("parts", [["objects/a"], ["manifests/2/0-1-0123456789abcdef.arrow"], [1], "a", {"a": 1}])
def test_parts_of_a_point_are_manifests_of_its_table(three: TableRef, parts: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        TableRef.from_json(1, {**three.to_json(), "parts": parts})


@pytest.mark.parametrize("number", range(3))
def test_a_lost_or_damaged_part_is_a_typed_error_that_names_the_table(
    mirror: Mirror, three: TableRef, number: int
) -> None:
    assert mirror.store.folder is not None
    file = mirror.store.folder / three.files[number]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    for damage in (lambda: (file.unlink(), file.write_bytes(content)), file.unlink):
        damage()
        with pytest.raises(MirrorDamaged, match=r"table db\.t"):
            mirror.manifest(three)


def written(mirror: Mirror, rows: pa.Table, about: dict) -> TableRef:
    """A file with these rows and this metadata, whose digest is right."""
    text = json.dumps({"format": 2, "table": TABLE.to_json(), **about})
    content = arrow_file(rows.replace_schema_metadata({b"ccpr": text}))
    path = manifest_path(1, 9, 1, digest_of(content))
    mirror.store.put(path, [content])
    return ref_of(path, 1)


def changes(*numbers: int, removed: bool = False) -> pa.Table:
    rows = objects(*numbers)
    return rows.append_column(CHANGES_SCHEMA.field("is_removed"), pa.repeat(removed, rows.num_rows))


@pytest.mark.parametrize(
    "parts",
    [
        [],
        None,
        {},
        "parts",
        [["head.json", 1]],
        [["manifests/2/0-1-0123456789abcdef.arrow", 1]],
        [["../1/0-1-0123456789abcdef.arrow", 1]],
        [["manifests/1/0-1-0123456789abcdef.arrow", 1]] * 2,
        [[f"manifests/1/{n}-1-0123456789abcdef.arrow", 1] for n in range(65)],
        [["manifests/1/0-1-0123456789abcdef.arrow", True]],
        [["manifests/1/0-1-0123456789abcdef.arrow"]],
    ],
)
def test_parts_that_nobody_writes_are_a_typed_error(mirror: Mirror, parts: object) -> None:
    with pytest.raises(MirrorDamaged):
        mirror.manifest(written(mirror, changes(1), {"objects": 1, "parts": parts}))


def test_files_that_do_not_belong_together_are_a_typed_error(mirror: Mirror) -> None:
    path = mirror.write_manifest(TABLE, objects(1, 2), 0, 1)
    with pytest.raises(MirrorDamaged, match="has 2 rows"):
        mirror.manifest(written(mirror, changes(3), {"objects": 4, "parts": [[path, 3]]}))
    with pytest.raises(MirrorDamaged, match="have 3 objects"):
        mirror.manifest(written(mirror, changes(3), {"objects": 4, "parts": [[path, 2]]}))
    with pytest.raises(MirrorDamaged, match="have 2 objects"):  # it removes what is not there
        mirror.manifest(written(mirror, changes(5, removed=True), {"objects": 1, "parts": [[path, 2]]}))


def test_a_release_that_knows_whole_manifests_only_refuses_the_file(mirror: Mirror, three: TableRef) -> None:
    """It would take the changes for all that the table has."""
    with pytest.raises(MirrorDamaged, match="columns"):
        read_arrow_file(mirror.files.read(three.manifest), [MANIFEST_SCHEMA], "a manifest")


def test_a_manifest_that_0_1_0_wrote_is_read_and_changed(mirror: Mirror) -> None:
    """Without a digest in its name and without checksums: the table did not change since."""
    about = {"format": 1, "table": a_table().to_json()}
    rows = objects(1, 2).select(MANIFEST_SCHEMA_1.names).replace_schema_metadata({b"ccpr": json.dumps(about)})
    mirror.store.put("manifests/1/3-1.arrow", [arrow_file(rows)])
    ref = ref_of("manifests/1/3-1.arrow", 2)
    assert numbers_of(mirror, ref) == [1, 2]
    assert numbers_of(mirror, changed(mirror, ref, objects(3), objects(1), 9)) == [2, 3]
