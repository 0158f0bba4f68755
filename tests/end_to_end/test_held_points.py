"""Keep rules and held points, as a person types them: what stays reads as the source was then, by whatever reader."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ccpr
from ccpr.emulator.engine.storage import Storage
from ccpr.emulator.simulated_upstream import SimulatedUpstream
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.service.workspace import Workspace
from tests.end_to_end.replica import command
from tests.end_to_end.simulated import SimulatedSource, rows

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
class Shop:
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


@pytest.fixture
def shop(home: Path) -> Iterator[Shop]:
    clock = Clock()
    storage = Storage(now=clock)
    storage.create_database(DATABASE)
    storage.create_publication("p", DATABASE)
    storage.create_table(DATABASE, "a", {"n": "int not null", "v": "varchar(20)"}, primary_key=["n"])
    with SimulatedUpstream(storage) as emulator:
        yield Shop(SimulatedSource(storage, emulator, home, DATABASE), clock)


def test_points_stay_by_the_calendar_and_each_of_them_reads_as_it_was(shop: Shop) -> None:
    shop.source.subscribe("--keep", "all:90m,hourly:3,daily:2")
    for _ in range(14):
        shop.work(30 * 60)
    assert set(shop.lsns()) >= set(range(10, 14))
    assert len(shop.lsns()) < 9
    shop.assert_equal()
    for _ in range(3):
        shop.work(DAY)
    assert len(shop.lsns()) == 3, "today and yesterday, and what the last hour began with"
    shop.assert_equal()


def test_what_would_expire_is_shown_before_it_does(shop: Shop) -> None:
    shop.source.subscribe()
    for _ in range(4):
        shop.work(HOUR)
    assert command("points", "s", "--would-expire") == []
    shown = [point["lsn"] for point in command("points", "s", "--would-expire", "--keep", "hourly:2")]
    assert shown == [0, 1]
    assert command("points", "s", "--keep", "hourly:2", "--json")[3]["kept_by"] == ["newest", "hourly"]
    command("alter", "s", "--keep", "hourly:2")
    assert [point["lsn"] for point in command("points", "s", "--would-expire")] == shown
    shop.clock.at += HOUR * 10**9
    with shop.source.storage.begin() as transaction:
        transaction.insert(DATABASE, "a", {"n": [77], "v": ["x"]})
    assert command("plan", "s")["expiring_points"] == [0, 1, 2]
    command("run", "s")
    assert shop.lsns() == [3, 4]


def test_rules_that_are_none_are_refused_in_each_way_in(shop: Shop) -> None:
    for text in ("hourly", "hourly:0", "hourly:2,hourly:3", "minutely:3", "all:x", "daily:1000000"):
        error = shop.source.subscribe("--keep", text, code=2)
        assert error["error"]["code"] == "BAD_SETTING"
    shop.source.subscribe("--keep", "daily:2")
    assert command("alter", "s", "--keep", "daily:-1", code=2)["error"]["code"] == "BAD_SETTING"
    command("sql", "ALTER SUBSCRIPTION s SET (keep = 'yearly:3')")
    with closing(Workspace()) as workspace:
        assert '"keep": "yearly:3"' in workspace.log.row("s").sync_config


def test_a_held_point_stays_and_its_name_works_wherever_a_point_is_named(shop: Shop) -> None:
    shop.source.subscribe("--retain", "2")
    for _ in range(3):
        shop.work()
    held = command("points", "hold", "s", "1", "--name", "before-migration")
    assert (held["lsn"], held["until"]) == (1, None)
    command("points", "hold", "s", "1", "--name", "before-migration")
    for _ in range(3):
        shop.work()
    assert shop.lsns() == [1, 4, 5]
    shop.assert_equal()
    assert command("points", "s")[0]["kept_by"] == ["held: before-migration"]
    assert command("tables", "s", "--at", "before-migration")["lsn"] == 1
    assert rows(shop.read("before-migration")) == rows(shop.truth[1])
    mirror = shop.source.mirror()
    assert mirror.point("before-migration").lsn == 1
    assert rows(mirror.table(f"{DATABASE}.a").to_arrow(at="before-migration")) == rows(shop.truth[1])
    counted = command("query", "s", f"SELECT count(*) AS c FROM {DATABASE}.a", "--at", "before-migration")
    assert counted["rows"] == [[2]] or counted == [{"c": 2}] or "2" in str(counted)
    assert command("diff", "s", f"{DATABASE}.a", "--from", "before-migration", "--to", "5") is not None
    assert command("tables", "s", "--at", "after-migration", code=1)["error"]["code"] == "HOLD_MISSING"
    command("points", "release", "s", "before-migration")
    shop.work()
    assert shop.lsns() == [5, 6]
    shop.assert_equal()


def test_a_hold_ends_by_the_upstreams_clock_and_not_by_ours(shop: Shop) -> None:
    shop.source.subscribe("--retain", "1")
    shop.work()
    command("points", "hold", "s", "0", "--name", "week", "--until", "2026-06-05T00:00:00")
    shop.work(DAY)
    assert shop.lsns() == [0, 1]
    with closing(Workspace(clock=lambda: 4e9)) as workspace, workspace.iteration("s") as iteration:
        iteration.sweep()
    assert shop.lsns() == [0, 1]
    shop.work(9 * DAY)
    assert shop.lsns() == [2]
    assert command("tables", "s", "--at", "week", code=1)["error"]["code"] == "HOLD_MISSING"
    shop.assert_equal()


def test_a_point_that_something_needs_is_not_dropped(shop: Shop) -> None:
    shop.source.subscribe()
    for _ in range(4):
        shop.work()
    command("points", "hold", "s", "1", "--name", "h")
    for point, says in (("3", "newest"), ("1", "held as h")):
        error = command("points", "drop", "s", point, "--yes", code=1)["error"]
        assert (error["code"], says in error["message"]) == ("POINT_NEEDED", True)
    assert command("points", "drop", "s", "2", code=4)["error"]["code"] == "NOT_CONFIRMED"
    command("points", "drop", "s", "2", "--yes")
    assert shop.lsns() == [0, 1, 3]
    shop.assert_equal()
    shop.work()
    command("points", "drop", "s", "0", "--yes")
    assert shop.lsns() == [1, 3, 4]
    shop.assert_equal()
    assert command("verify", "s")["sound"]
    assert command("points", "hold", "s", "3", "--name", "h", code=1)["error"]["code"] == "HOLD_EXISTS"
    assert command("points", "hold", "s", "3", "--name", "1st", code=2)["error"]["code"] == "BAD_NAME"
    assert command("points", "release", "s", "g", code=1)["error"]["code"] == "HOLD_MISSING"
    assert command("drop", "s", "--purge", "--yes", code=1)["error"]["code"] == "POINTS_HELD"


def test_a_hold_survives_the_restore_of_an_older_state_folder(shop: Shop) -> None:
    """Although no iteration has run since that copy."""
    shop.source.subscribe("--retain", "1")
    shop.work()
    shop.work()
    command("points", "hold", "s", "1", "--name", "first")
    shop.work()
    home, copy = shop.source.home / "home", shop.source.home / "copy"
    shutil.copy(home / "catalog.db", copy)
    command("points", "hold", "s", "2", "--name", "second")
    for file in home.glob("catalog.db*"):
        file.unlink()
    shutil.copy(copy, home / "catalog.db")
    assert command("points", "release", "s", "first", code=1)["error"]["code"] == "MIRROR_AHEAD"
    command("state", "adopt", "s")
    assert [hold["name"] for point in command("points", "s") for hold in point["held"]] == ["first", "second"]
    for _ in range(2):
        shop.work()
    assert shop.lsns() == [1, 2, 4]
    shop.assert_equal()


def test_the_state_file_has_holds_and_kept_points(shop: Shop) -> None:
    shop.source.subscribe("--retain", "1")
    for _ in range(3):
        shop.work()
        command("points", "hold", "s", str(len(shop.truth) - 1), "--name", f"h{len(shop.truth)}")
    command("points", "release", "s", "h2")
    shop.work()
    assert shop.lsns() == [0, 2, 3]
    file = shop.source.home / "s.json"
    command("state", "export", "s", "--out", str(file))
    (shop.source.home / "home" / "catalog.db").unlink()
    command("state", "import", str(file), "--from", shop.source.uri)
    assert shop.lsns() == [0, 2, 3]
    shop.work()
    assert shop.lsns() == [0, 2, 4]
    shop.assert_equal()


def test_a_damaged_list_of_kept_points_is_found_and_written_again(shop: Shop) -> None:
    shop.source.subscribe("--retain", "1")
    shop.work()
    command("points", "hold", "s", "0", "--name", "h")
    for _ in range(2):
        shop.work()
    (file,) = [
        path for path in (shop.source.mirror_folder() / "kept").iterdir() if b'"points": [\n  [' in path.read_bytes()
    ]
    file.write_bytes(file.read_bytes().replace(b"points/", b"poinjs/", 1))
    with pytest.raises(ccpr.MirrorDamaged):
        shop.source.mirror().point("h")
    assert shop.source.mirror().point().lsn == 2
    found = command("verify", "s")
    assert [(damage["path"], damage["repaired"]) for damage in found["damages"]] == [(f"kept/{file.name}", True)]
    shop.assert_equal()
    shop.work()
    assert shop.lsns() == [0, 3]


def test_releases_that_do_not_know_held_points_may_read_and_not_write(shop: Shop) -> None:
    """They read the points that are linked with the newest; `mirror.json`, which writers read, is of a format that they
    do not know."""
    shop.source.subscribe("--retain", "1")
    shop.work()
    folder = shop.source.mirror_folder()
    before = Mirror(LocalStore(folder))
    assert '"format": 2' in (folder / "mirror.json").read_text()
    command("points", "hold", "s", "0")
    shop.work()
    shop.work()
    assert '"format": 3' in (folder / "mirror.json").read_text()
    assert '"format": 2' in (folder / "head.json").read_text()
    identity, head = before.identity(), before.published_head()
    assert identity is not None
    assert identity.guarded
    assert head is not None
    assert (head.oldest_point, head.newest_point) == (2, 2)
    command("points", "release", "s", "held-0")
    shop.work()
    assert '"format": 3' in (folder / "mirror.json").read_text(), "it stays so"


def test_a_subscription_may_be_called_as_a_command_is(shop: Shop) -> None:
    shop.source.subscribe(name="hold")
    command("run", "hold")
    assert len(command("points", "hold")) == 1
    document: Any = command("points", "hold", "hold", "0")
    assert document["name"] == "held-0"
