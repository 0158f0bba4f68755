"""`ccpr serve` with a Spark Connect server that is killed in the middle of a copy, and comes back. Each copy ends by
comparing rows."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from ccpr.pipeline.spark.session import REMOTE_VARIABLE, SparkSettings
from ccpr_emulator.serving.faults import Delay
from tests.features.test_serve import Upstream, program, upstream
from tests.scripts.test_with_children import processes_with
from tests.support.replica import command
from tests.support.spark_connect_server import connect_server
from tests.support.waiting import LIMIT_SECONDS, until

__all__ = ["upstream"]

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]
eventually = partial(until, pause=0.3, limit=400.0)  # a JVM starts meanwhile


def test_a_server_that_is_killed_in_the_middle_of_a_copy_costs_time_and_is_used_again(
    home: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", str(home))
    upstream.subscribe("one", "d")
    local = SparkSettings(home / "java", "local[2]", key_file=home / "home" / "key")

    def copier() -> str:
        return command("status", "one")["copier"] or ""

    def fetched() -> int:
        return upstream.server.status().statements.get("get_object", 0)

    def is_under_way() -> bool:
        return fetched() > before

    with connect_server(local) as server:
        monkeypatch.setenv(REMOTE_VARIABLE, server.url)
        with program() as (process, _):
            eventually(lambda: upstream.is_replicated(home, "one", "d"), "the first point, of an empty table")
            for first in (0, 1000):  # the second by the session of the first
                upstream.server.inject(Delay("get_object", 2.0, times=0))
                before = fetched()
                upstream.insert("d", *range(first, first + 1000))
                eventually(is_under_way, "a copy under way")
                assert copier().startswith("Spark copies: it runs on sc://localhost:")
                assert server.token not in copier()
                if first:
                    server.kill()
                    eventually(
                        lambda: copier().startswith("the process itself copies: SPARK_SESSION_LOST"),
                        "who goes on, and why",
                    )
                upstream.server.clear_faults()
                eventually(lambda: upstream.is_replicated(home, "one", "d"), "the rows")
            with connect_server(local, server.port, server.token):
                upstream.server.inject(Delay("get_object", 2.0, times=0))
                before = fetched()
                upstream.insert("d", *range(2000, 3000))
                eventually(is_under_way, "a copy under way")
                assert copier().startswith("Spark copies: it runs on sc://localhost:")
                upstream.server.clear_faults()
                eventually(lambda: upstream.is_replicated(home, "one", "d"), "the rows by the server that came back")
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_SECONDS) == 0
    eventually(lambda: not processes_with(f"MARK={home}") - {os.getpid()}, "workers of Spark end with their server")
