"""Two services, as on two machines, share the subscriptions of one state database, and are killed in turns: no
iteration is done twice, none is left out, and the mirrors have the rows of the source."""

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

import ccpr
from ccpr.emulator.engine.storage import Storage
from ccpr.emulator.simulated_upstream import SimulatedUpstream
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.pipeline.due import due_at
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LogRow
from ccpr.state.settings import Settings
from ccpr.state.states import IterationState
from ccpr.state.subscription import Subscription
from tests.support.mariadb import MariaDb
from tests.support.waiting import until

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
SUBSCRIPTIONS, INTERVAL = 6, 1
LIMIT_SECONDS = 180.0  # a lease of one that was killed lasts 30 s, and the machine may be busy
eventually = partial(until, limit=LIMIT_SECONDS)


class Audit:
    """What the state database itself writes down of each iteration that ends, in the transaction that ends it."""

    def __init__(self, mariadb: MariaDb, database: str) -> None:
        mariadb.create_database(f"{database}_audit")
        self._engine = sa.create_engine(url_of(mariadb, f"{database}_audit"))
        with self._engine.begin() as connection:
            connection.exec_driver_sql(
                "CREATE TABLE ended (number BIGINT AUTO_INCREMENT PRIMARY KEY, task_id VARCHAR(36), lsn BIGINT, "
                "owner VARCHAR(64), context LONGTEXT CHARACTER SET utf8mb4)"
            )
            connection.exec_driver_sql(
                f"CREATE TRIGGER `{database}`.audit AFTER UPDATE ON `{database}`.mo_ccpr_log FOR EACH ROW "
                "INSERT INTO ended (task_id, lsn, owner, context) "
                "SELECT NEW.task_id, OLD.iteration_lsn, NEW.cn_uuid, NEW.context FROM DUAL "
                "WHERE NEW.iteration_lsn <> OLD.iteration_lsn".replace("INTO ended", f"INTO `{database}_audit`.ended")
            )

    def ended(self) -> list[tuple[str, int, str, str]]:
        with self._engine.connect() as connection:
            return [
                tuple(row)
                for row in connection.exec_driver_sql("SELECT task_id, lsn, owner, context FROM ended ORDER BY number")
            ]

    def close(self) -> None:
        self._engine.dispose()


def url_of(mariadb: MariaDb, database: str) -> str:
    return f"mysql+pymysql://{mariadb.user}:{mariadb.password}@{mariadb.host}:{mariadb.port}/{database}"


@dataclass
class Service:
    """`ccpr serve` as on a machine of its own: with a state folder of its own."""

    home: Path
    url: str
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        words = [sys.executable, "-c", "from ccpr.cli.main import main; main()", "serve", "--port", "0"]
        words += ["--no-dagster", "--no-spark", "--workers", "1"]  # so that each has more to do than it can
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "CCPR_HOME": str(self.home), "CCPR_CATALOG": self.url}
        self.process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("serving on ")

    def end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.communicate(timeout=LIMIT_SECONDS)
            self.process = None


@contextmanager
def two_services(homes: list[Path], url: str) -> Iterator[list[Service]]:
    services = [Service(home, url) for home in homes]
    with ExitStack() as ending:
        for service in services:
            ending.callback(service.end, signal.SIGKILL)
            service.start()
        yield services


def subscribe(workspace: Workspace, port: int, mirrors: Path) -> list[LogRow]:
    endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{port}")
    for number in range(SUBSCRIPTIONS):
        publication = Publication(f"p{number}", "sys", 0)
        settings = Settings(sync_interval=INTERVAL, mirror=str(mirrors / f"s{number}"))
        new = Subscription.new(
            f"s{number}", endpoint, "111", workspace.vault, publication, f"d{number}", None, settings
        )
        workspace.log.insert(new.to_row(datetime.now(UTC)))
    return workspace.log.rows()


def test_two_services_share_the_work_and_do_no_iteration_twice_though_they_are_killed(
    mariadb: MariaDb, tmp_path: Path
) -> None:
    database = f"catalog_{uuid.uuid4().hex[:8]}"
    mariadb.create_database(database)
    url, homes, mirrors = url_of(mariadb, database), [tmp_path / "a", tmp_path / "b"], tmp_path / "mirrors"
    storage = Storage()
    for number in range(SUBSCRIPTIONS):
        storage.create_database(f"d{number}")
        storage.create_table(f"d{number}", "t", {"n": "int not null"}, primary_key=["n"])
        storage.create_publication(f"p{number}", f"d{number}")
    written = 0

    def write() -> None:
        nonlocal written
        written += 1
        for number in range(SUBSCRIPTIONS):
            with storage.begin() as transaction:
                transaction.insert(f"d{number}", "t", {"n": [written]})

    def replicated(number: int) -> list[int]:
        table = ccpr.open_mirror(str(mirrors / f"s{number}")).table(f"d{number}.t")
        return sorted(table.to_arrow().column("n").to_pylist())

    with SimulatedUpstream(storage) as upstream, closing(Workspace(homes[0], url)) as workspace:
        rows = {row.task_id: row for row in subscribe(workspace, upstream.port, mirrors)}
        homes[1].mkdir(mode=0o700)
        shutil.copy2(homes[0] / "key", homes[1] / "key")
        with closing(Audit(mariadb, database)) as audit, two_services(homes, url) as services:

            def each_has(more: int, since: int, what: str) -> None:
                def holds() -> bool:
                    counted = Counter(task_id for task_id, *_ in audit.ended()[since:])
                    return all(counted[task_id] >= more for task_id in rows)

                write()
                eventually(holds, what)

            each_has(3, 0, "both work")
            eventually(lambda: len({owner for *_, owner, _ in audit.ended()}) == 2, "they share the work")
            for victim in (0, 1):
                services[victim].end(signal.SIGKILL)
                each_has(2, len(audit.ended()), "the other one goes on with all")
                services[victim].start()
                each_has(1, len(audit.ended()), "both work again")
            write()
            eventually(
                lambda: all(replicated(number) == list(range(1, written + 1)) for number in range(SUBSCRIPTIONS)),
                "the mirrors have the rows of the source",
            )
            for service in services:
                service.end(signal.SIGTERM)
            ended = defaultdict[str, list[tuple[int, str]]](list)
            for task_id, lsn, _, context in audit.ended():
                ended[task_id].append((lsn, context))
        states = {row.task_id: row for row in workspace.log.rows()}
        for task_id, row in rows.items():
            assert [lsn for lsn, _ in ended[task_id]] == list(range(states[task_id].iteration_lsn)), "each once"
            left = replace(row, iteration_state=IterationState.COMPLETE, error_message=None)
            due = [due_at(replace(left, context=context)) for _, context in ended[task_id]]
            assert due == sorted(set(due)), "no two iterations of one due time"
        assert [row.error_message for row in states.values()] == [None] * SUBSCRIPTIONS
