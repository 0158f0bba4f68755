"""The pages of a service whose upstream is away and whose target does not answer: the page for people, the figures for
Prometheus, and what a status says about who tries again."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape

import pytest

from ccpr.cli.serving import StatusPage
from ccpr.serve.pages import Overview
from ccpr.serve.status_metrics import StatusMetrics
from ccpr.service.running import OneService, is_served
from ccpr.service.status import UNREADABLE, SubscriptionStatus
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable
from ccpr_emulator.serving.faults import FailStatement
from tests.support.replica import NAME, Replica


@contextmanager
def service_of(workspace: Workspace) -> Iterator[None]:
    service = OneService(workspace.home)
    service.start()
    try:
        yield
    finally:
        service.stop()


@pytest.fixture
def workspace(replica: Replica) -> Iterator[Workspace]:
    with Workspace() as opened:
        yield opened


def figures(workspace: Workspace) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in StatusMetrics(workspace).collect()
        for sample in metric.samples
    }


def test_the_first_page_shows_each_subscription_and_what_to_do(replica: Replica, workspace: Workspace) -> None:
    page = Overview(workspace)()
    assert (page.status, page.kind) == (200, "text/html; charset=utf-8")
    assert "all ok" in page.content.decode()
    replica.emulator.inject(FailStatement("create_snapshot", 20101, "internal error: nobody knows this", times=0))
    replica.command("run", NAME, code=1)
    error = replica.command("status", NAME, code=1)["last_error"]
    shown = Overview(workspace)().content.decode()
    for part in (NAME, "1 not ok", error["code"], error["remedy"], "next attempt in"):
        assert escape(part) in shown


def test_foreign_text_is_shown_on_the_page_as_it_is(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = SubscriptionStatus.unreadable("<b>x", "t", StateUnreadable("<script>alert(1)</script>", subject="s"))
    monkeypatch.setattr("ccpr.serve.pages.read_all", lambda *_: [evil])
    page = Overview(workspace)().content.decode()
    assert "<script>" not in page
    assert "<b>x" not in page
    assert "&lt;script&gt;" in page
    assert UNREADABLE in page


def test_a_state_database_that_is_away_is_said_on_the_page(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StateUnreadable("it is gone", subject="catalog.db", remedy="Restore it.")

    monkeypatch.setattr("ccpr.serve.pages.read_all", away)
    page = Overview(workspace)()
    assert page.status == 503
    assert "Restore it." in page.content.decode()


def test_figures_say_how_large_the_mirror_is_and_what_is_not_as_it_should_be(
    replica: Replica, workspace: Workspace
) -> None:
    found = figures(workspace)
    stored = sum(file.stat().st_size for file in (replica.mirror / "objects").rglob("*") if file.is_file())
    assert found["ccpr_mirror_bytes", NAME] == stored > 0
    assert found["ccpr_state_bytes",] > 0
    assert found["ccpr_mirror_free_bytes", NAME] > 0
    assert found["ccpr_check_ok", NAME, "replica"] == 1
    replica.emulator.inject(FailStatement("create_snapshot", 20101, "internal error: nobody knows this", times=0))
    replica.command("run", NAME, code=1)
    assert figures(workspace)["ccpr_check_ok", NAME, "replica"] == 0


def test_all_times_of_the_status_page_are_seconds(replica: Replica, workspace: Workspace) -> None:
    replica.emulator.inject(FailStatement("create_snapshot", 20101, "internal error: nobody knows this", times=0))
    replica.command("run", NAME, code=1)
    (shown,) = json.loads(StatusPage(workspace)().content)
    now = time.time()
    for value in (shown["updated_at"], shown["next_attempt"], shown["last_error"]["first"]):
        assert abs(value - now) < 3600
    assert not re.search(r'"\d{4}-\d\d-\d\d[T ]\d', json.dumps(shown))


def test_a_status_knows_whether_a_service_runs(replica: Replica, workspace: Workspace) -> None:
    assert not is_served(workspace.home)
    assert replica.command("status", NAME)["service_running"] is False
    with service_of(workspace):
        assert is_served(workspace.home)
        assert replica.command("status", NAME)["service_running"] is True
    assert not is_served(workspace.home)
