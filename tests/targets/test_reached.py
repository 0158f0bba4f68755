"""Where a target says that it is, without its lock and without a change."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.address import parse_target_uri
from ccpr.targets.database_server import reached
from ccpr.targets.errors import TargetDenied, TargetRefused, TargetUnavailable
from tests.support.mariadb import MariaDb
from tests.support.matrixone_server import matrixone_server
from tests.targets.history import FIRST
from tests.targets.target_database import Place, load_part, new_database

TASK = "task"
pytestmark = pytest.mark.integration


@pytest.fixture(params=["mariadb", "matrixone"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "mariadb":
        with new_database(request.getfixturevalue("mariadb")) as place:
            yield place
        return
    with matrixone_server() as server, new_database(server) as place:
        yield place


def asked(place: Place, task: str = TASK) -> Location | None:
    return reached(place.address, place.server.password, task)


def test_a_target_says_what_all_its_tables_have_reached_also_while_another_session_has_the_lock(place: Place) -> None:
    assert asked(place) is None
    assert place.query("SHOW TABLES") == [], "nothing was made"
    with place.target(TASK) as target:
        assert asked(place) in (None, Location(-1, 0))
        target.create(place.table(FIRST), [load_part([1, 2], ["a", None])], Location(3, 10))
        target.advance(Location(3, 10))
        assert asked(place) == Location(3, 10)
        assert asked(place, "another") is None
        target.advance(Location(5, 2**61))
    assert asked(place) == Location(5, 2**61)


def test_what_a_server_refuses_is_said_as_by_a_sync(mariadb: MariaDb) -> None:
    with new_database(mariadb) as place, pytest.raises(TargetDenied):
        reached(place.address, "a wrong password", TASK)
    with pytest.raises((TargetDenied, TargetRefused)):
        asked(place)  # the database is gone


def test_a_server_that_is_away_or_says_nothing_is_unavailable_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccpr.targets.database_server.SECONDS", 1.0)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        address, password = parse_target_uri(f"mysql://u:p@127.0.0.1:{silent.getsockname()[1]}/d")
        began = time.monotonic()
        with pytest.raises(TargetUnavailable):
            reached(address, password, TASK)
        assert time.monotonic() - began < 60
    with pytest.raises(TargetUnavailable):
        reached(address, password, TASK)
