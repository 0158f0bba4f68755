"""What `ccpr serve` consists of: which components there are under which conditions, in which order."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ccpr.base.loops import Ending
from ccpr.cli.serving import ServeOptions, Serving
from ccpr.relay.client_port import Listen
from ccpr.service.workspace import Workspace

pytestmark = pytest.mark.integration  # the import of Dagster starts a process

LEAST = ServeOptions(
    workers=1,
    host="127.0.0.1",
    port=0,
    allowed_hosts=(),
    on_failure="",
    webhook="",
    dagster=False,
    relay=None,
    stop_seconds=1.0,
)
ALWAYS = ["OneService", "Notifier", "Watcher", "Caretaker", "Pages", "Replicator"]
THREADS = ["notify", "followers", "care", "serve", "pages"]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with closing(Workspace(tmp_path / "home")) as workspace:
        yield workspace


def parts(service: Serving) -> list[str]:
    return [type(one).__name__ for one in service.components]


def threads(service: Serving) -> list[str]:
    """The loops that /healthz shows."""
    return list(json.loads(service.health.page().content)["threads"])


def test_without_options_it_has_what_every_service_has(workspace: Workspace) -> None:
    service = Serving(workspace, LEAST, Ending())
    assert parts(service) == ALWAYS
    assert threads(service) == THREADS


@pytest.mark.parametrize(
    ("options", "part", "after"),
    [
        (replace(LEAST, dagster=True), "DagsterReporter", "Notifier"),
        (replace(LEAST, relay=Listen("127.0.0.1", 0)), "RelayService", "Notifier"),
        (replace(LEAST, sql=Listen("127.0.0.1", 0)), "ReplicaServer", "Notifier"),
        (replace(LEAST, catalog=Listen("127.0.0.1", 0)), "CatalogPort", "Notifier"),
    ],
)
def test_each_option_adds_its_component_before_what_uses_it(
    workspace: Workspace, options: ServeOptions, part: str, after: str
) -> None:
    found = parts(Serving(workspace, options, Ending()))
    assert [one for one in found if one != part] == ALWAYS
    assert found[found.index(after) + 1] == part


def test_a_service_with_everything_starts_it_in_this_order(workspace: Workspace) -> None:
    options = replace(LEAST, dagster=True, relay=Listen("127.0.0.1", 0))
    service = Serving(workspace, options, Ending())
    assert parts(service) == [
        *("OneService", "Notifier", "DagsterReporter", "RelayService", "Watcher", "Caretaker"),
        *("Pages", "Replicator"),
    ]
    assert set(threads(service)) == {*THREADS, "dagster", "relay"}
