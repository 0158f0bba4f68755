"""A mirror that keeps what it has read gives the rows that one gives which keeps nothing; and what is kept is neither
another point's, nor another login's, nor that of a damaged file."""

import random
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ccpr.matrixone.schema import DEFAULT_READING, Column
from ccpr.mirror.filters import parse_filters
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.sql import PointTable
from ccpr.mysql import served_mirror
from ccpr.mysql.engines import MOST_AT_ONCE, Engines
from ccpr.mysql.served_mirror import KeptObjects, ServedMirror
from ccpr.state.logins import ReadLimits
from ccpr_emulator.engine.storage import Storage
from tests.mysql.conftest import Served
from tests.support.decoded_columns import note_decoded
from tests.support.recorded import opened
from tests.support.replica import command
from tests.support.simulated_mirror import SimulatedMirror

pytestmark = pytest.mark.integration
ROWS, OBJECT_ROWS = 200_000, 160_000  # 25 blocks in two objects, and tombstones
COLUMNS = {"k": "bigint not null", "s": "varchar(40)", "d": "decimal(12,2)", "t": "int"}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> SimulatedMirror:
    simulated = SimulatedMirror(Storage(object_rows=OBJECT_ROWS), tmp_path_factory.mktemp("served") / "mirror")
    storage, numbers = simulated.storage, range(ROWS)
    storage.create_database("b")
    storage.create_table("b", "t", COLUMNS, primary_key=["k"])
    values = {
        "k": pa.array(numbers, pa.int64()),
        "s": [None if number % 11 == 0 else f"text {number % 997}" for number in numbers],
        "d": [None if number % 7 == 0 else Decimal(number * 37 % 100_000).scaleb(-2) for number in numbers],
        "t": pa.array([number // 1000 for number in numbers], pa.int32()),
    }
    with storage.begin() as transaction:
        transaction.insert("b", "t", pa.table(values))
    storage.merge("b", "t")
    with storage.begin() as transaction:
        transaction.delete("b", "t", pc.field("k").isin(list(range(0, ROWS, 13))))
    simulated.take_points()
    return simulated


def with_sums(simulated: SimulatedMirror) -> Manifest:
    manifest = simulated.mirror.manifest(simulated.points[-1].table("b.t"))
    names = [one.stats.name for one in manifest.listed_objects()]
    sums = [simulated.mirror.open_object(name, None).sums() for name in names]
    place = manifest.objects.schema.get_field_index("sums")
    return Manifest(manifest.table, manifest.objects.set_column(place, "sums", pa.array(sums, pa.binary())))


@pytest.mark.parametrize("most", [192 << 20, 3 << 20, 1])
def test_rows_are_those_of_a_mirror_that_keeps_nothing(stored: SimulatedMirror, most: int) -> None:
    chance, manifest, at = random.Random(most), with_sums(stored), stored.points[-1].at
    assert len(manifest.data_objects) == 2
    mirror = ServedMirror(stored.mirror.store, KeptObjects(most))
    filters = [
        [],
        [("k", "=", 150_001)],
        [("k", ">=", 8000), ("k", "<", 140_000)],
        [("t", "in", [3, 77, 150])],
        [("s", "=", "text 5")],
        [("s", "is null"), ("d", ">", Decimal("999.99"))],
        [("d", "=", Decimal("0.37"))],
        [("d", "<=", Decimal("-0.01"))],
    ]
    for _ in range(60):
        wanted = [one for one in manifest.table.user_columns if chance.random() < 0.6]
        asked = parse_filters(chance.choice(filters))
        ours = pa.Table.from_batches(mirror.rows(manifest, wanted, at, filters=asked), _schema(wanted, manifest))
        theirs = stored.mirror.rows(manifest, wanted, at, filters=asked)
        assert ours.equals(pa.Table.from_batches(theirs, ours.schema))


def _schema(wanted: list[Column], manifest: Manifest) -> pa.Schema:
    kinds = {"k": pa.int64(), "s": pa.string(), "d": pa.decimal128(12, 2), "t": pa.int32()}
    return pa.schema([pa.field(one.name, kinds[one.name]) for one in wanted])


def test_a_large_read_takes_no_other_place(stored: SimulatedMirror, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest, at, kept = with_sums(stored), stored.points[-1].at, KeptObjects(192 << 20)
    mirror = ServedMirror(stored.mirror.store, kept)
    monkeypatch.setattr(served_mirror, "KEPT_BYTES", 1 << 20)
    assert sum(one.num_rows for one in mirror.rows(manifest, manifest.table.user_columns, at)) > 0
    assert all(isinstance(key[0], str) for key in kept)  # files, and nothing that was decoded


def test_what_was_read_is_not_read_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = note_decoded(monkeypatch)
    assert served.ask("SELECT * FROM a ORDER BY n") == (rows := [(n, f"v{n}") for n in range(3)])
    assert decoded
    decoded.clear()
    assert served.ask("SELECT * FROM a ORDER BY n") == rows
    assert served.ask("SELECT v FROM a WHERE n = 2") == [("v2",)]
    assert not decoded


def test_a_statement_sees_the_newest_point_each_time(served: Served) -> None:
    with closing(served.connect()) as connection, connection.cursor() as cursor:
        for count in range(3, 6):
            cursor.execute("SELECT COUNT(*), MAX(v) FROM a")
            assert cursor.fetchall() == ((count, f"v{count - 1}"),)
            served.table.work()


def test_the_same_statement_of_two_logins_is_answered_to_each(served: Served) -> None:
    served.add("narrow", limits=ReadLimits((), ("v",), (("a", "n > 0"),)))
    served.ask("SHOW DATABASES", user="narrow", database=None)
    for _ in range(2):
        assert served.ask("SELECT * FROM a ORDER BY 1") == [(n, f"v{n}") for n in range(3)]
        assert served.ask("SELECT * FROM a ORDER BY 1", user="narrow") == [(1,), (2,)]
        assert served.ask("SELECT CURRENT_USER(), DATABASE()", user="narrow") == [("narrow@%", "d")]
        assert served.ask("SELECT CURRENT_USER(), DATABASE()", database=None) == [("reader@%", None)]
        assert served.error("SELECT v FROM a", user="narrow")[0] == 1054
        assert served.ask("SELECT v FROM a WHERE n = 1") == [("v1",)]


def test_a_damaged_file_is_found_when_it_is_read_and_a_repaired_one_is_read(served: Served) -> None:
    assert served.ask("SELECT SUM(n) FROM a") == [(3,)]
    objects = served.table.source.mirror_folder() / "objects"
    for file in (one for one in objects.rglob("*") if one.is_file()):
        spoil_column(file)
    assert "checksum differs" in served.error("SELECT MAX(v) FROM a")[1]
    assert served.ask("SELECT SUM(n) FROM a")[0][0] == 3
    command("verify", "s", "--repair", code=None)
    assert served.ask("SELECT MAX(v) FROM a") == [("v2",)]


def spoil_column(path: Path) -> None:
    """Flip a bit of the second column of a file, if it has one."""
    file, content = opened(path), bytearray(path.read_bytes())
    for block in file.blocks:
        if len(block.columns) > 2 and block.columns["oid"][1]:
            content[int(block.columns["offset"][1]) + int(block.columns["length"][1]) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)


def test_statements_share_a_few_engines(served: Served) -> None:
    with closing(served.connect()) as first:
        others = [served.connect() for _ in range(3 * MOST_AT_ONCE)]
        for each in (first, *others):
            with each.cursor() as cursor:
                cursor.execute("SELECT SUM(n) FROM a")
                assert cursor.fetchall() == ((3,),)
        for other in others:
            other.close()
    assert len(served.server._limits.engines._idle) <= MOST_AT_ONCE  # pyright: ignore[reportPrivateUsage]


def test_duckdb_knows_how_many_rows_a_table_has(served: Served) -> None:
    mirror = served.workspace.mirror_to_read("s")
    rows = PointTable(mirror, "d.a", mirror.point().lsn, DEFAULT_READING)
    with closing(Engines()) as engines:
        engine = engines.take(0.0)
        assert engine is not None
        engine.register({"t": rows})
        plan = engine.connection.sql("EXPLAIN SELECT n FROM t").fetchall()[0][1]
        engines.give(engine)
    assert rows.stored == 3
    assert "~3 rows" in plan
