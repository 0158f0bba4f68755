"""`ccpr subscribe`, `alter`, `pause`, `resume`, `drop`: the life of a subscription; `ccpr offers`: before it.
`ccpr snapshots`: what it has upstream."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ccpr.cli.arguments import MORE, Account, AsJson, Database, Name, PasswordFile, Scope, Values, Yes, takes_settings
from ccpr.cli.asking import confirm, read_login
from ccpr.cli.output import answer, counted, err, handle_errors, open_iteration, opened, out, show_json, show_table
from ccpr.state.settings import SENSOR_SECONDS, SETTINGS, Settings
from ccpr.state.states import State

if TYPE_CHECKING:
    from ccpr.service.drop import Dropped


def offers(
    source: Annotated[
        str, typer.Argument(metavar="URI", help="The upstream, as `--from` of `ccpr subscribe` names it.")
    ],
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """List the publications of an upstream, and whether they admit the login; nothing is stored."""
    from ccpr.config.sql.statement_running import PUBLICATIONS, offered

    with handle_errors(as_json=as_json):
        rows = offered(*read_login(source, password_file))
    if as_json:
        show_json([dict(zip(PUBLICATIONS, row, strict=True)) for row in rows])
        return
    cells = [(*row[:-1], "yes" if row[-1] else "no") for row in rows]
    show_table((*PUBLICATIONS[:-1], "admits it"), cells, empty="it offers nothing")


@takes_settings(SETTINGS.values(), later=False)
def subscribe(
    name: Annotated[str, typer.Argument(help="The subscription's name: letters, digits, '_' and '-', at most 60.")],
    source: Annotated[
        str,
        typer.Option(
            "--from", help="The upstream: 'mysql://account#user[:password]@host:port'; password may be env:NAME."
        ),
    ],
    database: Database = None,
    account: Account = None,
    publication: Annotated[
        str | None,
        typer.Option(
            help="The publication upstream; if not given, the one that covers the database.", rich_help_panel=MORE
        ),
    ] = None,
    publisher: Annotated[
        str | None,
        typer.Option(
            help="The account that owns the publication; if not given, it is looked up.", rich_help_panel=MORE
        ),
    ] = None,
    table: Annotated[str | None, typer.Option(help="Only this table of the database.")] = None,
    password_file: PasswordFile = None,
    *,
    settings: Values,
    as_json: AsJson = False,
) -> None:
    """Subscribe to a published MatrixOne database (or one table of it, or those that match), or to several databases of
    an account, which have their points together."""
    from ccpr.service.subscriptions import Wanted, create

    scope = Scope.of(database, account, publisher)
    if scope is None:
        raise typer.BadParameter("name a database, or an account with --account", param_hint="--database")
    chosen = Settings(**settings, databases=scope.databases)
    with opened(as_json=as_json) as workspace:
        endpoint, password = read_login(source, password_file)
        place = (scope.database, table, publication, scope.publisher)
        wanted = Wanted(name, endpoint, password, *place, chosen)
        subscription = create(workspace, wanted)
    if as_json:
        ticket = {"publication": subscription.publication.name, "publisher": subscription.publication.publisher}
        ticket["mode"] = subscription.mode
        show_json({"name": name, "task_id": subscription.task_id, **ticket, "home": str(workspace.home)})
    else:
        out.print(f"subscribed {name} to {subscription.scope} at {endpoint.address}; state in {workspace.home}")
        out.print(subscription.way)
        report_interval(chosen.sync_interval)
        out.print(f"next: ccpr run {name}")


@takes_settings(SETTINGS.values(), later=True)
def alter(
    name: Name,
    source: Annotated[
        str | None, typer.Option("--from", help="The same upstream at another address or with another login.")
    ] = None,
    password_file: PasswordFile = None,
    publication: Annotated[
        str | None, typer.Option(help="Another publication of the same account.", rich_help_panel=MORE)
    ] = None,
    *,
    settings: Values,
    as_json: AsJson = False,
) -> None:
    """Change a subscription. With --from or --publication everything is checked again, and a run under way cannot
    commit any more."""
    from ccpr.service.subscriptions import SettingsChange
    from ccpr.service.subscriptions import alter as alter_subscription

    if password_file is not None and source is None:
        raise typer.BadParameter("it needs --from", param_hint="--password-file")
    if not settings and source is None and publication is None:
        raise typer.BadParameter("nothing to change was given; see --help", param_hint="options")
    with opened(as_json=as_json) as workspace:
        endpoint, password = (None, "") if source is None else read_login(source, password_file)
        change = SettingsChange(endpoint, password, publication, settings)
        subscription = alter_subscription(workspace, name, change)
    if as_json:
        show_json(
            {
                "name": name,
                "upstream": subscription.endpoint.masked(),
                "publication": subscription.publication.name,
                **settings,
            }
        )
    else:
        out.print(f"altered {name}; its upstream is {subscription.endpoint.masked()}")
        if source is not None or "mode" in settings:
            out.print(subscription.way)
        if "sync_interval" in settings:
            report_interval(settings["sync_interval"])


def report_interval(seconds: int) -> None:
    """Say at once if the sensor cannot hold it."""
    if seconds < SENSOR_SECONDS:
        err.print(
            f"an interval of {seconds} s is shorter than Dagster's sensor looks, every {SENSOR_SECONDS} s: with it "
            f"iterations come every {SENSOR_SECONDS} s or later",
            style="yellow",
        )


def pause(name: Name, as_json: AsJson = False) -> None:
    """Stop a subscription: nothing runs it, and a run under way cannot commit any more. The replica stays readable."""
    from ccpr.service.subscriptions import states_of

    with opened(as_json=as_json) as workspace:
        row = workspace.log.pause(name)
    answer(states_of(row), f"paused {name}; continue with: ccpr resume {name}", as_json=as_json)


def resume(name: Name, as_json: AsJson = False) -> None:
    """Continue a paused subscription, or one that an error has stopped, from its checkpoint."""
    from ccpr.service.subscriptions import states_of

    with opened(as_json=as_json) as workspace:
        row = workspace.log.resume(name)
    answer(states_of(row), f"resumed {name}; run it now with: ccpr run {name}", as_json=as_json)


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
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """End a subscription and drop its snapshots upstream. Its mirror stays readable without --purge. If snapshots were
    left, the same command tries them again."""
    from ccpr.service.drop import drop as drop_subscription

    with opened(as_json=as_json) as workspace:
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
    )
    if dropped.running and dropped.purged:
        err.print(
            f"a run was under way and may write there until it notices; then: ccpr drop {dropped.name} --purge",
            style="yellow",
        )
    if dropped.snapshots_left:
        err.print(dropped.left, style="yellow")
        later = "" if forced else f"try again later with: ccpr drop {dropped.name}   or "
        err.print(f"{later}run upstream:")
        for statement in dropped.statements:
            err.print(f"  {statement}", soft_wrap=True)


def snapshots(
    name: Name,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Drop orphans: snapshots that are no longer needed.")
    ] = False,
    lost: Annotated[
        bool,
        typer.Option(
            "--lost",
            help="Drop snapshots that this state does not know: those of a history that was lost when state and mirror "
            "were restored. Not while another copy of this state is in use.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the snapshots that a subscription has upstream: recorded ones, and lost ones by the subscription's uid in
    their names. Snapshots of others are never listed or dropped."""
    from ccpr.pipeline.steps.release import drop_due_snapshots
    from ccpr.service.drop import drop as drop_subscription
    from ccpr.service.snapshots import LOST, drop_lost_snapshots, list_snapshots, row_of

    with opened(as_json=as_json) as workspace:
        if orphans:
            if row_of(workspace, name).state == State.DROPPED:
                drop_subscription(workspace, name)
            else:
                with open_iteration(workspace, name) as iteration:
                    drop_due_snapshots(iteration)
        if lost:
            drop_lost_snapshots(workspace, name)
        found, sees_lost = list_snapshots(workspace, name)
    if as_json:
        show_json([asdict(entry) for entry in found])
        return
    cells = [(entry.name, entry.role, "yes" if entry.exists else "no") for entry in found]
    show_table(("snapshot", "for", "exists upstream"), cells, empty="no snapshot is recorded")
    if not orphans and any(entry.role == "orphan" and entry.exists for entry in found):
        out.print(f"drop the orphans with: ccpr snapshots {name} --orphans")
    if any(entry.role == LOST for entry in found):
        out.print(f"drop the lost ones with: ccpr snapshots {name} --lost")
    if not sees_lost:
        out.print("there may be lost ones that are not listed: only the account of the publisher can see all")
