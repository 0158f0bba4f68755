from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ccpr.matrixone.client.catalog_cells import ddl_from_created, decode_type
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.errors import BadAnswer, BadCatalog, DatabaseMissing, SnapshotGone
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.table_catalog import TableCatalog, index_tables, labels_of, read_catalog, tables_from_rows
from ccpr.matrixone.client.table_partitions import Owners, with_partitions
from ccpr.matrixone.client.upstream_session import Answer, Session
from ccpr.matrixone.client.upstream_snapshots import create_snapshot, snapshot_timestamp
from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import COMPOSITE_KEY, FAKE_KEY, ROWID, Column, Kind, SqlType, Table
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.serving.faults import FailStatement
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.matrixone.client.conftest import AT_ONCE, PASSWORD, folder_of
from tests.support.recorded import Snapshot, every_snapshot

pytestmark = pytest.mark.integration

AT = Timestamp(1)


def _catalog(snapshot: Snapshot) -> TableCatalog:
    names = ("mo_database", "mo_tables", "mo_columns", "ddl")
    database, tables, columns, ddl = (snapshot.answer(name) for name in names)
    return tables_from_rows(database, tables, columns, ddl, at=snapshot.at)


def _snapshot(recordings: Path, name: str) -> Snapshot:
    return Snapshot(folder_of(recordings, name))


def test_every_recorded_catalog_is_read_whole(recordings: Path):
    read = 0
    for snapshot in every_snapshot(recordings):
        catalog = _catalog(snapshot)
        listed = list(snapshot.answer("mo_tables").select("rel_id", "relname"))
        assert sorted((table.id, table.name) for table in catalog.tables) == sorted(
            (int(i or b""), (n or b"").decode()) for i, n in listed
        )
        assert {table.database for table in catalog.tables} == {catalog.database}
        read += 1
    assert read


def test_ddl_and_columns_of_every_recorded_table_name_the_same_columns(recordings: Path):
    for snapshot in every_snapshot(recordings):
        given = {
            int(number or b""): (ddl or b"").decode()
            for number, ddl in snapshot.answer("ddl").select("tableid", "tablesql")
        }
        for table in _catalog(snapshot).tables:
            assert table.ddl == given.get(table.id, "")
            assert bool(table.ddl) == (table.kind in (Kind.TABLE, Kind.PARTITION)), table.name
            if table.ddl:
                lines = [line.strip() for line in table.ddl.splitlines()]
                declared = [line[1:].split("` ", 1)[0] for line in lines if line.startswith("`")]
                assert declared == [column.name for column in table.user_columns]
                assert [" NOT NULL" in line for line in lines if line.startswith("`")] == [
                    not c.nullable for c in table.user_columns
                ]


def test_expected_rows_of_every_recorded_table_have_the_catalogs_columns(recordings: Path):
    for snapshot in every_snapshot(recordings):
        tables = {table.name: table for table in _catalog(snapshot).tables}
        for name in snapshot.expected_tables():
            assert snapshot.expected(name).column_names == [column.name for column in tables[name].user_columns]


def test_stored_columns_are_numbered_without_gaps_and_hidden_ones_come_last(recordings: Path):
    for snapshot in every_snapshot(recordings):
        for table in _catalog(snapshot).tables:
            assert ROWID not in [column.name for column in table.columns]
            hidden = [column.hidden for column in table.columns]
            assert hidden == sorted(hidden)
            assert len({column.seqnum for column in table.columns}) == len(table.columns)


def test_a_table_without_a_key_has_the_fake_one_and_a_composite_key_its_own(recordings: Path):
    tables = {table.name: table for table in _catalog(_snapshot(recordings, "keys/snapshot-001")).tables}
    assert [column.name for column in tables["nopk"].columns if column.hidden] == [FAKE_KEY]
    assert [column.name for column in tables["comp"].columns if column.hidden] == [COMPOSITE_KEY]
    assert [column.name for column in tables["strpk"].columns if column.hidden] == []
    assert {table.kind for name, table in tables.items() if name.startswith("__mo_index_")} == {Kind.INDEX}


def test_ids_comments_and_views_are_kept(recordings: Path):
    catalog = _catalog(_snapshot(recordings, "ddl/snapshot-006"))
    tables = {table.name: table for table in catalog.tables}
    assert tables["t1"].comment == "renamed column"
    assert tables["t1"].id != tables["t1"].logical_id
    assert tables["reborn"].id == tables["reborn"].logical_id
    assert catalog.unreplicated == (("v1", "v"),)
    assert tables["v1"].kind is Kind.OTHER
    assert [column.name for column in tables["weird name é"].columns] == ["select", "a b"]


def test_partitions_are_distinguished_from_their_table(recordings: Path):
    catalog = _catalog(_snapshot(recordings, "partitioned/snapshot-001"))
    assert catalog.partitioned == ("part",)
    kinds = {table.name: table.kind for table in catalog.tables}
    assert kinds["part"] is Kind.TABLE
    assert kinds["%!%p0%!%part"] is Kind.PARTITION


def test_types_are_decoded(recordings: Path):
    (table,) = [
        table
        for table in _catalog(_snapshot(recordings, "all_types/snapshot-001")).tables
        if table.name == "every_type"
    ]
    columns = {column.name: column for column in table.columns}
    assert columns["i64"] == Column("i64", columns["i64"].seqnum, SqlType(23, 64, -1))
    assert columns["d256"].type == SqlType(34, 60, 5)
    assert columns["f32p"].type == SqlType(30, 10, 2)
    assert columns["dtm3"].type == SqlType(52, 3, 3)
    assert columns["v64"].type == SqlType(225, 4, 0)
    assert columns["bn"].type == SqlType(64, 8, 0)
    assert columns["en"].labels == ("red", "green", "blue")
    assert columns["st"].labels == ("x", "y", "z")
    assert columns["u64"].labels == ()
    assert not columns["id"].nullable


@pytest.mark.parametrize("cell", [None, b"", b"\0" * 20, b"\0\x17" + b"\0" * 17, b"\x01\x17" + b"\0" * 18])
def test_a_type_of_another_form_is_refused(cell: bytes | None):
    with pytest.raises(BadCatalog):
        decode_type(cell, "column x")


def test_labels_follow_the_ddl_as_long_as_it_is_the_text_that_is_stored():
    enum = SqlType(66)
    assert labels_of(enum, "a,b,c", ("a,b", "c")) == ("a,b", "c")
    assert labels_of(enum, "a,b,c", ("a", "other")) == ("a", "b", "c")
    assert labels_of(enum, "", ("",)) == ("",)
    assert labels_of(SqlType(28), "", ()) == ()
    assert labels_of(SqlType(28), "x,y", ()) == ("x", "y")
    assert labels_of(SqlType(61), "x", ("x",)) == ()


def _rows(**changes: dict[str, bytes]) -> tuple[Answer, Answer, Answer, Answer]:
    """A database with one table, with an enum whose members are in the DDL text only."""
    tables = {
        "rel_id": b"7",
        "relname": b"t",
        "reldatabase": b"d",
        "relkind": b"r",
        "rel_comment": b"",
        "partitioned": b"0",
    }
    columns = {
        "att_relname_id": b"7",
        "attname": b"e",
        "atttyp": bytes.fromhex("0042000000000000000000040000000000000000"),
        "attnum": b"1",
        "attnotnull": b"0",
        "attisdropped": b"0",
        "att_is_hidden": b"0",
        "attr_seqnum": b"0",
        "attr_enum": b"",
        "att_default": b"",
    }
    rows = (
        {"dat_id": b"5", "datname": b"d"},
        tables | {"rel_logical_id": b"6"} | changes.get("tables", {}),
        columns | changes.get("columns", {}),
        {"tableid": b"7", "tablesql": b"CREATE TABLE `d`.`t` (`e` enum('x,y','z'))"},
    )
    database, table, column, ddl = (Answer(tuple(row), (253,) * len(row), [tuple(row.values())]) for row in rows)
    return database, table, column, ddl


def test_labels_come_from_the_ddl_where_the_catalog_has_none():
    (table,) = tables_from_rows(*_rows(), at=AT).tables
    assert table.columns[0].labels == ("x,y", "z")
    assert (table.id, table.logical_id) == (7, 6)
    (table,) = tables_from_rows(*_rows()[:3], None, at=AT).tables
    assert (table.columns[0].labels, table.ddl) == ((), "")


@pytest.mark.parametrize(
    ("relname", "relkind", "kind"),
    [
        (b"t", b"r", Kind.TABLE),
        (b"__mo_index_secondary_x", b"r", Kind.INDEX),
        (b"t", b"i", Kind.INDEX),
        (b"t", b"fulltext", Kind.INDEX),
        (b"t", b"entries", Kind.INDEX),
        (b"t", b"partition", Kind.PARTITION),
        (b"t", b"v", Kind.OTHER),
        (b"t", b"S", Kind.OTHER),
        (b"t", b"e", Kind.OTHER),
        (b"t", b"cluster", Kind.OTHER),
    ],
)
def test_kinds_follow_name_and_relkind(relname: bytes, relkind: bytes, kind: Kind):
    catalog = tables_from_rows(*_rows(tables={"relname": relname, "relkind": relkind}), at=AT)
    assert catalog.tables[0].kind is kind
    assert catalog.unreplicated == (((relname.decode(), relkind.decode()),) if kind is Kind.OTHER else ())


def test_dropped_columns_are_left_out_and_a_table_with_none_is_refused():
    with pytest.raises(BadCatalog, match="no columns"):
        tables_from_rows(*_rows(columns={"attisdropped": b"1"}), at=AT)


@pytest.mark.parametrize(
    "change", [{"attr_seqnum": b"x"}, {"att_is_hidden": b"2"}, {"attname": b"\xff"}, {"atttyp": b"short"}]
)
def test_a_malformed_cell_is_refused(change: dict[str, bytes]):
    with pytest.raises(BadAnswer):
        tables_from_rows(*_rows(columns=change), at=AT)


def test_a_missing_column_is_refused_by_name():
    database, tables, columns, ddl = _rows()
    without = replace(columns, columns=tuple(name.replace("attr_seqnum", "other") for name in columns.columns))
    with pytest.raises(BadAnswer, match="attr_seqnum"):
        tables_from_rows(database, tables, without, ddl, at=AT)


def test_a_database_that_is_not_there_is_an_error():
    database, tables, columns, ddl = _rows()
    with pytest.raises(DatabaseMissing):
        tables_from_rows(replace(database, rows=[]), tables, columns, ddl, at=AT)


# -- over the wire


@pytest.mark.recordings
@pytest.mark.parametrize("scenario", ["all_types", "ddl", "keys", "other_account", "partitioned", "many_tables"])
def test_the_catalog_over_the_wire_is_the_recorded_one(play: Callable[..., Any], recordings: Path, scenario: str):
    upstream = play(scenario)
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    at = snapshot_timestamp(session, "xr_1", upstream.publication)
    expected = _catalog(Snapshot(recordings / scenario / "snapshot-001"))
    if expected.partitioned:  # the recording has no extra_info: names decide
        tables, unknown = with_partitions(expected.tables, expected.partitioned, Owners())
        assert not unknown
        expected = replace(expected, tables=tables)
    assert read_catalog(session, upstream.publication, upstream.database, "xr_1", at) == expected


@pytest.mark.recordings
def test_ddl_comes_table_by_table_where_one_table_spoils_the_whole(play: Callable[..., Any], recordings: Path):
    upstream = play("keys")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    at = snapshot_timestamp(session, "xr_1", upstream.publication)
    upstream.emulator.inject(FailStatement("get_ddl", text="internal error: external table is not supported"))
    catalog = read_catalog(session, upstream.publication, upstream.database, "xr_1", at)
    assert catalog == _catalog(Snapshot(recordings / "keys" / "snapshot-001"))
    ordinary = [table for table in catalog.tables if table.kind is Kind.TABLE]
    assert upstream.sent("get_ddl") == 1 + len(ordinary)


@pytest.mark.recordings
def test_a_table_whose_ddl_the_server_cannot_write_has_the_text_of_its_create_statement_and_keeps_no_other(
    play: Callable[..., Any], recordings: Path
):
    upstream = play("keys")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    at = snapshot_timestamp(session, "xr_1", upstream.publication)
    upstream.emulator.inject(
        FailStatement("get_ddl", text="internal error: panic runtime error: index out of range", times=2)
    )
    tables = read_catalog(session, upstream.publication, upstream.database, "xr_1", at).tables
    expected = _catalog(Snapshot(recordings / "keys" / "snapshot-001")).tables
    assert list(tables) == list(expected)
    assert upstream.sent("get_ddl") == 1 + sum(table.kind is Kind.TABLE for table in tables)


@pytest.mark.recordings
def test_every_recorded_ddl_text_but_for_its_indexes_follows_from_the_create_statement(recordings: Path):
    derived, refused = 0, []
    for snapshot in every_snapshot(recordings):
        created = {
            int(number or b""): (statement or b"").decode()
            for number, statement in snapshot.answer("mo_tables").select("rel_id", "rel_createsql")
        }
        for table in _catalog(snapshot).tables:
            if not table.ddl:
                continue
            text = ddl_from_created(replace(table, ddl=""), created[table.id])
            if not text:
                refused.append(table.name)
                continue
            derived += 1
            published, found = create_table_of(table), create_table_of(replace(table, ddl=text))
            assert found == replace(published, indexes=(), foreign_keys=(), checks=())
            if not published.indexes:
                assert text == table.ddl
    assert derived
    assert set(refused) <= {"t1"}  # a column was renamed in place


def _named(name: str, kind: Kind = Kind.TABLE, **columns: int) -> Table:
    found = [Column(column, number, SqlType(oid)) for number, (column, oid) in enumerate(columns.items())]
    return Table(1, 1, "shop", name, kind, tuple(found))


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "create table `t u` as select 1 id, 2 x",
        "create table `t u` like other",
        "create table `t u` clone other {MO_TS = 1}",
        "create table `t u`(id int primary key, y int)",  # x was renamed since
        "create table `t u`(x int, id int primary key)",
        "create table `t u`(id int primary key, x varchar(5))",
        "create table a(id int primary key, x int);create table `t u`(id int primary key, x int)",
        "create table `t u`(id int, x int, primary key (id, x))",  # the catalog has a key of one column
        "create table `t u`(id int, x int)",
        "create table `t u`(id int primary key, x int default 'secret",
    ],
)
def test_a_create_statement_that_the_catalog_contradicts_gives_no_ddl_text(statement: str):
    assert ddl_from_created(_named("t u", id=22, x=22), statement) == ""


def test_a_create_statement_gives_the_table_its_own_name_and_nothing_that_may_have_changed():
    statement = (
        "/* first */ CREATE TABLE IF NOT EXISTS other.`old name` (id integer primary key auto_increment, "
        "x numeric(10,2) default -3.50, key k (x), unique key u (x), check (x > 0), "
        "foreign key (x) references p(id)) comment 'old'"
    )
    table = replace(_named("t\tu", id=22, x=32), comment="it's new")
    table = replace(table, columns=(table.columns[0], replace(table.columns[1], type=SqlType(32, 10, 2))))
    assert ddl_from_created(table, statement) == (
        "CREATE TABLE `shop`.`t\tu` (\n  `id` int NOT NULL AUTO_INCREMENT,\n  `x` decimal(10,2) DEFAULT -3.50,\n"
        "  PRIMARY KEY (`id`)\n) COMMENT='it''s new' PROPERTIES(\"from_publication\" = \"true\")"
    )


@pytest.mark.parametrize("name", ["two words", "a\ttab", "back`quote", "plain"])
def test_an_external_table_costs_no_table_its_ddl_text(name: str):
    storage = Storage()
    storage.create_database("shop")
    storage.create_table("shop", name, {"id": "int not null", "x": "varchar(20)"}, primary_key=["id"])
    storage.create_publication("p", "shop")
    with SimulatedUpstream(storage, password=PASSWORD) as emulator:
        upstream = Endpoint(host="127.0.0.1", port=emulator.port, account="sys", user="dump")
        publication = Publication("p", "sys", 0)
        with Session(upstream, PASSWORD, retry=AT_ONCE) as session:
            create_snapshot(session, "xr_1", publication, "shop")
            at = snapshot_timestamp(session, "xr_1", publication)
            (expected,) = read_catalog(session, publication, "shop", "xr_1", at).tables
            emulator.inject(FailStatement("get_ddl", text="internal error: external table is not supported"))
            (table,) = read_catalog(session, publication, "shop", "xr_1", at).tables
    assert table.ddl.startswith("CREATE TABLE `shop`.")
    assert table == expected


HEX = "01a20236be017af18ee594e8713d34a9"


@pytest.mark.parametrize(
    ("name", "relkind", "created", "temporary"),
    [
        (f"__mo_tmp_{HEX}_d_t", "r", "create temporary table t(id int)", True),
        (f"__mo_tmp_{HEX}_d_t t", "r", "create /* x */ temporary table if not exists `t t`(id int)", True),
        (f"__mo_tmp_{HEX}_d_t", "r", "prepare s1 from 'create temporary table t(i int)'", True),
        (f"__mo_tmp_{HEX}_d_t", "r", "create table o(i int); create temporary table t(i int)", True),
        (f"__mo_tmp_{HEX}_d_t", "r", "call p()", True),
        (f"__mo_tmp_{HEX}_d_t", "r", "", True),
        (f"__mo_tmp_{HEX}_d___mo_index_unique_{HEX}", "i", "", True),
        (f"__mo_tmp_{HEX}_d_t", "r", f"create table `__mo_tmp_{HEX}_d_t`(id int comment 'temporary')", False),
        (f"__mo_tmp_{HEX}_d_t", "r", f"CREATE TABLE `d`.`__mo_tmp_{HEX}_d_t_copy_1` (`id` int)", False),
        (f"__mo_tmp_{HEX}_other_t", "r", "create temporary table t(id int)", False),
        (f"__mo_tmp_{HEX}_d_", "r", "create temporary table t(id int)", False),
        ("__mo_tmp_mine", "r", "create table `__mo_tmp_mine`(id int)", False),
        ("t", "r", "create temporary table t like o", False),  # which the server makes an ordinary one
    ],
)
def test_temporary_tables_of_sessions_are_not_replicated(name: str, relkind: str, created: str, temporary: bool):
    rows = _rows(tables={"relname": name.encode(), "relkind": relkind.encode()})
    statements = Answer(("rel_id", "rel_createsql"), (8, 252), [(b"7", created.encode())])
    catalog = tables_from_rows(*rows, statements, at=AT)
    assert (catalog.tables[0].kind is Kind.OTHER) is temporary
    assert catalog.unreplicated == (((name, "temporary"),) if temporary else ())


def test_what_created_a_table_is_only_read_where_it_is_needed():
    storage = Storage()
    storage.create_database("shop")
    storage.create_table("shop", "t", {"id": "int"})
    storage.create_publication("p", "shop")
    with SimulatedUpstream(storage, password=PASSWORD) as emulator:
        upstream = Endpoint(host="127.0.0.1", port=emulator.port, account="sys", user="dump")
        publication = Publication("p", "sys", 0)
        with Session(upstream, PASSWORD, retry=AT_ONCE) as session:
            create_snapshot(session, "xr_1", publication, "shop")
            at = snapshot_timestamp(session, "xr_1", publication)
            sent = emulator.status().statements
            read_catalog(session, publication, "shop", "xr_1", at)
            after = emulator.status().statements
    assert sum(after.values()) - sum(sent.values()) == 4


def test_a_ddl_text_that_is_not_utf8_is_left_out():
    database, tables, columns, ddl = _rows()
    (table,) = tables_from_rows(
        database, tables, columns, replace(ddl, rows=[(*ddl.rows[0][:-1], b"CREATE TABLE \xff")]), at=AT
    ).tables
    assert table.ddl == ""
    assert table.columns


@pytest.mark.recordings
def test_hidden_index_tables_are_found_through_their_table(play: Callable[..., Any]):
    upstream = play("keys")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    at = snapshot_timestamp(session, "xr_1", upstream.publication)
    catalog = read_catalog(session, upstream.publication, upstream.database, "xr_1", at)
    hidden = {table.name for table in catalog.tables if table.kind is Kind.INDEX}
    owned = [
        index_tables(session, upstream.publication, table.id, "xr_1")
        for table in catalog.tables
        if table.kind is Kind.TABLE
    ]
    assert {name for names in owned for name in names} == hidden
    assert len(hidden) == sum(map(len, owned))


@pytest.mark.recordings
def test_a_database_missing_at_the_snapshot_and_a_snapshot_that_is_gone_are_typed(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    at = snapshot_timestamp(session, "xr_1", upstream.publication)
    with pytest.raises(DatabaseMissing):
        read_catalog(session, upstream.publication, "nowhere", "xr_1", at)
    upstream.emulator.drop_snapshot("xr_1")
    with pytest.raises(SnapshotGone):
        read_catalog(session, upstream.publication, upstream.database, "xr_1", at)


def test_what_the_default_of_a_text_is_comes_from_the_catalog(recordings: Path):
    (table,) = [table for table in _catalog(_snapshot(recordings, "ddl/snapshot-006")).tables if " " in table.name]
    assert {column.name: column.default_text for column in table.columns}["a b"] == "d;--"
    assert create_table_of(table).column("a b").default_text == "d;--"
