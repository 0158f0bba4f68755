"""What an iteration over 10,000 tables costs, where all are new, 1 has changed, or none: upstream statements, files,
bytes, time and memory. `--json` prints the figures as one JSON object.

The upstream is the emulator with a generated recording: 10,000 tables, and only one has an object of a real recording,
and one more from the second snapshot on. Each iteration is a process of its own, as by the command line; `seconds` is
its time without that of imports, and `own_seconds` this time without what the emulator computed meanwhile. Then some
tables are read one by one through `ccpr.open_mirror`, which is opened once. The last line is `statements=<without
flushes> flushes=… files_read=… files_written=… bytes_read=… bytes_written=… seconds=<of the second iteration>
own_seconds=… memory_mb=<peak> idle_own_seconds=… idle_memory_mb=… read_ms=<a table>`.
"""

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[0] = __file__.rpartition("/")[0] + "/.."

from ccpr.cli.main import collect_late

if "--iterate" in sys.argv:
    collect_late()  # as the command line does, before it imports anything

from benchmarks.shared.counted_files import count_files, peak_mb
from ccpr.cli.output import start_arrow
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.service.workspace import Workspace
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription
from tests.support.driving import iterate
from tests.support.recordings_location import recordings_folder

if TYPE_CHECKING:
    from ccpr_emulator.recorded_upstream import RecordedUpstream

TABLES, SOURCE, TABLE = 10_000, "dml", "acc"
READ = 200  # tables, one by one
NAME = "many"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--iterate", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.iterate:
        start_arrow()
        print(json.dumps(_iterated()))
        return
    from ccpr_emulator.recorded_upstream import RecordedUpstream  # not where the memory of an iteration is measured

    folder = recordings_folder()
    if folder is None:
        raise SystemExit("no recordings: set CCPR_RECORDINGS")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        recording = _recording(folder / SOURCE, Path(scratch) / NAME, arguments.tables)
        os.environ["CCPR_HOME"] = f"{scratch}/home"
        with RecordedUpstream(recording) as emulator:
            _subscribe(emulator)
            first, second, idle = (_iteration(emulator) for _ in range(3))
        read_ms = _read_ms()
    if arguments.json:
        print(json.dumps({"first": first, "one_changed": second, "idle": idle, "read_ms": read_ms}))
        return
    for name, figures in (("all new", first), ("1 changed", second), ("idle", idle)):
        print(f"{name:<10}", _line(figures))
    idle_figures = {f"idle_{name}": idle[name] for name in ("own_seconds", "memory_mb")}
    print(_line(second | idle_figures | {"read_ms": read_ms}))


def _line(figures: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={value:.2f}" if isinstance(value, float) else f"{name}={value}" for name, value in figures.items()
    )


def _subscribe(emulator: "RecordedUpstream") -> None:
    workspace = Workspace()
    endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{emulator.port}")
    publication = Publication("pub", "sys", 0)
    subscription = Subscription.new(NAME, endpoint, "111", workspace.vault, publication, "gd_dml", None, Settings())
    workspace.log.insert(subscription.to_row(datetime.now(UTC)))


def _iteration(emulator: "RecordedUpstream") -> dict[str, Any]:
    """One iteration, in a process of its own."""
    gc.collect()
    before, busy = Counter(emulator.status().statements), time.process_time()
    ran = subprocess.run([sys.executable, __file__, "--iterate"], check=True, capture_output=True, text=True)
    busy = time.process_time() - busy
    statements = Counter(emulator.status().statements) - before
    flushes = sum(count for kind, count in statements.items() if kind.startswith("mo_ctl"))
    found = json.loads(ran.stdout.splitlines()[-1])
    return {
        "tables_changed": found.pop("tables_changed"),
        "statements": sum(statements.values()) - flushes,
        "flushes": flushes,
        **found,
        "own_seconds": found["seconds"] - busy,
        "memory_mb": found.pop("memory_mb"),
    }


def _iterated() -> dict[str, Any]:
    """What an iteration took here, and the files that it read and wrote."""
    workspace, files = Workspace(), count_files()
    started = time.perf_counter()
    outcome = iterate(workspace, NAME)
    seconds = time.perf_counter() - started
    return {"tables_changed": outcome.tables_changed, **files, "seconds": seconds, "memory_mb": peak_mb()}


def _read_ms() -> float:
    """Milliseconds that a table takes, of those that are read first and are as good as empty."""
    import ccpr  # not where the memory of an iteration is measured

    started = time.perf_counter()
    mirror = ccpr.open_mirror(Workspace().mirror(NAME).store.url)
    names = mirror.point().tables[:READ]
    for name in names:
        mirror.table(name).to_arrow()
    return (time.perf_counter() - started) / len(names) * 1000


def _recording(source: Path, target: Path, tables: int) -> Path:
    """The first two snapshots of a recording, with many empty tables added to its one table."""
    shutil.copytree(source, target)
    for folder in sorted(target.glob("snapshot-*"))[2:]:
        shutil.rmtree(folder)
    about = json.loads((target / "about.json").read_text())
    (target / "about.json").write_text(json.dumps(about | {"name": "many", "snapshots": 2}))
    for folder in target.glob("snapshot-*"):
        shutil.rmtree(folder / "expected", ignore_errors=True)
        _multiply(folder / "mo_tables.json", tables, {"rel_id": 0, "rel_logical_id": 0, "relname": TABLE})
        _multiply(folder / "mo_columns.json", tables, {"att_relname_id": 0, "att_relname": TABLE, "att_uniq_name": ""})
        _multiply(folder / "ddl.json", tables, {"tableid": 0, "tablename": TABLE})
    return target


def _multiply(file: Path, tables: int, keys: dict[str, Any]) -> None:
    """Add rows like those of the file for further tables; `keys` names the columns that hold a table's id (0) or its
    name (any other value)."""
    answer = json.loads(file.read_text())
    places = {answer["columns"].index(column): kind for column, kind in keys.items()}
    more = []
    for number in range(1, tables):
        for row in answer["rows"]:
            changed = list(row)
            for place, kind in places.items():
                changed[place] = (
                    10_000_000 + number if kind == 0 else f"{TABLE}_{number:05}" + ("" if kind else f"-{row[place]}")
                )
            more.append(changed)
    answer["rows"] += more
    file.write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
