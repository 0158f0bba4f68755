import errno
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ccpr.matrixone.client.errors import (
    AccessDenied,
    DatabaseMissing,
    NotFlushedYet,
    PublicationMissing,
    SnapshotGone,
    SnapshotOutcomeUnknown,
    UpstreamBusy,
    UpstreamUnreachable,
)
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.upstream_snapshots import (
    CHECKPOINT_FROM_TABLES,
    create_snapshot,
    drop_snapshot,
    flush_requests,
    flush_tables,
    is_flushed,
    snapshot_timestamp,
    wait_until_flushed,
)
from ccpr_emulator.serving.faults import CutStatement, FailStatement

pytestmark = [pytest.mark.integration, pytest.mark.recordings]


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self, on_sleep: Callable[[], Any] = lambda: None) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self._on_sleep = on_sleep

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        self._on_sleep()


def _ids(upstream: Any) -> list[int]:
    return [table.id for table in upstream.emulator.recording.snapshots[0].tables]


def _requests(upstream: Any, ids: list[int]) -> Any:
    return flush_requests(upstream.connect, lambda: ids, tables=len(ids))


def test_a_snapshot_is_made_read_and_dropped(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    create_snapshot(session, "XR_u_0_0", upstream.publication, upstream.database)
    assert (
        snapshot_timestamp(session, "xr_u_0_0", upstream.publication).physical
        == upstream.emulator.recording.snapshots[0].ts
    )
    assert upstream.emulator.status().snapshots == ("xr_u_0_0",)
    drop_snapshot(session, "xr_u_0_0", upstream.publication)
    drop_snapshot(session, "xr_u_0_0", upstream.publication)
    assert upstream.emulator.status().snapshots == ()
    with pytest.raises(SnapshotGone):
        snapshot_timestamp(session, "xr_u_0_0", upstream.publication)
    with pytest.raises(SnapshotGone):
        is_flushed(session, "xr_u_0_0", upstream.publication)


def test_names_are_sent_as_the_server_stores_them(play: Callable[..., Any]):
    upstream = play("other_account")
    session = upstream.connect()
    loud = Publication(upstream.publication.name.upper(), "ACC1", upstream.publication.publisher_id)
    create_snapshot(session, "XR_1", loud, upstream.database)
    assert snapshot_timestamp(session, "Xr_1", loud).physical > 0


def test_a_snapshot_of_that_name_is_kept(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    first = snapshot_timestamp(session, "xr_1", upstream.publication)
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    assert snapshot_timestamp(session, "xr_1", upstream.publication) == first


def test_losing_the_race_for_a_name_counts_as_made(play: Callable[..., Any]):
    upstream = play("dml")
    upstream.emulator.inject(
        FailStatement("create_snapshot", 1062, "Duplicate entry 'xr_1' for key 'sname'", after_effect=True)
    )
    create_snapshot(upstream.connect(), "xr_1", upstream.publication, upstream.database)
    assert upstream.emulator.status().snapshots == ("xr_1",)


@pytest.mark.parametrize("after_effect", [True, False])
def test_a_statement_whose_connection_was_lost_while_a_snapshot_is_created_or_dropped_is_repeated(
    play: Callable[..., Any], after_effect: bool
):
    upstream = play("dml")
    session = upstream.connect()
    upstream.emulator.inject(CutStatement("create_snapshot", after_effect=after_effect))
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    assert upstream.emulator.status().snapshots == ("xr_1",)
    assert upstream.emulator.status().snapshots_created == 1
    upstream.emulator.inject(CutStatement("drop_snapshot", after_effect=after_effect))
    drop_snapshot(session, "xr_1", upstream.publication)
    assert upstream.emulator.status().snapshots == ()


def test_an_outcome_that_stays_unknown_is_an_error(play: Callable[..., Any]):
    upstream = play("dml")
    upstream.emulator.inject(CutStatement("create_snapshot", after_effect=True, times=0))
    with pytest.raises(SnapshotOutcomeUnknown):
        create_snapshot(upstream.connect(), "xr_1", upstream.publication, upstream.database)


def test_a_database_that_is_not_there_cannot_be_snapshotted(play: Callable[..., Any]):
    upstream = play("dml")
    with pytest.raises(DatabaseMissing):
        create_snapshot(upstream.connect(), "xr_1", upstream.publication, "nowhere")


def test_a_publication_that_is_gone_is_an_error(play: Callable[..., Any]):
    upstream = play("dml", strict_publication=True)
    with pytest.raises(PublicationMissing):
        create_snapshot(upstream.connect(), "xr_1", Publication("other", "sys", 0), upstream.database)


def test_a_flush_on_demand_makes_the_snapshot_usable(play: Callable[..., Any]):
    upstream = play("keys")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    assert not is_flushed(session, "xr_1", upstream.publication)
    clock = Clock()
    wait_until_flushed(
        session,
        "xr_1",
        upstream.publication,
        requests=_requests(upstream, _ids(upstream)),
        timeout_seconds=10,
        clock=clock,
        sleep=clock.sleep,
    )
    assert is_flushed(session, "xr_1", upstream.publication)
    assert clock.pauses == [], "while a request is under way, it is what is waited for"
    assert 1 <= upstream.sent("mo_ctl") <= len(_ids(upstream)), "nothing waits for the last of them"


def test_the_ids_are_read_with_the_waiting_session_while_no_other_thread_uses_it(play: Callable[..., Any]):
    upstream = play("keys")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    threads = []

    def ids() -> list[int]:
        threads.append(threading.current_thread())
        return _ids(upstream)

    requests = flush_requests(upstream.connect, ids, tables=1)
    wait_until_flushed(session, "xr_1", upstream.publication, requests=requests, timeout_seconds=10)
    assert threads == [threading.current_thread()]


def test_each_table_is_flushed_once_and_none_needs_no_connection(play: Callable[..., Any]):
    upstream = play("keys")
    one, two = _ids(upstream)[:2]
    assert flush_tables(upstream.connect, [one, two, one], connections=8)
    assert upstream.sent("mo_ctl") == 2
    assert flush_tables(upstream.connect, [])
    assert upstream.emulator.status().sessions_opened == 2


def many(upstream: Any) -> list[int]:
    """The ids of the database and as many that are none as make it a large one."""
    return [*_ids(upstream), *range(10**9, 10**9 + CHECKPOINT_FROM_TABLES)]


def test_a_database_of_many_tables_is_flushed_by_one_statement(play: Callable[..., Any]):
    upstream = play("keys")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    wait_until_flushed(
        session,
        "xr_1",
        upstream.publication,
        requests=_requests(upstream, many(upstream)),
        timeout_seconds=0,
    )
    assert upstream.sent("mo_ctl") == 1
    wait_until_flushed(
        session,
        "xr_1",
        upstream.publication,
        requests=_requests(upstream, many(upstream)),
        timeout_seconds=0,
    )
    assert upstream.sent("mo_ctl") == 1, "what is flushed is not asked for"


@pytest.mark.parametrize(
    ("number", "text"),
    [(20101, "internal error: unknown command"), (1064, "SQL syntax error"), (1305, "unknown function")],
)
def test_a_checkpoint_that_is_refused_is_made_up_for_table_by_table(play: Callable[..., Any], number: int, text: str):
    upstream = play("keys")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    upstream.emulator.inject(FailStatement("mo_ctl", number, text))
    wait_until_flushed(
        session,
        "xr_1",
        upstream.publication,
        requests=_requests(upstream, many(upstream)),
        timeout_seconds=0,
    )
    assert upstream.sent("mo_ctl") > 1
    assert is_flushed(session, "xr_1", upstream.publication)


def test_a_checkpoint_that_did_not_do_it_is_made_up_for_table_by_table(play: Callable[..., Any]):
    upstream = play("keys")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    _, by_table = _requests(upstream, many(upstream))
    wait_until_flushed(
        session, "xr_1", upstream.publication, requests=[lambda: lambda _: True, by_table], timeout_seconds=0
    )
    assert upstream.sent("mo_ctl") >= 1
    assert is_flushed(session, "xr_1", upstream.publication)


def test_a_role_that_may_not_flush_waits_with_growing_pauses(play: Callable[..., Any]):
    upstream = play("dml", may_flush=False)
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    clock = Clock()
    asked = []

    def request(enough: threading.Event) -> bool:
        asked.append(flush_tables(upstream.connect, _ids(upstream), enough))
        return asked[-1]

    with pytest.raises(NotFlushedYet):
        wait_until_flushed(
            session,
            "xr_1",
            upstream.publication,
            requests=[lambda: request],
            timeout_seconds=30,
            clock=clock,
            sleep=clock.sleep,
        )
    assert asked == [False]
    assert clock.pauses[:3] == pytest.approx([0.02, 0.03, 0.045])
    assert max(clock.pauses) == 5.0
    assert sum(clock.pauses) == pytest.approx(30)


def test_a_snapshot_is_used_as_soon_as_it_is_flushed_though_the_request_goes_on(play: Callable[..., Any]):
    upstream, answered = play("dml"), threading.Event()
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)

    def request(enough: threading.Event) -> bool:
        done = flush_tables(upstream.connect, _ids(upstream), enough)
        assert answered.wait(60), "the snapshot was waited for until its request was answered"
        return done

    wait_until_flushed(session, "xr_1", upstream.publication, requests=[lambda: request], timeout_seconds=60)
    assert not answered.is_set()
    answered.set()


def test_the_end_of_a_process_does_not_wait_for_a_request_under_way():
    program = """
import subprocess
import sys
import threading
from ccpr.matrixone.client.upstream_snapshots import flush_tables

asked = threading.Event()

def connect():
    asked.set()
    threading.Event().wait()

threading.Thread(target=flush_tables, args=(connect, [1, 2]), daemon=True).start()
asked.wait()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_no_table_is_flushed_once_that_is_enough(play: Callable[..., Any]):
    upstream, enough = play("keys"), threading.Event()
    enough.set()
    assert not flush_tables(upstream.connect, _ids(upstream), enough)
    assert upstream.sent("mo_ctl") == 0


def test_an_error_of_a_request_ends_the_wait(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)

    def request(enough: threading.Event) -> bool:
        raise AccessDenied("no", subject="test")

    with pytest.raises(AccessDenied):
        wait_until_flushed(session, "xr_1", upstream.publication, requests=[lambda: request], timeout_seconds=60)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_request_whose_socket_was_closed_is_left_to_waiting(play: Callable[..., Any]):
    upstream = play("dml", flush_after=0.1)
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)

    def request(enough: threading.Event) -> bool:
        raise OSError(errno.EBADF, "Bad file descriptor")

    wait_until_flushed(session, "xr_1", upstream.publication, requests=[lambda: request], timeout_seconds=20)


def test_a_snapshot_that_flushes_by_itself_ends_the_wait(play: Callable[..., Any]):
    upstream = play("dml", flush_after=0.1)
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    wait_until_flushed(session, "xr_1", upstream.publication, requests=(), timeout_seconds=20)
    assert upstream.sent("mo_ctl") == 0


def test_a_snapshot_that_goes_away_ends_the_wait(play: Callable[..., Any]):
    upstream = play("dml", may_flush=False)
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    clock = Clock(on_sleep=lambda: upstream.emulator.drop_snapshot("xr_1"))
    with pytest.raises(SnapshotGone):
        wait_until_flushed(
            session, "xr_1", upstream.publication, requests=(), timeout_seconds=9, clock=clock, sleep=clock.sleep
        )


def test_a_table_that_cannot_be_flushed_is_passed_over(play: Callable[..., Any]):
    upstream = play("dml")
    upstream.emulator.inject(FailStatement("mo_ctl", 20101, "internal error: no such table 5"))
    assert flush_tables(upstream.connect, _ids(upstream), connections=1)


def test_a_flush_that_cannot_be_asked_for_is_left_to_waiting(play: Callable[..., Any]):
    upstream = play("dml")
    upstream.emulator.inject(FailStatement("mo_ctl", 1040, "Too many connections", times=0))
    assert not flush_tables(upstream.connect, _ids(upstream))

    def unreachable() -> Any:
        raise UpstreamUnreachable("gone", subject="test")

    assert not flush_tables(unreachable, [1])


def test_a_busy_upstream_is_asked_again(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    upstream.emulator.inject(FailStatement("get_snapshot_ts", 20101, "internal error: rpc timeout", times=2))
    assert snapshot_timestamp(session, "xr_1", upstream.publication).physical
    upstream.emulator.inject(FailStatement("get_snapshot_ts", 20101, "internal error: rpc timeout", times=0))
    with pytest.raises(UpstreamBusy):
        snapshot_timestamp(session, "xr_1", upstream.publication)
