"""Objects whose names the mirror knows already: a point consists of certain bytes, and no later list, file or upstream
replaces them."""

import hashlib
from pathlib import Path

import pytest
import sqlalchemy as sa

from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.service.workspace import Workspace
from ccpr.state.database import transaction
from ccpr.state.tables import objects
from tests.support.recorded import Snapshot
from tests.support.replica import NAME, Replica, replaying
from tests.support.settings import setting


def newcomer(replica: Replica) -> ObjectStats:
    """An object that the recording's second snapshot has and its first has not."""
    first, second = (
        {
            listed.stats.name: listed.stats
            for listed in Snapshot(replica.about.folder / f"snapshot-{number:03}").objects["acc"]
        }
        for number in (1, 2)
    )
    return second[min(second.keys() - first.keys())]


def known_as(name: str, size: int, sha256: bytes) -> None:
    """Enter an object into the ledger, as if another table's points named it."""
    workspace = Workspace()
    task_id = workspace.log.row(NAME).task_id
    with transaction(workspace.log.engine) as connection:
        connection.execute(objects.delete().where(objects.c.task_id == task_id, objects.c.object_name == name))
        connection.execute(objects.insert().values(task_id=task_id, object_name=name, size=size, sha256=sha256))


def recorded_bytes(replica: Replica, name: str) -> bytes:
    return (replica.about.folder / "objects" / name).read_bytes()


@pytest.mark.parametrize(("more", "code"), [(1, "OBJECT_LIST_INVALID"), (0, "OBJECT_MISMATCH")])
def test_another_size_or_other_bytes_under_a_known_name_are_an_error_and_are_not_kept(
    more: int, code: str, recordings: Path, home: Path
) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        replica.run()
        shared = newcomer(replica)
        known_as(shared.name, shared.size + more, bytes(32))
        replica.run(code=1)
        assert code in Workspace().log.row(NAME).error_message
        assert not (replica.mirror / "objects" / shared.name).exists()
        replica.assert_equal_to_source(1)


def test_a_shared_file_whose_damage_only_the_checksum_shows_is_fetched_again(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        replica.run()
        shared = newcomer(replica)
        true = recorded_bytes(replica, shared.name)
        known_as(shared.name, shared.size, hashlib.sha256(true).digest())
        file = replica.mirror / "objects" / shared.name
        file.write_bytes(true[:-1] + bytes([true[-1] ^ 1]))  # in the footer, at which no reader looks
        replica.run()
        assert file.read_bytes() == true
        replica.assert_equal_to_source(2)
        with transaction(Workspace().log.engine) as connection:
            query = sa.select(objects.c.sha256).where(objects.c.object_name == shared.name)
            assert connection.scalars(query).all() == [hashlib.sha256(true).digest()]


def test_in_isolated_mode_such_a_list_fails_only_the_tables_that_name_the_object(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        setting("consistency", "isolated")
        replica.run()
        shared = newcomer(replica)
        known_as(shared.name, shared.size + 1, bytes(32))
        assert replica.run()["quarantined"] == [f"{replica.about.database}.acc"]
        assert not (replica.mirror / "objects" / shared.name).exists()
        replica.assert_equal_to_source(1, at=0)
