"""`ccpr login`: who may log in at the relay and at the port for MySQL clients, and what each login may use."""

import os
import secrets
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.cli.arguments import AsJson
from ccpr.cli.output import answer, err, opened, show_json, show_table
from ccpr.matrixone.client.errors import BadUri

if TYPE_CHECKING:
    from ccpr.service.workspace import Workspace
    from ccpr.state.logins import LoginRole, PortLogin

login = typer.Typer(help="Logins of the relay and of MySQL clients.", no_args_is_help=True)
LoginName = Annotated[str, typer.Argument(metavar="NAME", help="The login; letter case does not count.")]
PasswordEnv = Annotated[
    str | None,
    typer.Option("--password-env", metavar="VAR", help="The variable that the password is in; `-` asks for it."),
]
_ROLES = "relay|reader|operator"
_TABLE = "`t`, `db.t` or a pattern such as `shop.*`"
Subscriptions = Annotated[
    list[str] | None,
    typer.Option("--subscription", metavar="NAME", help="It may use this one only; repeat it for several."),
]
Tables = Annotated[
    list[str] | None,
    typer.Option("--tables", metavar="PATTERN", help=f"A reader sees these only: {_TABLE}; repeat it for several."),
]
Hidden = Annotated[
    list[str] | None,
    typer.Option("--hide", metavar="PATTERN", help="A reader does not see these columns: `c`, `t.c`, `db.t.c`."),
]
Rows = Annotated[
    list[str] | None,
    typer.Option(
        "--rows", metavar="TABLE:CONDITION", help=f"A reader sees the rows of {_TABLE} that satisfy it, in MySQL's SQL."
    ),
]


@login.command("add")
def add(
    name: LoginName,
    role: Annotated[str, typer.Option(metavar=_ROLES, help="What it is for.")],
    password_env: PasswordEnv = None,
    subscription: Subscriptions = None,
    tables: Tables = None,
    hide: Hidden = None,
    rows: Rows = None,
    as_json: AsJson = False,
) -> None:
    """Add a login: `relay` for another cluster, `reader` for a MySQL client, `operator` for one that may change
    subscriptions, too. Without --password-env a password is made and printed, this once: it is not stored. Without
    --subscription it may use all, also those to come."""
    from ccpr.matrixone.server.wrong_passwords import password_digest
    from ccpr.state.logins import PortLogin, PortLogins, ReadLimits

    wanted = _role(role)
    with opened(as_json=as_json) as workspace:
        given = None if password_env is None else _given(password_env)
        chosen = given or secrets.token_urlsafe(24)
        limits = ReadLimits(_named(tables), _named(hide), _conditions(rows))
        names = _publications(workspace, wanted, subscription)
        found = PortLogin(name.lower(), workspace.now(), wanted, names, limits)
        _try_conditions(workspace, found)
        PortLogins(workspace.log.engine, workspace.vault).add(found, password_digest(chosen))
    made = [] if given is not None else [f"its password, which is shown only now: {chosen}"]
    answer(
        _document(found) | ({"password": chosen} if made else {}),
        f"added login {found.name}, role {wanted}",
        *made,
        as_json=as_json,
    )


@login.command("alter")
def alter(
    name: LoginName,
    role: Annotated[str | None, typer.Option(metavar=_ROLES, help="What it is for.")] = None,
    password_env: PasswordEnv = None,
    subscription: Subscriptions = None,
    tables: Tables = None,
    hide: Hidden = None,
    rows: Rows = None,
    as_json: AsJson = False,
) -> None:
    """Change a login: each option in the place of what it said before, and with '' all of it is taken back. It holds
    for open sessions, too, within a second."""
    from dataclasses import replace

    from ccpr.matrixone.server.wrong_passwords import password_digest
    from ccpr.state.logins import PortLogins, ReadLimits

    if all(one is None for one in (role, password_env, subscription, tables, hide, rows)):
        raise typer.BadParameter("nothing is to be changed", param_hint="--role, --subscription …")
    with opened(as_json=as_json) as workspace:
        logins = PortLogins(workspace.log.engine, workspace.vault)
        before = logins.get(name)
        limits = ReadLimits(
            before.limits.tables if tables is None else _named(tables),
            before.limits.hidden if hide is None else _named(hide),
            before.limits.rows if rows is None else _conditions(rows),
        )
        after = replace(before, role=before.role if role is None else _role(role), limits=limits)
        if subscription is not None:
            after = replace(after, publications=_publications(workspace, after.role, subscription))
        _try_conditions(workspace, after)
        logins.change(after, None if password_env is None else password_digest(_given(password_env)))
    answer(_document(after), f"login {after.name}: {_told(after)}", as_json=as_json)


@login.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the logins. Followers of the relay have their own: `ccpr follower list`."""
    from ccpr.state.logins import PortLogins

    with opened(as_json=as_json) as workspace:
        found = PortLogins(workspace.log.engine, workspace.vault).all()
    if as_json:
        show_json([_document(one) for one in found])
        return
    show_table(
        ("login", "role", "created", "may use"),
        [(one.name, one.role, f"{one.created_at:%Y-%m-%d %H:%M}", _told(one)) for one in found],
        empty="no logins; add one with: ccpr login add NAME --role ROLE",
        fold="may use",
    )


@login.command("remove")
def remove(name: LoginName, as_json: AsJson = False) -> None:
    """Remove a login. Sessions that it has open see nothing any more, and end when their clients close them."""
    from ccpr.state.logins import PortLogins

    with opened(as_json=as_json) as workspace:
        PortLogins(workspace.log.engine, workspace.vault).drop(name)
    answer({"user": name.lower(), "dropped": True}, f"removed login {name.lower()}", as_json=as_json)


def _role(text: str) -> "LoginRole":
    from ccpr.state.logins import LoginRole

    try:
        return LoginRole(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is none of {_ROLES}", param_hint="--role") from error


def _named(patterns: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(one.strip() for one in patterns or () if one.strip())


def _conditions(rules: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    found = list[tuple[str, str]]()
    for rule in _named(rules):
        pattern, colon, condition = (part.strip() for part in rule.partition(":"))
        if not (pattern and colon and condition):
            raise typer.BadParameter(f"{rule!r} is not of the form TABLE:CONDITION", param_hint="--rows")
        found.append((pattern, condition))
    return tuple(found)


def _publications(workspace: "Workspace", role: "LoginRole", names: Sequence[str] | None) -> frozenset[str] | None:
    from ccpr.relay.offers import publications_named
    from ccpr.state.logins import LoginRole

    wanted = _named(names)
    return frozenset(publications_named(workspace, wanted, of_relay=role is LoginRole.RELAY)) if wanted else None


def _try_conditions(workspace: "Workspace", found: "PortLogin") -> None:
    """Whether the conditions of rows are understood. Raises what the port raises for one that is not."""
    if not found.limits.rows:
        return
    from ccpr.base.errors import require

    require("duckdb", "duckdb", "sqlglot", otherwise="A login without --rows needs neither.")
    from ccpr.mysql.login_limits import unused_conditions

    for pattern in unused_conditions(workspace, found):
        err.print(f"no table matches {pattern} now; its condition is tried when one is read", style="yellow")


def _document(found: "PortLogin") -> dict[str, Any]:
    return {
        "user": found.name,
        "role": found.role.value,
        "created_at": found.created_at.replace(tzinfo=None).isoformat(),
        "publications": None if found.publications is None else sorted(found.publications),
        "tables": list(found.limits.tables),
        "hidden": list(found.limits.hidden),
        "rows": [list(pair) for pair in found.limits.rows],
    }


def _told(found: "PortLogin") -> str:
    limits = found.limits
    parts = ["all subscriptions" if found.publications is None else ", ".join(sorted(found.publications)) or "nothing"]
    parts += [f"tables {', '.join(limits.tables)}"] if limits.tables else []
    parts += [f"without {', '.join(limits.hidden)}"] if limits.hidden else []
    return "; ".join([*parts, *(f"rows of {pattern} where {condition}" for pattern, condition in limits.rows)])


def _given(variable: str) -> str:
    """The password. Raises BadUri."""
    if variable != "-":
        given = os.environ.get(variable.removeprefix("env:"), "")
    elif sys.stdin.isatty():
        given = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        given = sys.stdin.readline().rstrip("\n")
    if not given:
        remedy = "Set the variable, or leave --password-env out. A password is never typed on the command line."
        raise BadUri(
            "no password was given", subject=f"--password-env {variable if variable == '-' else 'VAR'}", remedy=remedy
        )
    return given
