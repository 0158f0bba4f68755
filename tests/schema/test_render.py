"""A table's definition for a target and its alterations, as text and in a real server."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymysql.cursors import Cursor

from ccpr.matrixone.ddl.definition import (
    ColumnDefinition,
    ColumnType,
    CreateTable,
    Index,
    IndexKind,
    KeyPart,
    format_create_table,
)
from ccpr.matrixone.ddl.parser import create_table_of, parse_create_table
from ccpr.matrixone.schema import FAKE_KEY, Column, Kind, SqlType, Table
from ccpr.schema.alterations import alter_table, rename_tables
from ccpr.schema.choices import Dialect
from ccpr.schema.render import target_table
from ccpr.schema.sync_mark import for_sync, release
from ccpr.schema.target_types import TargetUnfit
from tests.matrixone.ddl.strategies import create_tables
from tests.support.mariadb import MariaDb
from tests.support.recorded import Snapshot, every_snapshot

pytestmark = pytest.mark.integration

# One column of every type that MatrixOne has.
EVERY_TYPE = """CREATE TABLE `d`.`every` (
  `id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `b` bool DEFAULT true,
  `bt` bit(10) DEFAULT NULL,
  `i8` tinyint unsigned DEFAULT -1,
  `f` float(10,2) DEFAULT NULL,
  `d` double NOT NULL,
  `dec` decimal(65,30) DEFAULT 3.50,
  `wide` decimal(76,5) DEFAULT 3.50,
  `dt` date DEFAULT '2020-01-01',
  `tm` time(6) DEFAULT NULL,
  `dtm` datetime(3) DEFAULT now() ON UPDATE now(3),
  `ts` timestamp(3) DEFAULT CURRENT_TIMESTAMP() ON UPDATE CURRENT_TIMESTAMP(),
  `yr` year DEFAULT NULL,
  `ch` char(10) DEFAULT 'x ',
  `vc` varchar(200) NOT NULL DEFAULT 'd;--' COMMENT 'it''s "q" \\\\ \\n',
  `big` varchar(65535) DEFAULT (uuid()),
  `tx` text DEFAULT 'long',
  `bn` binary(8) DEFAULT NULL,
  `vb` varbinary(60) DEFAULT NULL,
  `bl` blob DEFAULT NULL,
  `js` json DEFAULT NULL,
  `uu` uuid DEFAULT NULL,
  `en` enum('red','gr''een','a,b') DEFAULT 'red',
  `en2` enum('a ','') DEFAULT NULL,
  `st` set('x','y') DEFAULT NULL,
  `v32` vecf32(3) DEFAULT NULL,
  `v64` vecf64(4) DEFAULT NULL,
  `dl` datalink DEFAULT NULL,
  `ge` geometry DEFAULT NULL,
  `pt` point srid 4326 DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `u` (`vc`,`dec`),
  KEY `long` (`big`),
  KEY `prefix` (`tx`(100),`vc`(200)),
  KEY `iv` USING ivfflat (`v32`) lists = 3  op_type 'vector_l2_ops',
 FULLTEXT `ft`(`tx`,`vc`) WITH PARSER ngram
) COMMENT='every ''type''' PROPERTIES("from_publication" = "true") CLUSTER BY (`b`)"""

GOLDEN = {
    Dialect.MARIADB: r"""CREATE TABLE `d`.`every` (
  `id` bigint unsigned NOT NULL,
  `b` tinyint(1) DEFAULT true,
  `bt` bit(10) DEFAULT NULL,
  `i8` tinyint unsigned DEFAULT -1,
  `f` float DEFAULT NULL,
  `d` double NOT NULL,
  `dec` decimal(65,30) DEFAULT 3.50,
  `wide` varchar(79) CHARACTER SET ascii COLLATE ascii_bin DEFAULT '3.50',
  `dt` date DEFAULT '2020-01-01',
  `tm` time(6) DEFAULT NULL,
  `dtm` datetime(3) DEFAULT CURRENT_TIMESTAMP(3),
  `ts` datetime(6) DEFAULT (utc_timestamp(6)),
  `yr` year DEFAULT NULL,
  `ch` varchar(10) DEFAULT 'x ',
  `vc` varchar(200) NOT NULL DEFAULT 'd;--' COMMENT 'it''s "q" \\ \n',
  `big` longtext DEFAULT (uuid()),
  `tx` longtext DEFAULT 'long',
  `bn` varbinary(8) DEFAULT NULL,
  `vb` varbinary(60) DEFAULT NULL,
  `bl` longblob DEFAULT NULL,
  `js` longtext DEFAULT NULL,
  `uu` char(36) CHARACTER SET ascii COLLATE ascii_bin DEFAULT NULL,
  `en` enum('red','gr''een','a,b') DEFAULT 'red',
  `en2` varchar(2) DEFAULT NULL,
  `st` set('x','y') DEFAULT NULL,
  `v32` longtext DEFAULT NULL,
  `v64` longtext DEFAULT NULL,
  `dl` longtext DEFAULT NULL,
  `ge` longtext DEFAULT NULL,
  `pt` longtext DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `u` (`vc`,`dec`),
  KEY `prefix` (`tx`(100),`vc`),
 FULLTEXT `ft`(`tx`,`vc`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin COMMENT='every ''type'' [ccpr: is_being_synced]'""",
}
GOLDEN[Dialect.MYSQL8] = (
    GOLDEN[Dialect.MARIADB]
    .replace("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
    .replace("`js` longtext", "`js` json")
    .replace("DEFAULT 'long'", "DEFAULT ('long')")
)
GOLDEN[Dialect.MATRIXONE] = (
    EVERY_TYPE.partition("  KEY `iv`")[0]
    .rstrip(",\n")
    .replace(" AUTO_INCREMENT", "")
    .replace("float(10,2)", "float")
    .replace("`bn` binary(8)", "`bn` varbinary(8)")
    .replace(" ON UPDATE now(3)", "")
    .replace(" ON UPDATE CURRENT_TIMESTAMP()", "")
    .replace("`dl` datalink", "`dl` longtext")
    .replace("`ge` geometry", "`ge` longtext")
    .replace("`pt` point srid 4326", "`pt` longtext")
    + "\n) COMMENT='every ''type'' [ccpr: is_being_synced]'"
)


@pytest.mark.parametrize("dialect", GOLDEN)
def test_every_type_in_every_dialect(dialect: Dialect):
    target = target_table(parse_create_table(EVERY_TYPE), dialect)
    assert for_sync(target.create).create == GOLDEN[dialect]
    assert len(target.types) == 30


def test_the_remarks_say_what_differs():
    remarks = "\n".join(target_table(parse_create_table(EVERY_TYPE), Dialect.MARIADB).remarks)
    for remark in (
        "column wide: decimal(76,5) is kept as text",
        "column ts: timestamp is kept as datetime(6) in UTC",
        "column ts: ON UPDATE CURRENT_TIMESTAMP() is skipped",
        "column tm: values beyond 838:59:59",
        "column ch: char(10) is varchar(10)",
        "column big: varchar(65535) is longtext",
        "column en2: enum is kept as text",
        "index long is skipped: the target needs a length",
        "index iv is skipped: the target has no ivfflat index",
        "index ft is made without its options: WITH PARSER ngram",
    ):
        assert remark in remarks
    assert (
        target_table(parse_create_table("CREATE TABLE t (a int primary key, b varchar(9))"), Dialect.MARIADB).remarks
        == ()
    )


def test_a_table_without_key_has_its_hidden_key_as_a_column():
    source = parse_create_table("CREATE TABLE t (a int)")
    shown = {
        dialect: format_create_table(target_table(source, dialect).create)
        for dialect in (Dialect.MYSQL8, Dialect.MATRIXONE)
    }
    assert f"`{FAKE_KEY}` bigint unsigned NOT NULL AUTO_INCREMENT INVISIBLE" in shown[Dialect.MYSQL8]
    assert (
        "`__ccpr_key` bigint unsigned NOT NULL AUTO_INCREMENT,\n  PRIMARY KEY (`__ccpr_key`)"
        in shown[Dialect.MATRIXONE]
    )
    with pytest.raises(TargetUnfit):
        target_table(parse_create_table(f"CREATE TABLE t ({FAKE_KEY.upper()} int)"), Dialect.MARIADB)


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("CREATE TABLE t (a varchar(769) primary key)", "3076 bytes"),
        ("CREATE TABLE t (a varchar(400), b varchar(400), primary key (a, b))", "3200 bytes"),
        ("CREATE TABLE t (a varchar(65535) primary key)", "no key can hold"),
        ("CREATE TABLE t (a blob primary key)", "no key can hold"),
        ("CREATE TABLE t (`a ` int)", "does not accept the name"),
        (f"CREATE TABLE t (`{'x' * 65}` int)", "does not accept the name"),
        ("CREATE TABLE `🙂` (a int)", "does not accept the name"),
        ("CREATE TABLE t (a int, primary key (b))", "not a column"),
        ("CREATE TABLE t (a hologram)", "is not known"),
        (
            f"CREATE TABLE t (id int, {', '.join(f'c{number} varchar(40)' for number in range(400))})",
            "402 columns do not fit",
        ),
        (f"CREATE TABLE t (id int, {', '.join(f'c{number} double' for number in range(1020))})", "it has 1022 columns"),
    ],
)
def test_what_the_target_cannot_have_is_refused_in_the_plan(ddl: str, problem: str):
    with pytest.raises(TargetUnfit) as caught:
        target_table(parse_create_table(ddl), Dialect.MARIADB)
    assert problem in caught.value.message


def test_the_longest_columns_leave_a_row_that_is_too_long():
    columns = ", ".join(f"c{number} varchar({3000 + number})" for number in range(8))
    target = target_table(parse_create_table(f"CREATE TABLE t (id int primary key, {columns})"), Dialect.MARIADB)
    assert [kind.type.name for kind in target.types] == ["int", *["varchar"] * 5, *["longtext"] * 3]
    assert sum("a row has no room" in remark for remark in target.remarks) == 3


def test_a_column_can_be_asked_for_as_text():
    target = target_table(
        parse_create_table("CREATE TABLE t (id int primary key, tm time(6))"), Dialect.MYSQL8, as_text={"tm"}
    )
    assert target.create.column("tm").type == ColumnType("longtext")


def test_renames_are_one_statement():
    assert (
        rename_tables([("`a`", "`x`"), ("`b`", "`a`"), ("`x`", "`b`")])
        == "RENAME TABLE `a` TO `x`, `b` TO `a`, `x` TO `b`"
    )
    live, old, new = (CreateTable(name, (), "d").quoted_name for name in ("t", "t old", "t new"))
    swapped = rename_tables([(live, old), (new, live)])
    assert swapped == "RENAME TABLE `d`.`t` TO `d`.`t old`, `d`.`t new` TO `d`.`t`"


@settings(max_examples=100, deadline=None)
@given(create_tables(), st.sampled_from(Dialect))
def test_any_table_has_a_target_or_a_reason(table: CreateTable, dialect: Dialect):
    try:
        target = target_table(table, dialect)
    except TargetUnfit:
        return  # a name with a letter beyond the BMP, a key too long
    names = [column.name for column in target.create.columns]
    assert (
        sorted(names[: len(table.columns)]) == sorted(column.name for column in table.columns)
        or table.primary_key == ()
    )
    assert len(target.types) == len(names)
    assert parse_create_table(for_sync(target.create).create).primary_key == target.create.primary_key


# In a real server


@pytest.fixture
def cursor(mariadb: MariaDb) -> Iterator[Cursor]:
    """In a database named `target`, strict and in UTC as the target's session is."""
    with closing(mariadb.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE', time_zone = '+00:00'")
        cursor.execute("DROP DATABASE IF EXISTS target")
        cursor.execute("CREATE DATABASE target CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
        cursor.execute("USE target")
        yield cursor


def described(cursor: Cursor, table: str) -> list[tuple[object, ...]]:
    cursor.execute(
        "SELECT column_name, column_type, is_nullable, column_key, extra, column_comment, collation_name"
        " FROM information_schema.columns WHERE table_schema = 'target' AND table_name = %s ORDER BY ordinal_position",
        [table],
    )
    return list(cursor.fetchall())


def columns_of(cursor: Cursor, create: CreateTable) -> None:
    """information_schema says what the definition says."""
    rows = described(cursor, create.name)
    assert [row[0] for row in rows] == [column.name for column in create.columns]
    for (name, shown, nullable, key, extra, comment, collation), column in zip(rows, create.columns, strict=True):
        read = parse_create_table(f"CREATE TABLE t (a {shown})").columns[0].type
        wanted = column.type
        assert (read.name, read.members, read.unsigned) == (wanted.name, wanted.members, wanted.unsigned), name
        if wanted.parameters:
            assert read.parameters == wanted.parameters, name
        assert (nullable == "YES") is column.nullable
        assert (key == "PRI") is (name in create.primary_key)
        assert ("INVISIBLE" in extra) is column.invisible
        assert "auto_increment" not in extra
        assert comment == column.comment
        if wanted.name in ("varchar", "longtext", "enum", "set"):
            assert collation == (column.collation or "utf8mb4_nopad_bin")


@pytest.mark.recordings
def test_every_recorded_table_is_made_in_mariadb_and_shown_as_it_was_asked_for(recordings: Path, cursor: Cursor):
    made = set()
    for snapshot in every_snapshot(recordings):
        for table in snapshot.tables.values():
            if not table.ddl:
                continue
            target = target_table(create_table_of(table), Dialect.MARIADB, database="target")
            synced = for_sync(target.create)
            if synced.create in made:
                continue
            made.add(synced.create)
            cursor.execute(synced.create)
            create = parse_create_table(synced.create)
            columns_of(cursor, create)
            cursor.execute(
                "SELECT table_comment FROM information_schema.tables WHERE table_schema = 'target' AND table_name = %s",
                [table.name],
            )
            assert cursor.fetchall() == ((create.comment,),)
            cursor.execute(
                "SELECT index_name, GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR '|')"
                " FROM information_schema.statistics WHERE table_schema = 'target' AND table_name = %s"
                " GROUP BY index_name",
                [table.name],
            )
            wanted = {index.name: "|".join(part.column for part in index.parts) for index in create.indexes}
            assert dict(cursor.fetchall()) == {**wanted, "PRIMARY": "|".join(create.primary_key)}
            for statement in release(synced.create, synced.stripped, synced.disabled, Dialect.MARIADB).statements:
                cursor.execute(statement)
            cursor.execute(f"DROP TABLE {create.quoted_name}")
    assert len(made) > 10


def test_every_type_is_made_in_mariadb_and_released(cursor: Cursor):
    target = target_table(parse_create_table(EVERY_TYPE), Dialect.MARIADB, database="target")
    synced = for_sync(target.create)
    # -1 is not a tinyint unsigned: MatrixOne's own text would not run either.
    cursor.execute(synced.create.replace("DEFAULT -1", "DEFAULT 1"))
    columns_of(cursor, parse_create_table(synced.create))
    cursor.execute("INSERT INTO every (id, d) VALUES (0, 1)")
    for statement in release(synced.create, synced.stripped, synced.disabled, Dialect.MARIADB).statements:
        cursor.execute(statement.replace("DEFAULT -1", "DEFAULT 1"))
    cursor.execute("INSERT INTO every (d, vc) VALUES (2, 'other')")
    cursor.execute("SELECT id, ABS(TIMESTAMPDIFF(SECOND, ts, UTC_TIMESTAMP())) < 60 FROM every ORDER BY id")
    assert cursor.fetchall() == ((0, 1), (1, 1))
    cursor.execute("SHOW CREATE TABLE every")
    assert "is_being_synced" not in cursor.fetchall()[0][1]


def test_the_longest_key_that_is_not_refused_is_one_that_mariadb_takes(cursor: Cursor):
    for ddl in (
        "CREATE TABLE k (a varchar(768) primary key)",
        "CREATE TABLE k (a varchar(384), b varchar(300), c varbinary(336), primary key (a, b, c))",
        "CREATE TABLE k (id int primary key, a varchar(767), b int, unique key u (a, b))",
        "CREATE TABLE k (id int primary key, a text, b char(36), key u (a(700), b))",
    ):
        target = target_table(parse_create_table(ddl), Dialect.MARIADB, database="target")
        assert len(target.create.indexes) == ddl.count(" key u ")
        cursor.execute(for_sync(target.create).create)
        cursor.execute("DROP TABLE k")


def test_the_widest_row_that_stays_in_the_row_is_one_that_mariadb_takes(cursor: Cursor):
    for count, length in ((8, 3000), (15, 1050), (60, 264), (1, 16000), (180, 60), (400, 4), (3, 16000)):
        columns = ", ".join(f"c{number} varchar({length})" for number in range(count))
        target = target_table(
            parse_create_table(f"CREATE TABLE w (id int primary key, {columns})"), Dialect.MARIADB, database="target"
        )
        cursor.execute(for_sync(target.create).create)
        cursor.execute("DROP TABLE w")


INT = ColumnType("int")


def catalog_table(ddl: CreateTable, seqnums: dict[str, int], number: int = 1) -> Table:
    columns = tuple(
        Column(column.name, seqnums[column.name], column.type.sql_type or SqlType(22)) for column in ddl.columns
    )
    return Table(number, 1, ddl.database, ddl.name, Kind.TABLE, columns)


def altered(cursor: Cursor, before: CreateTable, after: CreateTable, renames: dict[str, str]) -> None:
    """Makes the one, alters it, and compares the result with the other, newly made."""
    seqnums = {column.name: place for place, column in enumerate(before.columns)}
    now = {renames.get(name, name): place for name, place in seqnums.items()}
    later = {column.name: now.get(column.name, 100 + place) for place, column in enumerate(after.columns)}
    synced = [
        parse_create_table(for_sync(target_table(table, Dialect.MARIADB, database="target").create).create)
        for table in (before, after)
    ]
    alteration = alter_table(catalog_table(before, seqnums), catalog_table(after, later), *synced, Dialect.MARIADB)
    assert alteration is not None
    cursor.execute(format_create_table(synced[0]))
    names = [column.name for column in synced[0].columns]
    quoted = ", ".join(f"`{name}`" for name in names)
    cursor.execute(
        f"INSERT INTO {synced[0].quoted_name} ({quoted}) VALUES ({', '.join(map(str, range(7, 7 + len(names))))})"
    )
    for statement in (*alteration.before_rows, *alteration.after_rows):
        if statement in alteration.after_rows:
            cursor.execute(f"TRUNCATE TABLE {synced[1].quoted_name}")
        cursor.execute(statement)
    cursor.execute(f"SHOW CREATE TABLE {synced[1].quoted_name}")
    ((_, shown),) = cursor.fetchall()
    kept = {}
    if not alteration.after_rows:
        cursor.execute(f"SELECT * FROM {synced[1].quoted_name}")
        kept = dict(zip([part[0] for part in cursor.description or ()], cursor.fetchall()[0], strict=True))
    for name, place in seqnums.items():
        if kept and renames.get(name, name) in kept:
            assert int(kept[renames.get(name, name)]) == 7 + place
    cursor.execute(f"DROP TABLE {synced[1].quoted_name}")
    cursor.execute(format_create_table(synced[1]))
    cursor.execute(f"SHOW CREATE TABLE {synced[1].quoted_name}")
    ((_, made),) = cursor.fetchall()
    cursor.execute(f"DROP TABLE {synced[1].quoted_name}")
    left, right = parse_create_table(shown), parse_create_table(made)
    assert replace(left, indexes=tuple(sorted(left.indexes, key=repr))) == replace(
        right, indexes=tuple(sorted(right.indexes, key=repr))
    )


A, B, C = (ColumnDefinition(name, INT) for name in "abc")
K = ColumnDefinition("k", INT, False)
BASE = CreateTable("t", (K, A, B, C), "d", ("k",), (Index(IndexKind.KEY, "i", (KeyPart("a"), KeyPart("b"))),))


@pytest.mark.parametrize(
    ("after", "renames"),
    [
        (
            replace(
                BASE,
                columns=(
                    K,
                    A,
                    B,
                    C,
                    ColumnDefinition("n", ColumnType("varchar", (9,)), default="'it''s'", comment="new"),
                ),
            ),
            {},
        ),
        (replace(BASE, columns=(ColumnDefinition("n", ColumnType("datetime", (3,)), False), C, K, B, A)), {}),
        (
            replace(
                BASE,
                columns=(K, replace(A, name="b"), replace(B, name="a"), C),
                indexes=(Index(IndexKind.KEY, "i", (KeyPart("b"), KeyPart("a"))),),
            ),
            {"a": "b", "b": "a"},
        ),
        (replace(BASE, columns=(K, replace(B, name="a"), C), indexes=()), {"b": "a", "a": "gone"}),
        (replace(BASE, columns=(replace(K, name="key"), A, B, C), primary_key=("key",)), {"k": "key"}),
        (
            replace(
                BASE,
                columns=(
                    K,
                    replace(A, type=ColumnType("bigint"), default="3", comment="c"),
                    B,
                    replace(C, nullable=False),
                ),
            ),
            {},
        ),
        (replace(BASE, name="u", comment="it's", indexes=(Index(IndexKind.UNIQUE, "i", (KeyPart("c"),)),)), {}),
        (
            replace(
                BASE, columns=(K, replace(A, name="x y", type=ColumnType("bigint")), replace(C, name="a")), indexes=()
            ),
            {"a": "x y", "c": "a", "b": "gone"},
        ),
    ],
)
def test_alterations_run_in_mariadb_and_give_the_table_that_was_wanted(
    cursor: Cursor, after: CreateTable, renames: dict[str, str]
):
    altered(cursor, BASE, after, renames)


def test_a_table_without_key_keeps_its_hidden_key_through_an_alteration(cursor: Cursor):
    before, after = CreateTable("t", (A, B), "d"), CreateTable("t", (replace(A, name="b"), C), "d")
    altered(cursor, before, after, {"a": "b", "b": "gone"})


def test_what_cannot_be_done_in_place_needs_a_shadow_table():
    narrower = replace(BASE, columns=(K, A, B, replace(C, type=ColumnType("tinyint"))))
    numbers = {column.name: place for place, column in enumerate(BASE.columns)}
    tables = catalog_table(BASE, numbers), catalog_table(narrower, numbers)
    assert alter_table(*tables, BASE, narrower, Dialect.MARIADB) is None
    assert alter_table(*tables, BASE, replace(BASE, primary_key=("a",)), Dialect.MARIADB) is None


@pytest.mark.recordings
def test_the_recorded_changes_run_in_mariadb(recordings: Path, cursor: Cursor):
    def at(number: int) -> tuple[Table, CreateTable]:
        table = Snapshot(recordings / "ddl" / f"snapshot-{number:03}").tables["t1"]
        target = target_table(create_table_of(table), Dialect.MARIADB, database="target")
        return table, parse_create_table(for_sync(target.create).create)

    cursor.execute(format_create_table(at(1)[1]))
    for number in range(1, 5):
        (before, target_before), (after, target_after) = at(number), at(number + 1)
        alteration = alter_table(before, after, target_before, target_after, Dialect.MARIADB)
        assert alteration is not None
        for statement in (*alteration.before_rows, *alteration.after_rows):
            cursor.execute(statement)
        columns_of(cursor, target_after)


def test_mariadb_distinguishes_texts_by_their_bytes(cursor: Cursor):
    target = target_table(
        parse_create_table("CREATE TABLE `c` (k varchar(9) primary key)"), Dialect.MARIADB, database="target"
    )
    cursor.execute(for_sync(target.create).create)
    assert cursor.execute("INSERT INTO c VALUES ('a'), ('A'), ('a '), ('ä'), ('')") == 5
    cursor.execute("SELECT k FROM c ORDER BY k")
    assert [row[0] for row in cursor.fetchall()] == ["", "A", "a", "a ", "ä"]


@pytest.mark.parametrize(
    ("column", "default"),
    [
        ("enum('red','it''s') DEFAULT 'it''s'", "it's"),
        ("enum('red','it''s') DEFAULT 'it''''s'", "it's"),  # as get_ddl writes it
        ("set('red','it''s') DEFAULT 'red,it''''s'", "red,it's"),
        ("enum('it''''s','it''s') DEFAULT 'it''''s'", "it''s"),
        ("varchar(20) DEFAULT 'it''s'", "it's"),
        ("decimal(5,2) DEFAULT (-3.50)", "-3.50"),
        ("int DEFAULT ((7))", "7"),
        ("varchar(20) DEFAULT ('a b')", "a b"),
        ("varchar(20) DEFAULT (7)", "7"),
    ],
)
def test_a_literal_default_is_the_one_that_the_source_means(cursor: Cursor, column: str, default: str) -> None:
    source = parse_create_table(f"CREATE TABLE `t` (`id` int NOT NULL, `c` {column}, PRIMARY KEY (`id`))")
    cursor.execute("DROP TABLE IF EXISTS t")
    cursor.execute(for_sync(target_table(source, Dialect.MARIADB).create).create)
    cursor.execute("INSERT INTO t (id) VALUES (1)")
    cursor.execute("SELECT CAST(c AS CHAR) FROM t")
    assert cursor.fetchall() == ((default,),)


@pytest.mark.parametrize("written", ["'it''''s'", "'it''s'", "7"])
@pytest.mark.parametrize("meant", ["it's", "it''s", "a\\b\nc", ""])
def test_the_catalog_says_what_the_default_of_a_text_is(cursor: Cursor, written: str, meant: str) -> None:
    made = target_table(create_table_of(_with_default(written, meant)), Dialect.MARIADB).create
    cursor.execute("DROP TABLE IF EXISTS t")
    cursor.execute(for_sync(made).create)
    cursor.execute("INSERT INTO t (id) VALUES (1)")
    cursor.execute("SELECT c FROM t")
    assert cursor.fetchall() == ((meant,),)


@pytest.mark.parametrize(("written", "meant"), [("(concat('a', 'b'))", "ab"), ("NULL", None)])
def test_the_catalog_does_not_make_a_literal_of_an_expression(written: str, meant: str | None) -> None:
    made = target_table(create_table_of(_with_default(written, meant)), Dialect.MARIADB)
    assert made.create.columns[1].default is None


def _with_default(written: str, meant: str | None) -> Table:
    ddl = f"CREATE TABLE `t` (`id` int NOT NULL, `c` varchar(20) DEFAULT {written}, PRIMARY KEY (`id`))"
    columns = (Column("id", 0, SqlType(22), nullable=False), Column("c", 1, SqlType(61, 20), default_text=meant))
    return Table(1, 1, "", "t", Kind.TABLE, columns, ddl)


@pytest.mark.parametrize(
    "column",
    [
        "varchar(20) DEFAULT 'it''''s'",  # `it's` or `it''s`: get_ddl does not say
        "enum('red','green') DEFAULT 'blue'",
        "set('red','green') DEFAULT 'red,blue'",
        "int DEFAULT (1 + 2)",
        "int DEFAULT (1) + (2)",
    ],
)
def test_a_default_whose_meaning_is_not_certain_is_left_out_with_a_remark(column: str) -> None:
    source = parse_create_table(f"CREATE TABLE `d`.`t` (`id` int NOT NULL, `c` {column}, PRIMARY KEY (`id`))")
    made = target_table(source, Dialect.MARIADB)
    assert made.create.columns[1].default is None
    (remark,) = made.remarks
    assert remark.startswith("column c: the default ")
    assert remark.endswith("is skipped")
