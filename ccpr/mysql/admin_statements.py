"""The statements of the seeds from a client (`ccpr.config.sql.statement_running`). What changes anything, or asks an
upstream, needs a login of an operator, and is logged with the login and where it comes from."""

import logging
from collections.abc import Sequence
from typing import Any

from ccpr.config.sql.sql_tokens import masked
from ccpr.config.sql.statement_parser import parse
from ccpr.config.sql.statement_running import StatementResult, run
from ccpr.config.sql.subscription_statements import (
    CreateLake,
    DropLake,
    DropSubscription,
    SelectSubscriptions,
    ShowLakes,
    ShowStatus,
    ShowSubscriptions,
    Statement,
)
from ccpr.matrixone.client.endpoint import Endpoint, parse_uri
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.server.answers import StatementError
from ccpr.mysql.replicas import Replicas
from ccpr.mysql.statement_text import refused
from ccpr.state.errors import SubscriptionMissing
from ccpr.state.logins import LoginRole, PortLogin

_log = logging.getLogger(__name__)


def answered(replicas: Replicas, user: str, address: str, text: str) -> StatementResult:
    """Raises StatementError 1227, SqlSyntax, and what the commands raise."""
    login, statements = replicas.login(user), parse(text)
    if len(statements) != 1:
        raise StatementError(1064, "SQL syntax: one statement at a time", "42000")
    statement = statements[0]
    if isinstance(statement, ShowSubscriptions | ShowStatus):
        return _shown(replicas, login, statement)
    said = f"{user} from {address}: {masked(text)}"
    if login.role is not LoginRole.OPERATOR:
        _log.warning("%s: refused", said)
        remedy = f"`ccpr login alter {user} --role operator` where the state folder is"
        raise StatementError(1227, f"Access denied; login {user} is no operator: {remedy}", "42000")
    try:
        found = _run(replicas, statement)
    except (CcprError, StatementError) as error:
        _log.warning("%s: %s", said, error)
        raise
    _log.warning("%s: done", said)
    replicas.look_again()
    return found


def _shown(replicas: Replicas, login: PortLogin, statement: ShowSubscriptions | ShowStatus) -> StatementResult:
    """What a login may read of it. Errors may name tables, and so are not for one that does not see all of them."""
    if isinstance(statement, ShowStatus) and not _may_read(login, statement.name):
        raise SubscriptionMissing("there is no subscription of that name", subject=f"subscription {statement.name}")
    found = run(replicas.workspace, statement, _login_of)
    places = [n for n, name in enumerate(found.columns or ()) if name == "error_message" and login.limits]
    rows = [_without(row, places) for row in found.rows if _may_read(login, str(row[0]))]
    return StatementResult(found.statement, columns=found.columns, rows=rows)


def _without(row: Sequence[Any], places: Sequence[int]) -> Sequence[Any]:
    return [None if place in places else cell for place, cell in enumerate(row)]


def _may_read(login: PortLogin, name: str) -> bool:
    return login.publications is None or name.lower() in login.publications


def _run(replicas: Replicas, statement: Statement) -> StatementResult:
    if isinstance(statement, CreateLake | DropLake | ShowLakes | SelectSubscriptions):
        raise refused(type(statement).__name__, "it is a statement of `ccpr sql`, and not of this port")
    if isinstance(statement, DropSubscription):
        if statement.purge or statement.force:
            raise refused("DROP SUBSCRIPTION … PURGE or FORCE", "it is typed where the files are: `ccpr drop`")
        rows = [row for row in replicas.workspace.log.rows() if row.subscription_name == statement.name]
        for row in rows:
            replicas.let_go(task_id=row.task_id, at_once=True)
    return run(replicas.workspace, statement, _login_of)


def _login_of(uri: str) -> tuple[Endpoint, str]:
    endpoint, password = parse_uri(uri)
    if password is None or password.startswith("env:"):  # variables of this process are nobody's business there
        raise refused("a URI without its password", "the service has no terminal to ask at, and gives no variable away")
    return endpoint, password
