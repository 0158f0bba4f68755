"""`make demo`: a recorded MatrixOne database is replicated through five iterations over the wire, and compared with
the source each time.

It types the commands that a person would type; the last iteration is a run of the Dagster assets. At the end Spark
reads the table at two points. Everything it makes lies in demo-run/, which is made anew each time.
"""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from rich.console import Console
from rich.table import Table

from ccpr_cli.output import counted, size_text
from replication.mirror.local_store import LocalStore
from replication.mirror.mirror import Mirror
from tests.support.expected import assert_rows_equal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "demo-run"
HOME = FOLDER / ".ccpr"
RECORDING = ROOT / "tests" / "recordings" / "dml"
DATABASE, TABLE, NAME = "gd_dml", "gd_dml.acc", "bank"
MIRROR = HOME / "mirrors" / NAME
PASSWORD_VARIABLE = "UPSTREAM_PASSWORD"
HAPPENED = (
    "50,000 rows were there",
    "600 rows inserted",
    "4,600 rows updated",
    "5,155 rows deleted",
    "objects merged, no row changed",
)
CCPR = Path(sys.executable).with_name("ccpr")

out = Console(highlight=False)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the emulator is ended, too
    started = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    prepare_environment()
    out.rule("[bold]Replicating a MatrixOne database from the outside")
    out.print(f"A MatrixOne is played from a recording; all that is made lies in {FOLDER.relative_to(ROOT)}/.\n")
    with emulator() as port:
        subscribe(port)
        outcomes = [iterate(number) for number in range(1, len(HAPPENED) + 1)]
    show(outcomes)
    read_with_spark(before=2, after=5)
    out.print(f"\n[bold green]Done[/] in {time.monotonic() - started:.0f} s. What you can do now:")
    for command, what in (
        (
            "make ui",
            "the five assets of the last iteration in Dagster's UI: open http://127.0.0.1:3000 (PORT= for another port)",
        ),
        (f"CCPR_HOME={HOME.relative_to(ROOT)} .venv/bin/ccpr points {NAME}", "the points that can be read"),
        (
            f"CCPR_HOME={HOME.relative_to(ROOT)} .venv/bin/ccpr export {NAME} {TABLE} --at 1 --out acc.parquet",
            "a table as it was",
        ),
    ):
        out.print(f"  [bold]{command}[/]\n      [dim]{what}[/]", soft_wrap=True)


def prepare_environment() -> None:
    """A state folder and a Dagster of the demo's own."""
    dagster_home = HOME / "dagster"
    dagster_home.mkdir(parents=True)
    shutil.copy(ROOT / "dagster.yaml", dagster_home)
    os.environ |= {"CCPR_HOME": str(HOME), "DAGSTER_HOME": str(dagster_home), PASSWORD_VARIABLE: "any"}
    os.environ.pop("CCPR_CATALOG", None)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING)
    )  # the steps stand in Dagster's events


@contextmanager
def emulator() -> Iterator[int]:
    """The port of an emulator that plays the recording, in a process of its own."""
    words = ["emulator", "--recording", str(RECORDING.relative_to(ROOT))]
    told(words)
    process = subprocess.Popen([CCPR, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening"):
            raise SystemExit("the emulator did not start")
        out.print(f"  {line.strip()}")
        yield int(line.rpartition(":")[2])
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def subscribe(port: int) -> None:
    source = f"mysql://sys#dump:env:{PASSWORD_VARIABLE}@127.0.0.1:{port}"
    ccpr("subscribe", NAME, "--from", source, "--publication", "pub_dml", "--database", DATABASE)


def iterate(number: int) -> dict:
    """One iteration, then the comparison of every row with what the upstream had. The last one is run by Dagster."""
    out.print(f"\n[bold]{number}. upstream: {HAPPENED[number - 1]}[/]")
    outcome = ccpr("run", NAME) if number < len(HAPPENED) else materialize()
    copied, whole = outcome["bytes_copied"], outcome["bytes_total"]
    out.print(
        f"  copied {size_text(copied)} in {counted(outcome['objects_copied'], 'object')}; the replica is {size_text(whole)}"
    )
    replica = read_replica()
    assert_rows_equal(replica, expected(number))
    out.print(f"  [green]✓[/] {replica.num_rows:,} rows, each equal to the source's")
    return outcome | {"rows": replica.num_rows}


def read_replica() -> pa.Table:
    """The table at the newest point, as `ccpr export` reads it."""
    mirror = Mirror(LocalStore(MIRROR))
    schema, batches = mirror.read(mirror.point(), TABLE)
    return pa.Table.from_batches(batches, schema)


def materialize() -> dict:
    """A run of the five assets, as the sensor or the button in the UI starts it."""
    warnings.simplefilter("ignore")  # Dagster's notices about its own interfaces
    import dagster as dg

    from ccpr_assets.partitions import sync_partitions
    from ccpr_dagster.definitions import defs
    from replication.service.workspace import Workspace

    with dg.DagsterInstance.get() as instance:
        workspace = Workspace()
        sync_partitions(instance, workspace)
        workspace.close()
        start_spark()
        out.print(
            f"  [dim]Dagster: materialize upstream_snapshots … applied_tables of partition[/] {NAME}", soft_wrap=True
        )
        try:
            result = defs.resolve_job_def("ccpr_sync_job").execute_in_process(
                partition_key=NAME,
                instance=instance,
                run_config={"loggers": {"console": {"config": {"log_level": "ERROR"}}}},
                raise_on_error=False,
            )
        except dg.DagsterExecutionInterruptedError:
            raise KeyboardInterrupt from None
        if not result.success:
            raise SystemExit("the Dagster run failed")
        for event in result.get_asset_materialization_events():
            out.print(f"  [green]✓[/] {event.asset_key.to_user_string() if event.asset_key else event.node_name}")
        for check in result.get_asset_check_evaluations():
            out.print(f"  [green]✓[/] check {check.check_name} of {check.asset_key.to_user_string()}")
        shown = result.asset_materializations_for_node("applied_tables")[0].metadata
        return {name: shown[name].value for name in ("objects_copied", "bytes_copied", "objects_total", "bytes_total")}


def show(outcomes: list[dict]) -> None:
    table = Table(
        title="\nWhat each iteration copied", title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for column, justify in (
        ("upstream", "left"),
        ("copied", "right"),
        ("replica", "right"),
        ("share", "right"),
        ("rows", "right"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for happened, outcome in zip(HAPPENED, outcomes, strict=True):
        copied, whole = outcome["bytes_copied"], outcome["bytes_total"]
        table.add_row(happened, size_text(copied), size_text(whole), f"{copied / whole:.0%}", f"{outcome['rows']:,}")
    out.print(table)


def start_spark() -> "SparkSession":
    """The session of this process. An interruption waits until it is there: a JVM that is left alone while it starts
    would stay."""
    from replication.spark.session import settings_of, spark_session

    waiting: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: waiting.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with out.status("Spark starts"):
            spark = spark_session(settings_of(HOME))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in waiting:
        signal.raise_signal(number)
    return spark


def read_with_spark(before: int, after: int) -> None:
    """The table at two points, through the data source; both compared with what the upstream had then."""
    out.print("\n[bold]Spark reads the table at two points[/]")
    spark = start_spark()
    try:
        counts: list[dict[str, int]] = []
        for number in (before, after):
            at = number - 1
            out.print(
                f'  [dim]spark.read.format("matrixone").option("mirror", "{MIRROR.relative_to(ROOT)}").option("table", "{TABLE}")'
                f'.option("at", {at}).load()[/]',
                soft_wrap=True,
            )
            frame = (
                spark.read.format("matrixone")
                .option("mirror", str(MIRROR))
                .option("table", TABLE)
                .option("at", at)
                .load()
            )
            assert_rows_equal(frame.toArrow(), expected(number))
            counts.append({row["tag"]: row["count"] for row in frame.groupBy("tag").count().collect()})
    finally:
        spark.stop()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("rows by tag")
    for number in (before, after):
        table.add_column(f"at lsn {number - 1}", justify="right")
    for tag in sorted(counts[0] | counts[1]):
        table.add_row(tag, *(f"{count.get(tag, 0):,}" for count in counts))
    out.print(table)
    out.print("  [green]✓[/] both equal the source's rows at that time")


def expected(number: int) -> pa.Table:
    """What the upstream had at its n-th snapshot."""
    return pq.read_table(RECORDING / f"snapshot-{number:03}" / "expected" / f"{TABLE}.parquet")


def ccpr(*words: str) -> dict:
    """Run a command as a person would, and take its answer as JSON. Ends the demo if it fails."""
    told(words)
    process = subprocess.run([CCPR, *words, "--json"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if process.returncode:
        out.print(process.stdout, markup=False)
        raise SystemExit(f"ccpr {words[0]} failed")
    return json.loads(process.stdout)


def told(words: list[str] | tuple[str, ...]) -> None:
    out.print(f"  [dim]$[/] ccpr {' '.join(words)}", soft_wrap=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
