"""Two services, as on two machines, share the subscriptions of one state database, and are killed in turns: no
iteration is done twice, none is left out, and the mirrors have the rows of the source."""

import signal
import uuid
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

import ccpr
from ccpr.service.workspace import Workspace
from ccpr.state.settings import Settings
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.mariadb import MariaDb
from tests.support.services import Audit, due_after, iterations_of, subscribe, two_services
from tests.support.waiting import until

pytestmark = pytest.mark.long

SUBSCRIPTIONS, INTERVAL = 6, 1
LIMIT_SECONDS = 180.0  # a lease of one that was killed lasts 30 s, and the machine may be busy
eventually = partial(until, limit=LIMIT_SECONDS)


def test_two_services_share_the_work_and_do_no_iteration_twice_though_they_are_killed(
    mariadb: MariaDb, tmp_path: Path
) -> None:
    database = f"catalog_{uuid.uuid4().hex[:8]}"
    mariadb.create_database(database)
    url, homes, mirrors = mariadb.url(database), [tmp_path / "a", tmp_path / "b"], tmp_path / "mirrors"
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
        settings = [Settings(sync_interval=INTERVAL, mirror=str(mirrors / f"s{one}")) for one in range(SUBSCRIPTIONS)]
        rows = subscribe(workspace, upstream.port, settings)
        with (
            closing(Audit(mariadb, database)) as audit,
            two_services(homes, url, workers=1) as services,  # so that each has more to do than it can
        ):

            def each_has(more: int, since: int, what: str) -> None:
                def holds() -> bool:
                    counted = Counter(one.task_id for one in audit.ended()[since:])
                    return all(counted[task_id] >= more for task_id in rows)

                write()
                eventually(holds, what)

            each_has(3, 0, "both work")
            eventually(lambda: len({one.owner for one in audit.ended()}) == 2, "they share the work")
            for victim in (0, 1):
                services[victim].end(signal.SIGKILL)
                each_has(2, audit.count(), "the other one goes on with all")
                services[victim].start()
                each_has(1, audit.count(), "both work again")
            write()
            eventually(
                lambda: all(replicated(number) == list(range(1, written + 1)) for number in range(SUBSCRIPTIONS)),
                "the mirrors have the rows of the source",
            )
            for service in services:
                service.end(signal.SIGTERM)
            ended = iterations_of(audit.ended())
        states = {row.task_id: row for row in workspace.log.rows()}
        for task_id, row in rows.items():
            assert [one.lsn for one in ended[task_id]] == list(range(states[task_id].iteration_lsn)), "each once"
            due = [due_after(row, one) for one in ended[task_id]]
            assert due == sorted(set(due)), "no two iterations of one due time"
        assert [row.error_message for row in states.values()] == [None] * SUBSCRIPTIONS
