"""`ccpr relay`: serve mirrors to other clusters, its logins and its snapshots."""

import os
import secrets
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.base.wording import first_names
from ccpr.cli.arguments import AsJson, Name, seconds_option
from ccpr.cli.output import answer, err, opened, out, seconds_text, show_json, show_table
from ccpr.matrixone.client.errors import BadUri

if TYPE_CHECKING:
    from ccpr.relay.service import RelayService

relay = typer.Typer(help="Serve mirrors to other clusters: any MatrixOne can subscribe to one.", no_args_is_help=True)
user = typer.Typer(help="Logins of the relay. Nothing is served without one.", no_args_is_help=True)
relay.add_typer(user, name="user")
Publications = Annotated[
    list[str] | None,
    typer.Option("--publication", metavar="NAME", help="It may use this one only; repeat it for several."),
]
UserName = Annotated[str, typer.Argument(metavar="NAME", help="The user's name; letter case does not count.")]


@relay.command("serve")
def serve(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:6002",
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file of a certificate: then logins need TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key, if it is not in the same file.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Accept logins without TLS, also from other machines.")
    ] = False,
) -> None:
    """Serve all subscriptions of the state folder, except those to several databases, until SIGTERM or Ctrl-C: account
    sys, a publication for each, named as the subscription is; and look after its followers. The first line printed is
    `listening on HOST:PORT`."""
    from ccpr.base.ending import Ending
    from ccpr.relay.follower_watching import Watcher
    from ccpr.relay.relay_server import Listen
    from ccpr.relay.service import RelayService
    from ccpr.serve.descriptors import raise_limit
    from ccpr.serve.listening import serve as serve_components

    with opened(as_json=False) as workspace, Ending(signal.SIGTERM, signal.SIGINT) as ending:
        raise_limit()
        served = RelayService(workspace, Listen.parse(listen, tls_cert, tls_key, insecure=insecure))

        def ready() -> None:
            with suppress(OSError):  # a full disk under its output does not end a service
                print(f"listening on {served.address}", flush=True)
                warn_of_relay(served)

        serve_components([served, Watcher(workspace, served.quiet)], ending.wait, ready)


def warn_of_relay(served: "RelayService") -> None:
    """What it does not do, though it could be expected."""
    if left_out := served.left_out():
        err.print(f"not served, since they are to several databases: {first_names(left_out)}", style="yellow")
    if not served.has_logins():
        err.print(
            "the relay has no logins yet; let a cluster follow with: ccpr follower add NAME, or add a user "
            "with: ccpr relay user add USER",
            style="yellow",
        )


@user.command("add")
def add(
    name: UserName,
    password: Annotated[
        str | None, typer.Option(metavar="env:VARIABLE", help="Where the password is; `-` asks for it.")
    ] = None,
    publication: Publications = None,
    as_json: AsJson = False,
) -> None:
    """Add a login. Without --password a password is made and printed, this once: it is not stored. Without
    --publication it may use all publications, also those to come."""
    from ccpr.matrixone.server.guesses import password_digest
    from ccpr.relay.offers import publications_named
    from ccpr.state.relay_users import RelayUsers

    with opened(as_json=as_json) as workspace:
        given = None if password is None else _given(password)
        chosen = given or secrets.token_urlsafe(24)
        users = RelayUsers(workspace.log.engine, workspace.vault)
        limited = publications_named(workspace, publication) if publication else None
        users.add(name, password_digest(chosen), workspace.now(), limited)
    if as_json:
        show_json({"user": name.lower(), "publications": limited, **({"password": chosen} if given is None else {})})
        return
    out.print(f"added user {name.lower()}")
    if given is None:
        out.print(f"its password, which is shown only now: {chosen}")


@user.command("limit")
def limit(
    name: UserName,
    publication: Publications = None,
    all_publications: Annotated[
        bool, typer.Option("--all-publications", help="It may use all, also those to come.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set which publications a login may use, in place of those before. It holds for open sessions, too, within a
    second."""
    from ccpr.relay.offers import publications_named
    from ccpr.state.relay_users import RelayUsers

    if bool(publication) == all_publications:
        raise typer.BadParameter("give --publication NAME, or --all-publications", param_hint="--publication")
    with opened(as_json=as_json) as workspace:
        limited = publications_named(workspace, publication) if publication else None
        RelayUsers(workspace.log.engine, workspace.vault).limit(name, limited)
    answer(
        {"user": name.lower(), "publications": limited},
        f"user {name.lower()} may use {_publications(limited)}",
        as_json=as_json,
    )


@user.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the logins."""
    from ccpr.state.relay_users import RelayUsers

    with opened(as_json=as_json) as workspace:
        found = RelayUsers(workspace.log.engine, workspace.vault).all()
    if as_json:
        shown = [(one, None if one.publications is None else sorted(one.publications)) for one in found]
        show_json(
            [
                {"user": one.name, "created_at": one.created_at.replace(tzinfo=None).isoformat(), "publications": names}
                for one, names in shown
            ]
        )
        return
    show_table(
        ("user", "created", "publications"),
        [(one.name, f"{one.created_at:%Y-%m-%d %H:%M}", _publications(one.publications)) for one in found],
        empty="no users; add one with: ccpr relay user add NAME",
    )


@user.command("drop")
def drop(name: UserName, as_json: AsJson = False) -> None:
    """Drop a login. Sessions that it has open see nothing any more, and end when their clients close them."""
    from ccpr.state.relay_users import RelayUsers

    with opened(as_json=as_json) as workspace:
        RelayUsers(workspace.log.engine, workspace.vault).drop(name)
    answer({"user": name.lower(), "dropped": True}, f"dropped user {name.lower()}", as_json=as_json)


@relay.command("pins")
def pins(
    name: Name,
    drop_: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="SNAPSHOT", help="Drop this snapshot, so that its point may expire."),
    ] = None,
    forget_after: Annotated[
        str, typer.Option(help="Mark snapshots as forgotten that are unused for so long: seconds, or with m, h, d.")
    ] = "7d",
    as_json: AsJson = False,
) -> None:
    """List the snapshots that others took of a subscription through the relay, and those of copies, drills and other
    work under way ("this program"). Each keeps its point and all later ones. None goes by time: only an operator knows
    whether a cluster comes back."""
    after = seconds_option(forget_after, "--forget-after")
    with opened(as_json=as_json) as workspace:
        found = workspace.of(name).pins
        dropped = [one for one in drop_ or [] if found.drop(one.lower())]
        now = workspace.now()
        rows: list[dict[str, Any]] = [
            {
                "snapshot": pin.name,
                "lsn": pin.lsn,
                "login": pin.owner,
                "seen_at": pin.seen_at.isoformat(),
                "unused_seconds": max(0, round((now - pin.seen_at).total_seconds())),
                "forgotten": pin.is_forgotten(now, after),
            }
            for pin in found.all()
        ]
    if as_json:
        show_json({"pins": rows, "dropped": dropped})
        return
    for one in dropped:
        out.print(f"dropped {one}")
    show_table(
        ("snapshot", "point", "whose", "not used for", ""),
        [
            (
                row["snapshot"],
                row["lsn"],
                row["login"] or "",
                seconds_text(row["unused_seconds"]),
                "forgotten?" if row["forgotten"] else "",
            )
            for row in rows
        ],
        empty="no snapshots",
    )


def _publications(names: Iterable[str] | None) -> str:
    return "all" if names is None else ", ".join(sorted(names))


def _given(password: str) -> str:
    """Raises BadUri."""
    if password == "-":
        if sys.stdin.isatty():
            return typer.prompt("Password", hide_input=True, confirmation_prompt=True)
        given = sys.stdin.readline().rstrip("\n")
    else:
        variable = password.removeprefix("env:")
        if variable == password:
            raise BadUri(
                "others can see a password on the command line",
                subject="--password",
                remedy="Write --password env:VARIABLE, or --password - to be asked.",
            )
        given = os.environ.get(variable, "")
    if not given:
        raise BadUri("no password was given", subject="--password", remedy="Set the variable, or leave --password out.")
    return given
