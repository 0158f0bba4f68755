"""A load that is replicated while it runs: whether what arrives is equal, and whether memory and disk level off.

Three processes: `ccpr emulator --living`, `ccpr serve` with an interval of 1 s and points that expire, and
`ccpr workload run`. Their resident memory and the bytes of the state folder are printed every `--sample` seconds. At
the end the mirror is compared with the record, row by row; it fails if one differs. `make soak` runs an hour. Files
that no point names any more are kept for ten minutes; the emulator merges small objects as a real upstream does, and
keeps all rows in memory. The last line is `changes_per_second=…`; `--json` prints one object with all figures and the
load of the machine.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NAME, DATABASE = "soak", "ccpr_load"
LINE = (
    "{seconds:5.0f} s  service {service_mb:6.1f} MB  emulator {emulator_mb:6.1f} MB  state folder {disk_mb:6.2f} MB  "
    "point {point}  load of the machine {load:.1f}"
)
CCPR = [sys.executable, "-m", "ccpr.cli"]


def memory_mb(process: "subprocess.Popen[str]") -> float:
    """Resident; 0 if it has ended."""
    try:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def disk_mb(folder: Path) -> float:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:
            continue  # it has just been deleted
    return total / 1e6


def newest_point(home: Path) -> int:
    """-1 before the first."""
    try:
        return json.loads((home / "mirrors" / NAME / "head.json").read_text())["newest_point"]
    except (OSError, ValueError):
        return -1


@contextmanager
def running(*words: str, environment: dict[str, str]) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A command, and the first line that it has printed."""
    with subprocess.Popen([*CCPR, *words], env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.terminate()


def ccpr(environment: dict[str, str], *words: str) -> Any:
    done = subprocess.run([*CCPR, *words, "--json"], env=environment, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    if done.returncode:
        raise SystemExit(f"ccpr {' '.join(words)}: {json.dumps(found)}")
    return found


def soak(minutes: float, rate: float, sample: float, say: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        home, record = Path(folder, "home"), Path(folder, "record")
        environment = {**os.environ, "CCPR_HOME": str(home), "SOAK_PASSWORD": "111", "PYTHONPATH": str(ROOT)}
        environment.pop("DAGSTER_HOME", None)
        with running("emulator", "--living", "--merge-every", "10", environment=environment) as (emulator, line):
            source = f"mysql://sys#dump:env:SOAK_PASSWORD@{line.split()[-1]}"
            load = ("workload", "run", "--from", source, "--record", str(record), "--batch", "25")
            ccpr(environment, *load, "--publish", "--changes", "1")
            ccpr(environment, "subscribe", NAME, "--from", source, "--database", DATABASE, "--interval", "1",
                 "--retain", "5", "--retain-files", "10m")  # fmt: skip
            samples = []
            with running("serve", "--port", "0", environment=environment) as (service, _):
                playing = subprocess.Popen(
                    [*CCPR, *load, "--rate", str(rate), "--seconds", str(minutes * 60), "--json"],
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                begun = time.monotonic()
                while playing.poll() is None:
                    time.sleep(min(sample, 1.0))
                    if time.monotonic() - begun >= sample * (len(samples) + 1):
                        samples.append(_sampled(time.monotonic() - begun, emulator, service, home))
                        say(LINE.format(**samples[-1]))
                        if len(samples) > 1 and samples[-1]["point"] == samples[-2]["point"]:
                            status = ccpr(environment, "status", NAME)
                            say(f"         no point since: {status['state']}, {status['step']}, {status['last_error']}")
                played = json.loads(playing.communicate()[0])
                if playing.returncode:
                    raise SystemExit(json.dumps(played))
                status = ccpr(environment, "status", NAME)
            last = ccpr(environment, "run", NAME)
            found = ccpr(environment, "workload", "check", "--record", str(record), "--mirror", NAME)
    return {
        "changes": played["changes"],
        "changes_per_second": played["rate"],
        "late_seconds": played["late"],
        "latest_seconds": played["latest"],
        "iterations": last["lsn"],
        "state": status["state"],
        "last_error": status["last_error"],
        "equal": found["equal"] and found["complete"],
        "samples": samples,
    }


def _sampled(
    seconds: float, emulator: "subprocess.Popen[str]", service: "subprocess.Popen[str]", home: Path
) -> dict[str, float]:
    return {
        "seconds": seconds,
        "service_mb": memory_mb(service),
        "emulator_mb": memory_mb(emulator),
        "disk_mb": disk_mb(home),
        "point": newest_point(home),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=100.0, help="changes a second")
    parser.add_argument("--sample", type=float, default=15.0, help="seconds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = soak(options.minutes, options.rate, options.sample, lambda text: options.json or print(text, flush=True))
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        if name not in ("samples", "changes_per_second"):
            print(f"{name}={value}")
    print(f"changes_per_second={found['changes_per_second']}")


if __name__ == "__main__":
    main()
