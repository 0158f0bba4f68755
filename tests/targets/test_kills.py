"""kill -9 of the process, and of the server, at any statement: afterwards the target is at a point, and a sync that
continues gives the same rows. Into a MatrixOne, too: a simulated one, or the one that CCPR_TARGET_MATRIXONE names.

KILLS=all takes every statement (`make target-kills`), otherwise a sample of them is taken.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator

import pytest

from ccpr.matrixone.errors import CcprError, Terminal
from ccpr.targets.database_target import DatabaseTarget
from tests.support.mariadb import MariaDb
from tests.support.matrixone_server import MatrixOneServer, matrixone_server
from tests.targets.history import AT_THE_END, END, Statements, sync_and_die, sync_target
from tests.targets.target_database import Place, TargetServer, new_database

pytestmark = [pytest.mark.integration, pytest.mark.kills]
ALL = os.environ.get("KILLS") == "all"
OURS = ["ccpr_checkpoints", "ccpr_intents", "ccpr_load_parts", "ccpr_loads", "ccpr_registry"]


@pytest.fixture(scope="module")
def matrixone() -> Iterator[MatrixOneServer]:
    with matrixone_server() as server:
        yield server


@pytest.fixture(params=["mariadb", "matrixone"])
def server(request: pytest.FixtureRequest) -> TargetServer:
    return request.getfixturevalue(request.param)


def assert_at_the_end(place: Place, target: DatabaseTarget) -> None:
    assert place.rows("t2") == AT_THE_END
    assert (target.points(), target.global_point(), target.stuck()) == ({2: END}, END, {})
    locks = ["ccpr_locks"] if isinstance(place.server, MatrixOneServer) else []
    assert {name for (name,) in place.query("SHOW TABLES")} == {*OURS, *locks, "t2"}
    for name in ("ccpr_intents", "ccpr_loads", "ccpr_load_parts"):
        assert place.query(f"SELECT COUNT(*) FROM {name}") == [(0,)]
    indexes = place.query(
        "SELECT index_name FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 't2'"
    )
    assert {name for (name,) in indexes} == {"PRIMARY", "u"}
    assert target.tables()[2].table.qualified_name == f"{place.database}.t2"


def whole_history(server: TargetServer) -> list[str]:
    """What is sent if nothing fails."""
    with new_database(server) as place, Statements() as statements, place.target() as target:
        sync_target(target, place.database)
        assert_at_the_end(place, target)
    return statements.sent


def problem_of(place: Place) -> CcprError | None:
    """The error of a sync; None if the answer to the last statement had arrived already."""
    try:
        with place.target() as target:
            sync_target(target, place.database)
    except CcprError as error:
        return error
    return None


def test_a_process_that_is_killed_between_any_two_statements(server: TargetServer):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.targets.history"])
    count = len(whole_history(server))
    step = 1 if ALL else 41 if isinstance(server, MariaDb) else 97
    for after in (False, True):
        for number in range(int(after) * step // 2, count, step):
            with new_database(server) as place:
                process = context.Process(target=sync_and_die, args=(place.uri, place.database, number, after))
                process.start()
                process.join(60)
                if process.exitcode == 0:  # threads of the initial load take turns: a few statements may be missing
                    assert number > count - 20
                    continue
                assert process.exitcode == -signal.SIGKILL
                with place.target() as target:
                    sync_target(target, place.database)
                    assert_at_the_end(place, target)


def test_a_connection_that_is_lost_at_any_definition(server: TargetServer):
    """The definitions themselves say whether the statement ran, and it runs once."""
    sent = whole_history(server)
    definitions = ("RENAME", "ALTER", "DROP TABLE", "CREATE TABLE `")
    chosen = [number for number, sql in enumerate(sent) if sql.startswith(definitions)]
    assert len(chosen) > 6
    for number in chosen if ALL else chosen[1 :: 4 if isinstance(server, MariaDb) else 8]:
        for after in (False, True):
            with new_database(server) as place:
                with Statements(number, after=after, lost=True):
                    error = problem_of(place)
                assert error is not None
                assert not isinstance(error, Terminal), (sent[number], error)
                with place.target() as target:
                    sync_target(target, place.database)
                    assert_at_the_end(place, target)


@pytest.mark.in_turn
def test_a_server_that_is_killed_at_a_statement(mariadb: MariaDb):
    sent = whole_history(mariadb)
    commits = [number for number, sql in enumerate(sent) if sql == "COMMIT"]
    merges = [
        number
        for number, sql in enumerate(sent)
        if sql.startswith(("DELETE t", "INSERT INTO `target", "RENAME", "ALTER", "LOAD"))
    ]
    chosen = [*commits, *merges] if ALL else [*commits[-8:-1:3], *merges[1::5]]
    for number in chosen:
        with new_database(mariadb) as place:
            with Statements(number, mariadb.kill, after=sent[number] == "COMMIT"):
                error = problem_of(place)
            assert not isinstance(error, Terminal), (sent[number], error)
            mariadb.start()
            with place.target() as target:
                sync_target(target, place.database)
                assert_at_the_end(place, target)
