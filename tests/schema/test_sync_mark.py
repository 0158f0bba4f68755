"""What a synced table must not have, its mark, and what brings everything back."""

import json
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.ddl.definition import CreateTable, format_create_table
from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.schema.choices import Dialect
from ccpr.schema.sync_mark import (
    MARK,
    Mark,
    MarkEdited,
    NotRestorable,
    NotSyncable,
    Synced,
    check_mark,
    for_sync,
    mark_of,
    release,
    restore,
)
from tests.matrixone.ddl.strategies import create_tables
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.integration

MYSQL_TEXT = """CREATE TABLE `d`.`t` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `a` int DEFAULT 5,
  `at` timestamp(3) NULL DEFAULT current_timestamp(3) ON UPDATE current_timestamp(3) COMMENT 'when',
  `g` int GENERATED ALWAYS AS (`a` * 2) VIRTUAL,
  `s` varchar(20) NOT NULL GENERATED ALWAYS AS (concat('n', `a`)) STORED,
  PRIMARY KEY (`id`),
  KEY `over g` (`g`,`a`),
  CONSTRAINT `p` FOREIGN KEY (`a`) REFERENCES `parent` (`id`) ON DELETE CASCADE,
  CONSTRAINT `c` CHECK (`a` > 0)
) ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8mb4
 DATA DIRECTORY='/x' TABLESPACE=`s` ENCRYPTION='Y' CONNECTION='mysql://o' COMMENT='mine'"""


def through_json(synced: Synced) -> Synced:
    return Synced(synced.create, json.loads(json.dumps(synced.stripped)), json.loads(json.dumps(synced.disabled)))


def unordered(table: CreateTable) -> CreateTable:
    return replace(table, indexes=tuple(sorted(table.indexes, key=repr)))


def restored(synced: Synced) -> str:
    return restore(synced.create, synced.stripped, synced.disabled)


def test_a_mysql_table_loses_what_acts_by_itself_and_what_refers_to_the_source():
    synced = for_sync(MYSQL_TEXT)
    assert synced.create == (
        """CREATE TABLE `d`.`t` (
  `id` bigint NOT NULL,
  `a` int DEFAULT 5,
  `at` timestamp(3) DEFAULT current_timestamp(3) COMMENT 'when',
  `g` int DEFAULT NULL,
  `s` varchar(20) NOT NULL,
  PRIMARY KEY (`id`),
  KEY `over g` (`g`,`a`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='mine [ccpr: is_being_synced]'"""
    )
    assert synced.stripped == {
        "options": [
            [3, "DATA DIRECTORY", "'/x'"],
            [4, "TABLESPACE", "`s`"],
            [5, "ENCRYPTION", "'Y'"],
            [6, "CONNECTION", "'mysql://o'"],
        ]
    }
    assert synced.disabled["options"] == [[1, "AUTO_INCREMENT", "7"]]
    assert synced.disabled["auto_increment"] == ["id"]
    assert synced.disabled["on_update"] == {"at": "current_timestamp(3)"}
    assert synced.disabled["generated"] == {
        "g": {"expression": "`a` * 2", "stored": False},
        "s": {"expression": "concat('n', `a`)", "stored": True},
    }
    assert synced.disabled["checks"] == [["c", "`a` > 0"]]
    assert synced.disabled["comment"] == "mine"
    assert parse_create_table(restored(through_json(synced))) == parse_create_table(MYSQL_TEXT)


def test_a_published_matrixone_table_loses_what_would_make_it_read_only_for_good():
    text = "CREATE TABLE `t` (\n  `id` int NOT NULL AUTO_INCREMENT,\n  PRIMARY KEY (`id`)\n) {}CLUSTER BY (`id`)"
    synced = for_sync(text.format('PROPERTIES("from_publication" = "true", "k" = "v") '))
    assert synced.create == (
        "CREATE TABLE `t` (\n  `id` int NOT NULL,\n  PRIMARY KEY (`id`)\n) COMMENT='[ccpr: is_being_synced]'"
        ' PROPERTIES("k" = "v") CLUSTER BY (`id`)'
    )
    assert synced.stripped == {"properties": [[0, "from_publication", "true"]]}
    assert synced.disabled == {"auto_increment": ["id"]}
    assert restored(synced) == text.format('PROPERTIES("k" = "v") ')


def test_an_index_table_is_never_made_by_us():
    with pytest.raises(NotSyncable):
        for_sync("CREATE TABLE `__mo_index_secondary_1` (a int)")


@settings(max_examples=150, deadline=None)
@given(create_tables(), st.sampled_from([Dialect.MYSQL8, Dialect.MARIADB, Dialect.MATRIXONE]))
def test_rewriting_and_restoring_gives_the_original(table: CreateTable, dialect: Dialect):
    options = (
        *table.options,
        ("AUTO_INCREMENT", "7"),
        ("TABLESPACE", "`s`"),
        ("STATS_PERSISTENT", "0"),
        ("ENCRYPTION", "'Y'"),
    )
    table = replace(table, options=options, properties=(*table.properties, ("from_publication", "true")))
    synced = through_json(for_sync(table))
    without = replace(table, properties=tuple(pair for pair in table.properties if pair[0] != "from_publication"))
    assert restored(synced) == format_create_table(without)
    kept = parse_create_table(synced.create)
    assert not any(column.auto_increment or column.on_update or column.generated for column in kept.columns)
    assert not kept.checks
    assert not kept.foreign_keys
    assert not {name for name, _ in kept.options} & {"AUTO_INCREMENT", "TABLESPACE", "ENCRYPTION"}
    assert mark_of(synced.create, dialect) is Mark.SET
    assert mark_of(restored(synced), dialect) is Mark.MISSING or table.comment.endswith(MARK)
    assert for_sync(format_create_table(table)) == for_sync(table)  # both ways in (D4)


def test_a_mark_that_somebody_edited_is_reported():
    synced = for_sync("CREATE TABLE t (a int) COMMENT 'x'")
    check_mark(synced.create, Dialect.MARIADB, "table d.t")
    with pytest.raises(MarkEdited) as caught:
        check_mark(synced.create.replace(" [ccpr: is_being_synced]", ""), Dialect.MARIADB, "table d.t")
    assert caught.value.subject == "table d.t"
    published = 'CREATE TABLE t (a int) COMMENT \'[ccpr: is_being_synced]\' PROPERTIES("from_publication" = "true")'
    assert mark_of(published, Dialect.MATRIXONE) is Mark.FOREIGN


def test_a_long_comment_makes_room_for_the_mark_and_comes_back():
    text = f"CREATE TABLE `t` (\n  `a` int DEFAULT NULL\n) COMMENT='{'x' * 2048}'"
    synced = for_sync(text)
    assert len(parse_create_table(synced.create).comment) == 2048
    assert restored(synced) == text


@pytest.mark.parametrize(
    "disabled",
    [
        {"auto_increment": ["other"]},
        {"auto_increment": 3},
        {"on_update": ["a"]},
        {"on_update": {"a": 1}},
        {"generated": {"a": {}}},
        {"checks": [["c"]]},
        {"foreign_keys": [{"name": "x"}]},
        {"options": [[-1, "a", "b"]]},
        {"options": [[9, "a", "b"]]},
        {"comment": "\ud800"},
    ],
)
def test_what_is_stored_is_not_trusted(disabled: dict[str, Any]):
    with pytest.raises(NotRestorable):
        restore("CREATE TABLE t (a int)", {}, disabled)


def test_a_released_table_in_mariadb_is_what_its_statement_says(mariadb: MariaDb):
    mariadb.create_database("released")
    text = MYSQL_TEXT.replace("`d`.`t`", "`t`").replace(
        "DATA DIRECTORY='/x' TABLESPACE=`s` ENCRYPTION='Y' CONNECTION='mysql://o' ", ""
    )
    # MariaDB has no NOT NULL for a generated column.
    text = text.replace("`s` varchar(20) NOT NULL GENERATED", "`s` varchar(20) GENERATED")
    with closing(mariadb.connect("released")) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE parent (id int primary key)")
        cursor.execute("INSERT INTO parent VALUES (1), (2)")
        cursor.execute(text)
        cursor.execute("SHOW CREATE TABLE t")
        ((_, original),) = cursor.fetchall()
        cursor.execute("DROP TABLE t")
        synced = for_sync(original)
        cursor.execute(synced.create)
        cursor.execute(
            "INSERT INTO t (id, a, at, g, s) VALUES (0, 1, '2020-01-01 00:00:00.123', 2, 'n1'), (5, 2, NULL, 4, 'n2')"
        )
        cursor.execute("SELECT * FROM t ORDER BY id")
        rows = cursor.fetchall()
        cursor.execute("SHOW CREATE TABLE t")
        check_mark(cursor.fetchall()[0][1], Dialect.MARIADB, "table t")
        for statement in release(synced.create, synced.stripped, synced.disabled, Dialect.MARIADB).statements:
            cursor.execute(statement)
        cursor.execute("SELECT * FROM t ORDER BY id")
        assert cursor.fetchall() == rows
        cursor.execute("SHOW CREATE TABLE t")
        ((_, now),) = cursor.fetchall()
        assert unordered(parse_create_table(now)) == unordered(parse_create_table(original))
        cursor.execute("INSERT INTO t (a) VALUES (2)")
        cursor.execute("SELECT id, a, g, s FROM t WHERE id > 5")
        assert cursor.fetchall() == ((7, 2, 4, "n2"),)
