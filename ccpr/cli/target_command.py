"""`ccpr target`: what a subscription is synced to from its mirror: databases, and lakes, which are tables of files. The
address of a target says which of them it is."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.base.wording import size_text
from ccpr.cli import completion
from ccpr.cli.arguments import AsJson, Name, PasswordFile, Values, Yes, takes_settings
from ccpr.cli.asking import confirm, read_target_login
from ccpr.cli.output import answer, open_iteration, opened, out, show_json, show_table
from ccpr.cli.progress_bars import Display
from ccpr.cli.target_output import TargetKind, kind_of, kind_word, outcome_json, place_of, show_outcome, target_json
from ccpr.lake.lake_options import LAKE_SETTINGS, LakeOptions
from ccpr.state.settings import TARGET_SETTINGS, TargetSettings

if TYPE_CHECKING:
    from typing import TypeAlias

    from ccpr.base.progress import Progress
    from ccpr.lake.lake_sync import LakeResult
    from ccpr.pipeline.iteration import Iteration
    from ccpr.service.lakes import LakeShown
    from ccpr.service.status import TargetStatus
    from ccpr.service.target_sync import TargetOutcome
    from ccpr.service.workspace import Workspace
    from ccpr.state.targets import Target
    from ccpr.targets.sync import SyncResult

    Synced: TypeAlias = TargetOutcome | SyncResult | LakeResult | None
    Work: TypeAlias = Callable[[Workspace, Iteration, Target, Progress], Synced]


target = typer.Typer(
    help="Databases (MariaDB, MySQL, MatrixOne) and lakes (Delta Lake) that a subscription is synced to.",
    no_args_is_help=True,
)
TargetName = Annotated[
    str, typer.Argument(metavar="TARGET", help="The target's name.", autocompletion=completion.targets)
]
AnyTarget = Annotated[
    str | None, typer.Argument(metavar="[TARGET]", help="One target; all without.", autocompletion=completion.targets)
]
TableUpstream = Annotated[
    str, typer.Argument(metavar="TABLE", help="Its name upstream, t or db.t.", autocompletion=completion.tables)
]
OnlyKind = Annotated[TargetKind | None, typer.Option("--kind", hidden=True)]  # of former spellings
# Of a database, and of a lake. The address says which it is.
_SETTINGS = (*TARGET_SETTINGS.values(), *LAKE_SETTINGS.values())


@target.command("add")
@takes_settings(_SETTINGS, later=False)
def add(
    name: Name,
    target_name: TargetName,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="mysql://user:env:NAME@host:port/database[?ssl-mode=…], or for a lake a folder, file:///folder, or "
            "s3://bucket/prefix[?region=…&endpoint=…].",
        ),
    ],
    database: Annotated[
        str, typer.Option(help="Of a subscription to several databases: the one upstream whose tables it gets.")
    ] = "",
    password_file: PasswordFile = None,
    *,
    settings: Values,
    as_json: AsJson = False,
) -> None:
    """Add a database of MariaDB, MySQL or MatrixOne as a target, or a lake. The next run loads all tables; later runs
    apply what has changed, and to a lake publish a version for each point."""
    from ccpr.service import lakes, targets

    is_lake = TargetKind.of(to) is TargetKind.LAKE
    mine, others = (LAKE_SETTINGS, TARGET_SETTINGS) if is_lake else (TARGET_SETTINGS, LAKE_SETTINGS)
    given = [one.option for one in others.values() if settings.get(one.name, one.default) != one.default]
    _refuse([*given, *(["--password-file"] if is_lake and password_file else [])], of_lake=not is_lake)
    chosen = {key: value for key, value in settings.items() if key in mine}
    with opened(as_json=as_json) as workspace:
        if is_lake:
            added = lakes.add(workspace, name, target_name, to, LakeOptions(**chosen), database)
        else:
            address, password = read_target_login(to, password_file)
            added = targets.add(workspace, name, target_name, address, password, TargetSettings(**chosen), database)
    answer(
        target_json(added),
        f"added target {target_name} ({kind_word(added)}) at {place_of(added)}; next: ccpr run {name}",
        as_json=as_json,
    )


def _refuse(options: Sequence[str], *, of_lake: bool) -> None:
    """Raises typer.BadParameter, if some are given that the other kind of target has."""
    if options:
        raise typer.BadParameter(f"it is of a {'lake' if of_lake else 'database'}", param_hint=options[0])


@target.command("list")
def list_(name: Name, kind: OnlyKind = None, as_json: AsJson = False) -> None:
    """List the targets of a subscription."""
    with opened(as_json=as_json) as workspace:
        found = [one for one in workspace.of(name).targets.all() if kind in (None, kind_of(one))]
    if as_json:
        show_json([target_json(one) for one in found])
        return
    cells = [
        (
            one.name,
            one.source_database or "-",
            kind_word(one),
            one.state,
            "-" if one.lsn is None else one.lsn,
            len(one.behind) or "-",
            place_of(one),
        )
        for one in found
    ]
    columns = ("target", "of", "kind", "state", "point", "lagging", "place")
    show_table(columns, cells, empty=_no_targets(name), dense=True, fold="place")


def _no_targets(name: str) -> str:
    return f"no targets; add one with: ccpr target add {name} TARGET --to …"


@target.command("status")
def status(name: Name, target_name: AnyTarget = None, kind: OnlyKind = None, as_json: AsJson = False) -> None:
    """Show the targets of a subscription: the point of each, its lag, what lags or failed in it and why, and of a lake,
    which is read, its tables with their versions."""
    from ccpr.pipeline.lag import LagMeter
    from ccpr.service import lakes
    from ccpr.service.running import is_served
    from ccpr.service.status import ReadRow, target_statuses

    with opened(as_json=as_json) as workspace:
        read = ReadRow.of(workspace.log.row(name))
        records = workspace.of(read.row)
        chosen = records.targets.all() if target_name is None else [records.targets.any(target_name)]
        chosen = [one for one in chosen if kind in (None, kind_of(one))]
        lag = LagMeter(workspace.clock).read(read.row.task_id, read.context)
        statuses = target_statuses(workspace, read, records.history.newest(), lag, chosen)
        there = [None if one.lake is None else lakes.shown(one, workspace, name) for one in chosen]
        found = list(zip(chosen, statuses, there, strict=True))
        served = is_served(workspace.home)
    if as_json:
        show_json([_status_json(*each) for each in found])
        return
    if not found:
        out.print(_no_targets(name))
    for each in found:
        _show_status(*each, served=served)


def _status_json(found: "Target", known: "TargetStatus", there: "LakeShown | None") -> dict[str, Any]:
    about = {key: value for key, value in asdict(known).items() if key in _ABOUT}
    if there is None:
        return {**target_json(found), **about}
    return {**target_json(found), **about, **asdict(there), "tables": [asdict(table) for table in there.tables]}


_ABOUT = ("lag_seconds", "last_error", "attempts", "next_attempt", "verified_at")


def _show_status(found: "Target", known: "TargetStatus", there: "LakeShown | None", *, served: bool) -> None:
    from ccpr.cli.status_command import target_lines

    out.print(target_lines(known, served=served))
    if there is None:
        return
    place = place_of(found).partition("?")[0].rstrip("/")
    rows = [
        (table.table, table.version, table.lsn, f"{table.rows:,}", size_text(table.size), _folder(table.uri, place))
        for table in there.tables
    ]
    columns = ("table", "version", "since", "rows", "bytes", "folder there")
    show_table(columns, rows, empty="no tables yet", right=(3, 4), fold="folder there")
    out.print(f"points in {_folder(there.points_uri, place)}", style="dim")


def _folder(uri: str, place: str) -> str:
    return uri.removeprefix(f"{place}/")


@target.command("alter")
@takes_settings(_SETTINGS, later=True)
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
    `rebuild`. Which points stay readable in a lake: without options, those of the mirror. Whose metadata its tables
    have: those of Iceberg begin with the point of the next sync."""
    from ccpr.service import lakes, targets

    with opened(as_json=as_json) as workspace:
        is_lake = workspace.of(name).targets.any(target_name).lake is not None
        others = TARGET_SETTINGS if is_lake else LAKE_SETTINGS
        given = [others[one].option for one in settings if one in others]
        _refuse(["--to"] if is_lake and to else given, of_lake=not is_lake)
        if is_lake:
            kept = {"keep": None, "keep_for": None}
            changes = settings if settings and not settings.keys() & kept else {**kept, **settings}
            altered = lakes.alter(workspace, name, target_name, **changes)
        else:
            if to is None and not settings:
                raise typer.BadParameter("nothing to change was given; see --help", param_hint="options")
            login = None if to is None else read_target_login(to, password_file)
            altered = targets.alter(workspace, name, target_name, login, settings)
    about = "" if altered.lake is not None else f"; DDL policy {altered.settings.ddl_policy}"
    if "format" in settings:
        about = "; Iceberg's tables are listed no more, their files stay"
        if settings["format"] != "delta":
            about = "; Iceberg's tables show the point of the next sync and those behind it, none before"
    answer(target_json(altered), f"altered target {target_name}{about}", as_json=as_json)


@target.command("sync")
def sync(name: Name, target_name: TargetName, as_json: AsJson = False) -> None:
    """Bring a target to the newest point of the mirror now. The upstream is not asked."""
    _end(_synced(name, target_name, _sync, as_json=as_json), as_json=as_json)


@target.command("rebuild")
def rebuild(name: Name, target_name: TargetName, table: TableUpstream, as_json: AsJson = False) -> None:
    """Rebuild a table of a target from the newest point of the mirror, and sync the others. It repairs a table that was
    dropped or released there, or whose rows or files others changed. Readers see the old one until the new one is
    complete."""
    from ccpr.service.target_sync import rebuild_table

    def rebuilt(workspace: "Workspace", iteration: "Iteration", _: "Target", progress: "Progress") -> "Synced":
        return rebuild_table(workspace, iteration, target_name, table, progress=progress)

    _end(_synced(name, target_name, rebuilt, as_json=as_json), as_json=as_json)


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
    were gone at once (TARGET_DROPS_HELD). It is synced to the newest point."""
    from ccpr.service.target_sync import approve_drops, approve_table

    def approved(workspace: "Workspace", iteration: "Iteration", _: "Target", progress: "Progress") -> "Synced":
        if table is None:
            return approve_drops(workspace, iteration, target_name, progress=progress)
        return approve_table(workspace, iteration, target_name, table, progress=progress)

    outcome = _synced(name, target_name, approved, as_json=as_json)
    for one in () if as_json or outcome.result is None else outcome.result.tables:
        if one.action == "dropped":
            out.print(f"dropped {one.table}")
    _end(outcome, as_json=as_json)


def _synced(name: str, target_name: str, work: "Work", *, as_json: bool) -> "TargetOutcome":
    """Do it under the subscription's lease, with its progress on standard error."""
    from ccpr.service.target_sync import TargetOutcome

    started = time.monotonic()
    with (
        opened(as_json=as_json) as workspace,
        open_iteration(workspace, name) as iteration,
        Display() as display,
    ):
        done = work(workspace, iteration, workspace.of(name).targets.any(target_name), display.callbacks)
    return (
        done if isinstance(done, TargetOutcome) else TargetOutcome(target_name, done, None, time.monotonic() - started)
    )


def _sync(workspace: "Workspace", iteration: "Iteration", found: "Target", progress: "Progress") -> "Synced":
    from ccpr.service.target_sync import sync_lake, sync_target

    if found.lake is not None:
        return sync_lake(workspace, iteration, found, progress=progress)
    return sync_target(workspace, iteration, found, ask=True, progress=progress)


def _end(outcome: "TargetOutcome", *, as_json: bool) -> None:
    """Show it. Raises typer.Exit, if it failed."""
    if as_json:
        show_json(outcome_json(outcome))
    else:
        show_outcome(outcome)
    if outcome.failure is not None:
        raise typer.Exit(1)


@target.command("release")
def release(
    name: Name,
    target_name: AnyTarget = None,
    table: Annotated[str | None, typer.Option(help="Only this table, by its name upstream.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make tables of databases ordinary, writable ones: what was disabled is brought back, the mark is removed, and
    later runs do not touch them."""
    from ccpr.service import targets

    with opened(as_json=as_json) as workspace:
        released = targets.release(workspace, name, target_name, table)
    if as_json:
        show_json([asdict(one) for one in released])
        return
    for one in released:
        out.print(f"released {one.table} in {one.target}")
        for text in one.left_out:
            out.print(f"  not as in the source: {text}", style="yellow")
    if not released:
        out.print("no table was being synced")


@target.command("remove")
def remove(
    name: Name,
    target_name: TargetName,
    force: Annotated[
        bool, typer.Option("--force", help="Remove it even if tables in it are being synced; they stay as they are.")
    ] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete the tables of a lake, too.", rich_help_panel="Of a lake")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Forget a target. Release the tables of a database first, with `ccpr target release`; with --force they stay as
    they are, with their mark. Those of a lake stay, and stay readable."""
    from ccpr.service import lakes, targets

    about: dict[str, Any] = {"name": name, "target": target_name, "removed": True}
    with opened(as_json=as_json) as workspace:
        found = workspace.of(name).targets.any(target_name)
        if found.lake is None:
            _refuse(["--purge"] if purge else [], of_lake=True)
            targets.remove(workspace, name, target_name, force=force)
        else:
            if purge:
                question = f"Delete the tables of lake {target_name} in {found.uri}?"
                confirm(question, subject=f"lake {target_name}", yes=yes, as_json=as_json)
            uri = lakes.remove(workspace, name, target_name, purge=purge)
            about |= {"lake": target_name, "uri": uri, "purged": purge}
    tables = f" and its tables in {found.uri}" if purge else ""
    answer(about, f"removed target {target_name} of {name}{tables}", as_json=as_json)
