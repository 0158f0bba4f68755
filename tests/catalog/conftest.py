from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.iceberg_lake import IcebergLake, iceberg_lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[IcebergLake]:
    with iceberg_lake(tmp_path) as found:
        yield found
