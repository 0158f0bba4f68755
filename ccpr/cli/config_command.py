"""`ccpr config`: subscriptions, targets, followers and Spark's settings as a file: write a first one, make the state
folder what it says, write what there is."""

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.base.file_modes import opener
from ccpr.cli.arguments import AsJson, Yes, is_several
from ccpr.cli.asking import confirm, is_interactive
from ccpr.cli.output import answer, counted, err, handle_errors, opened, out, show_json
from ccpr.config.errors import ConfigInvalid

if TYPE_CHECKING:
    from ccpr.config.config_actions import Action, Outcome, Plan
    from ccpr.config.wanted import WantedConfig, WantedFollower
    from ccpr.relay.following import FollowerDestination
    from ccpr.service.workspace import Workspace

FILE = Path("ccpr.yaml")


config = typer.Typer(help="Subscriptions, targets, followers and Spark's settings as a file.", no_args_is_help=True)
_ENV = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@config.command()
def init(
    source: Annotated[
        str | None, typer.Option("--from", help="The upstream: 'mysql://account#user:env:NAME@host:port'.")
    ] = None,
    database: Annotated[
        str | None, typer.Option(help="The database to replicate, or several as in `subscribe`.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The subscription's name; the database's if not given.")] = None,
    table: Annotated[str | None, typer.Option(help="Only this table of the database.")] = None,
    interval: Annotated[str | None, typer.Option(help="Time between iterations: 60, 90s, 10m.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="A target, too: 'mysql://user:env:NAME@host:port/database'.")
    ] = None,
    file: Annotated[Path, typer.Option("--file", "-f", help="Where to write it.")] = FILE,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a first file for `ccpr config apply`. On a terminal it asks for what is not given. No password is written:
    each becomes the name of an environment variable."""
    asks = is_interactive() and not as_json
    with handle_errors(as_json=as_json):
        if asks and source is None:
            source = typer.prompt("Upstream (mysql://account#user@host:port)")
        if asks and database is None:
            database = typer.prompt("Database")
        if not source or not database:
            raise typer.BadParameter("give --from and --database; there is no terminal to ask on", param_hint="--from")
        if is_several(database) and (table or to):
            text = "it is of one database, and several are named; see docs/reference/ccpr-yaml.md"
            raise typer.BadParameter(text, param_hint="--table" if table else "--to")
        if asks and name is None:
            name = typer.prompt("Name of the subscription", default=_name_of(database))
        if asks and interval is None:
            interval = typer.prompt("Time between iterations", default="60s")
        if asks and to is None and not is_several(database):
            to = typer.prompt("Target (mysql://user@host:port/database; empty: none)", default="") or None
        text, variables = _written(source, database, name or _name_of(database), table, interval or "60s", to)
        _write(file, text, force=force)
    answer(
        {"file": str(file), "variables": variables, "text": text},
        f"wrote {file}; next:",
        *(f"  export {variable}=…" for variable in variables),
        f"  ccpr config apply{'' if file == FILE else f' -f {file}'}",
        as_json=as_json,
    )


def _name_of(database: str) -> str:
    return re.sub("[^A-Za-z0-9_-]+", "_", database)[:60]


def _written(
    source: str, database: str, name: str, table: str | None, interval: str, to: str | None
) -> tuple[str, list[str]]:
    """The text, and the variables of the passwords. Raises BadUri, BadTargetUri, ConfigInvalid."""
    from ccpr.config.document import written
    from ccpr.config.wanted import read_text
    from ccpr.matrixone.client.endpoint import format_uri, parse_uri
    from ccpr.targets.address import format_target_uri, parse_target_uri

    endpoint, password = parse_uri(source)
    variables = [_variable(password, "UPSTREAM_PASSWORD")]
    key = "databases" if is_several(database) else "database"
    subscription: dict[str, Any] = {"upstream": "main", key: database, "interval": interval}
    if table is not None:
        subscription["table"] = table
    if to is not None:
        address, password = parse_target_uri(to)
        variables.append(_variable(password, "TARGET_PASSWORD"))
        subscription["targets"] = {
            address.database if _name_of(address.database) == address.database else "target": {
                "uri": format_target_uri(address),
                "password": f"${{{variables[-1]}}}",
                "ddl_policy": "additive",
            }
        }
    values = {
        "version": 1,
        "upstreams": {"main": {"uri": format_uri(endpoint), "password": f"${{{variables[0]}}}"}},
        "subscriptions": {name: subscription},
    }
    text = "# Read by `ccpr config apply`. All keys: docs/reference/ccpr-yaml.md\n" + written(values)
    read_text(text.encode(), "the answers", dict.fromkeys(variables, "x"))
    return text, variables


def _variable(password: str | None, otherwise: str) -> str:
    """The variable that a URI names for its password. A password itself is not written."""
    found = _ENV.fullmatch(password or "")
    return otherwise if found is None else found[1] or found[2]


@config.command()
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
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Create and alter subscriptions, targets, followers and Spark's settings as a file says: show the plan, ask, do
    it. Anything not in the file stays without --prune. The upstream is asked only about what changes.

    --dry-run asks upstreams, targets, lakes and followers whether the plan can be done, and writes nothing."""
    from ccpr.config.config_actions import perform, try_out
    from ccpr.config.config_plan import plan
    from ccpr.config.wanted import read_file, read_text

    with opened(as_json=as_json) as workspace:
        wanted = read_text(sys.stdin.buffer.read(), "standard input") if str(file) == "-" else read_file(file)
        found = plan(workspace, wanted, _Followers(), prune=prune)
        if not as_json:
            _show(wanted, found)
        outcomes: list[Outcome] = []
        report = (lambda _: None) if as_json else _report
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

    def _place(self, workspace: "Workspace", name: str, one: "WantedFollower") -> "FollowerDestination":
        from ccpr.relay.following import FollowerDestination

        known = workspace.of(name).followers.find(one.name)
        address = one.relay_address or (None if known is None else known.relay_address)
        return FollowerDestination(one.endpoint, one.password, one.database, address)

    def unfollow(self, workspace: "Workspace", name: str, follower: str) -> None:
        from ccpr.relay.following import unfollow

        unfollow(workspace, name, follower)

    def check_end(self, workspace: "Workspace", name: str, follower: str) -> None:
        from ccpr.relay.following import open_downstream

        known = workspace.of(name).followers.get(follower)
        with open_downstream(workspace, known):
            pass


def _show(wanted: "WantedConfig", found: "Plan") -> None:
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


def _document(wanted: "WantedConfig", found: "Plan", outcomes: "Sequence[Outcome]") -> dict[str, Any]:
    return {
        "file": wanted.document.source,
        "plan": [_action(action) for action in found.actions],
        "unchanged": found.unchanged,
        "unlisted": list(found.unlisted),
        "plain_passwords": list(wanted.plain),
        "done": [{**_action(one.action), "note": one.note} for one in outcomes if one.done],
        "failed": [
            {**_action(one.action), "error": None if one.failure is None else asdict(one.failure)}
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


@config.command("export")
def export(
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Where to write it; standard output if not given.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Instead of the state, the JSON schema of such files, for editors.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write subscriptions, targets, followers and Spark's settings as a file in which `ccpr config apply` would find
    nothing to do. Passwords are ${NAMES} of environment variables in it."""
    from ccpr.config.config_export import Exported, export_config
    from ccpr.config.model import schema_text

    with opened(as_json=as_json) as workspace:
        exported = Exported(schema_text(), ()) if schema else export_config(workspace)
        if file is not None:
            _write(file, exported.text, force=force)
    if as_json:
        show_json(
            {"file": None if file is None else str(file), "variables": list(exported.variables), "text": exported.text}
        )
    elif file is None:
        typer.echo(exported.text, nl=False)
    else:
        out.print(f"wrote {file}; it names {counted(len(exported.variables), 'environment variable')}")
        for name in exported.variables:
            out.print(f"  export {name}=…")


def _write(file: Path, text: str, *, force: bool) -> None:
    """For its user alone. Raises ConfigInvalid, if it is there or cannot be written."""
    try:
        with open(file, "w" if force else "x", encoding="utf-8", opener=opener()) as opened:
            opened.write(text)
    except FileExistsError as error:
        raise ConfigInvalid("it is there already", subject=str(file), remedy="Name another, or use --force.") from error
    except OSError as error:
        raise ConfigInvalid(
            f"it cannot be written: {error.strerror}", subject=str(file), remedy="Check its folder and permissions."
        ) from error
