"""Tables as a script: what a dialect has not is named, and what only a server could say is not in it."""

import pyarrow as pa
import pytest

from ccpr.matrixone.schema import FAKE_KEY
from ccpr.schema.choices import Dialect
from ccpr.schema.target_types import TargetUnfit
from ccpr.service.script import DumpTable, foreign_keys
from ccpr.targets.errors import TargetValueRefused
from tests.targets.target_database import Place, source_table

PARENT = "CREATE TABLE `src`.`p` (`id` bigint NOT NULL, `other` int DEFAULT NULL, PRIMARY KEY (`id`))"
CHILD = """CREATE TABLE `src`.`c` (
  `id` bigint NOT NULL,
  `up` bigint NOT NULL,
  `g` int GENERATED ALWAYS AS (serial_full(`up`)) STORED,
  PRIMARY KEY (`id`),
  CONSTRAINT `to p` FOREIGN KEY (`up`) REFERENCES `src`.`p` (`id`) ON DELETE CASCADE,
  CONSTRAINT `to p` FOREIGN KEY (`id`) REFERENCES `src`.`p` (`id`),
  CONSTRAINT `nulls` FOREIGN KEY (`up`) REFERENCES `src`.`p` (`id`) ON DELETE SET NULL,
  CONSTRAINT `no key` FOREIGN KEY (`up`) REFERENCES `src`.`p` (`other`),
  CONSTRAINT `away` FOREIGN KEY (`up`) REFERENCES `src`.`gone` (`id`),
  CONSTRAINT `nice` CHECK (is_nice(`up`))
)"""


@pytest.mark.integration
def test_what_only_a_server_could_say_is_left_out_and_named(place: Place) -> None:
    tables = [DumpTable.of(source_table(ddl, number), Dialect.MARIADB) for number, ddl in enumerate((CHILD, PARENT))]
    statements, skipped = foreign_keys(tables)
    for statement in ("SET foreign_key_checks = 0", *(table.statement for table in tables), *statements):
        place.query(statement)
    named = "\n".join((*tables[0].remarks, *skipped["src.c"]))
    for part in ("column g: GENERATED ALWAYS AS (serial_full(`up`))", "is_nice", "`nulls`", "`no key`", "`away`"):
        assert part in named
    made = place.query("SHOW CREATE TABLE c")[0][1]
    assert "FOREIGN KEY (`up`) REFERENCES `p` (`id`) ON DELETE CASCADE" in made
    assert "FOREIGN KEY (`id`) REFERENCES `p` (`id`)" in made
    assert made.count("CONSTRAINT") == 2


ODD = {
    "columns": f"CREATE TABLE `d`.`t` ({', '.join(f'c{n} int' for n in range(1018))})",
    "hidden key": f"CREATE TABLE `d`.`t` ({', '.join(f'c{n} int' for n in range(1017))})",
    "key parts": f"CREATE TABLE `d`.`t` ({', '.join(f'c{n} int not null' for n in range(33))}, "
    f"PRIMARY KEY ({', '.join(f'c{n}' for n in range(33))}))",
    "file name": f"CREATE TABLE `d`.`{'日' * 51}` (a int primary key)",
    "signs": f"CREATE TABLE `d`.`{'-' * 51}` (a int primary key)",
    "emoji": "CREATE TABLE `d`.`😀` (a int primary key)",
    "prefix": "CREATE TABLE `d`.`#mysql50#x` (a int primary key)",
    "column of InnoDB": "CREATE TABLE `d`.`t` (a int primary key, `Db_Row_Id` int)",
    "wide": f"CREATE TABLE `d`.`t` (id int primary key, {', '.join(f'c{n} varchar(200)' for n in range(300))})",
}


@pytest.mark.parametrize("kind", ODD)
def test_a_table_that_no_server_has_is_refused_before_it_is_asked(kind: str) -> None:
    with pytest.raises(TargetUnfit):
        DumpTable.of(source_table(ODD[kind]), Dialect.MARIADB)


def test_a_column_of_the_user_that_is_called_like_the_hidden_key_is_in_the_script() -> None:
    ddl = "CREATE TABLE `d`.`t` (`id` int NOT NULL, `{}` varchar(9) DEFAULT NULL, PRIMARY KEY (`id`))"
    for dialect, name in ((Dialect.MARIADB, FAKE_KEY), (Dialect.MATRIXONE, "__ccpr_key")):
        table = DumpTable.of(source_table(ddl.format(name)), dialect)
        assert [column.name for column in table.columns] == ["id", name]
    with pytest.raises(TargetUnfit, match=FAKE_KEY):
        DumpTable.of(source_table(ddl.format(FAKE_KEY)), Dialect.MATRIXONE)


@pytest.mark.parametrize("time", [-(2**63), 2**63 - 1])
def test_the_longest_time_that_is_stored_is_refused_by_name(time: int) -> None:
    table = DumpTable.of(
        source_table("CREATE TABLE `d`.`t` (`id` int NOT NULL, `v` time, PRIMARY KEY (`id`))"), Dialect.MARIADB
    )
    rows = pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([time], pa.duration("us"))})
    with pytest.raises(TargetValueRefused, match="column v"):
        list(table.inserts([rows]))


FITTING = {
    "columns": f"CREATE TABLE `d`.`t` (a int primary key, {', '.join(f'c{n} int' for n in range(1016))})",
    "key parts": f"CREATE TABLE `d`.`t` ({', '.join(f'c{n} int not null' for n in range(32))}, "
    f"PRIMARY KEY ({', '.join(f'c{n}' for n in range(32))}))",
    "file name": f"CREATE TABLE `d`.`{'日' * 50}` (a int primary key)",
    "letters": f"CREATE TABLE `d`.`{'é' * 64}` (a int primary key)",
    "cyrillic": f"CREATE TABLE `d`.`{'ж' * 64}` (a int primary key)",
    "dots": "CREATE TABLE `d`.`..` (a int primary key)",
    "keys": f"CREATE TABLE `d`.`t` (a int primary key, {', '.join(f'KEY k{n} (a)' for n in range(70))})",
    "case": "CREATE TABLE `d`.`t` (a int primary key, KEY `k` (a), KEY `K` (a))",
    "reserved": "CREATE TABLE `d`.`select` (`from` int primary key, `where` int DEFAULT 1, KEY `order` (`where`))",
    "default": "CREATE TABLE `d`.`t` (a int primary key, b varchar(36) DEFAULT (uuid()), c uuid DEFAULT uuid())",
    "short": "CREATE TABLE `d`.`t` (a int primary key, b varchar(35) DEFAULT (uuid()))",
    "comment": f"CREATE TABLE `d`.`t` (a int primary key) COMMENT='{'c' * 3000}'",
}


@pytest.mark.integration
@pytest.mark.parametrize("kind", FITTING)
def test_what_is_just_within_the_limits_is_taken_by_a_server(kind: str, place: Place) -> None:
    table = DumpTable.of(source_table(FITTING[kind]), Dialect.MARIADB)
    place.query(table.statement)
    (made,) = place.query(f"SHOW CREATE TABLE `{table.create.name}`")
    named = " ".join(table.remarks)
    assert made[1].count("KEY `k") == {"keys": 63, "case": 1}.get(kind, 0)
    assert ("index k69 is skipped" in named) == (kind == "keys")
    assert ("index K is skipped" in named) == (kind == "case")
    assert made[1].count("uuid()") == (2 if kind == "default" else 0)
    assert ("the default (uuid()) is skipped" in named) == (kind == "short")
    assert ("comment is cut" in named) == (kind == "comment")
