"""`ccpr subscribe`: check everything upstream, then write one row. Takes no snapshot."""

from pathlib import Path
from typing import Annotated

import typer

from ccpr.cli.arguments import AsJson
from ccpr.cli.logins import read_login, seconds_option
from ccpr.cli.output import err, handle_errors, out, show_json
from ccpr.cli.scope import Account, Database, Scope
from ccpr.state.settings import MOST_SESSIONS, SENSOR_SECONDS, Settings

_DEFAULT = Settings()
Interval = Annotated[int, typer.Option(min=1, help="Seconds between iterations when the sensor runs them.")]


def report_interval(seconds: int) -> None:
    """Say at once if the sensor cannot hold it."""
    if seconds < SENSOR_SECONDS:
        err.print(
            f"an interval of {seconds} s is shorter than Dagster's sensor looks, every {SENSOR_SECONDS} s: with it "
            f"iterations come every {SENSOR_SECONDS} s or later",
            markup=False,
            style="yellow",
        )


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
    interval: Interval = _DEFAULT.sync_interval,
    retain: Annotated[int, typer.Option(min=0, help="How many points stay readable; 0 keeps all.")] = 0,
    retain_for: Annotated[
        str,
        typer.Option(help="How long points stay readable, for example 90m, 24h, 7d; those of --retain stay anyway."),
    ] = "0",
    keep: Annotated[
        str, typer.Option(help="Which points stay by the calendar: all:2h,hourly:48,daily:14,weekly:8,yearly:7.")
    ] = "",
    retain_files: Annotated[
        str, typer.Option(help="How long files stay that no point names any more, for who still reads: 10m, 1h.")
    ] = f"{_DEFAULT.retain_files}s",
    drill_every: Annotated[
        str, typer.Option(help="How often `ccpr serve` tries a restore: 12h, 7d; 0: never. See `ccpr drill`.")
    ] = "0",
    drill_into: Annotated[
        str, typer.Option(help="Where to: a folder, or mysql://user:env:NAME@host:port; if empty, the state folder.")
    ] = "",
    verify_within: Annotated[
        str, typer.Option(help="In which time `ccpr serve` reads all files of the mirror again: 30d; 0: never.")
    ] = "0",
    password_file: Annotated[Path | None, typer.Option(help="A file whose first line is the password.")] = None,
    with_indexes: Annotated[bool, typer.Option("--with-indexes", help="Copy hidden index tables as well.")] = False,
    mirror: Annotated[
        str, typer.Option(help="A folder or s3://bucket/prefix for the mirror, instead of the state folder.")
    ] = "",
    encrypt: Annotated[
        str,
        typer.Option(
            metavar="file:PATH|env:NAME|command",
            help="Encrypt the mirror's files with the key that is there, before they leave this process.",
        ),
    ] = "",
    max_sessions: Annotated[
        int, typer.Option(min=1, max=MOST_SESSIONS, help="Upstream sessions that copy at the same time.")
    ] = _DEFAULT.max_sessions,
    max_mb_s: Annotated[
        float, typer.Option(min=0, help="Megabytes per second that copying may use; 0: no limit.")
    ] = 0.0,
    flush: Annotated[
        str, typer.Option(help="on_demand: ask the upstream to flush a snapshot; wait: wait until it does.")
    ] = _DEFAULT.flush,
    consistency: Annotated[
        str,
        typer.Option(help="together: all tables move to a point or none; isolated: a failing table is left behind."),
    ] = _DEFAULT.consistency,
    resync_limit: Annotated[
        int, typer.Option(min=0, help="Bytes that may be copied without asking if the base snapshot was lost; 0 asks.")
    ] = 0,
    shared: Annotated[
        bool, typer.Option("--shared", help="Let other users of this machine read the mirror, as the umask says.")
    ] = False,
    invalid_text: Annotated[
        str,
        typer.Option(help="How export and targets get text that is not UTF-8: escape, replace, binary or error."),
    ] = _DEFAULT.invalid_text,
    zero_dates: Annotated[
        str, typer.Option(help="What export gives for the date 0000-00-00: null, keep or error.")
    ] = _DEFAULT.zero_dates,
    max_lag: Annotated[
        str, typer.Option(help="How old its state may be, for example 90s, 10m; 0: two intervals and a minute.")
    ] = "0",
    objects_from: Annotated[
        str,
        typer.Option(
            help="The upstream's storage, to read objects straight from it: s3://bucket/prefix, gs://bucket/prefix or "
            "file:///data-dir/shared."
        ),
    ] = "",
    tables: Annotated[
        str, typer.Option(help="Only tables that match: patterns with * and ?, joined by commas, as 'order_*,item'.")
    ] = "",
    exclude_tables: Annotated[str, typer.Option(help="Without tables that match one of these patterns.")] = "",
    allow_overlap: Annotated[
        bool, typer.Option("--allow-overlap", help="It may have tables that another subscription has, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Subscribe to a published MatrixOne database (or one table of it, or those that match), or to several databases of
    an account, which have their points together."""
    from ccpr.service.subscriptions import Wanted, create
    from ccpr.service.workspace import Workspace

    scope = Scope.of(database, account, publisher)
    if scope is None:
        raise typer.BadParameter("name a database, or an account with --account", param_hint="--database")
    settings = Settings(
        sync_interval=interval,
        retain=retain,
        retain_for=seconds_option(retain_for, "--retain-for"),
        keep=keep,
        drill_every=seconds_option(drill_every, "--drill-every"),
        drill_into=drill_into,
        verify_within=seconds_option(verify_within, "--verify-within"),
        retain_files=seconds_option(retain_files, "--retain-files"),
        with_indexes=with_indexes,
        flush=flush,
        max_sessions=max_sessions,
        max_mb_s=max_mb_s,
        mirror=mirror,
        encrypt=encrypt,
        consistency=consistency,
        resync_limit=resync_limit,
        shared=shared,
        invalid_text=invalid_text,
        zero_dates=zero_dates,
        max_lag=seconds_option(max_lag, "--max-lag"),
        objects_from=objects_from,
        databases=scope.databases,
        tables=tables,
        exclude_tables=exclude_tables,
        allow_overlap=allow_overlap,
    )
    with handle_errors(as_json=as_json), Workspace() as workspace:
        endpoint, password = read_login(source, password_file)
        place = (scope.database, table, publication, scope.publisher)
        wanted = Wanted(name, endpoint, password, *place, settings)
        subscription = create(workspace, wanted)
    if as_json:
        chosen = {"publication": subscription.publication.name, "publisher": subscription.publication.publisher}
        show_json({"name": name, "task_id": subscription.task_id, **chosen, "home": str(workspace.home)})
    else:
        out.print(
            f"subscribed {name} to {subscription.scope} at {endpoint.address}; state in {workspace.home}", markup=False
        )
        report_interval(interval)
        out.print(f"next: ccpr run {name}", markup=False)
