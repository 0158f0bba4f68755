"""A MatrixOne as a destination: the contract, and what only this server does. The server is a simulated one, or the one
that CCPR_TARGET_MATRIXONE names."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from ccpr.matrixone.ddl.definition import ColumnDefinition, ColumnType
from ccpr.matrixone.schema import FAKE_KEY
from ccpr.schema.choices import Dialect
from ccpr.schema.sync_mark import MarkEdited
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.base import LoadPart
from ccpr.targets.encoding import LoadColumn
from ccpr.targets.errors import TargetBusy, TargetKeyRefused, TargetUnavailable, TargetValueRefused
from ccpr.targets.expected_tables import named
from ccpr.targets.staging import Counted, StageTable
from tests.support.matrixone_server import MatrixOneServer, matrixone_server
from tests.support.target_rows import target_rows
from tests.targets.contract import Contract
from tests.targets.history import FIRST, keys, rows, sync_target
from tests.targets.target_database import Part, Place, load_part, new_database
from tests.targets.test_database_target import DatabaseScene

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server() -> Iterator[MatrixOneServer]:
    with matrixone_server() as server:
        yield server


@pytest.fixture
def place(server: MatrixOneServer) -> Iterator[Place]:
    with new_database(server) as place:
        yield place


class TestMatrixOne(Contract):
    @pytest.fixture
    def scene(self, place: Place) -> DatabaseScene:
        scene = DatabaseScene(place)
        scene.stride = 9
        return scene


def staging_tables(place: Place) -> list[str]:
    return [name for (name,) in place.query("SHOW TABLES") if name.startswith("ccpr_stage")]


def test_a_history_with_changes_of_definitions(place: Place) -> None:
    with place.target() as target:
        sync_target(target, place.database)
        assert place.rows("t2") == [(7, "again", None), (8, "new", 8)]
        assert staging_tables(place) == []


def test_a_session_whose_lock_was_taken_over_writes_nothing_more(place: Place) -> None:
    first, second = place.target(), place.target(lock_seconds=0.2)
    first.open()
    first.create(place.table(FIRST), [load_part([1], ["a"])], Location(0, 10))
    with pytest.raises(TargetBusy):
        second.open()
    first._session._lock.close()  # pyright: ignore[reportOptionalMemberAccess]  # its connection is lost
    with second:
        with pytest.raises(TargetUnavailable, match="another session"):
            first.apply(1, [Part(rows([1], ["x"]), keys())], Location(1, 20))
        second.apply(1, [Part(rows([2], ["b"]), keys())], Location(1, 20))
    with pytest.raises(TargetUnavailable):
        first._session.beat()
    first.close()
    assert place.rows("t") == [(1, "a"), (2, "b")]


def test_staging_tables_of_a_lost_session_are_dropped_by_the_next(place: Place) -> None:
    with place.target("other") as other:
        left = [f"{other._session.stages_of_all}left_1", "ccpr_stage_of_somebody"]
        for name in left:
            place.query(f"CREATE TABLE {name} (a int)")
    with place.target("task"):
        assert staging_tables(place) == sorted(left)
    with place.target("other"):
        assert staging_tables(place) == left[1:]


def test_a_table_without_key_has_a_key_column_that_is_seen(place: Place) -> None:
    key = pa.decimal128(20, 0)
    made = pa.table({"a": pa.array([1, 1, None], pa.int32()), FAKE_KEY: pa.array([1, 2, 3], key)})
    with place.target() as target:
        table = place.table("CREATE TABLE `k` (`a` int DEFAULT NULL)")
        assert table.remarks == ("the table has no key: an additional column __ccpr_key is its key",)
        target.create(table, [LoadPart("all", lambda: [made])], Location(0, 10))
        assert place.rows("k") == [(1, 1), (1, 2), (None, 3)]
        gone = pa.table({FAKE_KEY: pa.array([2], key)})
        assert target.apply(1, [Part(made.slice(0, 0), gone)], Location(1, 20)).missing == 0
        assert place.rows("k") == [(1, 1), (None, 3)]


def test_bytes_bits_members_and_json_arrive_as_they_are(place: Place) -> None:
    """LOAD DATA of a MatrixOne would store other values for each of these columns."""
    ddl = (
        "CREATE TABLE `t` (`k` varbinary(4) NOT NULL, `b` blob DEFAULT NULL, `i` bit(10) DEFAULT NULL,"
        " `e` enum('2','1','x') DEFAULT NULL, `s` set('2','1') DEFAULT NULL, `j` json DEFAULT NULL,"
        " `v` varchar(9) DEFAULT NULL, PRIMARY KEY (`k`))"
    )
    made = pa.table(
        {
            "k": [b"\x00\xff", b"'\"\\N", b"z"],
            "b": pa.array([b"", b'\x00,\n"\\', None], pa.binary()),
            "i": pa.array([513, 0, None], pa.uint64()),
            "e": ["1", "2", None],
            "s": ["1", "", None],
            "j": ['"123"', '{"a": "\\"b\\\\N"}', None],
            "v": ["\\N", "NULL", None],
        }
    )
    table = place.table(ddl)

    def found() -> list[dict[str, object]]:
        stored = target_rows(place.server, place.database, "t", table.source.user_columns)
        return sorted(stored.to_pylist(), key=lambda row: row["k"])

    with place.target() as target:
        target.create(table, [LoadPart("all", lambda: [made])], Location(0, 10))
        assert found() == made.to_pylist()
        target.apply(1, [Part(made.slice(0, 1), made.select(["k"]).slice(1, 1))], Location(1, 20))
        assert found() == [made.to_pylist()[0], made.to_pylist()[2]]


def test_rows_of_one_key_are_refused_and_leave_nothing(place: Place) -> None:
    with place.target() as target:
        with pytest.raises(TargetKeyRefused):
            target.create(place.table(FIRST), [load_part([1, 1], ["a", "b"])], Location(0, 10))
        assert target.points() == {}
        target.create(place.table(FIRST), [load_part([1, 2], ["a", "b"])], Location(0, 10))
        with pytest.raises(TargetKeyRefused):
            target.apply(1, [Part(rows([3, 3], ["c", "d"]), keys(1))], Location(1, 20))
    assert place.rows("t") == [(1, "a"), (2, "b")]


def test_a_mark_that_was_edited_is_noticed(place: Place) -> None:
    with place.target() as target:
        target.create(place.table(FIRST), [load_part([1], ["a"])], Location(0, 10))
        place.query("ALTER TABLE t COMMENT='mine'")
        with pytest.raises(MarkEdited):
            target.apply(1, [Part(rows([2], ["b"]), keys())], Location(1, 20))
    assert place.rows("t") == [(1, "a")]


def test_tables_change_names_in_one_step(place: Place) -> None:
    with place.target() as target:
        for number, name in ((1, "a"), (2, "b")):
            made = place.table(FIRST.replace("`t`", f"`{name}`"), number)
            target.create(made, [load_part([number], [name])], Location(0, 10))
        live = {number: entry.table for number, entry in target.tables().items()}
        target.alter([named(live[1], "b"), named(live[2], "a")])
        assert (place.rows("a"), place.rows("b")) == ([(2, "b")], [(1, "a")])


def test_what_was_staged_is_counted_column_by_column() -> None:
    kinds = {"a": "int", "b": "varchar"}
    columns = tuple(
        LoadColumn(name, name, None, ColumnDefinition(name, ColumnType(kind))) for name, kind in kinds.items()
    )
    assert (
        StageTable.of("s", Dialect.MATRIXONE, columns, ()).counted == "SELECT COUNT(*), COUNT(`a`), COUNT(`b`) FROM `s`"
    )
    counted = Counted(columns)
    counted.check([(0, 0, 0)], "table t")
    counted.add(pa.table({"b": ["x", None], "a": [1, 2]}))
    counted.add(pa.table({"b": ["y"], "a": [3]}))
    counted.check([(3, 3, 2)], "table t")
    with pytest.raises(TargetValueRefused, match="2 values of column b were sent, 0 stored"):
        counted.check([(3, 3, 0)], "table t")
    with pytest.raises(TargetValueRefused, match="3 rows were sent, 4 stored"):
        counted.check([(4, 3, 2)], "table t")
