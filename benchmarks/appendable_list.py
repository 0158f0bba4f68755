"""What the list of appendable objects costs that an iteration reads besides the difference (decision
created-before-its-rows): seconds and bytes by the number of the database's objects. `--json` prints one JSON object.

The upstream is the simulated one, whose list is made up here: N merged objects of one table and 3 appendable ones.
`difference` is an empty difference; `appendable` and `full` read the same answer, and keep 3 rows or all; `second`
takes a second snapshot, reads what was flushed between the two, and drops it.
"""

import argparse
import json
import struct
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

sys.path[0] = __file__.rpartition("/")[0] + "/.."

from ccpr.matrixone.client import upstream_snapshots
from ccpr.matrixone.client.endpoint import Endpoint, parse_uri
from ccpr.matrixone.client.object_answers import object_list
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.table_catalog import table_ids
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.objects.stats import STATS_SIZE
from ccpr.matrixone.server.answers import Cell
from ccpr.mirror.object_rows import LISTED_SCHEMA
from ccpr.pipeline.appendable import SHORT_LIST, FullList, LaterSnapshot
from ccpr.pipeline.object_list import NamedSequences, read_list
from ccpr.state.credentials import Vault
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import EngineBacking, SimulatedUpstream

OBJECTS, APPENDABLE = (1_000, 10_000, 100_000, 1_000_000), 3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--objects", type=int, nargs="+", default=OBJECTS)
    arguments = parser.parse_args()
    figures = {count: _measure(count) for count in arguments.objects}
    if arguments.json:
        print(json.dumps(figures))
        return
    for count, found in figures.items():
        print(f"{count:>9} objects", " ".join(f"{name}={value}" for name, value in found.items()))


def _measure(count: int) -> dict[str, float]:
    storage = Storage()
    storage.create_database("d")
    storage.create_table("d", "t", {"id": "bigint"}, primary_key=["id"])
    storage.create_publication("p", "d")
    for name in ("base", "now"):
        storage.create_snapshot(name, "database", "d")
    rows = [_row(number, appendable=number < APPENDABLE) for number in range(count)]
    flushed = [(*row[:4], "9000000000000000000-1", row[5]) for row in rows[:APPENDABLE]]
    between = {"base": [], "now": flushed}
    EngineBacking.object_list = lambda self, account, target, base: between[base.name] if base else rows  # pyright: ignore[reportAttributeAccessIssue]
    with SimulatedUpstream(storage) as emulator:
        endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{emulator.port}")
        with Session(endpoint, "111") as session:
            list_bytes = sum(len(cell) for row in rows for cell in row if isinstance(cell, bytes | str))
            return {
                "list_mb": round(list_bytes / 1e6, 1),
                "difference_ms": _read(session, "base"),
                "appendable_ms": _read(session, None, appendable=True),
                "full_ms": _read(session, None),
                "second_ms": _read_second(session, endpoint),
            }


def _read(session: Session, against: str | None, *, appendable: bool = False) -> float:
    started = time.perf_counter()
    batches = object_list(session, "now", Publication("p", "sys", 0), against=against)
    found: pa.Table = read_list(batches, {"d": {"t": 1}}, "benchmark", appendable=appendable)
    assert not appendable or found.num_rows == APPENDABLE
    return round(1000 * (time.perf_counter() - started), 1)


def _read_second(session: Session, endpoint: Endpoint) -> float:
    publication = Publication("p", "sys", 0)
    ref = SnapshotRef("now", 1, 0, upstream_snapshots.snapshot_timestamp(session, "now", publication).physical)
    with tempfile.TemporaryDirectory() as folder:
        vault = Vault(Path(folder) / "key")
        subscription = Subscription.new("b", endpoint, "111", vault, publication, "d", None, Settings())

    def later(database: str) -> SnapshotRef:
        for name in ("committed", "later"):
            upstream_snapshots.create_snapshot(session, name, publication, database)
        return SnapshotRef("later", 1, 0, upstream_snapshots.snapshot_timestamp(session, "later", publication).physical)

    temporary: Any = SimpleNamespace(session=session, subscription=subscription, later=later)
    started = time.perf_counter()
    (table_id,) = table_ids(session, publication, "d", ref.at).values()
    nothing, long_list = LISTED_SCHEMA.empty_table(), FullList(rows=SHORT_LIST + 1)
    snapshot = LaterSnapshot(temporary, long_list, NamedSequences(frozenset()))
    found = snapshot.with_appendable(nothing, ref, "d", {table_id}, "benchmark", _not_read)
    for name in ("committed", "later"):
        upstream_snapshots.drop_snapshot(session, name, publication)
    assert found.num_rows == APPENDABLE
    return round(1000 * (time.perf_counter() - started), 1)


def _not_read() -> pa.Table:
    raise AssertionError("the second snapshot takes the place of the full list")


def _row(number: int, *, appendable: bool) -> Sequence[Cell]:
    id_ = uuid.UUID(int=number << 64)
    stats = id_.bytes + bytes(2) + f"{id_}_00000".encode() + struct.pack("<BIIIII", 1, 1000, 100, 200, 8192, 1)
    stats += bytes(64) + struct.pack("<IIB", 1164, 5000, appendable)
    assert len(stats) == STATS_SIZE
    return "d", "t", stats, "1780000000000000000-1", "0-0", 0


if __name__ == "__main__":
    main()
