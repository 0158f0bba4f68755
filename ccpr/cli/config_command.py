"""`ccpr config apply`: make the state folder what a file says."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.cli.arguments import AsJson
from ccpr.cli.asking import confirm
from ccpr.cli.output import counted, err, handle_errors, out, show_json

if TYPE_CHECKING:
    from ccpr.config.config_actions import Action, Outcome, Plan
    from ccpr.config.reading import Wanted, WantedFollower
    from ccpr.relay.following import Destination
    from ccpr.service.workspace import Workspace

FILE = Path("ccpr.yaml")


def apply(
    file: Annotated[Path, typer.Option("--file", "-f", help="The file; '-' reads standard input.")] = FILE,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Drop subscriptions, release and remove targets, and end followers, that are not in the file. "
            "Mirrors, tables and databases stay.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and ask whether it can be done.")] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Do not ask before the plan is done; needed without a terminal if the plan drops something.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create and alter subscriptions, targets, followers and Spark's settings as a file says: show the plan, ask, do
    it. Anything not in the file stays without --prune. The upstream is asked only about what changes.

    --dry-run asks upstreams, targets, lakes and followers whether the plan can be done, and writes nothing."""
    from ccpr.config.config_actions import perform, try_out
    from ccpr.config.config_plan import plan
    from ccpr.config.reading import read_file, read_text
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        wanted = read_text(sys.stdin.buffer.read(), "standard input") if str(file) == "-" else read_file(file)
        found = plan(workspace, wanted, _Followers(), prune=prune)
        if not as_json:
            _show(wanted, found)
        outcomes: list[Outcome] = []
        report = _ignore if as_json else _report
        if dry_run:
            outcomes = try_out(workspace, found.actions, report)
        elif found.actions:
            _agree(found, yes=yes, as_json=as_json)
            outcomes = perform(workspace, found.actions, report)
    if as_json:
        show_json(_document(wanted, found, outcomes))
    if failed := sum(not outcome.done for outcome in outcomes):
        if not as_json:
            told = "cannot be done" if dry_run else f"of {len(outcomes)} not done; the same command does the rest"
            err.print(f"{counted(failed, 'step')} {told}")
        raise typer.Exit(1)


def _agree(found: "Plan", *, yes: bool, as_json: bool) -> None:
    """A terminal is asked about every plan. Without one only a plan that drops something needs `--yes`."""
    destructive = [_line(action) for action in found.actions if action.destructive]
    subject = "; ".join(destructive) or counted(len(found.actions), "step")
    confirm("do this?", subject=subject, yes=yes, as_json=as_json, harmless=not destructive)


class _Followers:
    """See `ccpr.config.config_actions.Following`."""

    def follow(self, workspace: "Workspace", name: str, one: "WantedFollower") -> None:
        from ccpr.relay.following import follow

        follow(workspace, name, one.name, self._place(workspace, name, one))

    def check(self, workspace: "Workspace", name: str, one: "WantedFollower", *, is_new: bool) -> None:
        """A follower begins with a point, which a subscription that is not there yet does not have."""
        from ccpr.relay.errors import FollowUnfit
        from ccpr.relay.following import check

        if is_new:
            raise FollowUnfit(
                "it has no point yet",
                subject=f"subscription {name}",
                remedy="Apply the file without the follower, run the subscription, and apply the file again.",
            )
        check(workspace, name, one.name, self._place(workspace, name, one))

    def _place(self, workspace: "Workspace", name: str, one: "WantedFollower") -> "Destination":
        from ccpr.relay.following import Destination
        from ccpr.state.followers import FollowerRecords

        known = FollowerRecords(workspace.log.engine, workspace.log.row(name).task_id).find(one.name)
        address = one.relay_address or (None if known is None else known.relay_address)
        return Destination(one.endpoint, one.password, one.database, address)

    def unfollow(self, workspace: "Workspace", name: str, follower: str) -> None:
        from ccpr.relay.following import unfollow

        unfollow(workspace, name, follower)

    def check_end(self, workspace: "Workspace", name: str, follower: str) -> None:
        from ccpr.relay.following import open_downstream
        from ccpr.state.followers import FollowerRecords

        known = FollowerRecords(workspace.log.engine, workspace.log.row(name).task_id).get(follower)
        with open_downstream(workspace, known):
            pass


def _show(wanted: "Wanted", found: "Plan") -> None:
    if wanted.plain:
        where = ", ".join(map(str, wanted.plain))
        err.print(f"warning: a password stands in the file (line {where}); write ${{NAME}}", style="yellow")
    for action in found.actions:
        out.print(f"  {_line(action)}", style="bold yellow" if action.destructive else "")
        for change in action.changes:
            out.print(f"      {change.setting}: {change.before} → {change.after}")
    if found.unlisted:
        out.print(f"  not in the file, and untouched without --prune: {', '.join(found.unlisted)}", style="dim")
    steps = counted(len(found.actions), "step") if found.actions else "nothing to do"
    out.print(f"plan: {steps}; {counted(found.unchanged, 'subscription')} as the file says")


def _line(action: "Action") -> str:
    name = action.subscription
    if below := action.target or action.follower:
        name = f"{below} of {name}"
    return " ".join(filter(None, (action.verb.value, name))) + (f": {action.about}" if action.about else "")


def _report(outcome: "Outcome") -> None:
    if outcome.failure is not None:
        failure = outcome.failure
        err.print("failed", style="bold red", end=" ")
        err.print(f"{_line(outcome.action)}: {failure.code}: {failure.message} [{failure.subject}]")
        err.print(f"  remedy: {failure.remedy}")
    elif outcome.skipped:
        err.print(f"not tried: {_line(outcome.action)}", style="yellow")
    else:
        out.print(f"done: {_line(outcome.action)}")
    if outcome.note:
        err.print(f"  {outcome.note}", style="yellow")


def _ignore(outcome: "Outcome") -> None:
    pass


def _document(wanted: "Wanted", found: "Plan", outcomes: "Sequence[Outcome]") -> dict[str, Any]:
    return {
        "file": wanted.document.source,
        "plan": [_action(action) for action in found.actions],
        "unchanged": found.unchanged,
        "unlisted": list(found.unlisted),
        "plain_passwords": list(wanted.plain),
        "done": [{**_action(one.action), "note": one.note} for one in outcomes if one.done],
        "failed": [
            {**_action(one.action), "error": None if one.failure is None else _parts(one.failure)}
            for one in outcomes
            if not one.done
        ],
    }


def _action(action: "Action") -> dict[str, Any]:
    return {
        "action": action.verb.value,
        "subscription": action.subscription or None,
        "target": action.target or None,
        "follower": action.follower or None,
        "about": action.about,
        "changes": {change.setting: [change.before, change.after] for change in action.changes},
    }


def _parts(failure: Any) -> dict[str, str]:
    return {name: getattr(failure, name) for name in ("code", "message", "subject", "remedy")}
