"""The statements that apply a delta to a table, by dialect. MariaDB runs them in the other tests; no MySQL 8 is
available to run them."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, cast

import pyarrow as pa
import pytest

from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.matrixone.schema import FAKE_KEY
from ccpr.schema.choices import Dialect
from ccpr.schema.render import HIDDEN_KEY
from ccpr.targets.encoding import load_columns, load_statement
from ccpr.targets.errors import TargetValueRefused
from ccpr.targets.expected_tables import target_of
from ccpr.targets.staging import Staged, Staging
from ccpr.targets.target_session import TargetSession
from tests.targets.target_database import Part, source_table

DDL = (
    "CREATE TABLE `t` (`a` int NOT NULL, `b` varchar(5) NOT NULL, `c` blob DEFAULT NULL, `d` bit(3) DEFAULT NULL,"
    " PRIMARY KEY (`a`,`b`))"
)
COLLATION = {Dialect.MARIADB: "utf8mb4_nopad_bin", Dialect.MYSQL8: "utf8mb4_0900_bin"}
FORMAT = "CHARACTER SET utf8mb4 FIELDS TERMINATED BY ',' ENCLOSED BY '\"' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n'"
ON = "ON t.`a` = s.`a` AND t.`b` = s.`b`"


class Recorder:
    """Stands in for a session: keeps what it is asked to run."""

    def __init__(self, dialect: Dialect, changes: int = 1) -> None:
        self.statements: list[str] = []
        self.raw = self
        self.dialect, self.stages = dialect, "ccpr_stage_"
        self.counted: Iterator[list[tuple[int, ...]]] = iter(())
        self._changes = changes

    def transaction(self) -> nullcontext[None]:
        return nullcontext()

    def changed(self, statement: str) -> int:
        self.statements.append(statement)
        return self._changes

    def rows(self, statement: str) -> list[tuple[int, ...]]:
        self.statements.append(statement)
        return next(self.counted)

    def load(self, table: str, columns: Any, rows: list[pa.Table], subject: str) -> int:
        self.statements.append(load_statement("token", table, columns))
        return sum(part.num_rows for part in rows)


@pytest.mark.parametrize("dialect", COLLATION)
def test_a_delta_is_these_statements(dialect: Dialect):
    table = target_of(source_table(DDL), dialect, "db")
    create, session = parse_create_table(table.create), Recorder(dialect)
    columns = load_columns(table.source, create.columns, HIDDEN_KEY[dialect], FAKE_KEY)
    staging = Staging(cast(TargetSession, session), create, columns, 7, "table db.t")
    rows = pa.table({"a": [1], "b": ["x"], "c": [b"1"], "d": [1]})
    staging.merge(staging.fill([Part(rows, rows.select(["a", "b"]))]))
    options = f"ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={COLLATION[dialect]}"
    assert session.statements == [
        "DROP TEMPORARY TABLE IF EXISTS `ccpr_stage_7`",
        "CREATE TEMPORARY TABLE `ccpr_stage_7` (\n  `a` int NOT NULL,\n  `b` varchar(5) NOT NULL,\n"
        f"  `c` longblob DEFAULT NULL,\n  `d` bit(3) DEFAULT NULL\n) {options}",
        "DROP TEMPORARY TABLE IF EXISTS `ccpr_stage_7_keys`",
        f"CREATE TEMPORARY TABLE `ccpr_stage_7_keys` (\n  `a` int NOT NULL,\n  `b` varchar(5) NOT NULL\n) {options}",
        f"LOAD DATA LOCAL INFILE 'token' INTO TABLE `ccpr_stage_7` {FORMAT} (`a`, `b`, @c2, @c3)"
        " SET `c` = UNHEX(@c2), `d` = CAST(@c3 AS UNSIGNED)",
        f"LOAD DATA LOCAL INFILE 'token' INTO TABLE `ccpr_stage_7_keys` {FORMAT} (`a`, `b`)",
        f"DELETE t FROM `ccpr_stage_7` s STRAIGHT_JOIN `db`.`t` t {ON}",
        f"DELETE t FROM `ccpr_stage_7_keys` s STRAIGHT_JOIN `db`.`t` t {ON}",
        "INSERT INTO `db`.`t` (`a`,`b`,`c`,`d`) SELECT `a`,`b`,`c`,`d` FROM `ccpr_stage_7`",
    ]


def test_a_delta_in_a_matrixone_is_these_statements() -> None:
    """No temporary tables, no expressions in LOAD DATA, no DELETE with a join: see docs/upstream.md."""
    ddl = DDL.replace("`a` int", "`a` varbinary(3)")
    table = target_of(source_table(ddl), Dialect.MATRIXONE, "db")
    create, session = parse_create_table(table.create), Recorder(Dialect.MATRIXONE)
    session.counted = iter([[(1, 1, 1, 1, 1)], [(1, 1, 1)]])
    columns = load_columns(table.source, create.columns, HIDDEN_KEY[Dialect.MATRIXONE], FAKE_KEY)
    staging = Staging(cast(TargetSession, session), create, columns, 7, "table db.t")
    rows = pa.table({"a": [b"k"], "b": ["x"], "c": [b"1"], "d": [1]})
    staging.merge(staging.fill([Part(rows, rows.select(["a", "b"]))]))
    on = "UNHEX(s.`a`) = `db`.`t`.`a` AND s.`b` = `db`.`t`.`b`"
    assert session.statements == [
        "DROP TABLE IF EXISTS `ccpr_stage_7`",
        "CREATE TABLE `ccpr_stage_7` (\n  `a` longtext NOT NULL,\n  `b` varchar(5) NOT NULL,\n"
        "  `c` longtext DEFAULT NULL,\n  `d` bigint unsigned DEFAULT NULL\n)",
        "DROP TABLE IF EXISTS `ccpr_stage_7_keys`",
        "CREATE TABLE `ccpr_stage_7_keys` (\n  `a` longtext NOT NULL,\n  `b` varchar(5) NOT NULL\n)",
        f"LOAD DATA LOCAL INFILE 'token' INTO TABLE `ccpr_stage_7` {FORMAT} (`a`, `b`, `c`, `d`)",
        f"LOAD DATA LOCAL INFILE 'token' INTO TABLE `ccpr_stage_7_keys` {FORMAT} (`a`, `b`)",
        "SELECT COUNT(*), COUNT(`a`), COUNT(`b`), COUNT(`c`), COUNT(`d`) FROM `ccpr_stage_7`",
        "SELECT COUNT(*), COUNT(`a`), COUNT(`b`) FROM `ccpr_stage_7_keys`",
        f"DELETE FROM `db`.`t` WHERE EXISTS (SELECT 1 FROM `ccpr_stage_7` s WHERE {on})",
        f"DELETE FROM `db`.`t` WHERE EXISTS (SELECT 1 FROM `ccpr_stage_7_keys` s WHERE {on})",
        "INSERT INTO `db`.`t` (`a`,`b`,`c`,`d`) SELECT UNHEX(`a`),`b`,UNHEX(`c`),`d` FROM `ccpr_stage_7`",
    ]


@pytest.mark.parametrize("dialect", [*COLLATION, Dialect.MATRIXONE])
def test_more_deleted_rows_than_staged_keys_are_refused(dialect: Dialect) -> None:
    table = target_of(source_table(DDL), dialect, "db")
    session = Recorder(dialect, changes=2)
    create = parse_create_table(table.create)
    columns = load_columns(table.source, create.columns, HIDDEN_KEY[dialect], FAKE_KEY)
    staging = Staging(cast(TargetSession, session), create, columns, 7, "table db.t")
    with pytest.raises(TargetValueRefused, match="1 keys were to be deleted, and 2 rows were"):
        staging.merge(Staged(0, 1))
