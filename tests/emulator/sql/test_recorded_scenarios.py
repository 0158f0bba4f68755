"""The scenarios of recordings, executed on a simulated upstream: the rows are those that a real one had."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.recordings_location import SAMPLE, recordings_folder
from tests.support.wire_client import Client, Connect

pytestmark = pytest.mark.integration

# What cannot be executed, or gives other rows, and why (docs/reference/emulator.md, "Scenarios of recordings").
_MERGES = r"select mo_ctl\('cn','mergeobjects'"  # merges by a compute node are started by Storage.merge
_EXCEPTIONS = {"dml": _MERGES}
# MatrixOne did not delete the rows of `delete from comp2 where k3=1`, of a BOOL in a composite key.
_OTHER_ROWS = {("keys", "gd_keys.comp2")}
_NAMES = ["all_types", "cut_inside_object", "ddl", "dml", "keys", "other_account", "partitioned", "table_level"]


def statements(text: str) -> list[str]:
    """One statement ends at the end of a line."""
    return [one.strip().removesuffix(";") for one in re.split(r"(?<=;)\n", text) if one.strip()]


@pytest.mark.recordings
@pytest.mark.parametrize("name", _NAMES)
def test_a_scenario_gives_the_recorded_rows(name: str, connect: Connect) -> None:
    recordings = recordings_folder()
    if recordings is None or not (folder := recordings / name).is_dir():
        pytest.skip(f"there is no recording {name}")
    if recordings.resolve() == SAMPLE:
        pytest.skip("the scenarios of the sample are shortened: they show what was done, and cannot be played")
    storage = Storage()
    if name == "other_account":
        storage.create_account("acc1")
    with SimulatedUpstream(storage) as emulator:
        client = connect(emulator.port, user="acc1:root" if name == "other_account" else "root")
        for text in statements((folder / "scenario.sql").read_text()):
            found = re.fullmatch(r"-- snapshot (\d+)", text)
            if found is None:
                execute(client, text, _EXCEPTIONS.get(name))
            else:
                compare(client, name, folder / f"snapshot-{int(found[1]):03}")


def execute(client: Client, text: str, refused: str | None) -> None:
    if refused is not None and re.match(refused, text):
        client.error(text)
    else:
        client.rows(text)


def compare(client: Client, name: str, snapshot: Path) -> None:
    for file in sorted((snapshot / "expected").glob("*.parquet")):
        if (name, file.stem) in _OTHER_ROWS:
            continue
        database, _, table = file.stem.partition(".")
        expected: Any = pq.read_table(file)
        rows = Counter(zip(*(column.to_pylist() for column in expected.columns), strict=True))
        assert Counter(client.rows(f"select * from `{database}`.`{table}`")) == rows, file
