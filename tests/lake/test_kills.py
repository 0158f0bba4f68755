"""The publisher is killed before and behind each file that it writes, replaces or deletes; it is run again, and every
point is shown, by one commit of each table at most. `KILLS=all` for each of them; else some."""

import os
from dataclasses import replace
from itertools import count

import pytest

from ccpr.lake.lake_options import TableRules
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.points import Point
from ccpr.retention.retention import Retention
from tests.support.lakes import DyingStore, Killed, Published

pytestmark = pytest.mark.integration

EVERY = 1 if os.environ.get("KILLS") == "all" else 7


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("rules", [TableRules(), TableRules(copy_on_write=True)], ids=["vectors", "rewritten"])
def test_a_kill_at_any_file_loses_no_point_and_repeats_none(
    published: Published, points: list[Point], rules: TableRules, behind: bool
) -> None:
    published = replace(published, rules=rules, readers=("delta-rs",))
    for at in count(0 if behind else 3, EVERY):
        folder = published.folder.with_name(f"lake{at}")
        lake = replace(published, folder=folder, shown={})
        dying = DyingStore(LocalStore(folder, shared=True), at, behind)
        try:
            for point in points[:6]:
                replace(lake, store=dying).publish(point)
        except Killed:
            pass
        else:
            break  # it was not killed any more
        lake.publish(points[5])
        shown = [points[one.lsn] for one in lake.contents().points]
        assert shown[-1] is points[5]
        lake.note_all(*shown)
        lake.assert_shows(*shown)
        lake.assert_each_point_once()


def test_a_kill_while_old_files_leave_keeps_those_of_kept_points(published: Published, points: list[Point]) -> None:
    published = replace(published, retention=Retention(points=2), readers=("delta-rs",))
    hours = 3 * 3600 * 10**9
    for at in count(0, 2 * EVERY - 1):
        folder = published.folder.with_name(f"cleaned{at}")
        lake = replace(published, folder=folder, shown={})
        for point in points[:8]:
            lake.publish(point)
        dying = DyingStore(LocalStore(folder, shared=True), at, behind=bool(at % 2))
        watermark = points[8].at.physical + hours
        try:
            replace(lake, store=dying).publish(points[8], watermark)
        except Killed:
            pass
        else:
            break
        lake.publish(points[8], watermark)
        lake.note_all(points[7], points[8])
        lake.assert_shows(points[7], points[8])
