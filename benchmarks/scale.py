"""Cost against size, of what may grow: tables, objects, points, subscriptions, changed rows, workers. Each is measured
by the benchmark that is about it, in a process of its own; what a benchmark does not give is left out. A small model
(`benchmarks/shared/scale_model.py`) predicts sizes that this machine does not have.

`--write FOLDER` writes the tables into `sizing.md` of that folder and the curves as its `images/scale.svg`. A figure
that grows faster than it may is a defect: it is named, and `--strict` ends with 1. The last line is `scale:
tables_10k_idle_s=… objects_100k_list_s=… points_100_idle_ms=… subscriptions_200_missed=… …`: of each dimension the
figures of its largest size.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.shared.curves import Curve, Dimension, Figures, measured, svg, table
from benchmarks.shared.scale_model import ASKED, Model, Prediction, decide_ms

FOLDER = Path(__file__).parent
TOLERANCE = 0.25  # of a slope: what one measurement of seconds is off on a machine that does other things, too
SIZES = {
    "tables": (100, 1_000, 10_000),
    "objects": (1_000, 10_000, 100_000),
    "points": (10, 30, 100),
    "subscriptions": (20, 200),
    "schedule": (100, 1_000, 10_000),
    "rows": (10_000, 100_000, 1_000_000),
    "workers": (1, 2, 3),
}


@cache
def run(benchmark: str, *words: str) -> Any:
    """The document of `--json`."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{benchmark}.py"), *words, "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"benchmarks/{benchmark}.py: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def tables(size: int) -> Figures:
    found = run("many_tables", "--tables", str(size))
    idle, changed = found["idle"], found["one_changed"]
    return {
        "first_s": found["first"]["own_seconds"],
        "changed_s": changed["own_seconds"],
        "idle_s": idle["own_seconds"],
        "idle_mb": idle["memory_mb"],
        "idle_statements": idle["statements"],
        "changed_bytes": changed["bytes_written"],
    }


def objects(size: int) -> Figures:
    """What the lists take, upstream and wire included; and an iteration of ten new objects, less the upstream's own."""
    found = run("appendable_list", "--objects", str(size))[str(size)]
    ten = run("many_objects", "--objects", str(size))["spread"]["ten"]
    return {
        "list_s": found["full_ms"] / 1000,
        "appendable_s": found["appendable_ms"] / 1000,
        "difference_s": found["difference_ms"] / 1000,
        "list_mb": found["list_mb"],
        "ten_new_s": ten["own_seconds"],
        "ten_new_mb": ten["memory_mb"],
        "ten_new_bytes": ten["bytes_written"],
    }


def points(size: int) -> Figures:
    """An idle iteration, and one of one row, of a subscription that keeps so many points, all of one small table."""
    from ccpr.matrixone.client.endpoint import parse_uri
    from ccpr.matrixone.client.publication_offers import Publication
    from ccpr.service.workspace import Workspace
    from ccpr.state.settings import Settings
    from ccpr.state.subscription import Subscription
    from ccpr_emulator.engine.storage import Storage
    from ccpr_emulator.simulated_upstream import SimulatedUpstream
    from tests.support.driving import iterate

    storage = Storage()
    storage.create_database("d")
    storage.create_table("d", "t", {"n": "int not null"}, primary_key=["n"])
    storage.create_publication("p", "d")

    def seconds(number: int | None) -> float:
        if number is not None:
            with storage.begin() as transaction:
                transaction.insert("d", "t", {"n": [number]})
        started = time.perf_counter()
        iterate(workspace, "s")
        return time.perf_counter() - started

    with (
        tempfile.TemporaryDirectory() as home,
        SimulatedUpstream(storage) as upstream,
        closing(Workspace(Path(home))) as workspace,
    ):
        endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{upstream.port}")
        settings = Settings(retain=10 * size)
        new = Subscription.new("s", endpoint, "111", workspace.vault, Publication("p", "sys", 0), "d", None, settings)
        workspace.log.insert(new.to_row(datetime.now(UTC)))
        for number in range(size):
            seconds(number)
        row = sorted(seconds(size + more) for more in range(5))[2]
        idle = sorted(seconds(None) for _ in range(5))[2]
        stored = sum(file.stat().st_size for file in workspace.home.glob("catalog.db*"))
        return {"row_ms": 1000 * row, "idle_ms": 1000 * idle, "state_bytes": stored}


def subscriptions(size: int, minutes: float | None) -> Figures:
    """At the interval that leaves each iteration 60 ms of the two cores, and 10 s at least; for three of them."""
    interval = max(10, round(size * 0.06))
    minutes = 3 * interval / 60 if minutes is None else minutes
    words = ("--subscriptions", str(size), "--interval", str(interval), "--minutes", str(minutes))
    found = run("service", *words)
    names = ("missed", "cpu_ms", "memory_mb", "descriptors", "sessions")
    return {"interval_s": interval, **{name: found[name] for name in names}}


def schedule(size: int) -> Figures:
    return {"decide_ms": decide_ms(size)}


def rows(size: int) -> Figures:
    """Of so many rows one in a hundred has changed: the rows between the two points, against reading both."""
    found = run("delta", "--rows", str(size), "--rounds", "1")
    return {"delta_s": found["changed_s"], "twice_s": found["twice_s"], "changed_rows": found["rows"]}


def workers(size: int, most: int) -> Figures:
    """The rate of so many workers, of so many times that of one; all up to `most` are measured together. Their lines
    are so slow that these are the limit, and not the processors of one machine for all."""
    found = run("workers", "--workers", str(most), "--mbs", "3", "--loaded", "300000")
    return {"ratio": 1.0 if size == 1 else found[f"ratio_{size}"]}


def dimensions(sizes: dict[str, tuple[int, ...]], minutes: float | None) -> list[Dimension]:
    """With the slopes up to which their figures may grow."""
    most = max(sizes["workers"], default=0)
    found = [
        Dimension("tables", sizes["tables"], tables, {"first_s": 1, "idle_s": 1, "idle_mb": 1, "idle_statements": 0}),
        Dimension(
            "objects",
            sizes["objects"],
            objects,
            {"list_s": 1, "appendable_s": 1, "difference_s": 0, "ten_new_s": 1, "ten_new_mb": 1, "ten_new_bytes": 0},
        ),
        Dimension("points", sizes["points"], points, {"row_ms": 0, "idle_ms": 0, "state_bytes": 1}),
        Dimension(
            "subscriptions",
            sizes["subscriptions"],
            lambda size: subscriptions(size, minutes),
            {"cpu_ms": 0, "memory_mb": 1, "sessions": 0},
        ),
        Dimension("schedule", sizes["schedule"], schedule, {"decide_ms": 0.25}),
        Dimension("table rows, 1 % changed", sizes["rows"], rows, {"delta_s": 1}),
        Dimension("workers", sizes["workers"], lambda size: workers(size, most)),
    ]
    return [dimension for dimension in found if dimension.sizes]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="of the documentation")
    parser.add_argument("--strict", action="store_true", help="end with 1 if a figure grows faster than it may")
    parser.add_argument("--minutes", type=float, help="of the service's clock, for subscriptions")
    for name, usual in SIZES.items():
        parser.add_argument(f"--{name}", type=int, nargs="*", default=usual, metavar="SIZE")
    options = parser.parse_args()
    sizes = {name: tuple(getattr(options, name)) for name in SIZES}
    began = time.monotonic()

    def told(line: str) -> None:
        if not options.json:
            print(line, flush=True)

    curves = [measured(dimension, told) for dimension in dimensions(sizes, options.minutes)]
    predictions = Model(curves).predictions(ASKED)
    defects = [defect for curve in curves for defect in curve.defects(TOLERANCE)]
    figures = headline(curves)
    if options.write is not None:
        machine = f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}"
        about = f"{datetime.now(UTC):%Y-%m-%d}, {machine}"
        write(options.write, about, curves, predictions, defects)
    if options.json:
        print(json.dumps({**figures, "defects": defects, "load": os.getloadavg()[0]}))
    else:
        for prediction in predictions:
            print(f"predicted: {prediction.what}: {prediction.figure}={prediction.predicted:.3g}")
        for defect in defects:
            print(f"grows too fast: {defect}")
        print(f"{time.monotonic() - began:.0f} s; load {os.getloadavg()[0]:.1f}")
        print("scale: " + " ".join(f"{name}={value:.3g}" for name, value in figures.items()))
    if options.strict and defects:
        raise SystemExit(1)


def headline(curves: Sequence[Curve]) -> dict[str, float]:
    """The figures of each dimension's largest size."""
    found = {}
    for curve in curves:
        size, figures = curve.points[-1]
        word = curve.dimension.name.split()[0]
        found |= {f"{word}_{short(size)}_{name}": value for name, value in figures.items()}
    return found


def short(size: int) -> str:
    for unit, many in (("m", 1_000_000), ("k", 1_000)):
        if size >= many and size % many == 0:
            return f"{size // many}{unit}"
    return str(size)


def write(
    folder: Path, about: str, curves: Sequence[Curve], predictions: Sequence[Prediction], defects: Sequence[str]
) -> None:
    """Between the two marks of the page; all else of it stays."""
    (folder / "images").mkdir(exist_ok=True)
    (folder / "images" / "scale.svg").write_text(svg(curves))
    parts = [f"Measured {about}.", table(curves), "**Predicted**"]
    lines = [f"| {one.what} | {one.figure} | {one.predicted:,.3g} |" for one in predictions]
    parts.append("\n".join(["| what | figure | predicted |", "| --- | --- | ---: |", *lines]))
    parts.append(
        "\n".join(f"* Grows faster than it may: {defect}." for defect in defects)
        or "No figure grows faster than it may."
    )
    page = folder / "sizing.md"
    before, begin, rest = page.read_text().partition("<!-- figures -->\n")
    _, end, after = rest.partition("<!-- end of figures -->")
    page.write_text(before + begin + "\n" + "\n\n".join(parts) + "\n\n" + end + after)


if __name__ == "__main__":
    main()
