"""DATA BRANCH DIFF of a simulated upstream, as an account's administrator asks for it. What is expected is what a
MatrixOne 4.2.0 answered to the same statements; before 4.2 some types fail."""

from collections.abc import Iterator

import pymysql
import pytest

from ccpr.matrixone.client import upstream_sql
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.simulated import asked

pytestmark = pytest.mark.integration

TABLE = "create table d.t (id int primary key, v varchar(20))"
THREE = "insert into d.t values (1,'a'),(2,'b'),(3,'c')"
# What is done before the older snapshot, and between the two; the answer: a row or an error in each line.
CASES: dict[str, tuple[list[str], list[str], str]] = {
    "net changes by key": (
        [TABLE, "insert into d.t values (1,'a'),(2,'b'),(3,'c'),(4,'d'),(5,'e'),(6,'f')"],
        [
            "update d.t set v='A' where id=1",
            "update d.t set v='b' where id=2",
            "delete from d.t where id in (3,4,5)",
            "insert into d.t values (4,'d'),(5,'E'),(7,'g'),(8,'h')",
            "update d.t set id=16 where id=6",
            "delete from d.t where id=8",
        ],
        "DELETE 3 c, DELETE 6 f, INSERT 16 f, INSERT 7 g, UPDATE 1 A, UPDATE 5 E",
    ),
    "a composite key": (
        [
            "create table d.t (a int, b varchar(5), v varchar(20), primary key(a,b))",
            "insert into d.t values (1,'a','q'),(1,'b','q'),(2,'b','q')",
        ],
        [
            "update d.t set v='x' where a=1 and b='a'",
            "delete from d.t where a=2",
            "insert into d.t values (3,'z',null)",
        ],
        "DELETE 2 b q, INSERT 3 z None, UPDATE 1 a x",
    ),
    "no key: a row that came back is another one": (
        ["create table d.t (a int, v varchar(20))", "insert into d.t values (1,'a'),(1,'a'),(2,'b')"],
        ["delete from d.t where a=2", "insert into d.t values (2,'b'),(9,'z'),(9,'z')"],
        "DELETE 2 b, INSERT 2 b, INSERT 9 z, INSERT 9 z",
    ),
    "no key: an update has its new values only": (
        ["create table d.t (a int, v varchar(20))", "insert into d.t values (1,'a'),(1,'a'),(2,'b'),(3,'c')"],
        ["update d.t set v='x' where a=1", "insert into d.t values (7,'n')", "delete from d.t where a=2"],
        "DELETE 2 b, INSERT 7 n, UPDATE 1 x, UPDATE 1 x",
    ),
    "truncated: all rows of both sides come as inserts": (
        [TABLE, THREE],
        ["truncate table d.t", "insert into d.t values (2,'x'),(4,'n')"],
        "INSERT 1 a, INSERT 2 b, INSERT 2 x, INSERT 3 c, INSERT 4 n",
    ),
    "made again: but for the rows that both have": (
        [TABLE, THREE],
        ["drop table d.t", TABLE, "insert into d.t values (2,'b'),(4,'n')"],
        "INSERT 1 a, INSERT 3 c, INSERT 4 n",
    ),
    "made again with another column": (
        [TABLE, THREE],
        ["drop table d.t", "create table d.t (id int primary key, w varchar(20))"],
        "20101 internal error: schema compatibility check: base column 'v' is not present in target schema",
    ),
    "a column more: a deleted row comes as an insert, a changed one not at all": (
        [TABLE, THREE],
        ["alter table d.t add column w int default 5", "update d.t set w=6 where id=1", "delete from d.t where id=2"],
        "INSERT 2 b None",
    ),
    "a wider column": (
        [TABLE, THREE],
        ["alter table d.t modify v varchar(100)"],
        "20101 internal error: schema compatibility check: column 'v' has different type attributes",
    ),
    "a renamed column": (
        [TABLE, THREE],
        ["alter table d.t rename column v to w"],
        "20301 invalid input: column 'lca.w' does not exist",
    ),
    "a comment and an index": (
        [TABLE, THREE],
        ["alter table d.t comment='x'", "create index i on d.t(v)", "update d.t set v='z' where id=2"],
        "UPDATE 2 z",
    ),
    "a key with a fraction: rows that have one are not found": (
        [
            "create table d.t (k datetime(6) primary key, v int)",
            "insert into d.t values ('2020-01-01 10:00:00',1),('2020-01-01 10:00:00.5',2),"
            "('2020-01-01 11:00:00',3),('2020-01-01 11:00:00.25',4),('2020-01-01 12:00:00.25',5)",
        ],
        ["delete from d.t where v in (1,2)", "update d.t set v=v+10 where v in (3,4)"],
        "DELETE 2020-01-01 10:00:00 1, DELETE 2020-01-01 11:00:00 3, INSERT 2020-01-01 11:00:00.250000 14, "
        "UPDATE 2020-01-01 11:00:00 13",
    ),
    "a composite key with a fraction": (
        [
            "create table d.t (a int, k time(3), v int, primary key(a,k))",
            "insert into d.t values (1,'10:00:00',1),(2,'10:00:00.5',2),(1,'11:00:00',3),(1,'11:00:00.25',4)",
        ],
        ["delete from d.t where v in (1,2)", "update d.t set v=v+10 where v in (3,4)"],
        "DELETE 1 10:00:00 1, DELETE 1 11:00:00 3, INSERT 1 11:00:00.250000 14, UPDATE 1 11:00:00 13",
    ),
    "no key, and a float first: what is gone is not found": (
        ["create table d.t (k float, v int)", "insert into d.t values (1.5,1),(1.5,2),(1.5,3)"],
        ["update d.t set v=9 where v=2", "delete from d.t where v=3"],
        "INSERT 1.5 9",
    ),
    "no key, and a date first": (
        ["create table d.t (k date, v int)", "insert into d.t values ('2020-01-01',1)"],
        ["delete from d.t where v=1"],
        "20203 invalid argument operator cast, bad value [BIGINT DATE]",
    ),
    "a new table": (["create table d.x (a int)"], [TABLE], '1064 SQL parser error: table "t" does not exist'),
    "a partitioned table": (
        [
            "create table d.t (id int primary key, v int) partition by hash(id) partitions 2",
            "insert into d.t values (1,1),(2,2)",
        ],
        ["insert into d.t values (3,3)", "delete from d.t where id=1", "update d.t set v=9 where id=2"],
        "DELETE 1 1, INSERT 3 3, UPDATE 2 9",
    ),
    "rows that went with a partition do not come": (
        [
            "create table d.t (id int primary key, v int) partition by range(id) (partition p0 values less than (10), "
            "partition p1 values less than (20), partition p2 values less than (30))",
            "insert into d.t values (1,1),(11,2),(21,3)",
        ],
        [
            "alter table d.t truncate partition p0",
            "alter table d.t drop partition p1",
            "alter table d.t add partition (partition p3 values less than (40))",
            "insert into d.t values (2,4),(31,5)",
        ],
        "INSERT 2 4, INSERT 31 5",
    ),
    "another sign of a zero is no difference": (
        ["create table d.t (id int primary key, v double)", "insert into d.t values (1,0e0),(2,1e0)"],
        ["update d.t set v=-0e0 where id=1", "update d.t set v=-0e0 where id=2"],
        "UPDATE 2 -0.0",
    ),
    "an enum and a set are numbers": (
        ["create table d.t (id int primary key, e enum('a','b'), s set('x','y','z'), dt datetime(3), b bool)"],
        ["insert into d.t values (1,'b','x,z','2020-01-01 10:00:00.5',true),(2,null,null,null,null)"],
        "INSERT 1 2 5 2020-01-01 10:00:00.500000 1, INSERT 2 None None None None",
    ),
}
FORWARD, REVERSED = (upstream_sql.branch_diff("d", "t", *snapshots) for snapshots in (("b", "a"), ("a", "b")))


@pytest.fixture
def simulated() -> Iterator[SimulatedUpstream]:
    with SimulatedUpstream() as emulator:
        asked(emulator, "create account acc admin_name 'admin' identified by '111'", user="dump")
        emulator.upgrade("4.2")
        yield emulator


def differences(emulator: SimulatedUpstream, statement: str) -> str:
    """Its rows, sorted, or its error."""
    try:
        return ", ".join(sorted(" ".join(map(str, row[1:])) for row in asked(emulator, statement)))
    except pymysql.err.MySQLError as error:
        return " ".join(map(str, error.args))


def prepare(emulator: SimulatedUpstream, before: list[str], between: list[str]) -> None:
    asked(emulator, "create database d", *before, "create snapshot a for database d", *between)
    asked(emulator, "create snapshot b for database d")


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_that_of_4_2(simulated: SimulatedUpstream, name: str):
    before, between, expected = CASES[name]
    prepare(simulated, before, between)
    assert differences(simulated, FORWARD) == expected
    if expected[0].isalpha() and " None" not in expected:
        assert differences(simulated, REVERSED) == expected  # whichever side is named first


def test_a_renamed_table_has_its_former_name_at_the_older_snapshot(simulated: SimulatedUpstream):
    prepare(simulated, [TABLE, THREE], ["rename table d.t to d.u", "delete from d.u where id=2"])
    assert "1064" in differences(simulated, upstream_sql.branch_diff("d", "u", "b", "a"))
    assert differences(simulated, upstream_sql.branch_diff("d", "u", "b", "a", before="t")) == "DELETE 2 b"


def test_an_output_is_counted_and_limited(simulated: SimulatedUpstream):
    prepare(simulated, [TABLE], [THREE])
    assert asked(simulated, upstream_sql.branch_diff("d", "t", "b", "a", count=True)) == [(3,)]
    assert len(asked(simulated, f"{FORWARD} OUTPUT LIMIT 2")) == 2
    assert "20105" in differences(simulated, f"{FORWARD} OUTPUT AS d.x")


def test_what_has_no_answer_is_said_as_the_upstream_says_it(simulated: SimulatedUpstream):
    prepare(simulated, [TABLE, "create view d.w as select * from d.t"], [THREE])
    missing = upstream_sql.branch_diff("d", "t", "b", "gone")
    assert (
        differences(simulated, missing) == "20101 internal error: find 0 snapshot records by name(gone), expect only 1"
    )
    assert "panic runtime error" in differences(simulated, upstream_sql.branch_diff("d", "w", "b", "a"))


def test_before_4_2_some_types_and_partitions_fail(simulated: SimulatedUpstream):
    columns = {"e": "enum('a','b')", "y": "year", "i": "bit(10)", "s": "set('x','y')"}
    tables = [f"create table d.{name} (id int primary key, {name} {kind})" for name, kind in columns.items()]
    values = {"e": "'b'", "y": "2020", "i": "5", "s": "'x,y'"}
    tables.append("create table d.p (id int primary key) partition by hash(id) partitions 2")
    prepare(simulated, tables, [f"insert into d.{name} values (1, {value})" for name, value in values.items()])
    simulated.upgrade("4.1")
    assert "1105 internal error: panic not implemented" in differences(
        simulated, upstream_sql.branch_diff("d", "p", "b", "a")
    )
    with pytest.raises(pymysql.err.OperationalError, match="2013"):  # it never answers
        asked(simulated, upstream_sql.branch_diff("d", "e", "b", "a"), seconds=0.5)
    assert "1105" in differences(simulated, upstream_sql.branch_diff("d", "y", "b", "a"))
    assert differences(simulated, upstream_sql.branch_diff("d", "i", "b", "a")) == "INSERT 1 b''"
    assert differences(simulated, upstream_sql.branch_diff("d", "s", "b", "a")) == "INSERT 1 0"
    simulated.upgrade("4.2")
    assert [differences(simulated, upstream_sql.branch_diff("d", name, "b", "a")) for name in "eys"] == [
        "INSERT 1 2",
        "INSERT 1 2020",
        "INSERT 1 3",
    ]


def test_an_administrator_of_an_account_sees_its_own_past_and_no_internal_command(simulated: SimulatedUpstream):
    prepare(simulated, [TABLE, "create table d.k (a int)", "insert into d.k values (5),(5)"], ["drop table d.t"])
    ((_, text),) = asked(simulated, "show create table d.t {snapshot = 'a'}")
    assert "`v` varchar(20)" in text.lower()
    with pytest.raises(pymysql.err.MySQLError, match="does not exist"):
        asked(simulated, "show create table d.t {snapshot = 'b'}")
    keys = asked(simulated, upstream_sql.select_rows("d", "k", ["a", "__mo_fake_pk_col"], "a"))
    assert sorted(keys) == [(5, 1), (5, 2)]
    assert asked(simulated, upstream_sql.count_rows("d", "k", "a")) == [(2,)]
    with pytest.raises(pymysql.err.MySQLError, match="is not allowed to execute publication internal command"):
        asked(simulated, upstream_sql.databases("acc", "p", "d"))
    with pytest.raises(pymysql.err.MySQLError, match="do not have privilege"):
        asked(simulated, upstream_sql.flush(1))


def test_rows_lie_elsewhere_once_they_are_written_again(simulated: SimulatedUpstream):
    tables = ["create table d.k (a int)", "insert into d.k values (5),(5)", TABLE, THREE]
    prepare(
        simulated,
        [*tables, "create table d.same (a int)"],
        ["update d.t set v='A' where id=1", "delete from d.k limit 1"],
    )
    places = {
        table: [asked(simulated, upstream_sql.select_places("d", table, snapshot)) for snapshot in ("a", "b")]
        for table in ("t", "k", "same")
    }
    assert [before == after for before, after in places.values()] == [False, False, True]
    assert [counts[0][0] for table in places.values() for counts in table] == [3, 3, 2, 1, 0, 0]
