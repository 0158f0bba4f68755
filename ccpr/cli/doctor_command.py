"""`ccpr doctor`: check this machine and the upstream before anything is copied."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ccpr.cli import completion
from ccpr.cli.arguments import Account, AsJson, PasswordFile, Scope
from ccpr.cli.asking import read_login
from ccpr.cli.output import counted, opened, out, show_json

if TYPE_CHECKING:
    from ccpr.doctor.check import Check
    from ccpr.service.workspace import Workspace
    from ccpr.state.log_rows import LogRow


_STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red", "skipped": "dim"}


def doctor(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A subscription: its upstream and its mirror are checked as well.",
            autocompletion=completion.subscriptions,
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="An upstream without a subscription; as in `subscribe`.")
    ] = None,
    database: Annotated[
        str | None, typer.Option(help="With --from: the database to replicate, or several as in `subscribe`.")
    ] = None,
    account: Account = None,
    table: Annotated[str | None, typer.Option(help="With --from: only this table.")] = None,
    publication: Annotated[
        str | None, typer.Option(help="With --from: the publication; if not given, it is looked up.")
    ] = None,
    publisher: Annotated[str | None, typer.Option(help="With --from: the account that owns the publication.")] = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine, and the upstream of a subscription or of --from. Nothing is changed. The exit code is 1 if a
    check failed."""
    from ccpr.doctor.machine_check import check_here
    from ccpr.doctor.upstream_check import CheckedUpstream, check_upstream, connect_once
    from ccpr.state.settings import Settings

    if name is not None and source is not None:
        raise typer.BadParameter("give a subscription or --from, not both", param_hint="--from")
    of_source = {"--database": database, "--table": table, "--publication": publication, "--publisher": publisher}
    if source is None and (alone := [option for option, given in of_source.items() if given is not None]):
        raise typer.BadParameter("it is for --from, which is not given", param_hint=alone[0])
    checks: list[Check] = []
    with opened(as_json=as_json) as workspace:
        _show(check_here(workspace), checks, as_json=as_json)
        if name is not None:
            _show(_checks_of(workspace, workspace.log.row(name)), checks, as_json=as_json)
        elif source is not None:
            endpoint, password = read_login(source, password_file)
            upstream = CheckedUpstream(endpoint, partial(connect_once, endpoint, password))
            scope = Scope.of(database, account, publisher)
            if scope is not None:
                upstream = replace(
                    upstream,
                    database=scope.database,
                    table=table,
                    publication=publication,
                    publisher=scope.publisher,
                    settings=Settings(databases=scope.databases),
                )
            _show(check_upstream(upstream, workspace.clock), checks, as_json=as_json)
    failed = sum(check.result.value == "failed" for check in checks)
    if as_json:
        show_json({"ok": not failed, "checks": [asdict(check) for check in checks]})
    else:
        warnings = sum(check.result.value == "warning" for check in checks)
        out.print(f"{counted(len(checks), 'check')}, {failed} failed, {counted(warnings, 'warning')}")
    if failed:
        raise typer.Exit(1)


def _checks_of(workspace: "Workspace", row: "LogRow") -> "Iterator[Check | None]":
    """Of a subscription. None where there is nothing to check."""
    from ccpr.doctor.machine_check import check_mirror_modes, check_mirror_room, check_mirror_store
    from ccpr.doctor.store_check import check_buckets, check_storage
    from ccpr.doctor.upstream_check import check_recorded_clock, check_upstream, upstream_of

    yield check_mirror_store(workspace, row)
    yield check_mirror_room(workspace, row)
    yield check_mirror_modes(workspace, row)
    yield from check_upstream(upstream_of(workspace, row), workspace.clock)
    yield from check_storage(workspace, row)
    yield from check_buckets(workspace, row)
    yield check_recorded_clock(row)


def _show(found: "Iterable[Check | None]", checks: "list[Check]", *, as_json: bool) -> None:
    """Add each check to `checks`, and print it as soon as it is known."""
    for check in filter(None, found):
        checks.append(check)
        if as_json:
            continue
        style = _STYLES[check.result.value]
        out.tell(f"{check.result.value:<7}", style, f"{check.side}: {check.what}: {check.told}")
        if check.remedy:
            out.print(f"{'':<8}remedy: {check.remedy}")
        if check.code:
            out.print(f"{'':<8}more:   ccpr explain {check.code}", style="dim")
