"""The statements of the seeds from a client: each calls what the command of `ccpr` calls. They need a login of an
operator, and are logged with the login and where it comes from."""

import logging

from ccpr.config.sql.sql_tokens import masked
from ccpr.config.sql.statement_parser import parse
from ccpr.config.sql.subscription_statements import (
    AlterSubscription,
    CreateSubscription,
    DropSubscription,
    PauseSubscription,
    ResumeSubscription,
    ShowSubscriptions,
    Statement,
)
from ccpr.matrixone.client.endpoint import Endpoint, parse_uri
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.server.answers import Done, ResultSet, StatementError
from ccpr.mysql.replicas import Replicas
from ccpr.mysql.show_answers import texts
from ccpr.mysql.statement_text import refused
from ccpr.service import subscriptions
from ccpr.service.drop import drop
from ccpr.state.errors import SubscriptionMissing
from ccpr.state.logins import LoginRole, PortLogin

_log = logging.getLogger(__name__)


def show_subscriptions(replicas: Replicas, login: PortLogin) -> ResultSet:
    """Its 8 columns, also where there is no subscription."""
    permitted = login.publications
    rows = [
        tuple(row.values())
        for row in subscriptions.show(replicas.workspace)
        if permitted is None or str(row["subscription_name"]).lower() in permitted
    ]
    return texts(subscriptions.SHOWN, rows)


def answered(replicas: Replicas, user: str, address: str, text: str) -> ResultSet | Done:
    """Raises StatementError 1227, SqlSyntax, and what the commands raise."""
    login, statements = replicas.login(user), parse(text)
    if len(statements) != 1:
        raise StatementError(1064, "SQL syntax: one statement at a time", "42000")
    statement = statements[0]
    if isinstance(statement, ShowSubscriptions):
        return show_subscriptions(replicas, login)
    said, name = f"{user} from {address}: {masked(text)}", f"login {user}"
    if login.role is not LoginRole.OPERATOR:
        _log.warning("%s: refused", said)
        remedy = f"`ccpr login alter {user} --role operator` where the state folder is"
        raise StatementError(1227, f"Access denied; {name} is no operator: {remedy}", "42000")
    try:
        _run(replicas, statement)
    except (CcprError, StatementError) as error:
        _log.warning("%s: %s", said, error)
        raise
    _log.warning("%s: done", said)
    return Done()


def _run(replicas: Replicas, statement: Statement) -> None:
    workspace = replicas.workspace
    match statement:
        case CreateSubscription():
            endpoint, password = _login_of(statement.uri)
            subscriptions.create(workspace, statement.wanted(endpoint, password))
        case AlterSubscription():
            endpoint, password = (None, "") if statement.uri is None else _login_of(statement.uri)
            subscriptions.alter(workspace, statement.name, statement.change(endpoint, password))
        case PauseSubscription():
            workspace.log.pause(statement.name)
        case ResumeSubscription():
            workspace.log.resume(statement.name)
        case DropSubscription():
            _drop(replicas, statement)
        case _:
            raise refused(type(statement).__name__, "it is a statement of `ccpr sql`, and not of this port")


def _drop(replicas: Replicas, statement: DropSubscription) -> None:
    if statement.purge or statement.force:
        raise refused("DROP SUBSCRIPTION … PURGE or FORCE", "it is typed where the files are: `ccpr drop`")
    try:
        task = replicas.workspace.log.row(statement.name).task_id
        replicas.let_go(task_id=task, at_once=True)
        drop(replicas.workspace, statement.name, purge=False, force=False)
    except SubscriptionMissing:
        if not statement.if_exists:
            raise


def _login_of(uri: str) -> tuple[Endpoint, str]:
    endpoint, password = parse_uri(uri)
    if password is None or password.startswith("env:"):  # variables of this process are nobody's business there
        raise refused("a URI without its password", "the service has no terminal to ask at, and gives no variable away")
    return endpoint, password
