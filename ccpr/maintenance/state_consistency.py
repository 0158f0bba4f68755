"""What the state of a subscription must be to be imported: what would become a path, a statement upstream or a file to
delete is what this program itself would have written, and nothing in it contradicts the rest."""

import json
import re
import uuid
from collections.abc import Mapping
from typing import Any

from ccpr.maintenance.state_document import SubscriptionState
from ccpr.matrixone.schema import Kind, Table
from ccpr.mirror.kept_points import HOLD_NAME
from ccpr.mirror.layout import (
    DIGEST,
    MANIFEST,
    lsn_of_point,
    object_path,
    revision_of_kept,
    table_of_manifest,
)
from ccpr.state import tables as catalog
from ccpr.state.context import Context
from ccpr.state.point_rows import stored_parts
from ccpr.state.states import IterationState, State
from ccpr.state.subscription import check_subscription_name

_OBJECT = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}_[0-9]{5}"
_LEDGER = re.compile(rf"ledger/[0-9]{{1,19}}-[0-9]{{1,19}}(?:-{DIGEST})?\.arrow")
_DEFINITIONS = re.compile(rf"definitions/[0-9]{{1,19}}-[0-9]{{1,19}}-{DIGEST}\.json")
_POINT = re.compile(rf"points/([0-9]{{12,19}})(?:-{DIGEST})?\.json")
_KEPT = re.compile(rf"kept/([0-9]{{12,19}})-{DIGEST}\.json")
_FILES = (_KEPT, MANIFEST, _LEDGER, _DEFINITIONS, _POINT)
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
