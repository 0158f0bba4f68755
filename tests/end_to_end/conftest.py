from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.one_table import OneTable, published
from tests.end_to_end.replica import replaying


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new state folder for the test."""
    monkeypatch.setenv("CCPR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("UPSTREAM_PASSWORD", "111")
    return tmp_path


@pytest.fixture
def replica(recordings: Path, home: Path):
    """After a first run."""
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        replica.run()
        yield replica


@pytest.fixture
def one_table(home: Path) -> Iterator[OneTable]:
    """Not subscribed to yet."""
    with published(home) as source:
        yield source
