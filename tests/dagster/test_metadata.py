"""What Dagster shows of foreign names."""

import dagster as dg

from ccpr.dagster import metadata
from ccpr.dagster.events import definitions_metadata, zero_dates_metadata
from ccpr.dagster.replication import as_failure
from ccpr.matrixone.definitions import Definitions, Unreadable, View
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Column, Kind, SqlType, Table
from ccpr.mirror.errors import TableMissingInMirror
from ccpr.pipeline.committing import IterationOutcome
from ccpr.schema.table_changes import CatalogChange, ChangeKind

NAME = "a\x1b[2J\n```[x](javascript:y)"


def test_control_characters_of_foreign_names_are_escaped_in_a_table() -> None:
    shown = metadata.table([{"name": NAME, "rows": 1}], {"name": "string", "rows": "int"})
    assert [record.data for record in shown.records] == [{"name": "a\\x1b[2J\\n```[x](javascript:y)", "rows": 1}]


def test_a_foreign_name_cannot_end_the_block_of_statements_nor_move_the_cursor() -> None:
    table = Table(1, 1, "d", NAME, Kind.TABLE, (Column("a", 0, SqlType(22)),), f"CREATE TABLE `{NAME}` (a int)", "")
    shown = metadata.ddl_diff([CatalogChange(ChangeKind.CREATED, None, table)]).value
    assert isinstance(shown, str)
    assert "\x1b" not in shown
    first, *_, last = shown.split("\n")
    assert first == last + "diff"
    assert last == "````"


def test_columns_with_zero_dates_are_listed_and_nothing_is_shown_without_any() -> None:
    outcome = IterationOutcome(
        1, True, Timestamp(1), *(1 for _ in range(6)), 0.0, None, zero_dates={"d.t": {"a": 2, "b": 1}}
    )
    (shown,) = zero_dates_metadata(outcome).values()
    rows = [("d.t", "a", 2), ("d.t", "b", 1)]
    assert [tuple(record.data.values()) for record in shown.records] == rows
    assert zero_dates_metadata(IterationOutcome(1, True, Timestamp(1), *(1 for _ in range(6)), 0.0, None)) == {}


def test_what_a_point_has_besides_tables_is_listed_and_nothing_without_any() -> None:
    left = Unreadable("sequence", "s", "it is of another account")
    (shown,) = definitions_metadata([Definitions("d", (View(NAME, "select 1"),), unreadable=(left,))]).values()
    view, sequence = (record.data for record in shown.records)
    assert (view["kind"], view["problem"]) == ("view", "")
    assert "\x1b" not in str(view)
    assert str(view["statement"]).endswith("AS select 1")
    assert sequence == {"kind": "sequence", "name": "s", "statement": "", "problem": "it is of another account"}
    assert definitions_metadata(()) == definitions_metadata([Definitions("d")]) == {}


def test_an_error_shows_no_control_characters() -> None:
    failure = as_failure(TableMissingInMirror(f"no {NAME}", subject=f"table {NAME}"))
    assert "\x1b" not in (failure.description or "")
    shown = failure.metadata["subject"]
    assert isinstance(shown, dg.TextMetadataValue)
    assert shown.value == "table a\\x1b[2J\\n```[x](javascript:y)"
