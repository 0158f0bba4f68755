"""What an upstream can do is found by statements and objects, never by the text of its version."""

from pathlib import Path
from typing import Any

import pytest

from ccpr.matrixone.client.capabilities import Capabilities, check_interface, probe
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.errors import UpstreamTooOld
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr_emulator.recorded_upstream import RecordedUpstream
from ccpr_emulator.serving.faults import FailStatement
from tests.support.recorded import snapshots
from tests.support.recordings_location import folder_of_4_2

pytestmark = pytest.mark.integration


@pytest.fixture
def upstream(recordings: Path) -> Any:
    with RecordedUpstream(recordings / "other_account") as emulator:
        yield emulator


def connect(upstream: RecordedUpstream, user: str = "dump", account: str = "sys") -> Session:
    return Session(Endpoint("127.0.0.1", upstream.port, account, user), "any")


def test_the_interface_is_there_if_its_statements_are_answered(upstream: RecordedUpstream) -> None:
    with connect(upstream) as session:
        check_interface(session)
    assert upstream.status().snapshots == ()


def test_a_login_without_rights_is_no_sign_of_an_old_release(upstream: RecordedUpstream) -> None:
    with connect(upstream, "admin", "acc1") as session:
        check_interface(session)


@pytest.mark.parametrize("missing", ["internal commands", "rel_logical_id"])
def test_a_release_without_the_interface_is_too_old(missing: str, upstream: RecordedUpstream) -> None:
    if missing == "internal commands":
        upstream.upgrade("3.0")
    else:
        text = "invalid input: column rel_logical_id does not exist"
        upstream.inject(FailStatement("select_mo_tables", 20301, text))
    with connect(upstream) as session, pytest.raises(UpstreamTooOld) as error:
        check_interface(session)
    assert missing in error.value.message
    assert "4.0.0-rc1" in error.value.remedy
    assert "4.2.0" in error.value.remedy


def test_an_upgrade_in_place_is_found_by_asking_again(upstream: RecordedUpstream) -> None:
    with connect(upstream) as session:
        before = probe(session)
        assert (before.zero_dates, before.flush, before.early_creates, before.abort_column) == (False, True, None, None)
        asked = upstream.status().statements["mo_ctl"]
        assert probe(session, before) == before
        assert upstream.status().statements["mo_ctl"] == asked, "what is known and unchanged is not asked"
        upstream.upgrade("4.2")
        after = probe(session, before)
        assert after.zero_dates
        assert after.version == before.version, "the text of the version says nothing"


def test_what_a_probe_is_refused_leaves_the_connection_in_use(upstream: RecordedUpstream) -> None:
    with connect(upstream) as session:
        known = probe(session)
        assert not known.zero_dates
        opened = session.opened
        probe(session, known)
        assert session.opened == opened


def test_a_probe_flushes_nothing(upstream: RecordedUpstream) -> None:
    with connect(upstream) as session:
        session.query("CREATE SNAPSHOT s FOR DATABASE gd_acc FROM acc1 PUBLICATION pub")
        probe(session)
        flushed = session.query("__++__internal_check_snapshot_flushed s acc1 pub")
        assert flushed.rows == [(b"0",)]


def test_a_refused_flush_is_known(recordings: Path) -> None:
    with RecordedUpstream(recordings / "other_account", may_flush=False) as upstream, connect(upstream) as session:
        assert probe(session).flush is False


@pytest.mark.recordings
@pytest.mark.parametrize("early", [False, True])
def test_an_object_says_whether_it_was_created_before_its_commits(early: bool, recordings: Path) -> None:
    """Every appendable data object of both recorded releases says the same."""
    folder = folder_of_4_2(recordings) if early else recordings
    if folder is None:
        pytest.skip("no recordings of 4.2.0")
    seen = set()
    for snapshot in snapshots(folder):
        for objects in snapshot.objects.values() if snapshot.listed else ():
            for listed in objects:
                file = snapshot.open_object(listed.stats.name)
                if file.appendable and not listed.tombstone:
                    found = Capabilities().seen_in(file, listed.created)
                    seen.add((found.early_creates, found.abort_column))
    assert seen == {(early, False)}


def test_an_object_with_the_abort_column_says_so() -> None:
    class File:
        blocks = (1,)
        has_abort_column = True

        def commit_timestamps(self, block: int) -> None:
            return None

    file: Any = File()
    assert Capabilities().seen_in(file, Timestamp(1)) == Capabilities(abort_column=True)


def test_capabilities_that_a_later_release_has_written_can_be_read() -> None:
    value = {"version": "v", "zero_dates": True, "teleports": True}
    assert Capabilities.from_json(value) == Capabilities("v", zero_dates=True)
    for wrong in ([], {"version": 3}, {"flush": "yes"}):
        with pytest.raises(TypeError):
            Capabilities.from_json(wrong)
