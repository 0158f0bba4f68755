"""A state file from anywhere: what is accepted can be used, what is not is a typed error, and nothing else."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ccpr.maintenance.errors import BadStateFile, StateFileNewer
from ccpr.maintenance.state_document import owner_columns
from ccpr.maintenance.state_file import LARGEST_BYTES, export_state, import_state, read_state
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.state.context import Context
from ccpr.state.database import transaction
from ccpr.state.errors import SubscriptionMissing
from ccpr.state.history import PointHistory
from ccpr.state.ledger import Ledger
from ccpr.state.log import CcprLog
from ccpr.state.migrations import open_database
from ccpr.state.subscription import Subscription
from ccpr.state.tables import garbage, objects, points, references, table_points
from tests.support.values import NOW, a_subscription, a_table

UPSTREAM = "mysql://sys#dump:sealed@127.0.0.1:6001"
NO_MIRROR = Mirror(LocalStore(Path("does-not-exist")))
NAMES = [f"00000000-0000-4000-8000-00000000000{number}_00001" for number in range(3)]


def a_document() -> dict[str, Any]:
    """Two points of a table; its first object is garbage."""
    engine = open_database("sqlite://")
    subscription = a_subscription()
    mine, stamp = {"task_id": subscription.task_id}, NOW
    refs = [SnapshotRef(f"xr_{subscription.uid}_{lsn}_0", lsn, 0, 10 + lsn, 20.0 + lsn) for lsn in range(3)]
    context = Context(
        open=refs[2], current=refs[1], previous=refs[0], to_drop=(f"xr_{subscription.uid}_1_1",), attempts=1
    )
    row = replace(
        subscription.to_row(NOW),
        iteration_lsn=2,
        watermark=11,
        context=context.to_text(),
        iteration_state=1,
        error_message="R:1:2:3:X",
    )
    CcprLog(engine).insert(row)
    counts = {"tables_changed": 1, "objects_copied": 1, "bytes_copied": 7}
    table = {
        "table_id": 1,
        "gone": False,
        "database_name": "db",
        "table_name": "t",
        "kind": "table",
        "table_schema": json.dumps(a_table(1).to_json()),
        **dict.fromkeys(("objects", "appendable", "row_count", "bytes"), 1),
    }
    with transaction(engine) as connection:
        for lsn in range(2):
            point = {
                "lsn": lsn,
                "snapshot_ts": 10 + lsn,
                "snapshot": refs[lsn].name,
                "committed_at": stamp,
                "ledger": f"ledger/{lsn}-1.arrow",
            }
            connection.execute(points.insert().values(mine | point | counts))
            connection.execute(
                table_points.insert().values(mine | table | {"lsn": lsn, "manifest": f"manifests/1/{lsn}-1.arrow"})
            )
        for name in NAMES:
            connection.execute(objects.insert().values(mine | {"object_name": name, "size": 7, "sha256": bytes(32)}))
        for name in NAMES[1:]:
            connection.execute(
                references.insert().values(
                    mine | {"object_name": name, "table_id": 1, "from_lsn": 0, "until_lsn": None}
                )
            )
        connection.execute(garbage.insert().values(mine | {"path": f"objects/{NAMES[0]}", "due_at": 5}))
    return export_state(engine, subscription.name, NOW)


DOCUMENT = a_document()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in the document, from the root down."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


PLACES = places(DOCUMENT)[1:]
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([-1, 0, 1, 2, 3, 2**31, 2**63, -(2**63), 10**400])
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.sampled_from(
        [
            "",
            "..",
            "../../etc/passwd",
            "\ud800",
            "\0",
            "x" * 6000,
            "2026-11-21T00:00:00",
            "2026-11-21T00:00:00+01:00",
            "R:1",
        ]
    )
    | st.sampled_from(
        ["manifests/1/0-1.arrow", f"objects/{NAMES[1]}", "xr_000000000000_0_0", "points/000000000001.json", "{}", "[]"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """The document with one to three places replaced, taken out, or copied from elsewhere in it."""
    document = copy.deepcopy(DOCUMENT)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(PLACES))
        try:
            holder = document
            for key in way:
                holder = holder[key]
            match draw(st.sampled_from(["replace", "remove", "copy", "again"])):
                case "replace":
                    holder[last] = draw(anything)
                case "remove":
                    del holder[last]
                case "copy":
                    other: Any = DOCUMENT
                    for key in draw(st.sampled_from(PLACES)):
                        other = other[key]
                    holder[last] = copy.deepcopy(other)
                case "again":
                    holder.append(copy.deepcopy(holder[last]))
        except (KeyError, IndexError, TypeError, AttributeError):
            continue  # an earlier change has taken the place away
    return document


@pytest.mark.in_turn
@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
@example(DOCUMENT)
def test_a_changed_document_is_refused_or_can_be_used(document: Any) -> None:
    content = json.dumps(document).encode()
    engine = open_database("sqlite://")
    try:
        state = read_state(content)
        row = import_state(engine, state, "other", UPSTREAM, NOW, NO_MIRROR)
    except (BadStateFile, StateFileNewer):
        with pytest.raises(SubscriptionMissing):
            export_state(engine, "other", NOW)
        return
    assert CcprLog(engine).row("other") == row
    assert row.fence == state.row.fence + 1
    subscription, history = Subscription.from_row(row), PointHistory(engine, row.task_id)
    assert subscription.name == "other"
    assert all(name.startswith(f"xr_{subscription.uid}_") for name in Context.from_text(row.context).recorded())
    assert all(point.lsn < row.iteration_lsn for point in history.global_points())
    history.tables(row.iteration_lsn)
    ledger = Ledger(engine, row.task_id)
    known = {entry.name for entry in ledger.stored_objects()}
    assert not {name for name in known if ledger.references_to(name)} & {
        path.removeprefix("objects/") for path in ledger.due_garbage(2**62, 2**62)[0]
    }
    assert set(export_state(engine, "other", NOW)["tables"]) == set(owner_columns())


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | anything.map(json.dumps).map(str.encode))
def test_what_is_no_document_is_refused(content: bytes) -> None:
    with pytest.raises(BadStateFile):
        read_state(content)


def test_the_unchanged_document_is_read_back_whole() -> None:
    engine = open_database("sqlite://")
    import_state(engine, read_state(json.dumps(DOCUMENT).encode()), "sub", UPSTREAM, NOW, NO_MIRROR)
    again = export_state(engine, "sub", NOW)
    assert again["tables"] == DOCUMENT["tables"]
    differing = {key for key, value in again["subscription"].items() if DOCUMENT["subscription"][key] != value}
    assert differing == {"fence", "iteration_state"}, "who had run it counts as dead"


def test_a_file_without_end_is_not_read() -> None:
    class Endless(bytes):
        def __len__(self) -> int:
            return LARGEST_BYTES + 1

    with pytest.raises(BadStateFile, match="more than a state"):
        read_state(Endless())
