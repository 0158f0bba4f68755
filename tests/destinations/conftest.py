from collections.abc import Iterator

import pytest

from tests.destinations.target_database import Place, new_database
from tests.mariadb import MariaDb


@pytest.fixture
def place(mariadb: MariaDb) -> Iterator[Place]:
    """An empty database in the session's server."""
    with new_database(mariadb) as place:
        yield place
