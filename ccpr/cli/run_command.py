"""`ccpr run`: one iteration, now. `ccpr resync`: one that relies on nothing from before."""

import time
from contextlib import ExitStack
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from ccpr.base.carrying import carry_here
from ccpr.base.errors import require
from ccpr.base.wording import size_text
from ccpr.cli import target_output
from ccpr.cli.arguments import AsJson, Name, Yes
from ccpr.cli.asking import confirm
from ccpr.cli.defects import NotConfirmed
from ccpr.cli.interrupts import BEHIND, NOT_CONFIRMED
from ccpr.cli.output import counted, handle_errors, open_iteration, opened, out, show_json
from ccpr.cli.plan_command import plan_json, show_plan
from ccpr.cli.progress_bars import Display
from ccpr.cli.shown_times import clock_text
from ccpr.cli.table_names import full_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from ccpr.pipeline.committing import IterationOutcome
    from ccpr.pipeline.copying import CopyJob
    from ccpr.pipeline.iteration import Iteration
    from ccpr.pipeline.spark.choice import CopierChoice
    from ccpr.pipeline.spark.engine import Copier
    from ccpr.service.target_sync import TargetOutcome
    from ccpr.service.workspace import Workspace


def _engine(value: str) -> str:
    if value not in ("auto", "process", "spark"):
        raise typer.BadParameter("auto, process or spark")
    if value == "spark":  # before an iteration begins, which would end with the error
        require("spark", "pyspark", "pandas", otherwise="`--engine process` copies without Spark.")
    return value


Engine = Annotated[
    str,
    typer.Option(
        help="What copies, and loads targets: process, spark, or auto, which takes the faster one.", callback=_engine
    ),
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

    The exit code is 1 also if a target failed: the mirror's point stays. It is 3 if all is done but for lagging tables
    of a target.
    """
    from ccpr.pipeline.options import IterationOptions

    started, display = time.monotonic(), Display()
    options = IterationOptions(allow_resync=allow_resync, progress=display.callbacks)
    with (
        opened(as_json=as_json) as workspace,
        open_iteration(workspace, name, options) as iteration,
    ):
        if plan is not None:
            from ccpr.pipeline.plan import require_plan

            require_plan(iteration, plan)
        outcome = run_stages(workspace, iteration, engine, display)
        targets = sync(workspace, iteration, engine, display)
    seconds = time.monotonic() - started
    if as_json:
        show_json(
            {
                **asdict(outcome),
                "at": outcome.at.physical,
                "seconds": seconds,
                "home": str(workspace.home),
                "engine": [{"place": choice.place.value, "why": choice.why} for choice in display.choices],
                "targets": [target_output.outcome_json(target) for target in targets],
            }
        )
    else:
        show_outcome(outcome, seconds, display.choices)
        for target in targets:
            target_output.show_outcome(target)
    if any(target.failure is not None for target in targets):
        raise typer.Exit(1)
    if any(target.result is not None and target.result.behind for target in targets):
        raise typer.Exit(BEHIND)


def resync(
    name: Name,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="TABLE", help="Read this table's files again; the others are synced as usual."),
    ] = None,
    yes: Yes = False,
    engine: Engine = "auto",
    as_json: AsJson = False,
) -> None:
    """Run an iteration that relies on nothing from before: everything is compared with a full list of objects, and
    missing files are fetched again; with --table also that table's damaged files. It shows first what would be copied,
    and asks; without a terminal and without --yes the exit code is then 4.
    """
    from ccpr.pipeline import plan as planning
    from ccpr.pipeline.driver import forget_results
    from ccpr.pipeline.options import IterationOptions, Resync
    from ccpr.service.workspace import Workspace
    from ccpr.state.subscription import Subscription

    started, display = time.monotonic(), Display()
    with ExitStack() as opened:
        opened.enter_context(handle_errors(as_json=as_json))
        workspace = opened.enter_context(Workspace())
        if table is not None:
            subscription = Subscription.from_row(workspace.log.row(name))
            table = full_name(table, (), None if subscription.of_account else subscription.database)
        options = IterationOptions(resync=Resync(table), progress=display.callbacks)
        iteration = opened.enter_context(open_iteration(workspace, name, options))
        found, outcome = planning.plan(iteration), None
        if not as_json:
            show_plan(found)
        try:
            confirm("copy this?", subject=f"subscription {name}", yes=yes, as_json=as_json)
        except NotConfirmed:
            forget_results(iteration)
        else:
            outcome = run_stages(workspace, iteration, engine, display)
    if as_json:
        done = None if outcome is None else {**asdict(outcome), "at": outcome.at.physical}
        show_json({"plan": plan_json(found), "outcome": done})
    elif outcome is None:
        out.print("nothing was copied; do it with --yes")
    else:
        show_outcome(outcome, time.monotonic() - started, display.choices)
    if outcome is None:
        raise typer.Exit(NOT_CONFIRMED)


def show_outcome(outcome: "IterationOutcome", seconds: float, choices: "Sequence[CopierChoice]" = ()) -> None:
    for text in dict.fromkeys(choice.text for choice in choices if not choice.usual):  # of many tables it is the same
        out.print(text, style="dim")
    what = (
        f"point {outcome.lsn} made" if outcome.point else f"iteration {outcome.lsn}: nothing has changed, no new point"
    )
    out.print(f"{what}, upstream's clock {clock_text(outcome.at)}")
    copied = f"{counted(outcome.objects_copied, 'object')}, {size_text(outcome.bytes_copied)} copied"
    if outcome.objects_direct:
        copied += f", {outcome.objects_direct:,} straight from storage"
    whole = f"of {counted(outcome.objects_total, 'object')}, {size_text(outcome.bytes_total)} live"
    tables = f"{counted(outcome.tables_changed, 'table')} changed, {outcome.tables} in the point"
    out.print(f"{copied} ({whole}); {tables}; lag {outcome.lag_seconds:.1f} s; the command took {seconds:.1f} s")
    if outcome.quarantined:
        out.tell("quarantined:", "bold yellow", f"{', '.join(outcome.quarantined)}; see ccpr status")


def run_stages(workspace: "Workspace", iteration: "Iteration", engine: str, display: Display) -> "IterationOutcome":
    """The whole iteration, with progress on standard error."""
    from ccpr.pipeline.copying import copy_in_process
    from ccpr.pipeline.driver import drive

    def chosen(choice: "CopierChoice") -> None:
        display.choices.append(choice)
        iteration.note_copier(choice.text)

    @cache
    def copier() -> "Copier":
        from ccpr.pipeline.spark.engine import Copier  # which few iterations need

        return Copier(workspace.home, engine, on_bytes=display.callbacks.on_bytes, on_choice=chosen)

    def copied(job: "CopyJob", objects: "pa.Table") -> "Iterable[pa.RecordBatch]":
        if engine == "process":
            return copy_in_process(job, objects, on_progress=display.callbacks.on_bytes)
        return copier()(job, objects)

    if engine != "process":
        iteration.carry = lambda *work: copier().carry(*work)
    with display:
        return drive(iteration, copied).ended


def sync(workspace: "Workspace", iteration: "Iteration", engine: str, display: Display) -> "list[TargetOutcome]":
    """Bring all targets to the newest point, with progress on standard error."""
    from ccpr.service.target_sync import sync_targets

    carry = carry_here if engine == "process" else None
    if engine == "spark":
        from ccpr.pipeline.spark.engine import Copier

        carry = Copier(workspace.home, engine).carry
    with display:
        return sync_targets(workspace, iteration, progress=display.callbacks, carry=carry)
