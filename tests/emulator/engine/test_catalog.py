import json
from pathlib import Path

import pytest

from emulator.engine.storage import Storage
from emulator.simulated_upstream import EngineBacking
from matrixone.upstream.column_types import decode_type


@pytest.mark.recordings
def test_a_catalog_row_of_each_type_equals_the_recorded_one(recordings: Path) -> None:
    """Types, seqnums, hidden columns, constraints and CREATE TABLE texts of the recordings `all_types` and `keys`."""
    checked = 0
    for scenario in ("all_types", "keys"):
        folder = recordings / scenario / "snapshot-001"
        texts = {row[2]: row[3] for row in json.loads((folder / "ddl.json").read_text())["rows"]}
        columns = json.loads((folder / "mo_columns.json").read_text())
        for table_id, text in texts.items():
            if "FULLTEXT" in text or "AUTO_INCREMENT" in text:
                continue
            storage = Storage()
            database, name = text.split("`")[1], text.split("`")[3]
            storage.create_database(database)
            _create(storage, database, name, text)
            catalog = EngineBacking(storage).catalog("sys")
            assert catalog.ddl.rows[0][3] == text.encode()
            compared = (
                "attname",
                "attnum",
                "att_length",
                "attnotnull",
                "att_constraint_type",
                "att_is_hidden",
                "attr_seqnum",
                "attr_enum",
            )
            position = {column: columns["columns"].index(column) for column in (*compared, "atttyp", "att_relname_id")}
            theirs = [row for row in columns["rows"] if row[position["att_relname_id"]] == table_id]
            ours = catalog.mo_columns
            assert len(ours.rows) == len(theirs)
            for row, expected in zip(ours.rows, theirs, strict=True):
                for column in compared:
                    cell = row[ours.position(column)]
                    assert (cell.decode() if isinstance(cell, bytes) else cell) == expected[position[column]], (
                        name,
                        row,
                        column,
                    )
                raw = expected[position["atttyp"]]
                raw = bytes.fromhex(raw["hex"]) if isinstance(raw, dict) else raw.encode()
                cell = row[ours.position("atttyp")]
                assert isinstance(cell, bytes)
                assert cell == raw, (name, row, decode_type(cell, name), decode_type(raw, name))
                checked += 1
    assert checked > 100


def _create(storage: Storage, database: str, name: str, text: str) -> None:
    """Read back the text of get_ddl, line by line."""
    columns: dict[str, str] = {}
    keys: list[str] = []
    for line in text.splitlines()[1:-1]:
        line = line.strip().rstrip(",")
        if line.startswith("PRIMARY KEY"):
            keys = line.split("`")[1::2]
        else:
            column, rest = line.split("`")[1], line.split("`", 2)[2]
            columns[column] = (
                rest.replace(" DEFAULT NULL", "").removesuffix(" NULL") if "NOT NULL" not in rest else rest
            )
    cluster = text.splitlines()[-1].partition("CLUSTER BY")[2].split("`")[1::2]
    storage.create_table(database, name, columns, primary_key=keys, cluster_by=cluster)


def test_of_the_publications_those_that_are_asked_for_are_shown_or_all() -> None:
    storage = Storage()
    for name in ("a", "b"):
        storage.create_database(name)
        storage.create_publication(f"pub_{name}", name)
    backing = EngineBacking(storage)
    assert [found.name for _, found in backing.publications()] == ["pub_a", "pub_b"]
    assert [found.name for _, found in backing.publications(["PUB_B", "another"])] == ["pub_b"]
