"""A bit of an object that flips after it was copied is found by the next read that meets it, in each kind of reader,
before anything is decoded; no reader ever gives other rows."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import ccpr
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.errors import ObjectChanged
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.server.answers import StatementError
from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.layout import object_path
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.mirror.table_read import count_rows, plan_read
from ccpr.pipeline.spark.read import read_share
from ccpr.relay.served_content import ServedContent
from ccpr.serve.caretaking import Caretaker
from ccpr.service.drilling import DrillTo, drill
from ccpr.service.verifying import mend_readers, verifier_of
from ccpr.service.workspace import Workspace
from ccpr.state.ledger import Ledger
from tests.histories.replicating import NAME
from tests.support.lake_readers import READERS
from tests.support.lakes import Published, Source, source
from tests.support.recorded import opened
from tests.support.replica import command

TABLE = "shop.t"
SCHEMA = "CREATE TABLE shop.t (id INT PRIMARY KEY, word VARCHAR(40), price DECIMAL(10,2), at DATETIME(6))"
STEPS = (
    (
        "INSERT INTO shop.t SELECT result, concat('word ', result * 7919 % 10007), result / 4,"
        " '2026-01-02 03:04:05.678901' FROM generate_series(1, 3000) g",
    ),
    ("DELETE FROM shop.t WHERE id % 7 = 0", "INSERT INTO shop.t VALUES (9001, 'late', 1, NULL), (9002, NULL, 2, NULL)"),
)


def counted(rows: pa.Table) -> Counter[str]:
    return Counter(map(repr, rows.to_pylist()))


@dataclass
class Readers:
    """Each gives something that is the same as long as the rows are."""

    made: Source
    folder: Path
    before: Point
    now: Point
    lakes: int = 0

    @property
    def mirror(self) -> Mirror:
        """Opened anew, so that nothing of it is known from before."""
        return Mirror(LocalStore(self.made.mirror.store.folder or Path()))

    @property
    def table(self) -> ccpr.Table:
        return ccpr.open_mirror(self.mirror.store.url).table(TABLE)

    def all_rows(self) -> object:
        schema, batches = self.mirror.read(self.now, TABLE, hidden=True)
        return counted(pa.Table.from_batches(batches, schema))

    def to_arrow(self) -> object:
        return counted(self.table.to_arrow(filters=[("id", ">", 1500), ("price", "<", 700)]))

    def count(self) -> object:
        return count_rows(self.mirror, self.mirror.manifest(self.now.table(TABLE)), self.now.at)

    def changes(self) -> object:
        return counted(self.table.changes(self.before.lsn, self.now.lsn).to_arrow())

    def query(self) -> object:
        with closing(duckdb.connect()) as connection:
            self.table.to_duckdb(connection, "t")
            try:
                return Counter(connection.execute("SELECT word, price FROM t WHERE id > 100").fetchall())
            except duckdb.Error as error:  # with the text of ours, in a connection that is the user's own
                if "MIRROR_DAMAGED" not in str(error):
                    raise
                raise MirrorDamaged(str(error), subject=str(error)) from error

    def spark_task(self) -> object:
        read = plan_read(self.mirror, TABLE)
        batches = read_share(read, read.shares().column("name").combine_chunks())
        return counted(pa.Table.from_batches(batches, read.schema))

    def target(self) -> object:
        """What a target that shows the point before gets."""
        then, now = (TableAt(point.table(TABLE), point.at) for point in (self.before, self.now))
        delta = table_delta(self.mirror, then, now)
        parts = list(delta.parts())
        return [counted(pa.concat_tables(getattr(part, name) for part in parts)) for name in ("upserts", "deletes")]

    def lake(self) -> object:
        self.lakes += 1
        published = Published(self.mirror, self.folder / f"lake{self.lakes}")
        result = published.sync(self.now).run()
        for late in result.behind:
            raise MirrorDamaged(late.failure.message, subject=late.failure.subject)
        return counted(READERS["delta-rs"](str(published.folder / TABLE), result.tables[0].version))

    def drill(self) -> object:
        place = DrillTo(self.folder / "drills")
        done = drill(self.made.workspace, NAME, place, at=self.now.lsn)
        if done.failure is not None:
            raise MirrorDamaged(done.failure.message, subject=done.failure.subject)
        return done.good, done.rows

    def relay(self) -> object:
        ledger = Ledger(self.made.workspace.log.engine, self.made.workspace.log.row(NAME).task_id)
        found = {stored.name: stored for stored in ledger.stored_objects()}
        content = ServedContent(self.mirror, found.get)
        try:
            return {name: bytes(content.read(name, 0, stored.size)) for name, stored in found.items()}
        except StatementError as error:
            raise MirrorDamaged(str(error), subject="relay") from error

    def all(self) -> dict[str, Callable[[], object]]:
        several = (self.to_arrow, self.count, self.changes, self.query, self.spark_task, self.target, self.lake)
        return {one.__name__: one for one in (self.all_rows, *several, self.drill, self.relay)}


@contextmanager
def replicated(folder: Path) -> Iterator[Readers]:
    with source(folder, SCHEMA) as made:
        before, now = [made.point(*statements) for statements in STEPS]
        yield Readers(made, folder, before, now)


def parts_of(file: ObjectFile, *, tombstone: bool) -> Iterator[range]:
    """The bytes that a reader of all rows looks at in any case. It does not read the times of all commits, and of
    tombstones only the row ids."""
    yield range(64)
    yield range(file.meta.offset, file.meta.offset + file.meta.length)
    for block in file.blocks:
        places = (block.columns[name].tolist() for name in ("oid", "offset", "length"))
        for seqnum, (oid, offset, length) in enumerate(zip(*places, strict=True)):
            if oid and seqnum <= (0 if tombstone else file.max_seqnum):
                yield range(offset, offset + length)


@contextmanager
def flipped(file: Path, at: int, bit: int) -> Iterator[None]:
    content = file.read_bytes()
    file.chmod(0o600)
    file.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
    try:
        yield
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize("flips", [60, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.timeout(3600)
def test_a_flipped_bit_is_found_by_the_next_read_of_each_reader(flips: int, tmp_path: Path) -> None:
    chance = random.Random(43)
    with replicated(tmp_path) as readers:
        listed = readers.mirror.manifest(readers.now.table(TABLE)).listed_objects()
        assert all(one.sums for one in listed)
        right = {name: read() for name, read in readers.all().items()}
        assert len(right["all_rows"]) == 2574  # type: ignore[arg-type]
        found, named, surely = Counter[str](), defaultdict[str, set[bool]](set), 0
        for _ in range(flips):
            one = chance.choice(listed)
            path = (readers.mirror.store.folder or Path()) / object_path(one.stats.name)
            file, at, bit = opened(path), chance.randrange(path.stat().st_size), chance.randrange(8)
            is_read = any(at in part for part in parts_of(file, tombstone=one.tombstone))
            before = found["all_rows"]
            with flipped(path, at, bit):
                for name, read in readers.all().items():
                    try:
                        rows: object = read()
                    except (MirrorDamaged, ObjectChanged) as error:
                        found[name] += 1
                        named[name] |= {one.stats.name in error.subject}
                    else:
                        assert rows == right[name], f"{name}: other rows, by bit {bit} of byte {at} of {path.name}"
                assert not is_read or found["all_rows"] == before + 1, f"byte {at} of {path.name}"
                surely += is_read
        assert surely > flips // 2
        assert found["relay"] == flips
        assert set(found) == set(right), "each reader found some"
        assert all(named[name] == {True} for name in right if name != "relay")


def test_what_was_found_names_table_column_block_and_object_and_what_to_type(tmp_path: Path) -> None:
    with replicated(tmp_path) as readers:
        one = next(o for o in readers.mirror.manifest(readers.now.table(TABLE)).listed_objects() if not o.tombstone)
        path = (readers.mirror.store.folder or Path()) / object_path(one.stats.name)
        columns = opened(path).blocks[0].columns
        with flipped(path, int(columns["offset"][1]) + 5, 3), pytest.raises(CcprError) as raised:
            readers.table.to_arrow()
        error = raised.value
        assert isinstance(error, MirrorDamaged)
        assert error.subject == f"table {TABLE}, column word, object {one.stats.name}"
        assert error.message == "column 1 of block 0 is not what was copied: its checksum differs"
        assert "ccpr verify NAME --repair" in error.remedy


@contextmanager
def of_an_earlier_release(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Readers]:
    """A mirror without sums."""
    with monkeypatch.context() as earlier:
        earlier.setattr(ObjectFile, "sums", lambda file: None)
        with replicated(folder) as readers:
            earlier.undo()
            yield readers


def a_bit_that_changes_a_value(readers: Readers) -> tuple[Path, int, int]:
    """What a reader takes for another number, as nothing says that it is none."""
    manifest = readers.mirror.manifest(readers.now.table(TABLE))
    data = [one for one in manifest.listed_objects() if not one.tombstone]
    path = (readers.mirror.store.folder or Path()) / object_path(max(data, key=lambda one: one.stats.rows).stats.name)
    price, content = manifest.table.columns[2], path.read_bytes()
    right, column = ObjectFile(content).column(0, price), ObjectFile(content).blocks[0].columns[2]
    for at in range(int(column["offset"]) + int(column["length"]) // 2, int(column["offset"] + column["length"])):
        try:
            now = ObjectFile(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]).column(0, price)
        except CcprError:
            continue
        if now != right:
            return path, at, 0
    raise AssertionError("no bit changes a value")


def test_a_mirror_of_an_earlier_release_gets_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with of_an_earlier_release(tmp_path, monkeypatch) as readers:
        place, right = a_bit_that_changes_a_value(readers), readers.all_rows()
        row = readers.made.workspace.log.row(NAME)
        with flipped(*place):
            assert readers.all_rows() != right, "it is read as before"
            found = verifier_of(readers.made.workspace, row, repair=False, checksums=True).run()
            assert len(found.damages) == 1, "what differs from the ledger gets none"
            assert found.summed == found.objects - 1
        assert readers.all_rows() == right
        found = verifier_of(readers.made.workspace, row, repair=False, checksums=True).run()
        assert found.sound
        assert found.summed == found.objects
        with flipped(*place):
            for name, read in readers.all().items():
                if name not in ("count", "changes", "target"):  # which may not read this column of it
                    with pytest.raises(MirrorDamaged):
                        read()
        assert readers.all_rows() == right
        (file,) = readers.mirror.store.names("sums")
        with (
            flipped((readers.mirror.store.folder or Path()) / file, 300, 1),
            pytest.raises(MirrorDamaged, match="digest differs"),
        ):
            readers.all_rows()


def test_a_drill_of_a_mirror_without_checksums_records_nothing_of_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with of_an_earlier_release(tmp_path, monkeypatch) as readers:
        with flipped(*a_bit_that_changes_a_value(readers)), pytest.raises(MirrorDamaged, match="SHA-256"):
            readers.drill()
        assert readers.drill() == (True, 2574)


def test_a_lake_that_took_damage_is_named_and_published_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a mirror without sums, where no reader could know."""
    with of_an_earlier_release(tmp_path, monkeypatch) as readers:
        workspace, lake = readers.made.workspace, tmp_path / "lake"
        row, right = workspace.log.row(NAME), counted(readers.table.to_arrow())
        monkeypatch.setenv("CCPR_HOME", str(workspace.home))
        command("target", "add", NAME, "lk", "--to", lake.as_uri(), "--format", "delta")
        path, at, bit = a_bit_that_changes_a_value(readers)
        content = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
        command("target", "sync", NAME, "lk")
        assert counted(READERS["delta-rs"](str(lake / TABLE), 0)) != right
        named = verifier_of(workspace, row, repair=False).run()
        assert [damage.read_in for damage in named.damages] == [(TABLE,)]
        assert mend_readers(workspace, row, named.damages) == []
        command("alter", NAME, "--verify-within", "10h")
        care = Caretaker(workspace, seconds=36_000.0)
        with Workspace(workspace.home) as other, other.lease(NAME):
            care._round()  # reads all and repairs the object; another has the subscription
        assert path.read_bytes() == content
        assert DeltaTable(str(lake / TABLE)).version() == 0
        care._round()
        version = DeltaTable(str(lake / TABLE)).version()
        assert version > 0
        assert counted(READERS["delta-rs"](str(lake / TABLE), version)) == right
