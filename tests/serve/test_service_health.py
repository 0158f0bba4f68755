"""/healthz and the figures of the threads: what has ended or is stuck makes the service unhealthy, what fails does
not."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from ccpr.base.loops import Guard, Loop
from ccpr.serve import listening
from ccpr.serve.metrics import ServiceHealth
from ccpr.serve.replicator import Replicator
from ccpr.service.workspace import Workspace


@pytest.fixture
def replicator(tmp_path: Path) -> Iterator[Replicator]:
    with closing(Workspace(tmp_path / "home")) as workspace:
        replicator = Replicator(workspace)
        replicator.start()
        yield replicator
        replicator.stop()


def shown(health: ServiceHealth) -> tuple[int, dict[str, Any], str]:
    registry = CollectorRegistry()
    registry.register(health)
    page = health.page()
    return page.status, json.loads(page.content), generate_latest(registry).decode()


def broken() -> None:
    raise ValueError("a banner of a proxy")


def test_what_is_survived_is_shown_and_does_not_make_it_unhealthy(replicator: Replicator) -> None:
    loop = Loop("notify", lambda: loop.ending.wait() and None)
    loop.start()
    guard = Guard("listeners")
    health = ServiceHealth(replicator, [replicator.loop, loop, guard], {"relay": lambda: None})
    error = guard.attempt("Metrics", broken)
    assert error is not None
    loop.failed("the webhook", error)
    status, page, figures = shown(health)
    assert (status, page["ok"], page["state_database"]) == (200, True, "up")
    assert page["threads"] == {"serve": "up", "notify": "up", "relay": "up"}
    assert page["survived_errors"] == {"notify": 1, "listeners": 1}
    assert "a banner of a proxy" in page["failing"]["the webhook"]
    assert 'ccpr_survived_errors_total{loop="notify"} 1.0' in figures
    assert 'ccpr_thread_up{thread="notify"} 1.0' in figures
    loop.stop(60)


def test_a_thread_that_has_ended_makes_it_unhealthy(replicator: Replicator) -> None:
    loop = Loop("followers", lambda: None)
    loop.start()
    loop._thread.join(60)
    status, page, figures = shown(ServiceHealth(replicator, [replicator.loop, loop], {}))
    assert (status, page["ok"], page["threads"]["followers"]) == (503, False, "its thread has ended")
    assert 'ccpr_thread_up{thread="followers"} 0.0' in figures


def test_a_thread_that_is_stuck_makes_it_unhealthy(replicator: Replicator) -> None:
    now, began, done = [0.0], threading.Event(), threading.Event()

    def item() -> None:
        began.set()
        done.wait(60)

    loop = Loop("dagster", lambda: loop.attempt("a report", item) and None, steady=lambda: now[0])
    loop.start()
    assert began.wait(60)
    health = ServiceHealth(replicator, [loop], {})
    assert shown(health)[0] == 200
    now[0] = 1000.0
    status, page, _ = shown(health)
    assert (status, page["threads"]["dagster"]) == (503, "it has been busy with one thing for 1000 s")
    done.set()
    loop.stop(60)


def test_a_relay_that_takes_no_connections_makes_it_unhealthy(replicator: Replicator) -> None:
    status, page, _ = shown(ServiceHealth(replicator, [replicator.loop], {"relay": lambda: "it has ended"}))
    assert (status, page["threads"]["relay"]) == (503, "it has ended")


def test_few_descriptors_make_it_unhealthy(replicator: Replicator, monkeypatch: pytest.MonkeyPatch) -> None:
    also = {"relay_leaves_out": lambda: {"secret": "MIRROR_DAMAGED: …"}}
    health = ServiceHealth(replicator, [replicator.loop], {}, also)
    status, page, _ = shown(health)
    assert list(page["relay_leaves_out"]) == ["secret"], "a restart would not help"
    assert (status, 0 < page["descriptors"]["open"] < page["descriptors"]["most"]) == (200, True)
    monkeypatch.setattr(listening, "FEW", 10**9)
    assert shown(health)[0] == 503
