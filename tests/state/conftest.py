"""What tests of the catalog database share."""

import uuid
from pathlib import Path

import pytest

from tests.support.mariadb import MariaDb


@pytest.fixture(params=["sqlite", "mariadb"])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty catalog database, in SQLite and in MariaDB."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    server: MariaDb = request.getfixturevalue("mariadb")
    name = f"catalog_{uuid.uuid4().hex[:8]}"
    server.create_database(name)
    return server.url(name)
