"""`ccpr run`: one iteration, now."""

import time
from dataclasses import asdict
from functools import partial
from typing import Annotated

import pyarrow.compute as pc
import typer

from ccpr_cli import target_output
from ccpr_cli.arguments import AsJson, Name
from ccpr_cli.exit_codes import BEHIND
from ccpr_cli.output import clock_text, counted, handle_errors, out, show_json, size_text
from ccpr_cli.progress import Display
from replication.iteration.copying import copy_in_process
from replication.iteration.iteration import Iteration, Outcome
from replication.iteration.options import IterationOptions
from replication.service.target_sync import TargetOutcome, sync_targets
from replication.service.workspace import Workspace

SPARK_FROM_BYTES = 64_000_000  # for less, the start of a JVM takes most of the time (decision spark-dataframes)


def _engine(value: str) -> str:
    if value not in ("auto", "process", "spark"):
        raise typer.BadParameter("auto, process or spark")
    return value


Engine = Annotated[
    str, typer.Option(help="What copies: process, spark, or auto (spark from 64 MB on).", callback=_engine)
]


def run(
    name: Name,
    engine: Engine = "auto",
    allow_resync: Annotated[
        bool,
        typer.Option(
            "--allow-resync", help="If the upstream has lost the last point's snapshot, compare with a full list."
        ),
    ] = False,
    plan: Annotated[
        str | None, typer.Option("--plan", metavar="ID", help="Do what this plan of `ccpr plan` says, or nothing.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run one iteration of a subscription now, and sync its targets to the newest point. An interrupted iteration
    continues where it stopped.

    The exit code is 1 also if a target failed: the mirror's point stays, and the next run tries the target again. It is
    3 if all is done but for tables of a target that are behind: they wait for a person, as the output says.
    """
    started, display = time.monotonic(), Display()
    options = IterationOptions(allow_resync=allow_resync, progress=display.callbacks)
    with (
        handle_errors(as_json=as_json),
        Workspace() as workspace,
        workspace.iteration(name, options) as iteration,
    ):
        if plan is not None:
            iteration.require_plan(plan)
        outcome = run_steps(workspace, iteration, engine, display)
        targets = sync(workspace, iteration, display)
    seconds = time.monotonic() - started
    if as_json:
        show_json(
            {
                **asdict(outcome),
                "at": outcome.at.physical,
                "seconds": seconds,
                "home": str(workspace.home),
                "targets": [target_output.outcome_json(target) for target in targets],
            }
        )
    else:
        show_outcome(outcome, seconds)
        for target in targets:
            target_output.show_outcome(target)
    if any(target.failure is not None for target in targets):
        raise typer.Exit(1)
    if any(target.result is not None and target.result.behind for target in targets):
        raise typer.Exit(BEHIND)


def show_outcome(outcome: Outcome, seconds: float) -> None:
    what = (
        f"point {outcome.lsn} made" if outcome.point else f"iteration {outcome.lsn}: nothing has changed, no new point"
    )
    out.print(f"{what}, upstream's clock {clock_text(outcome.at)}", markup=False)
    copied = f"{counted(outcome.objects_copied, 'object')}, {size_text(outcome.bytes_copied)} copied"
    whole = f"of {counted(outcome.objects_total, 'object')}, {size_text(outcome.bytes_total)} live"
    tables = f"{counted(outcome.tables_changed, 'table')} changed, {outcome.tables} in the point"
    out.print(f"{copied} ({whole}); {tables}; lag {outcome.lag_seconds:.1f} s; took {seconds:.1f} s", markup=False)
    if outcome.quarantined:
        out.print("quarantined", style="bold yellow", end=": ")
        out.print(f"{', '.join(outcome.quarantined)}; see ccpr status", markup=False)


def run_steps(workspace: Workspace, iteration: Iteration, engine: str, display: Display) -> Outcome:
    """The steps of an iteration in their order, with progress on standard error."""
    with display:
        iteration.take_snapshot()
        iteration.diff_catalog()
        iteration.diff_objects()
        size = pc.sum(iteration.objects_to_copy().column("size")).as_py() or 0
        display.expect(size)
        if engine == "spark" or (engine == "auto" and size >= SPARK_FROM_BYTES):
            from replication.spark.session import spark_copy_engine

            iteration.copy_objects(spark_copy_engine(workspace.home))
        else:
            iteration.copy_objects(partial(copy_in_process, on_progress=display.callbacks.on_bytes))
        return iteration.apply()


def sync(workspace: Workspace, iteration: Iteration, display: Display) -> list[TargetOutcome]:
    """Bring all targets to the newest point, with progress on standard error."""
    with display:
        return sync_targets(workspace, iteration, progress=display.callbacks)
