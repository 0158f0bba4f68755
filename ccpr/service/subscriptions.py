"""Creating, altering and showing subscriptions (docs/requirements.md O2 and N5). For dropping see
`ccpr.service.drop`.

The commands of `ccpr` and the statements of `ccpr sql` both call these functions. Everything is checked, here and
upstream, before anything is written. Nothing is written upstream.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from ccpr.matrixone.client import upstream_snapshots
from ccpr.matrixone.client.capabilities import Capabilities, check_interface, probe
from ccpr.matrixone.client.endpoint import AUTO, EVERYTHING, LOGICAL, SYS_ACCOUNT, Endpoint, format_uri, parse_uri
from ccpr.matrixone.client.errors import BadUri, DatabaseMissing, SnapshotGone
from ccpr.matrixone.client.publication_offers import Publication, check_admission, choose_publication
from ccpr.matrixone.client.table_catalog import present_tables
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.schema import SYSTEM_DATABASES
from ccpr.mirror.encryption_keys import IN_CLEAR, absolute_reference, with_key, without_key
from ccpr.mirror.open_store import folder_of, place_of
from ccpr.pipeline.errors import ScopeConflict
from ccpr.service.errors import ScopeOverlap, UpstreamDiffers
from ccpr.service.mirror_places import (
    check_empty,
    check_place,
    check_places_beside,
    check_writable,
    readable_subscriptions,
)
from ccpr.service.names_meant import similar_names
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.credentials import Vault
from ccpr.state.database import fetch, reading, repeatable
from ccpr.state.errors import BadSetting, StateUnreadable, SubscriptionExists
from ccpr.state.log_rows import LogRow
from ccpr.state.patterns import NamePatterns
from ccpr.state.settings import SETTINGS, Settings
from ccpr.state.states import IterationState, State, shown
from ccpr.state.subscription import Subscription, check_subscription_name, level_of


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscription to be created. `database`: EVERYTHING for several of an account, those of `settings.databases`.
    `table`: None for the whole database. `publication`, `publisher`: None if they are to be looked up upstream."""

    name: str
    endpoint: Endpoint
    password: str = field(repr=False)
    database: str
    table: str | None = None
    publication: str | None = None
    publisher: str | None = None
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """What `alter` changes. What is None, or missing from `settings`, stays as it is. `password` belongs to
    `endpoint`."""

    endpoint: Endpoint | None = None
    password: str = field(default="", repr=False)
    publication: str | None = None
    settings: Mapping[str, bool | int | float | str] = field(default_factory=dict)


_ONE_DATABASE = "Name it: --database DATABASE; another subscription for each further one."

# ---- create


def create(workspace: Workspace, wanted: Wanted) -> Subscription:
    """Check everything, then write one row. Raises what `checked` raises."""
    subscription, capabilities = checked(workspace, wanted, workspace.vault)

    def check(others: list[LogRow]) -> None:
        check_place(workspace, wanted.name, subscription.settings, others)
        _check_overlap(subscription, others)

    workspace.log.insert(subscription.to_row(workspace.now(), capabilities), check)
    return subscription


def checked(workspace: Workspace, wanted: Wanted, vault: Vault) -> tuple[Subscription, Capabilities]:
    """The subscription as it would be created, and what its upstream can. Nothing is written but, where it is missing,
    the vault's key.

    Raises BadName, BadSetting, SubscriptionExists, MirrorInUse, StoreFailed, ScopeOverlap, UpstreamTooOld,
    DatabaseMissing, and what `choose_publication` and `check_admission` raise.
    """
    check_subscription_name(wanted.name)
    check_settings(wanted.settings, wanted.database, wanted.table)
    rows, bad = workspace.log.all_rows()
    if any(row.subscription_name == wanted.name for row in (*rows, *bad)):
        raise SubscriptionExists("there is a subscription with that name", subject=f"subscription {wanted.name}")
    settings = canonical(wanted.settings)
    check_place(workspace, wanted.name, settings, rows)
    check_places_beside(workspace, wanted.name, settings, rows)
    check_empty(workspace, wanted.name, settings)
    _check_storage(settings)
    with Session(wanted.endpoint, wanted.password) as session:
        check_interface(session)
        database, table, publisher = wanted.database, wanted.table, wanted.publisher
        with similar_names(session, database, table, publisher):
            publication = choose_publication(
                session, database, table, wanted.publication, publisher, mode=settings.mode
            )
            check_admission(session, publication, database, table, listed=wanted.publication is not None)
        capabilities = probe(session)
        subscription = Subscription.new(
            wanted.name,
            wanted.endpoint,
            wanted.password,
            vault,
            publication,
            wanted.database,
            wanted.table,
            settings,
        )
        if subscription.of_account:
            check_databases(session, subscription)
        check_logical(session, subscription)
    check_writable(workspace, subscription)
    _check_overlap(subscription, rows)
    return subscription, capabilities


def check_logical(session: Session, subscription: Subscription) -> None:
    """What a subscription in logical mode cannot have. Raises BadSetting, ColumnNotCarried."""
    if not subscription.is_logical:
        return
    subject = f"subscription {subscription.name}"
    if subscription.of_account:
        raise BadSetting("in logical mode a subscription is to one database", subject=subject, remedy=_ONE_DATABASE)
    if subscription.settings.with_indexes:
        raise BadSetting(
            "in logical mode index tables are not copied", subject="with_indexes", remedy="Leave out --with-indexes."
        )
    from ccpr.pipeline.logical.own_objects import check_carried

    for table in present_tables(session, subscription.publication, subscription.database):
        if subscription.replicates(table) and subscription.patterns.match(table.name):
            check_carried(table)


def check_settings(settings: Settings, database: str, table: str | None) -> None:
    """Check that values are what they may be, and go with what is subscribed to. Raises BadSetting, BadName for a
    URL."""
    level = level_of(database, table)
    for setting in SETTINGS.values():
        setting.check(setting.of(settings), level)
    if database == EVERYTHING and table is not None:
        raise BadSetting(
            "one table is of one database, and several are named",
            subject="table",
            remedy=f"Name its database: --database DATABASE --table {table}; or choose from all: --tables {table}.",
        )
    canonical(settings)


def canonical(settings: Settings) -> Settings:
    """With absolute URLs, which can be opened from any working directory, and one text for all databases. Raises
    BadName."""
    values = {"databases": ""} if settings.databases.strip() == EVERYTHING else {}
    if settings.mirror:
        place, encrypt = without_key(settings.mirror)
        values |= {"mirror": place_of(place), **({"encrypt": encrypt} if encrypt else {})}
    if reference := values.get("encrypt", settings.encrypt):
        values["encrypt"] = absolute_reference(reference)
    if settings.copy_to:
        place, encrypt = without_key(settings.copy_to)
        values["copy_to"] = with_key(
            place_of(place), absolute_reference(encrypt) if encrypt not in ("", IN_CLEAR) else encrypt
        )
    if settings.drill_into and not settings.drill_into.startswith("mysql://"):
        values["drill_into"] = str(folder_of(settings.drill_into).absolute())
    if settings.objects_from:
        from ccpr.pipeline.storage import open_storage

        values["objects_from"] = open_storage(settings.objects_from).url
    return replace(settings, **values) if values else settings


def _check_storage(settings: Settings) -> None:
    """Whether objects can be read straight from storage. Raises StorageFailed, StorageMissing, StorageRefused."""
    if settings.objects_from:
        from ccpr.pipeline.storage import open_storage

        open_storage(settings.objects_from).check()


def check_databases(session: Session, subscription: Subscription) -> list[str]:
    """The databases of a subscription to several: all that are named, and any that patterns match. Raises
    DatabaseMissing."""
    from ccpr.pipeline.databases import chosen_databases

    account, names = subscription.publication.publisher, subscription.settings.database_patterns.names
    system = [name for name in names if name in SYSTEM_DATABASES]
    if system:
        raise DatabaseMissing("databases of the system are not replicated", subject=f"database {', '.join(system)}")
    try:
        found, _ = chosen_databases(session, subscription)
    except ScopeConflict as error:
        raise DatabaseMissing(error.message, subject=f"database {subscription.databases}") from error
    there = {name.lower() for name in found}
    missing = [name for name in names if name not in there]
    if missing:
        raise DatabaseMissing(
            f"account {account} has no database {', '.join(missing)}", subject=f"database {subscription.databases}"
        )
    return list(found)


def _check_overlap(subscription: Subscription, rows: list[LogRow]) -> None:
    """To copy the same tables twice is wasteful, and mostly a mistake, unless one of the two allows it. Raises
    ScopeOverlap."""
    if (other := overlapping(subscription, readable_subscriptions(rows))) is not None:
        raise ScopeOverlap(
            f"subscription {other.name} replicates {other.scope} of the same upstream",
            subject=f"subscription {subscription.name}",
        )


def overlapping(subscription: Subscription, others: Iterable[Subscription]) -> Subscription | None:
    """Another subscription that has some of the tables, though neither of the two allows it; None if there is none."""
    for other in others:
        if subscription.settings.allow_overlap or other.settings.allow_overlap:
            continue
        if other.task_id == subscription.task_id or _source(other) != _source(subscription):
            continue
        if all(mine.may_share(theirs) for mine, theirs in zip(_scope(subscription), _scope(other), strict=True)):
            return other
    return None


def _source(subscription: Subscription) -> tuple[str, int, str]:
    endpoint = subscription.endpoint
    return endpoint.host.lower(), endpoint.port, subscription.publication.publisher.lower()


def _scope(subscription: Subscription) -> tuple[NamePatterns, NamePatterns]:
    """Which databases, and which tables of them."""
    return (
        subscription.settings.database_patterns
        if subscription.of_account
        else NamePatterns.of_name(subscription.database),
        subscription.patterns if subscription.table is None else NamePatterns.of_name(subscription.table),
    )


# ---- alter


def alter(workspace: Workspace, name: str, change: SettingsChange) -> Subscription:
    """Change settings, the upstream's address or login, or the publication. A new address is checked as at creation,
    and must lead to the same cluster: one that has the snapshot of the last point. At another place for the mirror
    the subscription's mirror has to be. A run under way cannot commit any more.
    """
    row, after, reroute = checked_change(workspace, name, change)
    values = {
        "sync_config": after.settings.to_text(),
        "upstream_conn": format_uri(after.endpoint, after.sealed_password),
        "publication_name": after.publication.name,
    }
    return Subscription.from_row(workspace.log.alter(row, values, reroute=reroute))


def checked_change(workspace: Workspace, name: str, change: SettingsChange) -> tuple[LogRow, Subscription, bool]:
    """The subscription's row, what it would be after the change, and whether that is another way to the upstream or
    another place of the mirror. Nothing is written."""
    row = workspace.log.row(name)
    before = Subscription.from_row(row)
    after = replace(before, settings=replace(before.settings, **dict(change.settings)))
    for setting in SETTINGS.values():
        if not setting.changeable and setting.of(after.settings) != setting.of(before.settings):
            raise BadSetting(
                "it cannot be changed after creation",
                subject=setting.name,
                remedy="Create another subscription with it.",
            )
    check_settings(after.settings, after.database, after.table)
    after = replace(after, settings=canonical(after.settings))
    if _beside(after.settings) != _beside(before.settings):
        check_places_beside(workspace, name, after.settings, workspace.log.all_rows()[0])
    if after.settings.objects_from != before.settings.objects_from:
        _check_storage(after.settings)
    _check_overlap(
        after, [one for one in workspace.log.rows() if overlapping(before, readable_subscriptions([one])) is None]
    )
    reroute = change.endpoint is not None or change.publication is not None
    reroute = reroute or after.settings.mode not in (AUTO, before.mode)
    if bool(after.settings.encrypt) != bool(before.settings.encrypt) and row.iteration_lsn:
        raise BadSetting(
            "a mirror is encrypted from its first file on, or not at all",
            subject="encrypt",
            remedy="Copy it to another place, where it is encrypted: `ccpr copy NAME --to URL --encrypt KEY`.",
        )
    if _place(after.settings) != _place(before.settings):
        _check_moved(workspace, after, row)
    if reroute:
        after = _rerouted(workspace, after, change, row)
    return row, after, reroute or _place(after.settings) != _place(before.settings)


def _beside(settings: Settings) -> tuple[str, str, str]:
    return settings.mirror, settings.copy_to, settings.drill_into


def _place(settings: Settings) -> tuple[str, str]:
    return settings.mirror, settings.encrypt


def _check_moved(workspace: Workspace, subscription: Subscription, row: LogRow) -> None:
    """Its mirror is at another place. Raises MirrorInUse, MirrorDisagrees."""
    from ccpr.state.publishing import check_agreement

    settings = subscription.settings
    rows, _ = workspace.log.all_rows()
    check_place(workspace, subscription.name, settings, [other for other in rows if other.task_id != row.task_id])
    mirror = workspace.mirror_of(subscription)
    if row.iteration_lsn:
        check_agreement(workspace.log, row, mirror)
    else:
        check_empty(workspace, subscription.name, settings)


def _rerouted(workspace: Workspace, subscription: Subscription, change: SettingsChange, row: LogRow) -> Subscription:
    endpoint, sealed = subscription.endpoint, subscription.sealed_password
    password = change.password
    if change.endpoint is None:
        password = workspace.vault.open(sealed, endpoint)
        sealed = workspace.vault.bound(sealed, endpoint)
    else:
        endpoint, sealed = change.endpoint, workspace.vault.seal(password, change.endpoint)
    known = subscription.publication
    with Session(endpoint, password) as session:
        check_interface(session)
        mode, place = subscription.settings.mode, (subscription.database, subscription.table)
        stays = mode != LOGICAL and endpoint.account.lower() == SYS_ACCOUNT
        name = change.publication or (known.name or None if stays else None)
        publication = choose_publication(session, *place, name, known.publisher, mode=mode)
        check_admission(session, publication, *place, listed=True)
        context = Context.from_text(row.context)
        _check_same_cluster(session, publication, subscription, context)
        after = replace(subscription, endpoint=endpoint, sealed_password=sealed, publication=publication)
        check_logical(session, after)
    if _source(after) != _source(subscription):
        _check_overlap(after, workspace.log.rows())
    return after


def _check_same_cluster(
    session: Session, publication: Publication, subscription: Subscription, context: Context
) -> None:
    """Raises UpstreamDiffers."""
    subject = f"subscription {subscription.name}"
    if publication.publisher_id != subscription.publication.publisher_id:
        raise UpstreamDiffers(f"account {publication.publisher} has another id there", subject=subject)
    if context.current is None:
        return
    try:
        at = upstream_snapshots.snapshot_timestamp(session, context.current.name, publication)
    except SnapshotGone as error:
        raise UpstreamDiffers(
            f"it does not have snapshot {context.current.name} of the last point", subject=subject
        ) from error
    if at != context.current.at:
        raise UpstreamDiffers(f"its snapshot {context.current.name} is of another time", subject=subject)


# ---- show


def states_of(row: LogRow) -> dict[str, object]:
    """For scripts."""
    return {
        "name": row.subscription_name,
        "state": shown(row.state),
        "iteration_state": IterationState(row.iteration_state).name.lower(),
        "iteration_lsn": row.iteration_lsn,
    }


# The columns of SHOW SUBSCRIPTIONS
SHOWN = (
    "subscription_name",
    "upstream_conn",
    "database",
    "tables",
    "sync_interval",
    "status",
    "create_time",
    "update_time",
)


def show(workspace: Workspace) -> list[dict[str, Any]]:
    """SHOW SUBSCRIPTIONS with its 8 columns (O2). `status` is the state's code, 0 = normal; times are UTC."""
    rows, bad = workspace.log.all_rows()
    cells = [*map(_shown, rows), *(_unreadable(row.subscription_name) for row in bad)]
    return sorted(cells, key=lambda row: row["subscription_name"])


def _shown(row: LogRow) -> dict[str, Any]:
    try:
        subscription = Subscription.from_row(row)
    except StateUnreadable:
        return _unreadable(row.subscription_name)
    cells = (
        subscription.name,
        subscription.endpoint.masked(),
        subscription.databases,
        subscription.tables,
        subscription.settings.sync_interval,
        int(State(row.state)),
        _time(row.created_at),
        _time(row.updated_at),
    )
    return dict(zip(SHOWN, cells, strict=True))


def _unreadable(name: str) -> dict[str, Any]:
    """A row that cannot be read is shown with the state error; `ccpr status NAME` says what is wrong."""
    return {**dict.fromkeys(SHOWN), "subscription_name": name, "status": int(State.ERROR)}


@repeatable
def select(
    workspace: Workspace, source: str, columns: Sequence[str], where: Iterable[tuple[str, Any]]
) -> list[tuple[Any, ...]]:
    """These columns of the table or view, in the order of names. Passwords are masked."""
    query = sa.select(*map(sa.column, columns)).select_from(sa.table(source))
    query = query.where(*(sa.column(name) == value for name, value in where))
    with reading(workspace.log.engine) as connection:
        rows = fetch(connection, query.order_by(sa.column("subscription_name"), sa.column("created_at")))
    return [tuple(_readable(columns, row)) for row in rows]


def _readable(columns: Sequence[str], row: sa.Row) -> Iterator[Any]:
    for name, value in zip(columns, row, strict=True):
        if name == "upstream_conn":
            yield _masked(str(value))
        else:
            yield _time(value) if isinstance(value, datetime) else value


def _masked(uri: str) -> str:
    try:
        return parse_uri(uri)[0].masked()
    except BadUri:
        return "***"


def _time(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat(sep=" ")
