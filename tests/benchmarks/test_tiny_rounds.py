"""Each benchmark runs one tiny round, so that none stops working unseen. Its figures mean nothing here."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
SPARK = pytest.mark.spark
TINY = {
    "appendable_list": ("--objects", "100"),
    "apply": ("--rows", "1000", "--rounds", "1", "--no-jdbc"),
    "copy": ("--rounds", "1", "--copies", "1"),
    "dagster_day": ("--subscriptions", "2", "--hours", "0.02"),
    "decode": ("--rounds", "1"),
    "delta": ("--rounds", "1", "--rows", "2000"),
    "encode": ("--rounds", "1"),
    "encryption": ("--rounds", "1", "--rows", "5000", "--copies", "1"),
    "engines": ("--rounds", "1", "--no-cold", "--largest", "6 kB"),
    "get_object": ("--rounds", "1", "--mb", "8"),
    "idle": ("--subscriptions", "1", "--rounds", "1"),
    "lake": ("--rounds", "1", "--rows", "5000", "--tables", "2", "--no-spark"),
    "large_object": ("--mb", "8"),
    "latency": ("--commits", "2", "--runs", "1"),
    "logical": ("--rows", "2000"),
    "many_databases": ("--databases", "2", "--tables", "2"),
    "many_objects": ("--objects", "3000", "--tables", "3"),
    "many_tables": ("--tables", "5"),
    "query": ("--rounds", "1", "--rows", "5000"),
    "ranged_read": ("--mb", "8"),
    "read": ("--rounds", "1", "--rows", "5000"),
    "relay": ("--rounds", "1", "--mb", "8"),
    "restore": ("--rounds", "1", "--rows", "5000"),
    "scale": (
        "--tables",
        "5",
        "10",
        "--objects",
        "100",
        "1000",
        "--points",
        "2",
        "3",
        "--subscriptions",
        "2",
        "--schedule",
        "10",
        "100",
        "--rows",
        "2000",
        "--workers",
        "--minutes",
        "0.5",
    ),
    "scheduling": ("--subscriptions", "2", "--runs", "2", "--rounds", "1"),
    "sensor_day": ("--subscriptions", "2", "--hours", "0.2", "--interval", "120"),
    "sensor_hour": ("--minutes", "2", "--recording", "other_account"),
    "service": ("--subscriptions", "2", "--minutes", "0.5"),
    "soak": ("--minutes", "0.05", "--rate", "10", "--sample", "1"),
    "source": ("--rounds", "1", "--copies", "1"),
    "spark_read": ("--rounds", "1", "--rows", "10000"),
    "sql_server": ("--rounds", "1", "--scale", "0.001", "--mariadb", "0"),
    "startup": ("--repeat", "1", "--helps", "1", "--no-dagster"),
    "two_services": ("--subscriptions", "2", "--interval", "1", "--minutes", "0.1", "--down", "1"),
    "workers": ("--rounds", "1", "--workers", "2", "--copies", "2", "--mbs", "20", "--loaded", "200000"),
}
WITH_SPARK = {"engines", "spark_read", "workers"}
LAST_LINE = re.compile(r"(?:[\w ]+:? )?\w+=[^ ]+(?: \w+=[^ ]+)*")  # `name=value …`, perhaps behind words


def test_there_is_a_tiny_round_of_every_benchmark() -> None:
    assert {file.stem for file in FOLDER.glob("*.py")} == TINY.keys()


@pytest.mark.recordings
@pytest.mark.parametrize("name", [pytest.param(name, marks=SPARK if name in WITH_SPARK else ()) for name in TINY])
def test_a_tiny_round_ends_with_a_line_of_figures(name: str, recordings: Path, tmp_path: Path) -> None:
    words = [sys.executable, str(FOLDER / f"{name}.py"), *TINY[name]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    if "needs the full recordings" in done.stderr:
        pytest.skip("the sample of recordings has not all that this benchmark needs")
    assert done.returncode == 0, done.stderr[-3000:]
    last = done.stdout.splitlines()[-1]
    assert LAST_LINE.fullmatch(last), last
