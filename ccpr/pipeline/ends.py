"""Whether what the upstream says ends a subscription, or is tried again (decision ends-are-confirmed).

A server that is being stopped, started or upgraded says of what is there that it is not, and some cannot read their
past for minutes after a restart. So an end that the upstream says (`ccpr.matrixone.errors.Refused`) counts at once only
for a subscription that never worked. For others the present is asked after a pause, with a new login: it counts if that
is refused in the same way, and what the present does not confirm counts once it has been said for long enough.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from ccpr.base.clock import Clock
from ccpr.matrixone.client import upstream_snapshots
from ccpr.matrixone.client.errors import (
    AccessDenied,
    DatabaseMissing,
    HistoryUnreadable,
    NotPermitted,
    PublicationMissing,
    SnapshotGone,
    StaleRead,
    TableMissing,
    TlsFailed,
)
from ccpr.matrixone.client.publication_offers import check_admission
from ccpr.matrixone.client.table_catalog import TableCatalog, table_ids
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.errors import CcprError, Refused, Terminal
from ccpr.pipeline.errors import BaseSnapshotLost
from ccpr.state.context import Context, Doubt
from ccpr.state.errors import MirrorMissing
from ccpr.state.subscription import Subscription

CONFIRM_SECONDS = 3.0  # before the present is asked
DOUBT_SECONDS, DOUBT_TIMES = 900, 3  # how long, and how often, the same end has to be said that the present denies
_OF_THE_PRESENT = (AccessDenied, TlsFailed, NotPermitted, PublicationMissing, DatabaseMissing, TableMissing)
_logger = logging.getLogger(__name__)


def judge(
    error: CcprError,
    subscription: Subscription,
    context: Context,
    connect: Callable[[], Session],
    clock: Clock,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[bool, Context]:
    """Whether the error stops the subscription and requires operator action, and what is remembered of it otherwise.

    Parameters
    ----------
    context : of the iteration that failed; its `current` is the last point's snapshot.
    connect : logs in anew.
    clock : seconds since 1970.
    """
    if not isinstance(error, Refused):
        may_pass = isinstance(error, MirrorMissing)  # when its disk is mounted
        return isinstance(error, Terminal) and not may_pass, replace(context, doubt=None)
    if context.current is None:
        return True, context
    sleep(CONFIRM_SECONDS)
    if _is_confirmed(error, subscription, context, connect):
        return True, replace(context, doubt=None)
    now, known = round(clock()), context.doubt
    if known is None or known.code != error.code or known.first > now:  # or our clock was set back
        known = Doubt(error.code, now, 0)
    doubt = replace(known, times=known.times + 1)
    if doubt.times >= DOUBT_TIMES and now - doubt.first >= DOUBT_SECONDS:
        return True, replace(context, doubt=None)
    _logger.warning(
        "subscription %s: %s is not confirmed by what the upstream says now; it is tried again",
        subscription.name,
        error.code,
    )
    return False, replace(context, doubt=doubt)


def _is_confirmed(error: Refused, subscription: Subscription, context: Context, connect: Callable[[], Session]) -> bool:
    """Whether the present says the same, to a new login."""
    try:
        with connect() as session:
            if isinstance(error, BaseSnapshotLost):  # a stale read has been asked for again for half a minute
                return StaleRead.code in error.message or _is_base_gone(session, subscription, context)
            if isinstance(error, _OF_THE_PRESENT):
                check_admission(
                    session, subscription.publication, subscription.database, subscription.table, listed=True
                )
    except _OF_THE_PRESENT:
        return isinstance(error, _OF_THE_PRESENT)
    except CcprError as other:
        _logger.info("subscription %s: %s cannot be confirmed: %s", subscription.name, error.code, other)
    return False


def _is_base_gone(session: Session, subscription: Subscription, context: Context) -> bool:
    """Whether the upstream has the snapshot of the open iteration, and no longer that of the last point. Where it finds
    neither, it finds nothing."""
    publication = subscription.publication
    if context.open is None or context.current is None:
        return False
    upstream_snapshots.snapshot_timestamp(session, context.open.name, publication)
    try:
        upstream_snapshots.snapshot_timestamp(session, context.current.name, publication)
    except SnapshotGone:
        return True
    return False


def check_gone(session: Session, subscription: Subscription, catalog: TableCatalog, before: dict[int, str]) -> None:
    """Raises HistoryUnreadable if the catalog at the snapshot lacks a table of the last point that is there at present:
    ids are never used again, so it was not dropped, and the catalog at that time is not all that there was.

    Parameters
    ----------
    before : the database of each table of the last point, by its id. Databases that the subscription no longer chooses
        are skipped.
    """
    there = {table.id for table in catalog.tables} | {part.id for table in catalog.tables for part in table.partitions}
    chosen = {name for name in set(before.values()) if not subscription.of_account or subscription.chooses(name)}
    gone = {number for number in before.keys() - there if before[number] in chosen}
    for database in sorted({before[number] for number in gone}):
        present = table_ids(session, subscription.publication, database)
        wrong = sorted(name for name, number in present.items() if number in gone)
        if wrong:
            raise HistoryUnreadable(
                f"the catalog at {catalog.at} lacks {len(wrong)} tables that are there now, among them {wrong[0]}",
                subject=f"database {database}",
            )
