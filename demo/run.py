"""`make demo-recorded`: replicates a recorded MatrixOne database over the wire in five iterations, and compares the
replica with the source each time.

It runs the commands that a user would type; the last iteration is a run of the Dagster assets. At the end Spark
reads the table at two points. All files are in demo-run/, which is deleted when the demo starts.
"""

import json
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
from rich.console import Console
from rich.table import Table

from ccpr.base.file_modes import make_folder
from ccpr.base.wording import size_text
from ccpr.cli.output import counted
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
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
    "50,000 rows at the start",
    "600 rows inserted",
    "4,600 rows updated",
    "5,155 rows deleted",
    "objects merged, no row changed",
)
CCPR = Path(sys.executable).with_name("ccpr")

out = Console(highlight=False)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the emulator is stopped, too
    started = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    prepare_environment()
    out.rule("[bold]Replicating a MatrixOne database from the outside")
    out.print(f"A recording is replayed as the upstream MatrixOne. All files are in {FOLDER.relative_to(ROOT)}/.\n")
    with emulator("--recording", str(RECORDING.relative_to(ROOT))) as port:
        subscribe(port)
        outcomes = [iterate(number) for number in range(1, len(HAPPENED) + 1)]
    show(outcomes)
    read_with_spark(before=2, after=5)
    pause(NAME)
    out.print(f"\n[bold green]Done[/] in {time.monotonic() - started:.0f} s. What you can do now:")
    ccpr_here = f"CCPR_HOME={HOME.relative_to(ROOT)} .venv/bin/ccpr"
    for command, what in (
        (
            "make ui",
            "see the assets and the last iteration's run in Dagster's UI, http://127.0.0.1:3000 (PORT= for another)",
        ),
        (f"{ccpr_here} points {NAME}", "list the points that can be read"),
        (f"{ccpr_here} export {NAME} {TABLE} --at 1 --out acc.parquet", "export the table as it was after iteration 2"),
    ):
        out.print(f"  [bold]{command}[/]\n      [dim]{what}[/]", soft_wrap=True)


def pause(name: str) -> None:
    """Else Dagster's UI would show a replica that fails."""
    out.print("\n[bold]The simulated upstream has ended[/]")
    ccpr("pause", name)


def prepare_environment() -> None:
    """A state folder and a Dagster instance for the demo."""
    dagster_home = HOME / "dagster"
    make_folder(dagster_home)
    shutil.copy(ROOT / "dagster.yaml", dagster_home)
    os.environ |= {"CCPR_HOME": str(HOME), "DAGSTER_HOME": str(dagster_home), PASSWORD_VARIABLE: "any"}
    os.environ.pop("CCPR_CATALOG", None)


@contextmanager
def emulator(*options: str) -> Iterator[int]:
    """The port of an emulator with these options, in another process."""
    words = ["emulator", *options]
    print_command(words)
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
    objects = counted(outcome["objects_copied"], "object")
    out.print(f"  copied {size_text(copied)} in {objects}; the replica has {size_text(whole)}")
    replica = read_replica()
    assert_rows_equal(replica, expected(number))
    out.print(f"  [green]✓[/] {replica.num_rows:,} rows, all equal to the source's")
    return outcome | {"rows": replica.num_rows}


def read_replica() -> pa.Table:
    """The table at the newest point, as `ccpr export` reads it."""
    mirror = Mirror(LocalStore(MIRROR))
    schema, batches = mirror.read(mirror.point(), TABLE)
    return pa.Table.from_batches(batches, schema)


def materialize() -> dict:
    """A run of the five assets, as the sensor or the button in the UI starts it."""
    warnings.simplefilter("ignore")  # Dagster's warnings about its own interfaces
    import dagster as dg

    from ccpr.dagster.partitions import sync_partitions
    from ccpr.service.workspace import Workspace
    from ccpr_assets.definitions import defs

    with dg.DagsterInstance.get() as instance:
        workspace = Workspace()
        sync_partitions(instance, workspace)
        workspace.close()
        start_spark()
        what = "materialize upstream_snapshots … applied_tables of partition"
        out.print(f"  [dim]Dagster: {what}[/] {NAME}", soft_wrap=True)
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
        figures = {name: shown[name].value for name in ("objects_copied", "copied_mb", "objects_total", "total_mb")}
        sizes = {f"bytes_{what}": round(figures.pop(f"{what}_mb") * 1e6) for what in ("copied", "total")}
        return figures | sizes


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
    """The session of this process. An interruption is delayed until the session has started: a JVM that loses its
    parent while it starts would keep running."""
    from ccpr.pipeline.spark.session import settings_of, spark_session

    waiting: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: waiting.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with out.status("Starting Spark"):
            spark = spark_session(settings_of(HOME))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in waiting:
        signal.raise_signal(number)
    return spark


def read_with_spark(before: int, after: int) -> None:
    """Read the table at two points through the data source, and compare both with what the upstream had then."""
    out.print("\n[bold]Spark reads the table at two points[/]")
    spark = start_spark()
    try:
        counts: list[dict[str, int]] = []
        for number in (before, after):
            at = number - 1
            options = f'option("mirror", "{MIRROR.relative_to(ROOT)}").option("table", "{TABLE}").option("at", {at})'
            out.print(f'  [dim]spark.read.format("matrixone").{options}.load()[/]', soft_wrap=True)
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
        table.add_column(f"at point {number - 1}", justify="right")
    for tag in sorted(counts[0] | counts[1]):
        table.add_row(tag, *(f"{count.get(tag, 0):,}" for count in counts))
    out.print(table)
    out.print("  [green]✓[/] both equal the source's rows at that point")


def expected(number: int) -> pa.Table:
    """What the upstream had at its n-th snapshot."""
    return pq.read_table(RECORDING / f"snapshot-{number:03}" / "expected" / f"{TABLE}.parquet")


def ccpr(*words: str) -> dict:
    """Run a command as a user would. Returns its output as JSON; ends the demo if the command fails."""
    print_command(words)
    process = subprocess.run([CCPR, *words, "--json"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if process.returncode:
        out.print(process.stdout, markup=False)
        raise SystemExit(f"ccpr {words[0]} failed")
    return json.loads(process.stdout)


def print_command(words: list[str] | tuple[str, ...]) -> None:
    out.print(f"  [dim]$[/] ccpr {' '.join(words)}", soft_wrap=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
