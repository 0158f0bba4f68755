"""`ccpr alter`: another interval, another address of the same upstream, other settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccpr.cli.arguments import AsJson, Name
from ccpr.cli.logins import read_login, seconds_option
from ccpr.cli.output import handle_errors, out, show_json
from ccpr.cli.subscribe import report_interval
from ccpr.state.settings import MOST_SESSIONS

if TYPE_CHECKING:
    from ccpr.config.sql.parser import Value


def alter(
    name: Name,
    interval: Annotated[
        int | None, typer.Option(min=1, help="Seconds between iterations when the sensor runs them.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="The same upstream at another address or with another login.")
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="A file whose first line is the password; with --from.")
    ] = None,
    publication: Annotated[str | None, typer.Option(help="Another publication of the same account.")] = None,
    retain: Annotated[int | None, typer.Option(min=0, help="How many points stay readable; 0 keeps all.")] = None,
    retain_for: Annotated[
        str | None, typer.Option(help="How long points stay readable, for example 90m, 24h, 7d.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="Which points stay by the calendar: all:2h,hourly:48,daily:14,weekly:8,yearly:7; '': none."),
    ] = None,
    retain_files: Annotated[
        str | None, typer.Option(help="How long files stay that no point names any more, for who still reads: 10m, 1h.")
    ] = None,
    drill_every: Annotated[
        str | None, typer.Option(help="How often `ccpr serve` tries a restore: 12h, 7d; 0: never.")
    ] = None,
    drill_into: Annotated[
        str | None, typer.Option(help="Where to: a folder, or mysql://user:env:NAME@host:port; '': the state folder.")
    ] = None,
    verify_within: Annotated[
        str | None, typer.Option(help="In which time `ccpr serve` reads all files of the mirror again: 30d; 0: never.")
    ] = None,
    max_sessions: Annotated[
        int | None, typer.Option(min=1, max=MOST_SESSIONS, help="Upstream sessions that copy at the same time.")
    ] = None,
    max_mb_s: Annotated[
        float | None, typer.Option(min=0, help="Megabytes per second that copying may use; 0: no limit.")
    ] = None,
    flush: Annotated[str | None, typer.Option(help="on_demand or wait.")] = None,
    consistency: Annotated[str | None, typer.Option(help="together or isolated.")] = None,
    resync_limit: Annotated[
        int | None, typer.Option(min=0, help="Bytes that may be copied without asking if the base snapshot was lost.")
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option(help="Where the mirror is now: a folder or s3://bucket/prefix; '' for the state folder."),
    ] = None,
    encrypt: Annotated[
        str | None,
        typer.Option(metavar="file:PATH|env:NAME|command", help="Where the key of its encrypted mirror is now."),
    ] = None,
    shared: Annotated[
        bool | None,
        typer.Option(
            "--shared/--not-shared",
            help="Whether other users of this machine may read the mirror's files that are written from now on.",
        ),
    ] = None,
    invalid_text: Annotated[
        str | None,
        typer.Option(help="How export and targets get text that is not UTF-8: escape, replace, binary or error."),
    ] = None,
    zero_dates: Annotated[
        str | None, typer.Option(help="What export gives for the date 0000-00-00: null, keep or error.")
    ] = None,
    max_lag: Annotated[
        str | None, typer.Option(help="How old its state may be, for example 90s, 10m; 0: two intervals and a minute.")
    ] = None,
    objects_from: Annotated[
        str | None,
        typer.Option(help="The upstream's storage, to read objects straight from it; '' asks the upstream for them."),
    ] = None,
    databases: Annotated[
        str | None,
        typer.Option(help="Of a subscription to several databases: those that match one of these patterns; '*': all."),
    ] = None,
    tables: Annotated[
        str | None, typer.Option(help="Only tables that match one of these patterns from now on; '' for all.")
    ] = None,
    exclude_tables: Annotated[
        str | None, typer.Option(help="Without tables that match one of these patterns; '' excludes none.")
    ] = None,
    allow_overlap: Annotated[
        bool | None,
        typer.Option(
            "--allow-overlap/--no-overlap", help="Whether it may have tables that another subscription has, too."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change a subscription. With --from or --publication everything is checked again, and a run under way cannot
    commit any more."""
    from ccpr.service.subscriptions import SettingsChange
    from ccpr.service.subscriptions import alter as alter_subscription
    from ccpr.service.workspace import Workspace

    given: dict[str, Value | None] = {
        "sync_interval": interval,
        "retain": retain,
        "retain_for": None if retain_for is None else seconds_option(retain_for, "--retain-for"),
        "keep": keep,
        "retain_files": None if retain_files is None else seconds_option(retain_files, "--retain-files"),
        "drill_every": None if drill_every is None else seconds_option(drill_every, "--drill-every"),
        "drill_into": drill_into,
        "verify_within": None if verify_within is None else seconds_option(verify_within, "--verify-within"),
        "max_sessions": max_sessions,
        "max_mb_s": max_mb_s,
        "flush": flush,
        "consistency": consistency,
        "resync_limit": resync_limit,
        "mirror": mirror,
        "encrypt": encrypt,
        "shared": shared,
        "invalid_text": invalid_text,
        "zero_dates": zero_dates,
        "objects_from": objects_from,
        "databases": databases,
        "tables": tables,
        "exclude_tables": exclude_tables,
        "allow_overlap": allow_overlap,
        "max_lag": None if max_lag is None else seconds_option(max_lag, "--max-lag"),
    }
    settings = {setting: value for setting, value in given.items() if value is not None}
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
        if interval is not None:
            report_interval(interval)
