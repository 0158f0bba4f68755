"""A mirror that keeps the point it was asked for last answers as one that reads each anew, whatever happens to its
files in between."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.errors import PointGone, PointNotReached
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror, ReadMirror
from ccpr.mirror.point_files import PointFiles
from ccpr.mirror.points import Point
from tests.mirror.test_mirror import START, a_ref
from tests.support.publishing import publish, publish_idle
from tests.support.values import NOW

ASKED = st.none() | st.integers(0, 12) | st.integers(START, START + 12)
EVENTS = st.lists(
    st.tuples(st.sampled_from(("point", "idle", "restored")), st.integers(1, 3), st.lists(ASKED, max_size=4)),
    min_size=1,
    max_size=12,
)


def answer(mirror: Mirror, at: int | None) -> Point | str:
    try:
        return mirror.point(at)
    except (PointNotReached, PointGone) as error:
        return str(error)


@settings(deadline=None, max_examples=60)
@given(events=EVENTS)
def test_it_answers_as_a_mirror_that_keeps_nothing(events, tmp_path_factory: pytest.TempPathFactory) -> None:
    """`restored`: the files are those of an older copy, and another history goes on from there."""
    folder = tmp_path_factory.mktemp("mirrors")
    root, copy = folder / "mirror", folder / "copy"
    root.mkdir()
    reader, tables, lsn, copied = ReadMirror(LocalStore(root)), {}, 0, (0, {})
    for event, table_id, asked in events:
        mirror = Mirror(LocalStore(root))
        if event == "restored":
            if copy.exists():
                shutil.rmtree(root)
                shutil.copytree(copy, root)
                lsn, tables = copied
                tables = dict(tables)
            else:
                shutil.copytree(root, copy)
                copied = (lsn, dict(tables))
        elif event == "idle" and lsn:
            publish_idle(mirror, lsn + 1, START + lsn)
            lsn += 1
        else:
            ref = a_ref(table_id, lsn)
            tables[table_id] = ref
            point = Point(lsn, Timestamp(START + lsn), f"xr_{table_id}_{lsn}_0", NOW, "", dict(tables))
            publish(mirror, point, {table_id: ref})
            lsn += 1
        for at in asked:
            assert answer(reader, at) == answer(Mirror(LocalStore(root)), at)


def test_a_point_is_made_out_once_while_tables_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror, made = Mirror(LocalStore(tmp_path)), []
    load = PointFiles.load

    def counted(files: PointFiles, file) -> Point:
        made.append(file.lsn)
        return load(files, file)

    monkeypatch.setattr(PointFiles, "load", counted)
    for lsn in range(2):
        tables = {table_id: a_ref(table_id, lsn) for table_id in range(1, 4)}
        publish(mirror, Point(lsn, Timestamp(START + lsn), f"xr_a_{lsn}_0", NOW, "", tables), dict(tables))
    reader = ReadMirror(LocalStore(tmp_path))
    for table_id in range(1, 4):
        assert reader.point().table(f"db.t{table_id}").lsn == 1
    publish_idle(mirror, 3, START + 2)
    assert reader.point() == reader.point(1) == reader.point(START + 1), "an idle iteration makes no point"
    assert made == [1]
    assert reader.point(0).lsn == 0
    assert made == [1, 0]
