"""Services as on machines of their own, which share the subscriptions of one state database; and what that database
itself writes down of each iteration that ends."""

import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.pipeline.due import due_at
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.log_rows import LogRow
from ccpr.state.settings import Settings
from ccpr.state.states import IterationState
from ccpr.state.subscription import Subscription
from tests.support.mariadb import MariaDb

ROOT = Path(__file__).resolve().parents[2]
END_SECONDS = 180.0


@dataclass(frozen=True)
class EndedIteration:
    """
    Attributes
    ----------
    owner : the executor.
    context : the subscription's afterwards.
    """

    task_id: str
    lsn: int
    owner: str
    context: str


class Audit:
    """What the state database writes down of each iteration that ends, in the transaction that ends it."""

    def __init__(self, mariadb: MariaDb, database: str) -> None:
        mariadb.create_database(f"{database}_audit")
        self._engine = sa.create_engine(mariadb.url(f"{database}_audit"))
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

    def ended(self) -> list[EndedIteration]:
        with self._engine.connect() as connection:
            query = "SELECT task_id, lsn, owner, context FROM ended ORDER BY number"
            return [EndedIteration(*row) for row in connection.exec_driver_sql(query)]

    def count(self) -> int:
        with self._engine.connect() as connection:
            return int(connection.exec_driver_sql("SELECT COUNT(*) FROM ended").scalar() or 0)

    def close(self) -> None:
        self._engine.dispose()


def iterations_of(ended: Sequence[EndedIteration]) -> dict[str, list[EndedIteration]]:
    found = defaultdict[str, list[EndedIteration]](list)
    for one in ended:
        found[one.task_id].append(one)
    return found


def due_after(row: LogRow, one: EndedIteration) -> float:
    """When the next iteration is due, in seconds since 1970."""
    return due_at(replace(row, iteration_state=IterationState.COMPLETE, error_message=None, context=one.context))


def began_at(one: EndedIteration) -> float:
    """When its snapshot was taken, in seconds since 1970."""
    current = Context.from_text(one.context).current
    assert current is not None
    assert current.taken_at is not None
    return current.taken_at


@dataclass
class Service:
    """`ccpr serve` as on a machine of its own: with a state folder of its own."""

    home: Path
    url: str
    workers: int
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        words = [sys.executable, "-c", "from ccpr.cli.main import main; main()", "serve", "--port", "0"]
        words += ["--no-dagster", "--workers", str(self.workers)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "CCPR_HOME": str(self.home), "CCPR_CATALOG": self.url}
        self.process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("serving on ")

    def end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.communicate(timeout=END_SECONDS)
            self.process = None


@contextmanager
def two_services(homes: Sequence[Path], url: str, *, workers: int) -> Iterator[list[Service]]:
    """The first home has the key, which the other one gets a copy of."""
    homes[1].mkdir(mode=0o700)
    shutil.copy2(homes[0] / "key", homes[1] / "key")
    services = [Service(home, url, workers) for home in homes]
    with ExitStack() as ending:
        for service in services:
            ending.callback(service.end, signal.SIGKILL)
            service.start()
        yield services


def subscribe(workspace: Workspace, port: int, settings: Iterable[Settings]) -> dict[str, LogRow]:
    """Subscriptions `s0`, `s1` … to the publications `p0`, `p1` … of the databases `d0`, `d1` …, by task id: one for
    each of the settings."""
    endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{port}")
    for number, one in enumerate(settings):
        publication = Publication(f"p{number}", "sys", 0)
        new = Subscription.new(f"s{number}", endpoint, "111", workspace.vault, publication, f"d{number}", None, one)
        workspace.log.insert(new.to_row(datetime.fromtimestamp(workspace.clock(), UTC)))
    return {row.task_id: row for row in workspace.log.rows()}
