import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ccpr.matrixone.client.catalog_cells import decode_type
from ccpr_emulator.engine.entries import SUBSCRIPTION
from ccpr_emulator.engine.partitioning import Part, Partitioning
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import EngineBacking


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


IN_PLACE: dict[str, Callable[[Storage], object]] = {
    "rename": lambda storage: storage.rename_table("d", "t", "t2"),
    "comment": lambda storage: storage.comment_table("d", "t", "new"),
    "add column": lambda storage: storage.add_column("d", "t", "x", "int", in_place=True),
    "drop column": lambda storage: storage.drop_column("d", "t", "v", in_place=True),
    "rename column": lambda storage: storage.rename_column("d", "t", "v", "w"),
    "widen column": lambda storage: storage.modify_column("d", "t", "v", "varchar(20)"),
    "create index": lambda storage: storage.create_index("d", "t", "i", ["v"]),
    "drop index": lambda storage: storage.drop_index("d", "t", "known"),
    "default": lambda storage: storage.redefine("d", "t", lambda old: replace(old, attributes={})),
    "add partition": lambda storage: storage.add_partitions("d", "p", [Part("b", (20,))]),
    "truncate partition": lambda storage: storage.truncate_partitions("d", "p", ["a"]),
}


@pytest.mark.parametrize("change", IN_PLACE)
def test_each_change_in_place_raises_the_version_of_its_table_alone(change: str) -> None:
    storage = Storage()
    storage.create_database("d")
    columns = {"id": "int", "v": "varchar(9)", "k": "varchar(9)"}
    storage.create_table("d", "t", columns, primary_key=["id"], indexes={"known": ["k"]})
    storage.create_table("d", "p", {"n": "int"}, partitioning=Partitioning("range", "n", (Part("a", (10,)),)))
    before = _versions(storage)
    IN_PLACE[change](storage)
    after = _versions(storage)
    found = storage.table("d", "p" if "partition" in change else "t2" if change == "rename" else "t")
    assert after[found.id] > before[found.id]
    parts = {part.id for part in found.partitions.values()}
    others = before.keys() & after.keys() - parts - {found.id}
    assert others
    assert all(after[number] == before[number] for number in others)
    with storage.begin() as transaction:
        transaction.insert("d", "p", {"n": [1]})
    storage.flush("d", "p")
    assert _versions(storage) == after


def _versions(storage: Storage) -> dict[int, int]:
    """By id."""
    rows = EngineBacking(storage).catalog("sys").mo_tables
    return {row[rows.position("rel_id")]: row[rows.position("rel_version")] for row in rows.rows}


def test_a_database_from_a_publication_is_said_to_be_a_subscription() -> None:
    storage = Storage()
    storage.create_database("own")
    storage.create_database("theirs", kind=SUBSCRIPTION)
    rows = EngineBacking(storage).catalog("sys").mo_database
    assert [(row[1], row[rows.position("dat_type")]) for row in rows.rows] == [
        (b"own", b""),
        (b"theirs", b"subscription"),
    ]
