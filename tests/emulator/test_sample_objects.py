"""The sample objects contain the rows, columns and stats of the Parquet and JSON files in their folders."""

import json
import struct
import uuid
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.reader import NEVER
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.schema import Column
from tests.emulator import crude_reader
from tests.support.recorded import opened
from tests.support.sample_objects import FIRST_COMMIT, samples, write_samples


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("samples")
    write_samples(made)
    return made


def test_every_sample_reads_as_its_rows(folder: Path) -> None:
    kinds = set()
    for sample in sorted(path for path in folder.iterdir() if path.is_dir()):
        about = json.loads((sample / "about.json").read_text())
        rows = pq.read_table(sample / "rows.parquet")
        stats = ObjectStats.parse(bytes.fromhex(about["stats"]))
        file = opened(sample / about["object"])
        file.check(stats, inflate=True, deep=True)
        columns = [Column.from_json(column) for column in about["columns"]]
        for column in columns:
            found = pa.chunked_array([file.column(block.number, column) for block in file.blocks])
            if column.type.oid == types.JSON:
                found = pa.chunked_array(
                    [[None if text is None else json.dumps(json.loads(text)) for text in found.to_pylist()]]
                )
                expected = [
                    None if text is None else json.dumps(json.loads(text)) for text in rows[column.name].to_pylist()
                ]
                assert found.to_pylist() == expected
            else:
                assert found.equals(rows[column.name]), (sample.name, column.name)
        times = [file.commit_timestamps(block.number) for block in file.blocks]
        if times[0] is not None:
            whole = np.concatenate([block for block in times if block is not None])
            aborted = [file.aborted(block.number) for block in file.blocks]
            if "aborted" in rows.column_names:
                flags = np.concatenate([block for block in aborted if block is not None])
                assert flags.tolist() == rows["aborted"].to_pylist()
                assert whole["physical"][flags].tolist() == [NEVER] * int(flags.sum())
                rows, whole = rows.filter(pc.invert(rows["aborted"])), whole[~flags]
            else:
                assert aborted == [None] * len(file.blocks)
            assert whole["physical"].tolist() == rows["commit_physical"].to_pylist()
            assert whole["logical"].tolist() == rows["commit_logical"].to_pylist()
        assert (stats.rows, stats.blocks, stats.size) == (about["rows"], about["blocks"], about["size"])
        assert (about["create_at"] < f"{FIRST_COMMIT}-0") == (sample.name == "data-created-early")
        kinds.add(
            (
                about["kind"].split(",")[0],
                stats.appendable,
                stats.sorted,
                stats.created_by_cn,
                times[0] is not None,
                stats.blocks > 1,
                file.has_abort_column,
            )
        )
    for kind in (
        ("data", True, False, False, True, False, False),
        ("data", True, False, False, True, False, True),
        ("data", False, True, False, True, False, False),
        ("data", False, True, False, True, True, False),
        ("data", False, True, True, False, False, False),
        ("data", False, True, False, False, False, False),
        ("data", False, False, False, True, False, False),
        ("tombstones", True, True, False, True, False, False),
        ("tombstones", True, True, False, True, False, True),
        ("tombstones", False, True, False, True, True, False),
        ("tombstones", False, True, False, True, True, True),
        ("tombstones", False, True, True, False, False, False),
    ):
        assert kind in kinds


def test_there_is_a_sample_of_every_type(folder: Path) -> None:
    found = set()
    for about in folder.glob("type-*/about.json"):
        (_, column) = json.loads(about.read_text())["columns"]
        found.add(column["type"][0])
    assert found == set(types.SLOT_SIZES) - {types.TS, types.ROWID, types.BLOCK_ID}, (
        "these three are no types of a user's column"
    )


def _samples() -> list[str]:
    return [sample.label for sample in samples()]


@pytest.mark.parametrize("label", _samples())
def test_an_independent_reader_finds_the_same(folder: Path, label: str) -> None:
    """Header, extents, stats, values, null counts and zone maps, by `crude_reader`, which shares no code with ours."""
    about = json.loads((folder / label / "about.json").read_text())
    content = (folder / label / about["object"]).read_bytes()
    found = crude_reader.read(content)
    rows = pq.read_table(folder / label / "rows.parquet")

    stats = bytes.fromhex(about["stats"])
    segment, number = uuid.UUID(bytes=stats[:16]), int.from_bytes(stats[16:18], "little")
    assert stats[18:60].decode() == about["object"] == f"{segment}_{number:05}"
    assert stats[60:73] == content[10:23], "the extent of the metadata"
    counts = struct.unpack_from("<II", stats, 73)
    assert counts == (found.rows, len(found.blocks)) == (rows.num_rows, about["blocks"])
    assert struct.unpack_from("<I", stats, 145) == (len(content),) == (about["size"],)
    assert stats[153] == about["appendable"] | about["sorted"] << 1 | about["created_by_cn"] << 2 | about["level"] << 5
    assert found.appendable == about["appendable"]
    assert [block.rows for block in found.blocks[:-1]] == [8192] * (len(found.blocks) - 1)
    covered = sorted(set(found.covered))
    gaps = [(end, begin) for (_, end), (begin, _) in pairwise(covered) if end != begin]
    assert sum(begin - end for end, begin in gaps) == 16 + 9, "only the two empty areas of slot 1 are not read"

    for place, column in enumerate(about["columns"]):
        vectors = [block.vectors[column["seqnum"]] for block in found.blocks]
        assert {vector.oid for vector in vectors} == {column["type"][0]}
        if label == "data-zero-dates" and column["type"][0] in types.ZERO_DATE_TYPES:  # Python has no such day
            size = types.SLOT_SIZES[column["type"][0]]
            assert [vector.cells for vector in vectors] == [[None, bytes(size), b"\xff" * size]]
            continue
        expected = rows.column(place).to_pylist()
        labels = column["labels"]
        if column["hidden"] and column["type"][0] == types.VARCHAR:
            values = [cell for vector in vectors for cell in vector.cells]  # a packed key: bytes
        else:
            values = [crude_reader.value(vector, cell, labels) for vector in vectors for cell in vector.cells]
            if label.endswith("-wkb") and place:
                expected = [None if text is None else crude_reader.WKB_POINTS[column["type"][0]] for text in expected]
        if column["type"][0] == types.JSON:
            values, expected = [one is None for one in values], [one is None for one in expected]
        elif column["type"][0] == types.TIMESTAMP:
            expected = [None if one is None else one.replace(tzinfo=None) for one in expected]
        assert values == expected, column["name"]
        nulls = [sum(cell is None for cell in vector.cells) for vector in vectors]
        assert [block.nulls[column["seqnum"]] for block in found.blocks] == nulls
        for block, vector in zip(found.blocks, vectors, strict=True):
            _check_zone_map(block.zone_maps[column["seqnum"]], vector)
    flagged = "aborted" in rows.column_names
    place = found.meta_columns - 1 - flagged
    if flagged:
        cells = [cell for block in found.blocks for cell in block.vectors[place + 1].cells]
        assert [cell == b"\1" for cell in cells] == rows["aborted"].to_pylist()
        assert {block.vectors[place + 1].oid for block in found.blocks} == {types.BOOL}
    last = found.blocks[0].vectors.get(place)
    if "commit_physical" in rows.column_names:
        assert last is not None
        assert last.oid == types.TS
        cells = [cell for block in found.blocks for cell in block.vectors[place].cells]
        times = [struct.unpack("<Iq", cell) for cell in cells if cell is not None]
        assert times == list(zip(rows["commit_logical"].to_pylist(), rows["commit_physical"].to_pylist(), strict=True))
    else:
        assert last is None or last.oid != types.TS


def _check_zone_map(zone: bytes, vector: crude_reader.Vector) -> None:
    cells = [cell for cell in vector.cells if cell is not None]
    assert zone[63] == vector.oid
    known = bool(zone[62] & 0x80)
    if not cells or vector.oid in types.VECTOR_TYPES | {types.DECIMAL256}:
        assert not known
        return
    assert known
    low, high = zone[: zone[30] & 31], zone[31 : 31 + (zone[61] & 31)]
    if vector.oid in crude_reader.INTEGERS:
        form = crude_reader.INTEGERS[vector.oid]
        numbers = [struct.unpack(form, cell)[0] for cell in cells]
        assert (struct.unpack(form, low)[0], struct.unpack(form, high)[0]) == (min(numbers), max(numbers))
    elif vector.oid in (types.CHAR, types.VARCHAR, types.TEXT, types.BINARY, types.VARBINARY, types.BLOB):
        assert low == min(cells)[:30]
        assert zone[61] & 0x80 or high >= max(cells)[:30]


def test_the_readme_describes_every_key_and_type(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    assert "about.json" in text
    keys = {key for about in folder.glob("*/about.json") for key in json.loads(about.read_text())}
    keys |= {
        key
        for about in folder.glob("*/about.json")
        for column in json.loads(about.read_text())["columns"]
        for key in column
    }
    assert all(f"`{key}`" in text for key in keys), "each key is described"
    named = {
        column["type"][0]
        for about in folder.glob("*/about.json")
        for column in json.loads(about.read_text())["columns"]
    }
    assert all(f"| {oid} |" in text for oid in named), "each type number is described"
