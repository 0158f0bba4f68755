"""What statements about subscriptions do, for `ccpr sql` and for MySQL clients: each calls what the command of `ccpr`
calls."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ccpr.config.sql.statement_parser import READABLE
from ccpr.config.sql.subscription_statements import (
    AlterSubscription,
    CreateSubscription,
    DropSubscription,
    PauseSubscription,
    ResumeSubscription,
    SelectSubscriptions,
    ShowPublications,
    ShowStatus,
    ShowSubscriptions,
    SubscriptionStatement,
)
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.publication_offers import Offer, all_offers
from ccpr.matrixone.client.upstream_session import Session
from ccpr.pipeline.lag import LagMeter
from ccpr.service import subscriptions
from ccpr.service.drop import Dropped, drop
from ccpr.service.status import SubscriptionStatus, read_status
from ccpr.service.workspace import Workspace
from ccpr.state.errors import SubscriptionExists, SubscriptionMissing

PUBLICATIONS = ("publication", "publisher", "database", "tables", "accounts", "admits_login")


@dataclass(frozen=True, slots=True)
class StatementResult:
    """
    Attributes
    ----------
    statement : its first words.
    values : what a script gets of one that changes something.
    columns, rows : of one that shows something; else None.
    warnings : what does not follow from its having succeeded.
    dropped : how a drop ended.
    """

    statement: str
    values: dict[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    rows: Sequence[Sequence[Any]] = ()
    warnings: tuple[str, ...] = ()
    dropped: Dropped | None = None


def run(
    workspace: Workspace, statement: SubscriptionStatement, login_of: Callable[[str], tuple[Endpoint, str]]
) -> StatementResult:
    """Raises what the commands raise. `login_of` makes an endpoint and a password of a URI."""
    match statement:
        case CreateSubscription():
            return _create(workspace, statement, login_of)
        case AlterSubscription():
            endpoint, password = (None, "") if statement.uri is None else login_of(statement.uri)
            change = statement.change(endpoint, password)
            after = subscriptions.alter(workspace, statement.name, change)
            values = {"name": after.name, "upstream": after.endpoint.masked(), **change.settings}
            return StatementResult("ALTER SUBSCRIPTION", values)
        case PauseSubscription():
            return StatementResult("PAUSE SUBSCRIPTION", subscriptions.states_of(workspace.log.pause(statement.name)))
        case ResumeSubscription():
            return StatementResult("RESUME SUBSCRIPTION", subscriptions.states_of(workspace.log.resume(statement.name)))
        case DropSubscription():
            return _drop(workspace, statement)
        case ShowSubscriptions():
            rows = [tuple(row.values()) for row in subscriptions.show(workspace)]
            return StatementResult("SHOW SUBSCRIPTIONS", columns=subscriptions.SHOWN, rows=rows)
        case ShowStatus():
            status = read_status(workspace, workspace.log.row(statement.name), LagMeter(workspace.clock))
            cells = _status_cells(status)
            return StatementResult("SHOW SUBSCRIPTION STATUS", columns=tuple(cells), rows=[tuple(cells.values())])
        case ShowPublications():
            return StatementResult("SHOW PUBLICATIONS", columns=PUBLICATIONS, rows=offered(*login_of(statement.uri)))
        case SelectSubscriptions():
            columns = statement.columns or READABLE[statement.source]
            cells = subscriptions.select(workspace, statement.source, columns, statement.where)
            return StatementResult("SELECT", columns=columns, rows=cells)


def offered(endpoint: Endpoint, password: str) -> list[tuple[Any, ...]]:
    """What an upstream offers, a row of PUBLICATIONS each; those that the login may use first."""
    with Session(endpoint, password) as session:
        offers = all_offers(session)

    def row(offer: Offer) -> tuple[Any, ...]:
        names = offer.publication.name, offer.publication.publisher
        return *names, offer.database, offer.tables, offer.accounts, int(offer.admits(endpoint.account))

    return sorted(map(row, offers), key=lambda one: (-one[-1], one))


def _create(
    workspace: Workspace, statement: CreateSubscription, login_of: Callable[[str], tuple[Endpoint, str]]
) -> StatementResult:
    wanted = statement.wanted(*login_of(statement.uri))
    try:
        made = subscriptions.create(workspace, wanted)
    except SubscriptionExists as error:
        if not statement.if_not_exists:
            raise
        note = f"{error.subject} exists"
        return StatementResult("CREATE SUBSCRIPTION", {"name": wanted.name, "existed": True}, warnings=(note,))
    ticket = {"publication": made.publication.name, "publisher": made.publication.publisher}
    values = {"name": made.name, "task_id": made.task_id, **ticket}
    return StatementResult("CREATE SUBSCRIPTION", values)


def _drop(workspace: Workspace, statement: DropSubscription) -> StatementResult:
    words = "DROP SUBSCRIPTION"
    try:
        dropped = drop(workspace, statement.name, purge=statement.purge, force=statement.force)
    except SubscriptionMissing:
        if not statement.if_exists:
            raise
        return StatementResult(
            words, {"name": statement.name, "existed": False}, warnings=(f"there is no {statement.name}",)
        )
    left = (dropped.left, *dropped.statements) if dropped.snapshots_left else ()
    return StatementResult(words, {"existed": True, **asdict(dropped)}, dropped=dropped, warnings=left)


def _status_cells(status: SubscriptionStatus) -> dict[str, Any]:
    """By column."""
    error = status.last_error
    return {
        "subscription_name": status.name,
        "state": str(status.state),
        "ok": int(status.ok),
        "lag_seconds": None if status.lag_seconds is None else round(status.lag_seconds, 1),
        "newest_point": status.newest_point,
        "iteration_lsn": status.iteration_lsn,
        "watermark": status.watermark,
        "step": None if status.step is None else status.step.title,
        "tables_in_quarantine": len(status.quarantined),
        "targets_behind": sum(bool(target.behind) for target in status.targets),
        "error_code": None if error is None else error.code,
        "error_message": None if error is None else error.message,
        "remedy": None if error is None else error.remedy,
    }
