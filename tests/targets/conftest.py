from collections.abc import Iterator

import pytest

from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.database_target import DatabaseTarget
from tests.support.mariadb import MariaDb
from tests.targets.history import FIRST
from tests.targets.target_database import Place, load_part, new_database


@pytest.fixture
def place(mariadb: MariaDb) -> Iterator[Place]:
    """An empty database in the session's server."""
    with new_database(mariadb) as place:
        yield place


@pytest.fixture
def live(place: Place) -> Iterator[DatabaseTarget]:
    """An open target with the table `t`."""
    with place.target(lock_seconds=0.2) as target:
        target.create(place.table(FIRST), [load_part([1, 2], ["a", None])], Location(0, 10))
        yield target
