"""`ccpr subscribe`: check everything upstream, then write one row. Takes no snapshot."""

import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ccpr_cli.output import err, errors_told, out, show_json
from matrixone.upstream.endpoint import Endpoint, parse_uri
from matrixone.upstream.errors import BadUri
from matrixone.upstream.publications import Publication, account_id, check_admission
from matrixone.upstream.session import Session
from replication.copying import MOST_SESSIONS, Budget
from replication.errors import BadName
from replication.mirror import Mirror
from replication.store import open_store
from replication.subscription import DEFAULT_INTERVAL_SECONDS, Settings, Subscription, check_subscription_name
from resources.workspace import Workspace


def subscribe(
    name: Annotated[str, typer.Argument(help="The subscription's name: letters, digits, '_' and '-', at most 60.")],
    source: Annotated[
        str, typer.Option("--from", help="The upstream: 'mysql://account#user[:password]@host:port'; password may be env:NAME.")
    ],
    publication: Annotated[str, typer.Option(help="The publication upstream.")],
    database: Annotated[str, typer.Option(help="The database to replicate.")],
    publisher: Annotated[str, typer.Option(help="The account that owns the publication.")] = "sys",
    table: Annotated[str | None, typer.Option(help="Only this table of the database.")] = None,
    interval: Annotated[int, typer.Option(min=1, help="Seconds between iterations when the sensor runs them.")] = DEFAULT_INTERVAL_SECONDS,
    retain: Annotated[int, typer.Option(min=0, help="How many points stay readable; 0 keeps all.")] = 0,
    retain_for: Annotated[str, typer.Option(help="How long points stay readable, e.g. 90m, 24h, 7d; those of --retain stay anyway.")] = "0",
    password_file: Annotated[Path | None, typer.Option(help="A file whose first line is the password.")] = None,
    with_indexes: Annotated[bool, typer.Option("--with-indexes", help="Copy hidden index tables, too.")] = False,
    mirror: Annotated[str, typer.Option(help="A folder or s3://bucket/prefix for the mirror, instead of the state folder.")] = "",
    max_sessions: Annotated[int, typer.Option(min=1, max=MOST_SESSIONS, help="Upstream sessions that copy at once.")] = Budget().sessions,
    max_mb_s: Annotated[float, typer.Option(min=0, help="Megabytes a second that copying may take; 0 for all there is.")] = 0.0,
    flush: Annotated[str, typer.Option(help="on_demand: ask the upstream to flush a snapshot; wait: wait until it does.")] = "on_demand",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Subscribe to a published MatrixOne database (or one table of it)."""
    if flush not in ("on_demand", "wait"):
        raise typer.BadParameter("on_demand or wait", param_hint="--flush")
    with errors_told(as_json=as_json):
        check_subscription_name(name)
        endpoint, password = read_login(source, password_file)
        workspace = Workspace()
        with Session.connect(endpoint, password) as session:
            ticket = Publication(publication, publisher, account_id(session, publisher))
            check_admission(session, ticket, database, table)
        settings = Settings(interval, retain, seconds_option(retain_for), with_indexes, flush, max_sessions, max_mb_s, empty_store(mirror))
        subscription = Subscription.new(name, endpoint, password, workspace.vault, ticket, database, table, settings)
        workspace.log.insert(subscription.to_row(datetime.now(UTC)))
    if as_json:
        show_json({"name": name, "task_id": subscription.task_id, "home": str(workspace.home)})
    else:
        out.print(f"subscribed {name} to {subscription.scope} at {endpoint.address}; state in {workspace.home}", markup=False)
        out.print(f"next: ccpr run {name}", markup=False)


def empty_store(url: str) -> str:
    """The URL of a store that holds no mirror yet, as it will be opened again. Raises BadName, StoreFailed."""
    if not url:
        return ""
    store = open_store(url)
    if Mirror(store).published_head() is not None:
        raise BadName("there is a mirror already, of another subscription", subject=store.url, remedy="Choose an empty folder or prefix.")
    return store.url


def seconds_option(text: str) -> int:
    """The value of --retain-for. Raises typer.BadParameter."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    if found is None:
        raise typer.BadParameter("a number of seconds, or one with s, m, h or d", param_hint="--retain-for")
    return int(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def read_login(source: str, password_file: Path | None) -> tuple[Endpoint, str]:
    """The endpoint and the password: from the file, the environment (`env:NAME`), the URI itself, or asked for. Raises BadUri."""
    endpoint, password = parse_uri(source)
    if password_file is not None:
        try:
            return endpoint, password_file.read_text().partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            raise BadUri(
                "the password file cannot be read", subject=str(password_file), remedy="Check its path and permissions."
            ) from error
    if password is not None and password.startswith("env:"):
        variable = password.removeprefix("env:")
        if variable not in os.environ:
            raise BadUri("the environment variable of the password is not set", subject=f"env:{variable}", remedy=f"export {variable}=…")
        return endpoint, os.environ[variable]
    if password is not None:
        err.print("warning: a password on the command line is seen by others; use env:NAME or --password-file", style="yellow")
        return endpoint, password
    if not sys.stdin.isatty():
        raise BadUri("no password was given", subject=endpoint.masked(), remedy="Use env:NAME in the URI, or --password-file.")
    return endpoint, typer.prompt(f"Password for {endpoint.login}", hide_input=True)
