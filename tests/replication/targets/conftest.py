from collections.abc import Iterator

import pytest

from tests.replication.targets.target_database import Place, new_database
from tests.support.mariadb import MariaDb


@pytest.fixture
def place(mariadb: MariaDb) -> Iterator[Place]:
    """An empty database in the session's server."""
    with new_database(mariadb) as place:
        yield place
