"""`ccpr pause`, `ccpr resume`, `ccpr drop`: stop a subscription, run it again, or end it."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ccpr.cli.arguments import AsJson, Name
from ccpr.cli.asking import confirm
from ccpr.cli.output import counted, err, handle_errors, out, show_json
from ccpr.state.states import IterationState, shown

if TYPE_CHECKING:
    from ccpr.service.drop import Dropped
    from ccpr.state.log_rows import LogRow


def pause(name: Name, as_json: AsJson = False) -> None:
    """Stop a subscription: nothing runs it, and a run under way cannot commit any more. The replica stays readable."""
    from ccpr.service import subscriptions
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        row = subscriptions.pause(workspace, name)
    if as_json:
        show_json(states_of(row))
    else:
        out.print(f"paused {name}; continue with: ccpr resume {name}", markup=False)


def resume(name: Name, as_json: AsJson = False) -> None:
    """Continue a paused subscription, or one that an error has stopped, from its checkpoint."""
    from ccpr.service import subscriptions
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        row = subscriptions.resume(workspace, name)
    if as_json:
        show_json(states_of(row))
    else:
        out.print(f"resumed {name}; run it now with: ccpr run {name}", markup=False)


def drop(
    name: Name,
    purge: Annotated[bool, typer.Option("--purge", help="Delete the mirror's files and points as well.")] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Forget the targets, followers, what other clusters have pinned, and snapshots that cannot be "
            "dropped upstream now.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before files are deleted; needed without a terminal.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """End a subscription and drop its snapshots upstream. Its mirror stays readable without --purge. If snapshots were
    left, the same command tries them again."""
    from ccpr.service.drop import drop as drop_subscription
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        if purge:
            question = f"delete all files and points of {name}? Nothing brings them back"
            confirm(question, subject=f"the mirror of {name}", yes=yes, as_json=as_json)
        dropped = drop_subscription(workspace, name, purge=purge, force=force)
    if as_json:
        show_json(asdict(dropped))
    else:
        report_dropped(dropped, forced=force)


def report_dropped(dropped: "Dropped", *, forced: bool) -> None:
    """Print it for people."""
    purged = f"; deleted {dropped.purged}" if dropped.purged else ""
    out.print(
        f"dropped {dropped.name}; {counted(dropped.snapshots_dropped, 'snapshot')} dropped upstream{purged}",
        markup=False,
    )
    if dropped.running and dropped.purged:
        err.print(
            f"a run was under way and may write there until it notices; then: ccpr drop {dropped.name} --purge",
            markup=False,
            style="yellow",
        )
    if dropped.snapshots_left:
        err.print(
            f"{counted(len(dropped.snapshots_left), 'snapshot')} may still be upstream ({dropped.reason})",
            markup=False,
            style="yellow",
        )
        later = "" if forced else f"try again later with: ccpr drop {dropped.name}   or "
        err.print(f"{later}run upstream:", markup=False)
        for statement in dropped.statements:
            err.print(f"  {statement}", markup=False)


def states_of(row: "LogRow") -> dict[str, object]:
    """For scripts."""
    return {
        "name": row.subscription_name,
        "state": shown(row.state),
        "iteration_state": IterationState(row.iteration_state).name.lower(),
        "iteration_lsn": row.iteration_lsn,
    }
