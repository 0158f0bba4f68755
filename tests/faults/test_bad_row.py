"""A row of `mo_ccpr_log` that cannot be read: it is reported, the other subscriptions go on, and it can be dropped."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ccpr.service.workspace import Workspace
from ccpr.state.database import transaction
from tests.support.replica import NAME, Replica, replaying, source_uri

BAD = "bad"
pytestmark = pytest.mark.recordings
DAMAGES = [
    "state = 7",
    "iteration_lsn = 'x'",
    "created_at = 'yesterday'",
    "fence = 1.5",
    "sync_config = '{'",
    "upstream_conn = 'nowhere'",
    "context = '[]'",
]


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    with replaying(recordings / "table_level", home) as replica:
        yield replica


def login(replica: Replica) -> list[str]:
    about, port = replica.about, replica.emulator.port
    source = source_uri(port)
    scope = ["--table", about.table] if about.table else []
    return [
        *scope,
        "--from",
        source,
        "--database",
        about.database,
        "--publication",
        f"pub_{about.folder.name}",
        "--publisher",
        about.publisher,
    ]


def damaged(replica: Replica, damage: str) -> None:
    """A subscription that has run, and whose row is then damaged."""
    replica.command("subscribe", BAD, *login(replica))
    replica.command("run", BAD)
    with closing(Workspace()) as workspace, transaction(workspace.log.engine) as connection:
        connection.exec_driver_sql(f"UPDATE mo_ccpr_log SET {damage} WHERE subscription_name = '{BAD}'")


def by_name(entries: list[dict[str, Any]], key: str = "name") -> dict[str, dict[str, Any]]:
    return {entry[key]: entry for entry in entries}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_row_that_cannot_be_read_is_reported_and_the_others_go_on(damage: str, replica: Replica) -> None:
    damaged(replica, damage)
    replica.subscribe("--allow-overlap")
    assert replica.run()["point"]
    replica.assert_equal_to_source(2)  # the damaged subscription took the first snapshot
    status = by_name(replica.command("status", code=1))
    assert status[NAME]["ok"]
    assert (status[BAD]["ok"], status[BAD]["state"]) == (False, "unreadable")
    assert status[BAD]["last_error"]["code"] == "STATE_UNREADABLE"
    assert "--force" in status[BAD]["last_error"]["remedy"]
    assert by_name(replica.command("subscriptions"))[NAME]["state"] == "idle"
    assert "cannot be read" in by_name(replica.command("subscriptions"))[BAD]["last_error"]["message"]
    shown = by_name(replica.command("sql", "SHOW SUBSCRIPTIONS")[0]["rows"], "subscription_name")
    assert shown[NAME]["status"] == 0
    assert BAD in shown
    assert replica.command("run", BAD, code=1)["error"]["code"] == "STATE_UNREADABLE"
    assert replica.command("subscribe", BAD, *login(replica), code=1)["error"]["code"] == "SUBSCRIPTION_EXISTS"


@pytest.mark.parametrize("damage", ["state = 7", "sync_config = '{'", "context = '[]'"])
def test_a_row_that_cannot_be_read_can_be_dropped_by_force(damage: str, replica: Replica) -> None:
    damaged(replica, damage)
    held = {snapshot.name for snapshot in replica.emulator.snapshots()}
    assert replica.command("drop", BAD, code=1)["error"]["code"] == "STATE_UNREADABLE"
    dropped = replica.command("drop", BAD, "--force")
    assert set(dropped["snapshots_left"]) == (set() if "context" in damage else held)
    assert all(name in "".join(dropped["statements"]) for name in dropped["snapshots_left"])
    assert replica.command("subscriptions") == []
    assert replica.command("status") == []
    assert (replica.folder / "home" / "mirrors" / BAD / "head.json").exists()
    replica.command("drop", BAD, "--purge", "--yes")
    assert not (replica.folder / "home" / "mirrors" / BAD).exists()
    replica.command("subscribe", BAD, *login(replica))
    assert replica.command("run", BAD)["point"]


def test_force_keeps_the_row_of_a_subscription_that_can_be_read(replica: Replica) -> None:
    """Here the key file cannot be read: the row is not lost for that."""
    replica.subscribe()
    replica.run()
    (replica.folder / "home" / "key").write_bytes(b"no key")
    dropped = replica.command("drop", NAME, "--force")
    assert dropped["snapshots_left"]
    assert "STATE_UNREADABLE" in dropped["reason"]
