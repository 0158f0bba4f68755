"""A simulated upstream with one table and a clock that a test sets: a point for each change, and the rows that the
table had then."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ccpr
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command
from tests.support.simulated import SimulatedSource, rows

DATABASE, START = "d", 1_780_000_000_000_000_000
HOUR, DAY = 3600, 24 * 3600


class Clock:
    """The upstream's."""

    def __init__(self) -> None:
        self.at = START

    def __call__(self) -> int:
        self.at += 1000
        return self.at


@dataclass
class OneTable:
    """One table, a point for each `work`, and the rows that it had then."""

    source: SimulatedSource
    clock: Clock
    truth: dict[int, pa.Table] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)

    def work(self, seconds: int = 60) -> int:
        """Some time passes, rows change, an iteration runs. Returns the lsn of its point."""
        self.clock.at += seconds * 10**9
        number = len(self.truth)
        with self.source.storage.begin() as transaction:
            transaction.insert(DATABASE, "a", {"n": [number], "v": [f"v{number}"]})
        outcome = command("run", "s")
        assert outcome["point"]
        lsn = outcome["lsn"]
        self.truth[lsn] = self.source.storage.rows_at(DATABASE, "a", self.source.storage.now)
        self.times[lsn] = next(one["snapshot_ts"] for one in command("points", "s") if one["lsn"] == lsn)
        return lsn

    def replicated(self, points: int) -> "OneTable":
        """Subscribe, and make so many points."""
        self.source.subscribe()
        for _ in range(points):
            self.work()
        return self

    def lsns(self) -> list[int]:
        return [point["lsn"] for point in command("points", "s")]

    def read(self, at: str) -> pa.Table:
        file = self.source.home / "out.parquet"
        command("export", "s", f"{DATABASE}.a", "--out", str(file), "--at", at)
        return pq.read_table(file)

    def assert_equal(self) -> None:
        """Every point that is listed reads as it was, with the state folder and without it; every other one does not
        read at all."""
        mirror, kept = self.source.mirror(), self.lsns()
        assert [point.lsn for point in mirror.points()] == kept
        for lsn, expected in self.truth.items():
            if lsn in kept:
                assert rows(self.read(str(lsn))) == rows(expected)
                assert rows(mirror.table(f"{DATABASE}.a").to_arrow(at=str(self.times[lsn]))) == rows(expected)
                continue
            for at in (lsn, str(self.times[lsn]), str(self.times[lsn] + 1)):
                with pytest.raises(ccpr.PointGone):
                    mirror.point(at)


def spoil(file: Path) -> None:
    """Flip a bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.chmod(0o600)
    file.write_bytes(content)


@contextmanager
def published(home: Path) -> Iterator[OneTable]:
    """`home` is the parent of the state folder, which the caller's fixture names in CCPR_HOME."""
    clock = Clock()
    storage = Storage(now=clock)
    storage.create_database(DATABASE)
    storage.create_publication("p", DATABASE)
    storage.create_table(DATABASE, "a", {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])
    with SimulatedUpstream(storage) as emulator:
        yield OneTable(SimulatedSource(storage, emulator, home, DATABASE), clock)
