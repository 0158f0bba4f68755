"""Exports and imports the state of a subscription: everything that the catalog database has about it, so that a lost
catalog database can be created again for an existing mirror. Source: docs/requirements.md B11; decision
state-folder.

The document is JSON: `format`, `version`, `catalog_version`, `exported_at`, `subscription` (its row of `mo_ccpr_log`,
without owner and lease), `sealed_password` (as stored: only the same key file opens it), and `tables`: `columns` and
`rows` of each table of the catalog database with rows of subscriptions. Times are ISO texts (UTC), bytes hexadecimal.
"""

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from ccpr.maintenance.errors import BadStateFile, MirrorContradictsState, StateFileNewer
from ccpr.maintenance.state_document import FORMAT, NOT_EXPORTED, VERSION, SubscriptionState, owner_columns, parse_state
from ccpr.matrixone.client.endpoint import format_uri, parse_uri
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import Kind, Table
from ccpr.mirror.kept_points import HOLD_NAME
from ccpr.mirror.layout import (
    DIGEST,
    KEPT,
    MANIFEST,
    POINT,
    Identity,
    lsn_of_point,
    object_path,
    revision_of_kept,
    table_of_manifest,
)
from ccpr.mirror.mirror import Mirror
from ccpr.state import tables as catalog
from ccpr.state.context import Context
from ccpr.state.database import batches, fetch, reading, transaction
from ccpr.state.errors import SubscriptionExists, SubscriptionMissing
from ccpr.state.log_rows import LogRow
from ccpr.state.migrations import SCHEMA_VERSION
from ccpr.state.pins import give_to_followers
from ccpr.state.point_rows import stored_parts
from ccpr.state.publishing import new_epoch
from ccpr.state.states import IterationState, State
from ccpr.state.subscription import check_subscription_name
from ccpr.state.tables import METADATA, mo_ccpr_log

LARGEST_BYTES = 1 << 30
_INSERT_ROWS = 1000  # rows of one INSERT


# ---- export


def export_state(engine: sa.Engine, name: str, now: datetime) -> dict[str, Any]:
    """The document of one subscription, all of it at one moment. Raises SubscriptionMissing."""
    if engine.dialect.name != "sqlite":  # where a transaction that reads sees one moment anyway
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with reading(engine) as connection:
        query = sa.select(mo_ccpr_log).where(
            mo_ccpr_log.c.subscription_name == name, mo_ccpr_log.c.state != State.DROPPED
        )
        found = fetch(connection, query)
        if not found:
            raise SubscriptionMissing("there is no subscription of that name", subject=f"subscription {name}")
        row = found[0]._mapping
        tables = {}
        for table_name, column in sorted(owner_columns().items()):
            table = METADATA.tables[table_name]
            rows = fetch(
                connection, sa.select(table).where(column == row["task_id"]).order_by(*table.primary_key.columns)
            )
            tables[table_name] = {
                "columns": [one.name for one in table.columns],
                "rows": [[_written(cell) for cell in one] for one in rows],
            }
    endpoint, sealed = parse_uri(row["upstream_conn"])
    exported = {
        one.name: _written(row[one.name])
        for one in mo_ccpr_log.columns
        if one.name not in NOT_EXPORTED and one.name != "live_name"
    }
    return {
        "format": FORMAT,
        "version": VERSION,
        "catalog_version": SCHEMA_VERSION,
        "exported_at": now.astimezone(UTC).isoformat(),
        "subscription": {**exported, "upstream": format_uri(endpoint)},
        "sealed_password": sealed or "",
        "tables": tables,
    }


def _written(cell: Any) -> Any:
    if isinstance(cell, datetime):
        return cell.replace(tzinfo=None).isoformat()
    return cell.hex() if isinstance(cell, bytes) else cell


# ---- read


def read_state(content: bytes) -> SubscriptionState:
    """The checked state of a document of `export_state`. Raises BadStateFile, StateFileNewer."""
    if len(content) > LARGEST_BYTES:
        raise BadStateFile(f"{len(content)} bytes are more than a state file may have", subject="state file")
    try:
        state = parse_state(json.loads(content))
        check_consistent(state)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        text = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise BadStateFile(f"it cannot be read: {text:.300}", subject="state file") from error
    except CcprError as error:
        if isinstance(error, BadStateFile | StateFileNewer):
            raise
        raise BadStateFile(f"it cannot be read: {error.message:.300}", subject=error.subject) from error
    return state


# ---- import


def check_mirror(state: SubscriptionState, mirror: Mirror) -> None:
    """Raises MirrorContradictsState unless the mirror belongs to the state, and is neither older nor newer than it.

    One difference is accepted: the last commit may not have been published. The next command publishes it. Raises
    MirrorDamaged, StoreFailed.
    """
    row, made = state.row, {point["lsn"]: point for point in state.of(catalog.points)}
    head, identity = mirror.published_head(), mirror.identity()
    if head is None:
        if row.iteration_lsn:
            raise _contradicts(mirror, "there is no mirror at this place, but the state has one")
        return
    if identity is not None and identity.task_id != row.task_id:
        raise _contradicts(mirror, f"the mirror is that of subscription {identity.subscription!r}")
    if identity is not None and row.epoch not in (None, identity.epoch):
        raise _contradicts(mirror, "another catalog database has taken the mirror over since")
    if head.iteration_lsn > row.iteration_lsn:
        raise _contradicts(mirror, f"the mirror is at iteration {head.iteration_lsn}, the state at {row.iteration_lsn}")
    if head.iteration_lsn == row.iteration_lsn and head.watermark != row.watermark:
        raise _contradicts(mirror, "the mirror has another watermark")
    if head.newest_point is not None:
        known, point = made.get(head.newest_point), mirror.point(head.newest_point)
        if known is None or (point.at.physical, point.snapshot) != (known["snapshot_ts"], known["snapshot"]):
            raise _contradicts(mirror, f"the state does not have the mirror's point {head.newest_point}")
    if head.iteration_lsn == row.iteration_lsn and head.newest_point != max(made, default=None):
        raise _contradicts(mirror, "the mirror lacks points of the state")
    there = set(mirror.store.names("manifests"))
    named = (path for row in state.of(catalog.table_points) for path in manifests_of(row))
    lacking = [name for name in named if name not in there]
    if lacking:
        raise _contradicts(mirror, f"the mirror lacks {lacking[0]} and {len(lacking) - 1} more files")


def _contradicts(mirror: Mirror, text: str) -> MirrorContradictsState:
    return MirrorContradictsState(text, subject=mirror.store.url)


def import_state(
    engine: sa.Engine,
    state: SubscriptionState,
    name: str,
    upstream_conn: str,
    now: datetime,
    mirror: Mirror,
) -> LogRow:
    """Write the state in one transaction, and a new epoch into the mirror's identity. Returns the row as written.
    Raises SubscriptionExists.

    An iteration that was running counts as ended; it is continued from its recorded snapshot. The fence is raised, so
    that an executor on a catalog database that was believed lost cannot commit here. The epoch is new, so that it
    cannot go on with the mirror, either; killed between the two, this one cannot until `adopt`.
    """
    check_subscription_name(name)
    identity = mirror.identity()
    iterating = state.row.iteration_state in (IterationState.PENDING, IterationState.RUNNING)
    row = replace(
        state.row,
        subscription_name=name,
        upstream_conn=upstream_conn,
        iteration_state=IterationState.COMPLETE if iterating else state.row.iteration_state,
        fence=state.row.fence + 1,
        epoch=None if identity is None else new_epoch(),
        updated_at=now,
    )
    try:
        with transaction(engine) as connection:
            connection.execute(
                mo_ccpr_log.insert().values(
                    live_name=name, **{field.name: getattr(row, field.name) for field in fields(row)}
                )
            )
            for table_name, rows in state.tables.items():
                for batch in batches(rows, _INSERT_ROWS):
                    connection.execute(METADATA.tables[table_name].insert(), batch)
            give_to_followers(connection)  # a file of before has no logins
    except IntegrityError as error:
        text = "there is a subscription of that name, or this one under another name"
        remedy = (
            "Drop it first. If it was dropped here, its record stays in this catalog database: set another CCPR_HOME."
        )
        raise SubscriptionExists(text, subject=f"subscription {name}", remedy=remedy) from error
    if identity is not None and row.epoch is not None:
        mirror.write_identity(Identity(row.task_id, name, row.epoch, guarded=identity.guarded))
    return row


_OBJECT = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}_[0-9]{5}"
_LEDGER = re.compile(rf"ledger/[0-9]{{1,19}}-[0-9]{{1,19}}(?:-{DIGEST})?\.arrow")
_DEFINITIONS = re.compile(rf"definitions/[0-9]{{1,19}}-[0-9]{{1,19}}-{DIGEST}\.json")
_FILES = (KEPT, MANIFEST, _LEDGER, _DEFINITIONS, POINT)
_GARBAGE = re.compile("|".join((rf"objects/{_OBJECT}", *(one.pattern for one in _FILES))))


def check_consistent(state: SubscriptionState) -> None:
    """Raises ValueError, TypeError, KeyError, and errors of ours."""
    _check_row(state)
    _check_points(state)
    _check_files(state)


def _check_row(state: SubscriptionState) -> None:
    row = state.row
    check_subscription_name(row.subscription_name)
    if str(uuid.UUID(row.task_id)) != row.task_id:
        raise ValueError("task_id is not a UUID as this program writes it")
    if State(row.state) is State.DROPPED or min(row.iteration_lsn, row.watermark, row.fence, row.account_id) < 0:
        raise ValueError("the subscription was dropped, or one of its numbers is negative")
    IterationState(row.iteration_state)
    if row.sync_level != state.subscription.level:  # which parses the settings, too
        raise ValueError("sync_level contradicts db_name or table_name")
    uid = state.subscription.uid
    context = Context.from_text(row.context)
    ours = re.compile(rf"xr_{uid}_[0-9]{{1,19}}_[0-9]{{1,19}}(_[0-9a-f]{{6,24}})?")
    foreign = [name for name in context.recorded() if not ours.fullmatch(name)]
    if foreign:  # recorded snapshots are dropped upstream
        raise ValueError(f"snapshot {foreign[0]!r:.80} is not one of this subscription")


def _check_points(state: SubscriptionState) -> None:
    made = {row["lsn"] for row in state.of(catalog.points)}
    if not all(0 <= lsn < state.row.iteration_lsn for lsn in made):
        raise ValueError("a point is of an iteration that has not ended")
    for row in state.of(catalog.points):
        if row["ledger"] and not _LEDGER.fullmatch(row["ledger"]):
            raise ValueError(f"{row['ledger']!r:.80} is not a ledger's name")
        if row["file"] is not None and lsn_of_point(row["file"]) != row["lsn"]:
            raise ValueError(f"{row['file']!r:.80} is not the name of point {row['lsn']}")
    _check_kept(state, made)
    for row in state.of(catalog.point_definitions):
        if row["lsn"] not in made or not _DEFINITIONS.fullmatch(row["file"]):
            raise ValueError(f"{row['file']!r:.80} is not the name of what point {row['lsn']} has besides tables")
    for row in state.of(catalog.table_points):
        table = Table.from_json(json.loads(row["table_schema"]))
        if (
            table.id != row["table_id"]
            or table.kind is not Kind(row["kind"])
            or not 0 <= row["lsn"] < state.row.iteration_lsn
        ):
            raise ValueError(f"the state of table {row['table_id']} at {row['lsn']} contradicts itself")
        if (row["manifest"] != "") == row["gone"]:
            raise ValueError(f"table {table.id} has a manifest and is gone, or neither")
        if row["manifest"] and table_of_manifest(row["manifest"]) != table.id:
            raise ValueError(f"{row['manifest']!r:.80} is not a manifest's name of table {table.id}")
        stored_parts(table.id, row["parts"])


def manifests_of(row: Mapping[str, Any]) -> list[str]:
    """The manifest of a table point, and the files that it goes on from."""
    return [*filter(None, [row["manifest"]]), *stored_parts(row["table_id"], row["parts"])]


def _check_kept(state: SubscriptionState, made: set[int]) -> None:
    for row in state.of(catalog.holds):
        if not HOLD_NAME.fullmatch(row["hold_name"]) or row["lsn"] not in made:
            raise ValueError(f"{row['hold_name']!r:.80} does not hold a point")
    for row in state.of(catalog.kept_points):
        if row["lsn"] not in made or not row["lsn"] < row["next_lsn"] < state.row.iteration_lsn:
            raise ValueError(f"point {row['next_lsn']} cannot have come after point {row['lsn']}")
    for row in state.of(catalog.kept):
        if row["revision"] < 1 or revision_of_kept(row["file"]) != row["revision"]:
            raise ValueError(f"{row['file']!r:.80} is not the name of a list of kept points")


def _check_files(state: SubscriptionState) -> None:
    """The files that are recorded as garbage will be deleted, so none of them may be needed."""
    objects = {row["object_name"] for row in state.of(catalog.objects)}
    if not all(re.fullmatch(_OBJECT, name) for name in objects):
        raise ValueError("the name of an object is not valid")
    if any(len(row["sha256"]) != 32 or row["size"] < 0 for row in state.of(catalog.objects)):
        raise ValueError("a checksum does not have 32 bytes, or a size is negative")
    named = {row["object_name"] for row in state.of(catalog.references)}
    if not named <= objects:
        raise ValueError("a table refers to an object that is not in the ledger")
    needed = {object_path(name) for name in named}
    needed.update(path for row in state.of(catalog.table_points) for path in manifests_of(row))
    for row in state.of(catalog.points):
        needed |= {row["ledger"], row["file"]}
    needed |= {row["file"] for table in (catalog.point_definitions, catalog.kept) for row in state.of(table)}
    for row in state.of(catalog.garbage):
        if not _GARBAGE.fullmatch(row["path"]) or row["path"] in needed:
            raise ValueError(f"{row['path']!r:.80} may not be deleted")
