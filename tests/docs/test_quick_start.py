"""The five commands of the quick start do what they say, typed as they stand there, with places of this machine for
their hosts."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.docs.pages import DOCS, FENCED, ROOT
from tests.support.mariadb import MariaDb
from tests.support.ports import free_port

pytestmark = pytest.mark.integration
PAGES = [ROOT / "README.md", DOCS / "index.md"]
FIVE = ["subscribe", "run", "query", "target", "serve"]


def quick_start(page: Path) -> list[str]:
    """The commands of the block that begins with `ccpr subscribe` and ends with `ccpr serve`."""
    lines = [block.splitlines() for _, block in FENCED.findall(page.read_text())]
    started = next([line for line in one if line.startswith("ccpr ")] for one in lines if "ccpr serve" in str(one))
    assert [line.split()[1] for line in started] == FIVE
    return started


def test_both_pages_have_the_same_quick_start() -> None:
    readme, index = ([line.partition("  #")[0].strip() for line in quick_start(page)] for page in PAGES)
    assert readme == index


def test_the_quick_start_can_be_typed(mariadb: MariaDb, tmp_path: Path) -> None:
    database = f"quick_{tmp_path.name[-20:]}"
    storage = Storage()
    storage.create_database("shop")
    storage.create_publication("p", "shop")
    storage.create_table("shop", "orders", {"id": "int not null", "status": "varchar(9)"}, primary_key=["id"])
    with storage.begin() as transaction:
        transaction.insert("shop", "orders", {"id": [1, 2, 3], "status": ["new", "new", "paid"]})
    with closing(mariadb.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE OR REPLACE DATABASE `{database}`")
    with SimulatedUpstream(storage) as upstream:
        *steps, serve = [
            line.replace("db.example.com:6001", f"127.0.0.1:{upstream.port}")
            .replace("db2.example.com:3306/shop", f"{mariadb.host}:{mariadb.port}/{database}")
            .replace("//ccpr:", f"//{mariadb.user}:")
            for line in quick_start(PAGES[0])
        ]
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CCPR_HOME": str(tmp_path / ".ccpr"),
            "UPSTREAM_PASSWORD": "111",
            "REPORT_PASSWORD": mariadb.password,
        }
        script = "\n".join(["set -e", *steps, "ccpr alter shop --interval 1"])  # so as not to wait for a minute
        typed = subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert typed.returncode == 0, typed.stdout + typed.stderr
        assert "new" in typed.stdout
        serve = serve.partition("#")[0].strip()
        service = subprocess.Popen(["bash", "-c", f"exec {serve} --port {free_port()}"], env=environment)
        try:
            assert _rows(mariadb, database, seconds=120) == {(1, "new"), (2, "new"), (3, "paid")}
        finally:
            service.send_signal(signal.SIGTERM)
            assert service.wait(60) == 0


def _rows(server: MariaDb, database: str, seconds: float) -> set[tuple[int, str]]:
    """Of the target, as soon as it has some."""
    end, found = time.monotonic() + seconds, set()
    while not found and time.monotonic() < end:
        time.sleep(0.2)
        with closing(server.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES LIKE 'orders'")
            if cursor.fetchall():
                cursor.execute("SELECT id, status FROM orders")
                found = set(cursor.fetchall())
    return found
