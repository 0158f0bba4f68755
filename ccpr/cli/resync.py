"""`ccpr resync`: compare with a full list of objects, and one table with the files themselves; then copy what is
missing."""

import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import Annotated

import typer

from ccpr.cli.arguments import AsJson, Name
from ccpr.cli.asking import confirm
from ccpr.cli.defects import NotConfirmed
from ccpr.cli.exit_codes import NOT_CONFIRMED
from ccpr.cli.iterations import open_iteration
from ccpr.cli.output import handle_errors, out, show_json
from ccpr.cli.plan_command import plan_json, show_plan
from ccpr.cli.progress_bars import Display
from ccpr.cli.run_command import Engine, run_stages, show_outcome
from ccpr.cli.table_names import full_name


def resync(
    name: Name,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="TABLE", help="Read this table's files again; the others are synced as usual."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    engine: Engine = "auto",
    as_json: AsJson = False,
) -> None:
    """Run an iteration that relies on nothing from before: everything is compared with a full list of objects, and
    missing files are fetched again; with --table also that table's damaged files. It shows first what would be copied,
    and asks. Without a terminal and without --yes it stops there, and the exit code is 4.
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
        out.print("nothing was copied; do it with --yes", markup=False)
    else:
        show_outcome(outcome, time.monotonic() - started, display.choices)
    if outcome is None:
        raise typer.Exit(NOT_CONFIRMED)
