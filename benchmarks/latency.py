"""How long after a commit upstream its rows are visible in the newest point of the mirror.

A simulated upstream, whose flush takes half a second as a real one's does, gets small commits at random moments. First
`ccpr serve` replicates them at an interval of 1 s, then the Dagster sensor by runs at an interval of 10 s (daemon, code
location and a process for each run, as in production). A row counts as visible when a reader of the mirror's newest
point sees it. The two last lines are `serve p50=… p95=…` and `sensor p50=… p95=…`, in seconds; `--json` prints one
object with all figures and the load of the machine before each.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pymysql

import ccpr
from benchmarks.shared.simulated import upstream

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_SECONDS = 300.0
Figures = dict[str, float]


def measure(port: int, mirror: Path, commits: int, pauses: tuple[float, float], say: Callable[[str], None]) -> Figures:
    """Commit rows and look until they are visible. Commits do not wait for each other."""
    pauses_of = random.Random(1)
    latencies: list[float] = []
    committed: dict[int, float] = {}
    with closing(_connect(port)) as connection, connection.cursor() as cursor:
        number = 0
        following, seen, left = time.monotonic(), None, commits
        last = following
        while left or committed:
            if left and time.monotonic() >= following:
                number, left = number + 1, left - 1
                cursor.execute(f"INSERT INTO d0.t VALUES ({number}, 'v{number}')")
                last = committed[number] = time.monotonic()
                following = last + pauses_of.uniform(*pauses)
            head = _changed(mirror)
            if head != seen:
                seen = head
                rows = ccpr.open_mirror(str(mirror)).table("d0.t").to_arrow()
                now, visible = time.monotonic(), set(rows.column("n").to_pylist())
                for arrived in [one for one in committed if one in visible]:
                    latencies.append(now - committed.pop(arrived))
                    say(f"{latencies[-1]:.2f} s")
            if time.monotonic() - last > PATIENCE_SECONDS:
                raise SystemExit(f"{len(committed)} commits were not visible after {PATIENCE_SECONDS:g} s")
            time.sleep(0.01)
    quantiles = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else latencies * 99
    return {
        "p50": round(statistics.median(latencies), 2),
        "p95": round(quantiles[94], 2),
        "most": round(max(latencies), 2),
        "commits": len(latencies),
    }


def _changed(mirror: Path) -> int | None:
    try:
        return (mirror / "head.json").stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _connect(port: int) -> pymysql.Connection:
    return pymysql.connect(host="127.0.0.1", port=port, user="sys#dump", password="111", autocommit=True)


def subscribe(home: Path, port: int, interval: int) -> None:
    source = f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{port}"
    _ccpr(home, "subscribe", "s0", "--from", source, "--database", "d0", "--publication", "p0", "--publisher", "sys",
          "--interval", str(interval))  # fmt: skip
    _ccpr(home, "run", "s0")


def _ccpr(home: Path, *words: str) -> None:
    subprocess.run([_program("ccpr"), *words], env=_environment(home), check=True, stdout=subprocess.DEVNULL)


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "CCPR_HOME": str(home), "UPSTREAM_PASSWORD": "111", "PYTHONPATH": str(ROOT)}


@contextmanager
def service(home: Path) -> Iterator[None]:
    command = [_program("ccpr"), "serve", "--port", "0"]
    with subprocess.Popen(command, env=_environment(home), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def sensor(home: Path) -> Iterator[None]:
    """Dagster's daemon with the sensor switched on, as `dagster.yaml` of the repository configures it."""
    folder = home / "dagster"
    folder.mkdir(parents=True)
    (folder / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    environment = {**_environment(home), "DAGSTER_HOME": str(folder)}
    workspace = str(ROOT / "workspace.yaml")
    start = [_program("dagster"), "sensor", "start", "ccpr_log_sensor", "-w", workspace]
    started = subprocess.run(start, env=environment, cwd=ROOT, check=False, capture_output=True, text=True)
    if started.returncode:
        raise SystemExit(f"the sensor was not started: {started.stderr[-2000:]}")
    command = [_program("dagster-daemon"), "run", "-w", workspace]
    with (
        (home / "daemon.log").open("w") as log,
        subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True) as process,
    ):
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--commits", type=int, default=200, help="for the service")
    parser.add_argument("--runs", type=int, default=20, help="commits for the sensor; 0 leaves it out")
    options = parser.parse_args()
    say: Callable[[str], None] = (lambda line: None) if options.json else (lambda line: print(line, flush=True))
    found: dict[str, object] = {"serve_load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:  # a run may still be ending
        home = Path(scratch) / "serve"
        with upstream(1) as port:
            subscribe(home, port, 1)
            with service(home):
                found["serve"] = serve = measure(port, home / "mirrors" / "s0", options.commits, (0.3, 1.7), say)
        say(f"serve p50={serve['p50']} p95={serve['p95']}")
        sensed: Figures = {"p50": 0.0, "p95": 0.0}
        if options.runs:
            found["sensor_load"] = os.getloadavg()[0]
            home = Path(scratch) / "sensor"
            with upstream(1) as port:
                subscribe(home, port, 10)
                with sensor(home):
                    found["sensor"] = sensed = measure(port, home / "mirrors" / "s0", options.runs, (8.0, 16.0), say)
    if options.json:
        print(json.dumps(found))
        return
    print(f"serve p50={serve['p50']} p95={serve['p95']}")
    print(f"sensor p50={sensed['p50']} p95={sensed['p95']}")


if __name__ == "__main__":
    main()
