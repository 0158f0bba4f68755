"""How much memory `ccpr run` takes for an object of 250 MB in the upstream's chunks of 100 MiB. `--json` prints the
figures as one JSON object.

The object is generated (rows of incompressible bytes) and served by the emulator in another process; `ccpr run` copies
it, `ccpr export` reads it back, and every value is compared. The last line is `memory_mb=<peak of ccpr run>
idle_mb=<its modules> mb_s=… seconds=… rows_equal=…`.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[0] = __file__.rpartition("/")[0] + "/.."

import numpy as np
import pyarrow.parquet as pq

from tests.matrixone.objects.building import column_entry, object_file, stats_bytes, varlena_entry

LARGE, BLOCKS, VALUE_BYTES = 250, 8, 8000  # the object's size in MB
AT = 1_795_000_000_000_000_000
BIGINT, BLOB = "0017000000000000000000100000008000000001", "0046000100000000000000300000000000000000"

# Runs `ccpr run` and prints two peaks of its memory since it started, in kB (VmHWM): after loading its modules, and at
# its end.
RUN = """
import atexit, re, sys
def memory(): return re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
import pandera.polars, ccpr.pipeline.iteration
from ccpr.cli.main import main
idle = memory()
atexit.register(lambda: print(idle, memory()))
sys.argv = ["ccpr", "run", "big", "--engine", "process"]
main()
"""
TABLE = {
    "rel_id": 7,
    "relname": "t",
    "reldatabase": "big",
    "relkind": "r",
    "rel_comment": "",
    "partitioned": 0,
    "rel_logical_id": 7,
}
ROWS_OF_THE_CATALOG: dict[str, dict[str, Any]] = {
    "snapshot_ts": {"snapshotts": AT},
    "databases": {"datname": "big"},
    "ddl": {
        "dbname": "big",
        "tablename": "t",
        "tableid": 7,
        "tablesql": "CREATE TABLE `big`.`t` (`id` bigint, `payload` blob)",
    },
    "mo_database": {"dat_id": 6, "datname": "big", "account_id": 0, "dat_type": ""},
    "mo_tables": TABLE | {"account_id": 0, "reldatabase_id": 6},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--mb", type=int, default=LARGE, help="of the object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        folder = Path(scratch)
        size, digest = one_large_object(folder / "recording", arguments.mb)
        environment = os.environ | {"CCPR_HOME": str(folder / "home"), "UPSTREAM_PASSWORD": "111"}
        emulator = subprocess.Popen(
            ccpr_words("emulator", "--recording", str(folder / "recording")), stdout=subprocess.PIPE, text=True
        )
        try:
            assert emulator.stdout is not None
            found = re.search(r"127\.0\.0\.1:(\d+)", emulator.stdout.readline())
            assert found, "the emulator did not start"
            source = f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{found[1]}"
            subscribe = ccpr_words("subscribe", "big", "--from", source, "--publication", "pub", "--database", "big")
            subprocess.run(subscribe, env=environment, check=True, stdout=subprocess.DEVNULL)
            started = time.perf_counter()
            run = subprocess.run(
                [sys.executable, "-c", RUN], env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
            seconds = time.perf_counter() - started
            idle, peak = (int(number) / 1000 for number in run.stdout.split()[-2:])
        finally:
            emulator.terminate()
            emulator.wait()
        out = folder / "big.parquet"
        subprocess.run(
            ccpr_words("export", "big", "big.t", "--out", str(out)),
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        equal = _digest_of(out) == digest
    figures = {
        "memory_mb": peak,
        "idle_mb": idle,
        "mb_s": size / seconds / 1e6,
        "seconds": seconds,
        "bytes": size,
        "rows_equal": equal,
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"an object of {size / 1e6:.0f} MB in {-(-size // (100 << 20))} chunks")
    print(
        f"memory_mb={peak:.0f} idle_mb={idle:.0f} mb_s={figures['mb_s']:.0f} seconds={seconds:.1f} rows_equal={equal}"
    )


def ccpr_words(*words: str) -> list[str]:
    return [sys.executable, "-m", "ccpr.cli", *words]


def rows_of(megabytes: int) -> int:
    """How many rows an object of such a size has."""
    return BLOCKS * ((megabytes << 20) // (BLOCKS * VALUE_BYTES))


def one_large_object(folder: Path, megabytes: int = LARGE) -> tuple[int, str]:
    """One table (id bigint, payload blob) with one large object; its size and the digest of its payloads in order."""
    rng, digest, blocks, rows = np.random.default_rng(1), hashlib.sha256(), [], rows_of(megabytes) // BLOCKS
    for block in range(BLOCKS):
        values = [rng.bytes(VALUE_BYTES) for _ in range(rows)]
        for value in values:
            digest.update(value)
        ids = np.arange(block * rows, (block + 1) * rows, dtype="<i8").tobytes()
        blocks.append((rows, {0: (23, column_entry(23, ids, rows)), 1: (70, varlena_entry(70, values))}))
    file = object_file(blocks)
    stats = stats_bytes(file, rows=BLOCKS * rows, blocks=BLOCKS)
    (folder / "objects").mkdir(parents=True)
    (folder / "objects" / stats[18:60].decode()).write_bytes(file)
    about = {
        "name": "big",
        "level": "database",
        "database": "big",
        "table": None,
        "snapshots": 1,
        "publisher": "sys",
        "account_id": 0,
    }
    (folder / "about.json").write_text(json.dumps(about))
    (folder / "scenario.sql").write_text("create publication pub database big account all;\n-- snapshot 1;\n")
    snapshot = folder / "snapshot-001"
    snapshot.mkdir()
    (snapshot / "indexes.json").write_text("{}")
    for name, row in ROWS_OF_THE_CATALOG.items():
        _answer(snapshot, name, [row])
    column = {"att_relname_id": 7, "att_relname": "t", "att_database": "big", "account_id": 0}
    column |= {"attr_enum": "", "att_default": ""}
    column |= dict.fromkeys(("attnotnull", "attisdropped", "att_is_hidden"), 0)
    kinds = enumerate((("id", BIGINT), ("payload", BLOB)))
    columns = [
        column | {"attname": name, "atttyp": {"hex": kind}, "attnum": seq + 1, "attr_seqnum": seq}
        for seq, (name, kind) in kinds
    ]
    _answer(snapshot, "mo_columns", columns)
    listed = {"db name": "big", "table name": "t", "stats": {"hex": stats.hex()}}
    _answer(snapshot, "object_list", [listed | {"create_at": f"{AT - 1}-0", "delete_at": "0-0", "is_tombstone": 0}])
    return len(file), digest.hexdigest()


def _answer(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Write an answer as recordings have it."""
    columns = list(rows[0])
    types = [8 if isinstance(rows[0][column], int) else 253 for column in columns]
    value = {"columns": columns, "mysql_types": types, "rows": [[row[column] for column in columns] for row in rows]}
    if name == "snapshot_ts":
        value["statement"] = "__++__internal_get_snapshot_ts s sys pub"
    (folder / f"{name}.json").write_text(json.dumps(value))


def _digest_of(file: Path) -> str:
    digest = hashlib.sha256()
    for batch in pq.ParquetFile(file).iter_batches(1024, columns=["payload"]):
        for value in batch.column("payload"):
            digest.update(value.as_py())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
