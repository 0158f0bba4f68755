"""A session with an emulated upstream that plays a recording."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.retry import Retry
from ccpr.matrixone.client.upstream_session import Session
from ccpr_emulator.recorded_upstream import RecordedUpstream
from tests.support.ci import UNDER_CI

PASSWORD = "p@ss:w#o/r?d é"
AT_ONCE = Retry(attempts=5, first_pause=0.0, longest_pause=0.0, jitter=0.0)


class Upstream:
    """An emulator, and the database and publication that it serves."""

    def __init__(self, emulator: RecordedUpstream, stack: ExitStack) -> None:
        self.emulator = emulator
        recorded = emulator.recording
        self.database = recorded.publication.database
        self.publication = Publication(recorded.publication.name, recorded.publisher, recorded.account_id)
        self._stack = stack

    def endpoint(self, **changes: Any) -> Endpoint:
        values: dict[str, Any] = {"host": "127.0.0.1", "port": self.emulator.port, "account": "sys", "user": "dump"}
        return Endpoint(**(values | changes))

    def connect(self, *, password: str | None = PASSWORD, retry: Retry = AT_ONCE, **changes: Any) -> Session:
        return self._stack.enter_context(Session(self.endpoint(**changes), password, retry=retry, read_timeout=60))

    def sent(self, kind: str) -> int:
        """How many statements of this kind arrived."""
        return self.emulator.status().statements.get(kind, 0)


def folder_of(recordings: Path, name: str) -> Path:
    """A scenario's or snapshot's folder. If a small sample lacks it the test is skipped, but never under CI=true."""
    folder = recordings / name
    if not folder.is_dir() and not UNDER_CI:
        pytest.skip(f"the recordings at hand have no {name}")
    return folder


@pytest.fixture
def play(recordings: Path) -> Iterator[Callable[..., Upstream]]:
    """Call it with a scenario's name and options of the emulator."""
    with ExitStack() as stack:

        def start(scenario: str, **options: Any) -> Upstream:
            emulator = stack.enter_context(
                RecordedUpstream(folder_of(recordings, scenario), password=PASSWORD, **options)
            )
            return Upstream(emulator, stack)

        yield start
