"""Twenty clients read while points come every moment, retention drops points and deletes files, and a repair replaces
damaged ones: no wrong row, no torn point, and no point lost that a statement reads."""

import random
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql
import pytest

from tests.mysql.conftest import Served
from tests.support.one_table import spoil
from tests.support.replica import command
from tests.support.waiting import LIMIT_SECONDS

CLIENTS, ACCOUNTS, TOTAL = 20, 40, 40_000
KINDS = ("newest", "transaction", "past", "joined")
EACH = "(SELECT SUM(balance) FROM accounts{at}), (SELECT COUNT(*) FROM moved{at}), (SELECT MAX(number) FROM moved{at})"
# What a statement may say in the place of rows: that a point has gone which it names, or a file is damaged now.
ALLOWED = ("POINT_GONE", "POINT_NOT_REACHED", "MIRROR_DAMAGED", "OBJECT_")


@dataclass
class Readers:
    """`wrong` are the answers that no point has."""

    served: Served
    ended: threading.Event = field(default_factory=threading.Event)
    times: list[int] = field(default_factory=list)  # of the points that were made, in order
    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[Any] = field(default_factory=list)

    def read(self, seed: int) -> None:
        random_ = random.Random(seed)
        while not self.ended.is_set():
            try:
                with closing(self.served.connect(database="d")) as connection, connection.cursor() as cursor:
                    for _ in range(20):
                        self._one(cursor, random_)
            except pymysql.MySQLError as error:
                self._note(error)

    def _one(self, cursor: Any, random_: random.Random) -> None:
        kind = random_.choice(KINDS)
        try:
            getattr(self, f"_{kind}")(cursor, random_)
            self.answers[kind] += 1
        except pymysql.MySQLError as error:
            self._note(error)
            cursor.execute("ROLLBACK")

    @property
    def enough(self) -> bool:
        """Whether there were answers of each kind."""
        return all(self.answers[kind] > 10 for kind in KINDS)

    def _note(self, error: pymysql.MySQLError) -> None:
        if any(word in str(error.args[-1]) for word in ALLOWED):
            self.answers["allowed"] += 1
        else:
            self.wrong.append(error.args)

    def _check(self, rows: Any, at: int | None = None) -> None:
        ((total, count, number),) = rows
        if int(total) != TOTAL or count != number or (at is not None and count != at):
            self.wrong.append((rows, at))

    def _newest(self, cursor: Any, random_: random.Random) -> None:
        cursor.execute(f"SELECT {EACH.format(at='')}")
        self._check(cursor.fetchall())

    def _transaction(self, cursor: Any, random_: random.Random) -> None:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute("SELECT COUNT(*) FROM moved")
        ((before,),) = cursor.fetchall()
        time.sleep(random_.random())
        cursor.execute(f"SELECT {EACH.format(at='')}")
        self._check(cursor.fetchall(), before)
        cursor.execute("COMMIT")

    def _past(self, cursor: Any, random_: random.Random) -> None:
        place = random_.randrange(max(0, len(self.times) - 4), len(self.times))
        cursor.execute(f"SELECT {EACH.format(at=f' {{MO_TS = {self.times[place]}}}')}")
        self._check(cursor.fetchall(), place + 1)

    def _joined(self, cursor: Any, random_: random.Random) -> None:
        cursor.execute("SELECT SUM(a.balance), COUNT(*) FROM accounts a JOIN accounts b ON a.id = b.id")
        ((total, count),) = cursor.fetchall()
        if (int(total), count) != (TOTAL, ACCOUNTS):
            self.wrong.append((total, count))


def move(served: Served, number: int, random_: random.Random) -> None:
    """Between two accounts, with a row that says so."""
    one, other = random_.sample(range(ACCOUNTS), 2)
    amount = random_.randint(1, 100)
    with served.table.source.storage.begin() as transaction:
        for account, change in ((one, -amount), (other, amount)):
            where = pc.field("id") == account
            transaction.update("d", "accounts", {"balance": lambda rows, by=change: pc.add(rows["balance"], by)}, where)
        transaction.insert("d", "moved", {"number": [number], "amount": [amount]})


def rounds(served: Served, seconds: float) -> Readers:
    storage, random_ = served.table.source.storage, random.Random(7)
    storage.create_table("d", "accounts", {"id": "int not null", "balance": "bigint"}, primary_key=["id"])
    storage.create_table("d", "moved", {"number": "int not null", "amount": "int"}, primary_key=["number"])
    balances = pa.array([TOTAL // ACCOUNTS] * ACCOUNTS, pa.int64())
    with storage.begin() as transaction:
        transaction.insert(
            "d", "accounts", pa.table({"id": pa.array(range(ACCOUNTS), pa.int32()), "balance": balances})
        )
    command("alter", "s", "--retain", "2", "--retain-files", "0s")
    readers = Readers(served)

    def make_point() -> None:
        move(served, len(readers.times) + 1, random_)
        lsn = served.table.work(seconds=1)
        readers.times.append(served.table.times[lsn])

    make_point()
    end, late = time.monotonic() + seconds, time.monotonic() + seconds + LIMIT_SECONDS
    threads = [threading.Thread(target=readers.read, args=(seed,)) for seed in range(CLIENTS)]
    for thread in threads:
        thread.start()
    objects = served.table.source.mirror_folder() / "objects"
    while time.monotonic() < end or not (readers.enough or time.monotonic() > late):
        began = time.monotonic()
        make_point()
        if len(readers.times) % 3 == 0:
            files = sorted(one for one in objects.rglob("*") if one.is_file())
            spoil(random_.choice(files))
            command("verify", "s", "--repair", code=None)
        time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
    readers.ended.set()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return readers


def check(served: Served, seconds: float) -> None:
    readers = rounds(served, seconds)
    assert readers.wrong == []
    assert readers.enough, readers.answers
    assert readers.answers["allowed"] < sum(readers.answers.values()) / 2, readers.answers
    served.server._replicas.let_go(at_once=True)
    row = served.workspace.log.row("s")
    assert served.workspace.of(row).pins.all() == []
    assert command("verify", "s", "--deep", "--repair")["sound"]
    assert served.ask(f"SELECT {EACH.format(at='')}")[0][1:] == (len(readers.times), len(readers.times))


@pytest.mark.slow
def test_readers_see_whole_points_for_some_seconds(served: Served) -> None:
    check(served, 10.0)


@pytest.mark.long
def test_readers_see_whole_points_for_minutes(served: Served) -> None:
    check(served, 180.0)
