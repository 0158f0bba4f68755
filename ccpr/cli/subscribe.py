"""`ccpr subscribe`: check everything upstream, then write one row. Takes no snapshot."""

from pathlib import Path
from typing import Annotated

import typer

from ccpr.cli.arguments import AsJson
from ccpr.cli.database_options import Account, Database, Scope
from ccpr.cli.login_options import read_login
from ccpr.cli.output import err, handle_errors, out, show_json
from ccpr.cli.setting_options import Values, takes_settings
from ccpr.state.settings import SENSOR_SECONDS, SETTINGS, Settings


def report_interval(seconds: int) -> None:
    """Say at once if the sensor cannot hold it."""
    if seconds < SENSOR_SECONDS:
        err.print(
            f"an interval of {seconds} s is shorter than Dagster's sensor looks, every {SENSOR_SECONDS} s: with it "
            f"iterations come every {SENSOR_SECONDS} s or later",
            markup=False,
            style="yellow",
        )


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
        str | None, typer.Option(help="The publication upstream; if not given, the one that covers the database.")
    ] = None,
    publisher: Annotated[
        str | None, typer.Option(help="The account that owns the publication; if not given, it is looked up.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="Only this table of the database.")] = None,
    password_file: Annotated[Path | None, typer.Option(help="A file whose first line is the password.")] = None,
    *,
    settings: Values,
    as_json: AsJson = False,
) -> None:
    """Subscribe to a published MatrixOne database (or one table of it, or those that match), or to several databases of
    an account, which have their points together."""
    from ccpr.service.subscriptions import Wanted, create
    from ccpr.service.workspace import Workspace

    scope = Scope.of(database, account, publisher)
    if scope is None:
        raise typer.BadParameter("name a database, or an account with --account", param_hint="--database")
    chosen = Settings(**settings, databases=scope.databases)
    with handle_errors(as_json=as_json), Workspace() as workspace:
        endpoint, password = read_login(source, password_file)
        place = (scope.database, table, publication, scope.publisher)
        wanted = Wanted(name, endpoint, password, *place, chosen)
        subscription = create(workspace, wanted)
    if as_json:
        ticket = {"publication": subscription.publication.name, "publisher": subscription.publication.publisher}
        show_json({"name": name, "task_id": subscription.task_id, **ticket, "home": str(workspace.home)})
    else:
        out.print(
            f"subscribed {name} to {subscription.scope} at {endpoint.address}; state in {workspace.home}", markup=False
        )
        report_interval(chosen.sync_interval)
        out.print(f"next: ccpr run {name}", markup=False)
