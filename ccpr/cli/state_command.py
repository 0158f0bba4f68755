"""`ccpr state`: a subscription's points and everything else that the catalog database has of it, written to a file and
read back (docs/requirements.md B11)."""

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccpr.cli.arguments import AsJson, Name, PasswordFile
from ccpr.cli.asking import read_login
from ccpr.cli.output import answer, counted, opened
from ccpr.maintenance.errors import BadStateFile
from ccpr.matrixone.client.endpoint import format_uri
from ccpr.matrixone.errors import Terminal
from ccpr.mirror.errors import StoreFailed
from ccpr.state.errors import StateUnreadable

if TYPE_CHECKING:
    from ccpr.maintenance.state_document import SubscriptionState
    from ccpr.service.workspace import Workspace


state = typer.Typer(help="Export a subscription's state, or import it for its mirror.", no_args_is_help=True)
Source = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="The upstream with its password, if the password in the state cannot be opened with this key file.",
    ),
]


class PasswordNeeded(Terminal):
    """The password in the state was sealed with another key file."""

    code = "PASSWORD_NEEDED"
    about = "key file"
    default_remedy = "Restore the key file of the lost state folder, or give --from 'mysql://…:env:NAME@…'."


@state.command("export")
def export(
    name: Name,
    to: Annotated[Path | None, typer.Option("--out", help="The file to write; if not given, standard output.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write everything that the catalog database has of a subscription as JSON. The password stays sealed."""
    from ccpr.maintenance.state_file import export_state

    with opened(as_json=as_json) as workspace:
        document = export_state(workspace.log.engine, name, workspace.now())
        text = json.dumps(document, ensure_ascii=False) + "\n"
        if to is not None:
            _write(to, text)
    if to is None:
        sys.stdout.write(text)
        return
    points = len(document["tables"]["ccpr_points"]["rows"])
    answer(
        {"name": name, "file": str(to.absolute()), "points": points, "bytes": len(text.encode())},
        f"state of {name}, {counted(points, 'point')}: {to}",
        as_json=as_json,
    )


@state.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A file that `ccpr state export` wrote.")],
    name: Annotated[str | None, typer.Option("--name", help="Another name for the subscription.")] = None,
    source: Source = None,
    password_file: PasswordFile = None,
    adopt_points: Annotated[
        bool,
        typer.Option("--adopt", help="The mirror is older or newer than the state: take the mirror's points."),
    ] = False,
    mirror_at: Annotated[
        str,
        typer.Option("--mirror", metavar="URL", help="Where the mirror is now: another place, or a second copy of it."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Create a subscription again from its exported state, for the mirror that it has. All of it or nothing is
    written."""
    from ccpr.maintenance.adopt import adopt
    from ccpr.maintenance.state_file import check_mirror, import_state, read_state
    from ccpr.mirror.mirror import Mirror
    from ccpr.service.subscriptions import check_settings
    from ccpr.state.subscription import check_subscription_name

    with opened(as_json=as_json) as workspace:
        found = read_state(_read(file))
        check_settings(found.subscription.settings, found.subscription.database, found.subscription.table)
        wanted = name or found.row.subscription_name
        check_subscription_name(wanted)
        found = _at(found, mirror_at) if mirror_at else _with_mirror(workspace, found, wanted)
        mirror = Mirror(workspace.mirror_store(wanted, found.subscription.settings))
        if not adopt_points:
            check_mirror(found, mirror)
        upstream = _upstream(workspace, found, source, password_file)
        row = import_state(workspace.log.engine, found, wanted, upstream, workspace.now(), mirror)
        if adopt_points:
            with workspace.lease(wanted) as lease:
                adopt(lease, mirror)
            row = workspace.log.row(wanted)
    answer(
        {"name": wanted, "task_id": row.task_id, "iteration_lsn": row.iteration_lsn, "home": str(workspace.home)},
        f"imported {wanted}, {row.iteration_lsn} iterations; state in {workspace.home}",
        f"next: ccpr verify {wanted}; ccpr run {wanted}",
        as_json=as_json,
    )


@state.command("adopt")
def adopt_(name: Name, as_json: AsJson = False) -> None:
    """Make the catalog database's records of a subscription again from its mirror, and go on from its newest point:
    when one of them was restored from an older copy."""
    from ccpr.maintenance.adopt import adopt
    from ccpr.state.subscription import Subscription

    with opened(as_json=as_json) as workspace, workspace.lease(name) as lease:
        adopted = adopt(lease, workspace.mirror_of(Subscription.from_row(lease.claim.row)))
    newest = "no point" if adopted.newest_point is None else f"newest {adopted.newest_point}"
    before = "none" if adopted.newest_before is None else str(adopted.newest_before)
    answer(
        {"name": name, **asdict(adopted)},
        f"adopted {counted(adopted.points, 'point')} of the mirror of {name}: {newest} (it was {before})",
        f"next: ccpr verify {name}; ccpr run {name}",
        as_json=as_json,
    )


def _at(found: "SubscriptionState", url: str) -> "SubscriptionState":
    """With its mirror there; the URL says where the key is, if that is another. Raises BadName."""
    from ccpr.service.subscriptions import canonical

    settings = canonical(replace(found.subscription.settings, mirror=url))
    return replace(found, row=replace(found.row, sync_config=settings.to_text()))


def _with_mirror(workspace: "Workspace", found: "SubscriptionState", name: str) -> "SubscriptionState":
    """With another name the mirror stays where it is; then the settings contain its place."""
    from ccpr.mirror.open_store import open_store

    settings, former = found.subscription.settings, workspace.default_mirror(found.row.subscription_name)
    if settings.mirror or name == found.row.subscription_name or not former.exists():
        return found
    return found.with_mirror(open_store(str(former)).url)


def _upstream(
    workspace: "Workspace", found: "SubscriptionState", source: str | None, password_file: Path | None
) -> str:
    """The URI to store, its password sealed with this key file. Raises PasswordNeeded, BadUri."""
    if source is not None:
        endpoint, password = read_login(source, password_file)
        return format_uri(endpoint, workspace.vault.seal(password, endpoint))
    endpoint = found.subscription.endpoint
    try:
        sealed = workspace.vault.bound(found.sealed_password, endpoint)
    except StateUnreadable as error:
        if not sys.stdin.isatty():
            raise PasswordNeeded(
                f"the password in the state cannot be opened with this key file: {error.message}",
                subject=error.subject,
            ) from error
        endpoint, password = read_login(format_uri(endpoint), None)
        return format_uri(endpoint, workspace.vault.seal(password, endpoint))
    return format_uri(endpoint, sealed)


def _read(file: Path) -> bytes:
    from ccpr.maintenance.state_file import LARGEST_BYTES

    try:
        if file.stat().st_size > LARGEST_BYTES:
            raise BadStateFile("it is larger than any state", subject=str(file))
        return file.read_bytes()
    except OSError as error:
        raise BadStateFile(
            f"it cannot be read: {error.strerror}", subject=str(file), remedy="Check its path and permissions."
        ) from error


def _write(file: Path, text: str) -> None:
    """Write the complete file or none, readable by its owner only."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StoreFailed(
            f"the file cannot be written: {error.strerror}", subject=str(file), remedy="Choose another --out."
        ) from error
