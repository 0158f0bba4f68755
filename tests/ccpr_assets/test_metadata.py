"""What Dagster shows of foreign names."""

import dagster as dg

from ccpr_assets import metadata
from matrixone.schema import Column, Kind, SqlType, Table
from replication.errors import TableMissingInMirror
from replication.schema.table_changes import ChangeKind, TableChange
from resources.replication import as_failure

NAME = "a\x1b[2J\n```[x](javascript:y)"


def test_control_characters_of_foreign_names_are_escaped_in_a_table() -> None:
    shown = metadata.table([{"name": NAME, "rows": 1}], {"name": "string", "rows": "int"})
    assert [record.data for record in shown.records] == [{"name": "a\\x1b[2J\\n```[x](javascript:y)", "rows": 1}]


def test_a_foreign_name_cannot_end_the_block_of_statements_nor_move_the_cursor() -> None:
    table = Table(1, 1, "d", NAME, Kind.TABLE, (Column("a", 0, SqlType(22)),), f"CREATE TABLE `{NAME}` (a int)", "")
    shown = metadata.ddl_diff([TableChange(ChangeKind.CREATED, None, table)]).value
    assert isinstance(shown, str)
    assert "\x1b" not in shown
    first, *_, last = shown.split("\n")
    assert first == last + "diff"
    assert last == "````"


def test_an_error_shows_no_control_characters() -> None:
    failure = as_failure(TableMissingInMirror(f"no {NAME}", subject=f"table {NAME}"))
    assert "\x1b" not in (failure.description or "")
    shown = failure.metadata["subject"]
    assert isinstance(shown, dg.TextMetadataValue)
    assert shown.value == "table a\\x1b[2J\\n```[x](javascript:y)"
