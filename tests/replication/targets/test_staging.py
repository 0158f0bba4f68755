"""The statements that apply a delta to a table, by dialect. MariaDB runs them in the other tests; no MySQL 8 is
available to run them."""

from contextlib import nullcontext
from typing import Any, cast

import pyarrow as pa
import pytest

from matrixone.ddl.parser import parse_create_table
from matrixone.schema import FAKE_KEY
from replication.schema.dialects import Dialect
from replication.schema.render import HIDDEN_KEY
from replication.targets.encoding import load_columns, load_statement
from replication.targets.own_tables import target_of
from replication.targets.session import TargetSession
from replication.targets.staging import Staging
from tests.replication.targets.target_database import Part, source_table

DDL = (
    "CREATE TABLE `t` (`a` int NOT NULL, `b` varchar(5) NOT NULL, `c` blob DEFAULT NULL, `d` bit(3) DEFAULT NULL,"
    " PRIMARY KEY (`a`,`b`))"
)
COLLATION = {Dialect.MARIADB: "utf8mb4_nopad_bin", Dialect.MYSQL8: "utf8mb4_0900_bin"}
FORMAT = "CHARACTER SET utf8mb4 FIELDS TERMINATED BY ',' ENCLOSED BY '\"' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n'"
ON = "ON t.`a` = s.`a` AND t.`b` = s.`b`"


class Recorder:
    """Stands in for a session: keeps what it is asked to run."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.raw = self

    def transaction(self) -> nullcontext[None]:
        return nullcontext()

    def run(self, statement: str) -> int:
        self.statements.append(statement)
        return 1

    def load(self, table: str, columns: Any, rows: list[pa.Table], subject: str) -> int:
        self.statements.append(load_statement("token", table, columns))
        return sum(part.num_rows for part in rows)


@pytest.mark.parametrize("dialect", COLLATION)
def test_a_delta_is_these_statements(dialect: Dialect):
    table = target_of(source_table(DDL), dialect, "db")
    create, session = parse_create_table(table.create), Recorder()
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
