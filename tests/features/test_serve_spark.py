"""`ccpr serve` with a warm Spark session: the first copy starts it, it is killed in the middle of another, and nothing
is left of it. Each copy ends by comparing rows."""

import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from ccpr.matrixone.server.faults import Delay
from ccpr.pipeline.spark.server import WarmSpark
from ccpr.pipeline.spark.server_record import WarmState
from tests.features.test_serve import Upstream, program, upstream
from tests.scripts.test_with_children import processes_with
from tests.support.replica import command
from tests.support.waiting import LIMIT_SECONDS, until

__all__ = ["upstream"]

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]
eventually = partial(until, pause=0.3, limit=400.0)  # a JVM starts meanwhile
# Spark seems worth its start for a few bytes.
RATES = {"start": [0.01], "connect": [0.01], "copy process ": [1.0], "copy spark ": [1e9]}


def test_a_session_that_is_killed_in_the_middle_of_a_copy_costs_time_and_nothing_else(
    home: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", str(home))
    warm = WarmSpark(home / "home")
    warm.folder.mkdir(parents=True)
    (warm.folder / "rates.json").write_text(json.dumps(RATES))
    upstream.subscribe("one", "d")

    def copier() -> str:
        return command("status", "one")["copier"] or ""

    try:
        with program() as (process, _):
            eventually(lambda: upstream.is_replicated(home, "one", "d"), "the first point, of an empty table")
            assert warm.look().state is WarmState.ABSENT, "nothing is started before there is something to copy"
            upstream.insert("d", *range(1000))
            eventually(lambda: copier().startswith("a Spark session that is started for it copies: "), "who copies")
            eventually(lambda: upstream.is_replicated(home, "one", "d"), "the rows by that session")
            server = warm.look().server
            assert server is not None
            upstream.server.inject(Delay("get_object", 2.0, times=0))
            before = upstream.server.status().statements["get_object"]
            upstream.insert("d", *range(1000, 2000))
            eventually(lambda: upstream.server.status().statements["get_object"] > before, "a copy under way")
            assert copier().startswith("the warm Spark session copies: ")
            (warm.folder / "rates.json").unlink()  # what comes after this copy is too little for Spark
            os.kill(server.pid, signal.SIGKILL)
            eventually(
                lambda: copier().startswith("the process itself copies: SPARK_SESSION_LOST"), "who goes on, and why"
            )
            upstream.server.clear_faults()
            eventually(lambda: upstream.is_replicated(home, "one", "d"), "the rows by the process")
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_SECONDS) == 0
        assert warm.look().state is WarmState.ABSENT
    finally:
        warm.stop()
    eventually(lambda: not processes_with(f"MARK={home}") - {os.getpid()}, "workers of Spark end with its server")
