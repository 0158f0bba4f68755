"""`ccpr config init`: ask, and write a file for `ccpr config apply`."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from ccpr.cli.arguments import AsJson
from ccpr.cli.asking import is_interactive
from ccpr.cli.config_command import FILE
from ccpr.cli.configuration_file import write
from ccpr.cli.database_options import is_several
from ccpr.cli.output import handle_errors, out, show_json

_ENV = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


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
        write(file, text, force=force)
    if as_json:
        show_json({"file": str(file), "variables": variables, "text": text})
        return
    out.print(f"wrote {file}; next:")
    for variable in variables:
        out.print(f"  export {variable}=…")
    out.print(f"  ccpr config apply{'' if file == FILE else f' -f {file}'}")


def _name_of(database: str) -> str:
    return re.sub("[^A-Za-z0-9_-]+", "_", database)[:60]


def _written(
    source: str, database: str, name: str, table: str | None, interval: str, to: str | None
) -> tuple[str, list[str]]:
    """The text, and the variables of the passwords. Raises BadUri, BadTargetUri, ConfigInvalid."""
    from ccpr.config.document import written
    from ccpr.config.reading import read_text
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
