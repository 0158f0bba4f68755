"""`ccpr target`: the databases that a subscription is synced to."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.cli import completion
from ccpr.cli.arguments import AsJson, Name
from ccpr.cli.iterations import open_iteration
from ccpr.cli.login_options import read_target_login
from ccpr.cli.output import handle_errors, out, show_json, show_table
from ccpr.cli.progress_bars import Display
from ccpr.cli.setting_options import Values, takes_settings
from ccpr.cli.target_output import outcome_json, show_outcome
from ccpr.state.target_settings import TARGET_SETTINGS, TargetSettings

if TYPE_CHECKING:
    from ccpr.state.targets import Target


target = typer.Typer(help="Databases that a subscription is synced to, from its mirror.", no_args_is_help=True)
TargetName = Annotated[
    str, typer.Argument(metavar="TARGET", help="The target's name.", autocompletion=completion.targets)
]
PasswordFile = Annotated[Path | None, typer.Option(help="A file whose first line is the password; with --to.")]


@target.command("add")
@takes_settings(TARGET_SETTINGS.values(), later=False)
def add(
    name: Name,
    target_name: TargetName,
    to: Annotated[str, typer.Option("--to", help="mysql://user:env:NAME@host:port/database[?ssl-mode=…]")],
    database: Annotated[
        str, typer.Option(help="Of a subscription to several databases: the one upstream whose tables it gets.")
    ] = "",
    password_file: PasswordFile = None,
    *,
    settings: Values,
    as_json: AsJson = False,
) -> None:
    """Add a database of MariaDB, MySQL or MatrixOne as a target. The next run loads all tables; later runs apply what
    has changed."""
    from ccpr.service import targets
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        address, password = read_target_login(to, password_file)
        chosen = TargetSettings(**settings)
        added = targets.add(workspace, name, target_name, address, password, chosen, database)
    if as_json:
        show_json(target_json(added))
    else:
        out.print(
            f"added target {target_name} ({added.dialect}) at {address.masked()}; next: ccpr run {name}", markup=False
        )


@target.command("list")
def list_(name: Name, as_json: AsJson = False) -> None:
    """List the targets of a subscription."""
    from ccpr.service import targets
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        found = targets.records_of(workspace, name).databases()
    if as_json:
        show_json([target_json(one) for one in found])
        return
    cells = [
        (
            one.name,
            one.source_database or "-",
            targets.address_of(one).masked(),
            one.dialect,
            one.settings.ddl_policy,
            one.state,
            "-" if one.lsn is None else one.lsn,
            len(one.behind),
        )
        for one in found
    ]
    columns = ("target", "of", "database", "dialect", "DDL policy", "state", "point", "lagging tables")
    show_table(columns, cells, empty=f"no targets; add one with: ccpr target add {name} TARGET --to …")


@target.command("alter")
@takes_settings(TARGET_SETTINGS.values(), later=True)
def alter(
    name: Name,
    target_name: TargetName,
    to: Annotated[
        str | None, typer.Option("--to", help="The same database at another address or with another login.")
    ] = None,
    password_file: PasswordFile = None,
    *,
    settings: Values,
    as_json: AsJson = False,
) -> None:
    """Change a target's settings, its address or login. Columns become text with the next change of their table, or by
    `rebuild`."""
    from ccpr.service import targets
    from ccpr.service.workspace import Workspace

    if to is None and not settings:
        raise typer.BadParameter("nothing to change was given; see --help", param_hint="options")
    with handle_errors(as_json=as_json), Workspace() as workspace:
        login = None if to is None else read_target_login(to, password_file)
        altered = targets.alter(workspace, name, target_name, login, settings)
    if as_json:
        show_json(target_json(altered))
    else:
        out.print(f"altered target {target_name}; DDL policy {altered.settings.ddl_policy}", markup=False)


@target.command("rebuild")
def rebuild(
    name: Name,
    target_name: TargetName,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="Its name upstream, t or db.t.", autocompletion=completion.tables)
    ],
    as_json: AsJson = False,
) -> None:
    """Rebuild a table of a target from the newest point of the mirror, and sync the others. It repairs a table that was
    dropped or released there, or whose rows another user changed. Readers see the old one until the new one is
    complete. The upstream is not asked.
    """
    from ccpr.service.target_sync import TargetOutcome, rebuild_table
    from ccpr.service.workspace import Workspace

    started = time.monotonic()
    with (
        handle_errors(as_json=as_json),
        Workspace() as workspace,
        open_iteration(workspace, name) as iteration,
        Display() as display,
    ):
        result = rebuild_table(workspace, iteration, target_name, table, progress=display.callbacks)
    outcome = TargetOutcome(target_name, result, None, time.monotonic() - started)
    if as_json:
        show_json(outcome_json(outcome))
    else:
        show_outcome(outcome)


@target.command("approve")
def approve(
    name: Name,
    target_name: TargetName,
    table: Annotated[
        str | None,
        typer.Argument(metavar="[TABLE]", help="The one table whose waiting statements are run; its name upstream."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let a target do what it waits with. Of TABLE: run the statements that the DDL policy keeps waiting (DDL_WAITS),
    exactly those that `ccpr status` lists. Without TABLE: drop the tables that it holds back because most of its tables
    were gone at once (TARGET_DROPS_HELD). It is synced to the newest point. The upstream is not asked.
    """
    from ccpr.service.target_sync import TargetOutcome, approve_drops, approve_table
    from ccpr.service.workspace import Workspace

    started = time.monotonic()
    with (
        handle_errors(as_json=as_json),
        Workspace() as workspace,
        open_iteration(workspace, name) as iteration,
        Display() as display,
    ):
        if table is None:
            result = approve_drops(workspace, iteration, target_name, progress=display.callbacks)
        else:
            result = approve_table(workspace, iteration, target_name, table, progress=display.callbacks)
    outcome = TargetOutcome(target_name, result, None, time.monotonic() - started)
    if as_json:
        show_json(outcome_json(outcome))
        return
    for one in result.tables:
        if one.action == "dropped":
            out.print(f"dropped {one.table}", markup=False)
    show_outcome(outcome)


@target.command("remove")
def remove(
    name: Name,
    target_name: TargetName,
    force: Annotated[
        bool, typer.Option("--force", help="Remove it even if tables in it are being synced; they stay as they are.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Forget a target. Release its tables first, with `ccpr release`; with --force they stay as they are, with their
    mark."""
    from ccpr.service import targets
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        targets.remove(workspace, name, target_name, force=force)
    if as_json:
        show_json({"name": name, "target": target_name, "removed": True})
    else:
        out.print(f"removed target {target_name} of {name}", markup=False)


def target_json(found: "Target") -> dict[str, Any]:
    """For scripts; without the password."""
    from ccpr.service import targets

    return {
        "target": found.name,
        "source_database": found.source_database or None,
        "to": targets.address_of(found).masked(),
        "dialect": found.dialect.value if found.dialect is not None else None,
        **{one.name: one.plain(found.settings) for one in TARGET_SETTINGS.values()},
        "state": found.state.value,
        "lsn": found.lsn,
        "behind": [table.to_json() for table in found.behind],
    }
