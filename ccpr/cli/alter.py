"""`ccpr alter`: another interval, another address of the same upstream, other settings."""

from pathlib import Path
from typing import Annotated

import typer

from ccpr.cli.arguments import AsJson, Name
from ccpr.cli.login_options import read_login
from ccpr.cli.output import handle_errors, out, show_json
from ccpr.cli.setting_options import Values, takes_settings
from ccpr.cli.subscribe import report_interval
from ccpr.state.settings import SETTINGS


@takes_settings(SETTINGS.values(), later=True)
def alter(
    name: Name,
    source: Annotated[
        str | None, typer.Option("--from", help="The same upstream at another address or with another login.")
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="A file whose first line is the password; with --from.")
    ] = None,
    publication: Annotated[str | None, typer.Option(help="Another publication of the same account.")] = None,
    *,
    settings: Values,
    as_json: AsJson = False,
) -> None:
    """Change a subscription. With --from or --publication everything is checked again, and a run under way cannot
    commit any more."""
    from ccpr.service.subscriptions import SettingsChange
    from ccpr.service.subscriptions import alter as alter_subscription
    from ccpr.service.workspace import Workspace

    if password_file is not None and source is None:
        raise typer.BadParameter("it needs --from", param_hint="--password-file")
    if not settings and source is None and publication is None:
        raise typer.BadParameter("nothing to change was given; see --help", param_hint="options")
    with handle_errors(as_json=as_json), Workspace() as workspace:
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
        out.print(f"altered {name}; its upstream is {subscription.endpoint.masked()}", markup=False)
        if "sync_interval" in settings:
            report_interval(settings["sync_interval"])
