from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from ccpr.relay.relay_server import Relay
from ccpr.service.workspace import Workspace
from tests.support.native_client import NativeClient
from tests.support.relayed import relaying
from tests.support.replica import Replica, replaying

PASSWORD = "111"


@dataclass
class Relayed:
    """A subscription to a recording, and a relay that serves it: user `dump` with the password 111."""

    replica: Replica
    workspace: Workspace
    relay: Relay


@pytest.fixture
def relayed(recordings: Path, home: Path) -> Iterator[Relayed]:
    """The recording `dml`, at its first point, with the tables of indexes."""
    with replaying(recordings / "dml", home) as replica, closing(Workspace()) as workspace:
        replica.subscribe("--with-indexes")
        replica.run()
        with relaying(workspace, monotonic=Ticking()) as relay:
            yield Relayed(replica, workspace, relay)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[NativeClient]:
    """What does as a MatrixOne does, as a downstream; its password is in the variable DOWN."""
    monkeypatch.setenv("DOWN", "111")
    with NativeClient() as client:
        yield client


class Ticking:
    """Seconds that pass with each look, so that a relay looks at the subscriptions each time."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        self.at += 10.0
        return self.at
