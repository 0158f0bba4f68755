"""The points of a subscription in the catalog database: what is read at a point, what is deleted with older ones."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind
from ccpr.mirror.points import LaggingTable, TableRef
from ccpr.state.database import transaction
from ccpr.state.errors import StateUnreadable
from ccpr.state.history import GlobalPoint, PointHistory, as_mirror_point
from ccpr.state.log import CcprLog
from ccpr.state.migrations import open_database
from ccpr.state.point_rows import TablePoint
from ccpr.state.tables import table_points
from tests.support.values import NOW, a_table

pytestmark = pytest.mark.integration


def point(lsn: int) -> GlobalPoint:
    return GlobalPoint(lsn, Timestamp(lsn), f"xr_{lsn}", NOW + timedelta(minutes=lsn), "", 0, 0, 0)


def state(table_id: int, lsn: int, *, gone: bool = False) -> TablePoint:
    manifest = f"manifests/{table_id}/{lsn}-1.arrow"
    ref = None if gone else TableRef(table_id, "db", f"t{table_id}", Kind.TABLE, lsn, manifest, 1, 1, 1)
    return TablePoint(a_table(table_id, f"t{table_id}"), ref, lsn)


@pytest.fixture
def engine(catalog_url: str) -> Iterator[sa.Engine]:
    engine = open_database(catalog_url)
    yield engine
    engine.dispose()


def test_what_no_remaining_point_shows_is_deleted_and_nothing_else(engine: sa.Engine) -> None:
    history, other = PointHistory(engine, "task"), PointHistory(engine, "other")
    written = {
        0: [state(1, 0), state(2, 0), state(3, 0), state(4, 0)],
        1: [state(1, 1), state(3, 1, gone=True)],
        2: [state(2, 2)],
        3: [state(1, 3), state(5, 3), state(4, 3, gone=True)],
    }
    for lsn, states in written.items():
        with transaction(engine) as connection:
            history.write(connection, point(lsn), states)
            other.write(connection, point(lsn), states)
    shown = {lsn: history.tables(lsn) for lsn in (2, 3)}
    with transaction(engine) as connection:
        manifests = history.drop_between(connection, 2)
    assert sorted(manifests) == [f"manifests/{table_id}/0-1.arrow" for table_id in (1, 2, 3)]
    assert [found.lsn for found in history.global_points()] == [2, 3]
    assert {lsn: history.tables(lsn) for lsn in (2, 3)} == shown
    assert [(one.table.id, one.lsn) for one in history.states()] == [(1, 1), (1, 3), (2, 2), (4, 0), (5, 3)]
    assert history.changed(1) == {1: state(1, 1)}, "the one that is gone is not needed to know that it is"
    assert [found.lsn for found in other.global_points()] == [0, 1, 2, 3]
    assert len(list(other.states())) == 8


def test_more_states_are_deleted_than_one_statement_has_keys(engine: sa.Engine) -> None:
    history, other, tables = PointHistory(engine, "task"), PointHistory(engine, "other"), range(1, 1202)
    for lsn in (0, 1):
        with transaction(engine) as connection:
            history.write(connection, point(lsn), [state(table_id, lsn) for table_id in tables])
            other.write(connection, point(lsn), [state(1, lsn)])
    statements: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    with transaction(engine) as connection:
        assert len(history.drop_between(connection, 1)) == len(tables)
    assert sum(statement.startswith("DELETE FROM ccpr_table_points") for statement in statements) == 4
    assert {one.lsn for one in history.states()} == {1}
    assert len(history.tables(1)) == len(tables)
    assert [one.lsn for one in other.states()] == [0, 1]


def test_mysql_gets_pairs_of_keys() -> None:
    key = sa.tuple_(table_points.c.table_id, table_points.c.lsn)
    query = table_points.delete().where(key.in_([(1, 2), (3, 4)]))
    text = str(query.compile(dialect=mysql.dialect(), compile_kwargs={"literal_binds": True}))
    assert "(ccpr_table_points.table_id, ccpr_table_points.lsn) IN ((1, 2), (3, 4))" in text


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("objects", "x'00'"), ("row_count", "'many'"), ("bytes", "1.5"), ("appendable", "x'01'"),
        ("table_name", "x'ff'"), ("manifest", "x'41'"), ("kind", "'shelf'"), ("parts", "'[7]'"), ("parts", "'['"),
    ],
)  # fmt: skip
def test_a_table_that_was_not_written_here_is_named(column: str, value: str, tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/catalog.db")
    history = PointHistory(engine, "task")
    with transaction(engine) as connection:
        history.write(connection, point(0), [state(table_id, 0) for table_id in range(1, 10)])
    refs, appendable = history.refs(0)
    assert refs == {number: found.ref for number, found in history.tables(0).items()}
    assert len(refs) == 9
    assert appendable == {}
    with transaction(engine) as connection:
        connection.exec_driver_sql(f"UPDATE ccpr_table_points SET {column} = {value} WHERE table_id = 7")
    with pytest.raises(StateUnreadable) as refused:
        history.refs(0)
    assert "table 7, point 0" in str(refused.value)


@pytest.mark.parametrize("column", ["snapshot_ts", "committed_at", "ledger"])
def test_a_point_that_was_not_written_here_is_reported(column: str, tmp_path: Path) -> None:
    log = CcprLog(open_database(f"sqlite:///{tmp_path}/catalog.db"))
    history = PointHistory(log.engine, "task")
    with transaction(log.engine) as connection:
        history.write(
            connection, GlobalPoint(0, Timestamp(7), "xr_a_0_0", NOW, "", 0, 0, 0), [TablePoint(a_table(), None, 0)]
        )
    assert history.newest() is not None
    with transaction(log.engine) as connection:
        connection.exec_driver_sql(f"UPDATE ccpr_points SET {column} = x'00ff'")
        connection.exec_driver_sql("UPDATE ccpr_table_points SET table_schema = '{}'")
    for read in (history.newest, history.global_points, lambda: history.changed(0)):
        with pytest.raises(StateUnreadable):
            read()


def test_a_point_shows_no_table_that_is_behind_even_where_it_is_written_in_full() -> None:
    refs = {
        number: TableRef(number, "db", f"t{number}", Kind.TABLE, 3, f"manifests/{number}/3-1.arrow", 1, 1, 1)
        for number in (1, 2)
    }
    shown = as_mirror_point(point(9), refs, {1: LaggingTable("db", "t1", 3)})
    assert shown.tables == {2: refs[2]}
    assert shown.behind == {1: LaggingTable("db", "t1", 3)}
