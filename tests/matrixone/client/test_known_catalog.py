"""Checksums of catalogs as a recorded upstream computes them: over the very rows that it gives."""

from collections.abc import Callable
from typing import Any

import pytest

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.errors import StatementUnknown
from ccpr.matrixone.client.table_catalog import read_catalog
from ccpr.matrixone.client.upstream_snapshots import create_snapshot, snapshot_timestamp
from ccpr.matrixone.schema import Kind
from ccpr.matrixone.server.mo_catalog import checksum_of
from ccpr.pipeline.known_catalog import catalog_checksum, read_names

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("scenario", ["dml", "ddl", "keys"])
def test_a_checksum_is_of_the_rows_that_would_be_read_and_names_are_those_of_the_catalog(
    play: Callable[..., Any], scenario: str
) -> None:
    upstream = play(scenario)
    session, publication, database = upstream.connect(), upstream.publication, upstream.database
    seen = []
    for name in ("xr_1", "xr_2"):
        create_snapshot(session, name, publication, database)
        at = snapshot_timestamp(session, name, publication)
        found = catalog_checksum(session, publication, database, at)
        parts = []
        for columns, statement in (
            (upstream_sql.SUMMED_TABLE_COLUMNS, upstream_sql.select_tables(0, database, at.physical)),
            (upstream_sql.SUMMED_COLUMN_COLUMNS, upstream_sql.select_columns(0, database, at.physical)),
        ):
            names = ", ".join(map(upstream_sql.identifier, columns))
            rows = session.query(f"SELECT {names} {statement[statement.index('FROM') :]}").rows
            parts.append(f"{len(rows)}:{checksum_of(rows, range(len(columns))).hex()}")
        assert found == " ".join(parts)
        catalog, named = (
            read_catalog(session, publication, database, name, at),
            read_names(session, publication, database, at),
        )
        assert [(table.id, table.name, table.kind) for table in named.tables] == [
            (table.id, table.name, table.kind) for table in catalog.tables
        ]
        assert (named.database_id, named.unreplicated) == (catalog.database_id, catalog.unreplicated)
        assert any(table.kind is Kind.TABLE for table in named.tables)
        seen.append((found, catalog.tables))
    assert (seen[0][0] == seen[1][0]) is (seen[0][1] == seen[1][1])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BIT_XOR", "BIT_AND"),
        ("AS BINARY(16)", "AS BINARY(8)"),
        ("CONCAT_WS(','", "CONCAT_WS(';'"),
        ("LENGTH(`rel_id`), -1), `rel_id`", "LENGTH(`rel_id`), -1), `relname`"),
        ("COALESCE(LENGTH(`rel_id`), -1)", "COALESCE(LENGTH(`rel_id`), -2)"),
    ],
)
def test_another_expression_is_refused_and_not_answered_with_this_one(
    play: Callable[..., Any], old: str, new: str
) -> None:
    statement = upstream_sql.checksum_tables(0, "gd_dml", 1)
    assert old in statement
    with pytest.raises(StatementUnknown):
        play("dml").connect().query(statement.replace(old, new, 1))
