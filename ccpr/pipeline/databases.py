"""The catalog of several databases of an account at one time (decision account-snapshots)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.errors import DatabaseMissing, HistoryUnreadable
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.table_catalog import (
    TableCatalog,
    joined_catalogs,
    read_catalog,
    table_versions,
)
from ccpr.matrixone.client.upstream_session import Session, integer, text
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind
from ccpr.pipeline.catalog_diff import DatabaseList
from ccpr.pipeline.errors import ScopeConflict, TableChangedMeanwhile
from ccpr.pipeline.table_lists import TableFailures, note_changed
from ccpr.state.subscription import Subscription

CAPITALS = "capitals"  # in the place of a relkind
TakeLists = Callable[[Mapping[str, int]], Mapping[str, SnapshotRef]]


def read_databases(
    session: Session, subscription: Subscription, ref: SnapshotRef, take: TakeLists
) -> tuple[TableCatalog, dict[str, DatabaseList], TableFailures]:
    """All databases that the subscription chooses, at the account's snapshot, what their lists are made of, and tables
    that were altered before the list's snapshot.

    The upstream says the DDL text of a table at a snapshot of its own account only, so at the later one of `take`,
    which takes a snapshot of each of the databases. Raises ScopeConflict if the account has none; TableChangedMeanwhile
    if a table was altered between the two, unless that is the failure of this table alone.
    """
    publication, patterns = subscription.publication, subscription.patterns
    catalogs: list[TableCatalog] = []
    lists: dict[str, DatabaseList] = {}
    failures: TableFailures = {}
    databases, others = chosen_databases(session, subscription, ref.at)
    for name, later in take(databases).items():
        catalog = read_catalog(session, publication, name, later.name, ref.at)
        then = {version.id: version for version in table_versions(session, publication, name, ref.at)}
        versions = table_versions(session, publication, name, later.at)
        now = {version.id: version for version in versions}
        for table in catalog.tables:
            ids = (table.id, *(part.id for part in table.partitions))
            if table.kind is Kind.TABLE and patterns.match(table.name) and any(now.get(n) != then.get(n) for n in ids):
                note_changed(table, failures, subscription.settings)
        catalogs.append(catalog)
        is_partitioned = any(version.is_partitioned for version in versions)
        lists[name] = DatabaseList(later, databases[name], {one.name: one.id for one in versions}, is_partitioned)
    joined = joined_catalogs(catalogs, ref.at)
    left_out = ((name, CAPITALS) for name in others)
    return replace(joined, unreplicated=(*joined.unreplicated, *left_out)), lists, failures


@contextmanager
def still_there(subscription: Subscription) -> Iterator[None]:
    """One of several databases that is missing was dropped since it was chosen: the next attempt takes new snapshots.
    Raises TableChangedMeanwhile."""
    try:
        yield
    except DatabaseMissing as error:
        if not subscription.of_account:
            raise
        message = f"a database was dropped meanwhile: {error.message}"
        raise TableChangedMeanwhile(message, subject=error.subject) from error


def chosen_databases(
    session: Session, subscription: Subscription, at: Timestamp | None = None
) -> tuple[dict[str, int], list[str]]:
    """The account's databases that the subscription chooses, at a time or now, with their ids; in order of name. And
    the names of those with capital letters: the upstream would take a snapshot of another one, or of none.

    One that is another account's, to which it subscribes, is none of them. Raises ScopeConflict if there is none;
    HistoryUnreadable if there is none at that time, and some are there now."""
    publication, physical = subscription.publication, None if at is None else at.physical
    answer = session.read(upstream_sql.select_all_databases(publication.publisher_id, physical))
    found = {}
    for number, cell, kind in answer.select("dat_id", "datname", "dat_type"):
        name = text(cell, "datname")
        if not text(kind or b"", "dat_type") and subscription.chooses(name):
            found[name] = integer(number, f"dat_id of {name}")
    listable = {name: number for name, number in sorted(found.items()) if name == name.lower()}
    if not listable and at is not None and chosen_databases(session, subscription)[0]:
        raise HistoryUnreadable(
            f"the catalog at {at} has none of the account's databases that are there now",
            subject=f"account {publication.publisher}",
        )
    if not listable:
        raise ScopeConflict(
            f"account {publication.publisher} has no database that matches {subscription.databases}",
            subject=f"subscription {subscription.name}",
            remedy=f"`ccpr alter {subscription.name} --databases …`, then `ccpr resume {subscription.name}`.",
        )
    return listable, sorted(found.keys() - listable.keys())
