"""The check of an object list: Arrow's, which every iteration makes, and pandera's, which Dagster's assets make."""

import subprocess
import sys
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ccpr.dagster.checks import check_by_schema
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.object_rows import LISTED_SCHEMA
from ccpr.pipeline.errors import BadObjectList
from ccpr.pipeline.list_check import ListCheck, check_list
from tests.support.object_lists import AT, Row, dead, listed, live, stats_of

pytestmark = pytest.mark.integration

BOTH = pytest.mark.parametrize("check", [check_list, check_by_schema])


@BOTH
@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (("db", "t", b"short", 10, None, False), "stats_bytes"),
        (("db", "t", None, 10, None, False), "stats_bytes"),
        (("db", "t", bytes([255]) + stats_of(1)[1:], 10, None, False), "name_agrees"),
        (live(1, size=0), "size"),
        (live(1, rows=0), "rows"),
        (live(1, meta_end=435), f"contradict themselves: {UUID(int=1)}_00000"),
        (live(1, rows=65_537), "contradict themselves"),
        (live(1, blocks=2, appendable=True), "contradict themselves"),
        (dead(1, create=30, delete=20), "no delete before its create"),
        (live(1, create=1001), "nothing later than the snapshot"),
        (dead(1, delete=1001), "nothing later than the snapshot"),
        (live(1, create=0), "create_physical"),
        (("db", "t", stats_of(1), 10, None, None), "is_tombstone"),
    ],
)
def test_a_bad_row_is_refused_and_named(check: ListCheck, row: Row, reason: str) -> None:
    with pytest.raises(BadObjectList, match=reason):
        check(listed([live(2), row]), AT, "a test")


@BOTH
def test_a_row_that_stands_twice_is_refused(check: ListCheck) -> None:
    one = listed([live(1), live(2)])
    with pytest.raises(BadObjectList, match="checks failed"):
        check(pa.concat_tables([one, one.slice(0, 1)]), AT, "a test")


@BOTH
def test_a_delete_without_its_logical_time_is_refused(check: ListCheck) -> None:
    one = listed([dead(1, create=20, delete=20)])
    place = one.schema.get_field_index("delete_logical")
    with pytest.raises(BadObjectList, match="no delete before its create"):
        check(one.set_column(place, one.schema.field(place), pa.nulls(1, pa.int64())), AT, "a test")


@BOTH
def test_a_sound_list_passes(check: ListCheck) -> None:
    check(listed([live(1), dead(2), live(3, table="u")]), AT, "a test")
    check(listed([]), AT, "a test")


def test_of_many_failures_the_first_are_named_and_all_are_counted() -> None:
    rows = listed([live(number, create=1000 + number) for number in range(1, 100)])
    with pytest.raises(BadObjectList, match=r"99 checks failed: .*\(1001\).* and 94 more"):
        check_list(rows, AT, "a test")


# ---- the two against each other

SMALL = st.sampled_from((None, -1, 0, 1, 10, 11, 2**62))
NAMES = tuple(f"{UUID(int=number)}_0000{number}" for number in (1, 2))
WRONG_NAMES = (
    None,
    "",
    "x",
    NAMES[0] + "\n",
    "\n" + NAMES[0],
    NAMES[0] + "0",
    NAMES[0].upper(),
    f"{NAMES[0]}\n{NAMES[1]}",
)
MOST_OFTEN_SOUND = {
    "table_id": st.sampled_from((1, 2, 2, None, 0)),
    "name": st.sampled_from((*NAMES * 4, *WRONG_NAMES)),
    "stats": st.sampled_from((stats_of(1), stats_of(2), stats_of(2, rows=65_537))),
    "stats_bytes": st.sampled_from((154, 154, 154, 153, None)),
    "name_agrees": st.sampled_from((True, True, True, False, None)),
    "is_tombstone": st.sampled_from((True, False, False, None)),
    "appendable": st.sampled_from((True, False, None)),
}
ROW = st.fixed_dictionaries(
    {name: MOST_OFTEN_SOUND.get(name, st.one_of(st.just(10), SMALL)) for name in LISTED_SCHEMA.names}
)
SOUND = dict.fromkeys(LISTED_SCHEMA.names, 1) | {
    "name": NAMES[0], "stats": stats_of(1), "stats_bytes": 154, "name_agrees": True, "appendable": False,
    "is_tombstone": False, "delete_physical": None, "delete_logical": None,
}  # fmt: skip


def refusal(check: ListCheck, rows: pa.Table, at: Timestamp) -> str:
    """Empty if it accepts them."""
    try:
        check(rows, at, "a test")
    except BadObjectList as error:
        return str(error)
    return ""


@pytest.mark.in_turn
@pytest.mark.slow
@settings(max_examples=400)
@given(rows=st.lists(ROW, min_size=1, max_size=3), at=st.sampled_from((0, 10, 1000)))
@example(rows=[SOUND], at=10)
@example(rows=[SOUND | {"delete_physical": 1}], at=10)
@example(rows=[SOUND | {"delete_physical": 1, "delete_logical": 1}], at=10)
@example(rows=[SOUND | {"create_logical": None, "delete_physical": 1, "delete_logical": 1}], at=10)
@example(rows=[SOUND | {"name": NAMES[0] + "\n"}], at=10)
@example(rows=[SOUND, SOUND | {"table_id": 2}], at=10)
@example(rows=[SOUND, SOUND], at=10)
def test_both_accept_and_refuse_the_same(rows: list[dict[str, object]], at: int) -> None:
    table = pa.Table.from_pylist(rows, LISTED_SCHEMA)
    ours, theirs = (refusal(check, table, Timestamp(at)) for check in (check_list, check_by_schema))
    assert bool(ours) == bool(theirs), (ours, theirs)


@pytest.mark.parametrize(
    "change",
    [
        {name: value}
        for name in LISTED_SCHEMA.names
        if name not in ("stats", "appendable")
        for value in (
            None,
            *((-1, 0, 1, 2, 153, 155, 11, 2**62) if LISTED_SCHEMA.field(name).type == pa.int64() else ()),
        )
    ]
    + [{"name": name} for name in WRONG_NAMES],
    ids=str,
)
def test_both_say_the_same_of_a_sound_row_with_one_value_changed(change: dict[str, object]) -> None:
    for row in (SOUND, SOUND | {"delete_physical": 1, "delete_logical": 1}):
        assert refusal(check_list, pa.Table.from_pylist([row], LISTED_SCHEMA), AT) == ""
        table = pa.Table.from_pylist([row | change], LISTED_SCHEMA)
        ours, theirs = (refusal(check, table, AT) for check in (check_list, check_by_schema))
        assert bool(ours) == bool(theirs), (ours, theirs)


def test_a_list_is_checked_without_a_library_of_frames() -> None:
    code = (
        "import sys\nfrom tests.support.object_lists import *\nfrom ccpr.pipeline.list_check import check_list\n"
        "check_list(listed([live(1), dead(2)]), AT, 'a test')\n"
        "try:\n    check_list(listed([live(1, size=0)]), AT, 'a test')\n"
        "except Exception as error:\n    assert 'size: greater than 0 (0)' in str(error), error\n"
        "else:\n    raise AssertionError\n"
        "assert not {'pandera', 'polars'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
