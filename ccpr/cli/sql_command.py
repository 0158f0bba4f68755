"""`ccpr sql`: statements about subscriptions and lakes (docs/reference/sql.md). Each calls the same function as the
command of `ccpr`."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.cli.arguments import AsJson, Yes
from ccpr.cli.asking import confirm, read_login
from ccpr.cli.output import handle_errors, out, show_json, show_table
from ccpr.cli.subscription_commands import report_dropped
from ccpr.config.errors import SqlSyntax
from ccpr.state.errors import TargetMissing

if TYPE_CHECKING:
    from ccpr.config.sql.statement_running import StatementResult
    from ccpr.config.sql.subscription_statements import CreateLake, DropLake, ShowLakes, Statement
    from ccpr.service.workspace import Workspace


def sql(
    statements: Annotated[
        str | None,
        typer.Argument(help="The statements, separated by ';'. If not given, they are read from standard input."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="A file of statements; UTF-8.")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Run statements: CREATE, ALTER, PAUSE, RESUME and DROP SUBSCRIPTION, SHOW SUBSCRIPTIONS, SHOW SUBSCRIPTION …
    STATUS, SHOW PUBLICATIONS FROM …, CREATE and DROP LAKE, SHOW LAKES, SELECT … FROM mo_sync_configs."""
    from ccpr.config.sql.statement_parser import parse
    from ccpr.service.workspace import Workspace

    if statements is not None and file is not None:
        raise typer.BadParameter("give statements or a file, not both", param_hint="--file")
    done: list[dict[str, Any]] = []
    with handle_errors(as_json=as_json, done=done), Workspace() as workspace:
        script = parse(_read(statements, file))  # all of it, before the first is run
        _agree(script, yes=yes, as_json=as_json)
        # One after the other: if one fails, `done` has what was done before.
        done.extend(_run(workspace, one, seen=statements is not None, as_text=not as_json) for one in script)
    if as_json:
        show_json(done)


def _agree(script: "Sequence[Statement]", *, yes: bool, as_json: bool) -> None:
    """Asked once for a script, before its first statement is run."""
    from ccpr.config.sql.subscription_statements import DropLake, DropSubscription

    purged = ", ".join(one.name for one in script if isinstance(one, DropSubscription) and one.purge)
    if purged:
        question = f"delete all files and points of {purged}? Nothing brings them back"
        confirm(question, subject=f"the mirror of {purged}", yes=yes, as_json=as_json)
    for one in script:
        if isinstance(one, DropLake) and one.purge:
            confirm(f"Delete the tables of lake {one.name}?", subject=f"lake {one.name}", yes=yes, as_json=as_json)


def _read(statements: str | None, file: Path | None) -> str:
    try:
        if statements is not None:
            return statements
        return sys.stdin.read() if file is None else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        subject = str(file or "standard input")
        raise SqlSyntax(
            f"the statements cannot be read: {error}", subject=subject, remedy="Check the path and that it is UTF-8."
        ) from error


def _run(workspace: "Workspace", statement: "Statement", *, seen: bool, as_text: bool) -> dict[str, Any]:
    """Run one statement. Returns what a script gets; `as_text` also prints it for people."""
    from ccpr.config.sql.statement_running import run
    from ccpr.config.sql.subscription_statements import CreateLake, DropLake, DropSubscription, ShowLakes

    match statement:
        case CreateLake():
            result = _create_lake(workspace, statement)
        case DropLake():
            result = _drop_lake(workspace, statement)
        case ShowLakes():
            return _show_lakes(workspace, statement, as_text=as_text)
        case _:
            forced = isinstance(statement, DropSubscription) and statement.force
            return _done(run(workspace, statement, partial(read_login, seen=seen)), as_text=as_text, forced=forced)
    if as_text:
        out.print(f"{result['statement']}: {result['name']}")
    return result


def _done(result: "StatementResult", *, as_text: bool, forced: bool) -> dict[str, Any]:
    if result.columns is not None:
        return _table(result.statement, result.columns, result.rows, as_text=as_text)
    if as_text and result.dropped is not None:
        report_dropped(result.dropped, forced=forced)
    elif as_text:
        out.print("; ".join([f"{result.statement}: {result.values['name']}", *result.warnings]))
    return {"statement": result.statement, **result.values}


def _create_lake(workspace: "Workspace", statement: "CreateLake") -> dict[str, Any]:
    from ccpr.service import lakes

    place = statement.subscription, statement.name, statement.uri
    added = lakes.add(workspace, *place, statement.options(), statement.database)
    return {"statement": "CREATE LAKE", "name": added.name, "subscription": statement.subscription, "uri": added.uri}


def _drop_lake(workspace: "Workspace", statement: "DropLake") -> dict[str, Any]:
    from ccpr.service import lakes

    result = {"statement": "DROP LAKE", "name": statement.name, "subscription": statement.subscription}
    try:
        uri = lakes.remove(workspace, statement.subscription, statement.name, purge=statement.purge)
    except TargetMissing:
        if not statement.if_exists:
            raise
        return {**result, "existed": False}
    return {**result, "existed": True, "uri": uri, "purged": statement.purge}


def _show_lakes(workspace: "Workspace", statement: "ShowLakes", *, as_text: bool) -> dict[str, Any]:
    from ccpr.lake.lake_options import options_of

    found = workspace.of(statement.subscription).targets.lakes()
    rows = [(one.name, one.uri, options_of(one).format.value, one.lsn, len(one.behind)) for one in found]
    return _table("SHOW LAKES", ("lake", "uri", "format", "lsn", "tables_behind"), rows, as_text=as_text)


def _table(statement: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, as_text: bool) -> dict[str, Any]:
    if as_text:
        show_table(columns, [["-" if cell is None else cell for cell in row] for row in rows], empty="no rows")
    return {
        "statement": statement,
        "columns": list(columns),
        "rows": [dict(zip(columns, row, strict=True)) for row in rows],
    }
