"""A mirror in a bucket behind the relay: a cluster follows it, and a point is restored from it; rows compared."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ccpr.matrixone.schema import Kind
from ccpr.relay import loading
from ccpr.service.workspace import Workspace
from tests.relay.conftest import Relayed, Ticking
from tests.relay.test_follow import arrived, follow
from tests.support.native_client import NativeClient
from tests.support.relayed import assert_has_point, relaying
from tests.support.replica import replaying
from tests.support.s3_fixtures import s3_server, s3_url

__all__ = ["s3_server", "s3_url"]
pytestmark = [pytest.mark.integration, pytest.mark.recordings]


@pytest.fixture
def relayed(recordings: Path, home: Path, s3_url: str) -> Iterator[Relayed]:
    with replaying(recordings / "dml", home) as replica, closing(Workspace()) as workspace:
        replica.subscribe("--with-indexes", "--mirror", s3_url)
        replica.run()
        with relaying(workspace, monotonic=Ticking()) as relay:
            yield Relayed(replica, workspace, relay)


def test_a_bucket_is_followed_and_restored_from(
    relayed: Relayed, client: NativeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "POLL_SECONDS", 0.02)
    follow(relayed, client)
    arrived(relayed, client)
    relayed.replica.run()
    arrived(relayed, client)
    mirror = relayed.workspace.mirror("replica")
    assert mirror.store.url.startswith("s3://")
    client.definitions = {
        ref.name: mirror.manifest(ref).table for ref in mirror.point().tables.values() if ref.kind is Kind.TABLE
    }
    into = f"mysql://sys#root:env:DOWN@127.0.0.1:{client.port}"
    done = relayed.replica.command("restore", "replica", "--as", "back", "--into", into)
    assert done["rows"] > 0
    copy = client.databases["back"]
    assert copy is not None
    assert assert_has_point(client, copy, mirror) == done["rows"]
