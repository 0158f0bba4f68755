"""Objects copied straight from storage: the upstream is asked only for what storage does not have, and what is wrong
there never becomes a file of the mirror."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.errors import ObjectSizeMismatch
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectMismatch
from ccpr.mirror.local_store import LocalStore
from ccpr.pipeline.copying import COPY_INPUT, CopyJob, CopyReport, copy, copy_in_process
from ccpr.state.credentials import Vault
from ccpr.state.settings import Budget
from ccpr_emulator.recorded_upstream import RecordedUpstream
from tests.support.bucket import Bucket, served
from tests.support.disk_files import framed, write_storage
from tests.support.recorded import Snapshot

pytestmark = [pytest.mark.integration, pytest.mark.recordings]

PASSWORD = "a secret of the test"


@dataclass
class Scene:
    """The objects of a recording in an upstream and in storage, and a job that copies them."""

    objects: Path
    emulator: RecordedUpstream
    storage: Path
    job: CopyJob
    wanted: pa.Table
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = self.wanted.column("name").to_pylist()

    def copied(self, **changes: object) -> CopyReport:
        return copy(replace(self.job, **changes), self.wanted, copy_in_process)  # pyright: ignore[reportArgumentType]

    @property
    def asked(self) -> int:
        """How many objects the upstream was asked for."""
        return self.emulator.status().objects_fetched

    def assert_mirrored(self, report: CopyReport, *without: str) -> None:
        names = set(self.names) - set(without)
        assert {path.name for path in (self.storage.parent / "mirror/objects").iterdir()} == names
        for row in report.rows.to_pylist():
            content = (self.objects / row["name"]).read_bytes()
            assert (self.storage.parent / "mirror/objects" / row["name"]).read_bytes() == content
            assert row["sha256"] == hashlib.sha256(content).digest()


@pytest.fixture
def scene(recordings: Path, tmp_path: Path, key_file: Path) -> Iterator[Scene]:
    folder = recordings / "dml"
    lists = (Snapshot(snapshot).objects.values() for snapshot in sorted(folder.glob("snapshot-*")))
    listed = [one.stats for tables in lists for table in tables for one in table]
    rows = {stats.name: {"name": stats.name, "size": stats.size, "stats": stats.raw} for stats in listed}
    wanted = pa.Table.from_pylist(sorted(rows.values(), key=lambda row: row["name"]), schema=COPY_INPUT)
    storage = write_storage(folder / "objects", tmp_path / "shared", disk=True)
    with RecordedUpstream(folder, password=PASSWORD) as emulator:
        endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{emulator.port}")
        job = CopyJob(
            endpoint,
            Vault(key_file).seal(PASSWORD, endpoint),
            Publication("pub_dml", "sys", 0),
            LocalStore(tmp_path / "mirror").url,
            Budget(sessions=2),
            key_file=key_file,
            objects_from=storage.as_uri(),
        )
        yield Scene(folder / "objects", emulator, storage, job, wanted)


def test_the_upstream_is_not_asked_for_what_storage_has(scene: Scene) -> None:
    report = scene.copied()
    scene.assert_mirrored(report)
    assert (report.objects_direct, report.objects_fetched, scene.asked) == (len(scene.names), len(scene.names), 0)
    assert scene.emulator.status().sessions_that_fetched == 0
    again = scene.copied()
    assert (again.objects_direct, again.objects_fetched) == (0, 0)
    assert again.ledger.sort_by("name") == report.ledger.sort_by("name")


def test_bare_files_of_a_bucket_are_copied_as_they_are(scene: Scene, s3_credentials: None) -> None:
    files = {f"server/data/{path.name}": path.read_bytes() for path in scene.objects.iterdir()}
    with served(Bucket(files)) as bucket:
        report = scene.copied(objects_from=bucket.url())
    scene.assert_mirrored(report)
    assert (report.objects_direct, scene.asked) == (len(scene.names), 0)


def test_what_storage_does_not_have_or_not_yet_comes_from_the_upstream(scene: Scene) -> None:
    gone, growing = scene.names[1], scene.names[-1]
    (scene.storage / gone).unlink()
    (scene.storage / growing).write_bytes((scene.storage / growing).read_bytes()[:-5])
    report = scene.copied()
    scene.assert_mirrored(report)
    assert {row["name"] for row in report.rows.to_pylist() if not row["direct"]} == {gone, growing}
    assert scene.asked == 2


def flipped(scene: Scene, name: str) -> bytes:
    file = bytearray((scene.storage / name).read_bytes())
    file[len(file) // 2] ^= 32
    return bytes(file)


def anothers(scene: Scene, name: str) -> bytes:
    """The same size, and sound, but another object's rows: only the check against the stats finds it."""
    content = (scene.objects / name).read_bytes()
    return framed(content[:64] + bytes(len(content) - 128) + content[-64:])


WRONG = {
    "bits flipped": (flipped, ObjectDamaged),
    "other content": (anothers, (ObjectDamaged, ObjectMismatch)),
    "longer": (lambda scene, name: (scene.storage / name).read_bytes() + bytes(9), ObjectSizeMismatch),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_in_storage_is_an_error_and_never_a_file(kind: str, scene: Scene) -> None:
    make, error = WRONG[kind]
    name = scene.names[2]
    (scene.storage / name).write_bytes(make(scene, name))
    with pytest.raises(error) as raised:
        scene.copied()
    assert name in raised.value.subject
    assert not (scene.storage.parent / "mirror/objects" / name).exists()
    report = scene.copied(collect_failures=True)
    assert set(report.failures) == {name}
    scene.assert_mirrored(report, name)
    assert scene.asked == 0


def test_a_file_under_anothers_name_is_found_by_its_stats(scene: Scene) -> None:
    """Of the same size, by bytes in its middle that nothing but its name and length could tell from its own."""
    name, other = scene.names[0], scene.names[1]
    size = (scene.objects / name).stat().st_size
    content = (scene.objects / other).read_bytes()
    (scene.storage / name).write_bytes(framed(content[:size].ljust(size, b"\0")))
    with pytest.raises((ObjectDamaged, ObjectMismatch)):
        scene.copied()
    assert not (scene.storage.parent / "mirror/objects" / name).exists()


def test_what_an_interrupted_run_left_half_written_is_read_again(scene: Scene) -> None:
    name = scene.names[0]
    store = LocalStore(scene.storage.parent / "mirror")
    store.put(f"objects/{name}", [bytes((scene.objects / name).stat().st_size)])
    report = scene.copied()
    scene.assert_mirrored(report)
    assert report.objects_direct == len(scene.names)
