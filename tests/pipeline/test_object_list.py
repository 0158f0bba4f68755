"""Object lists: de-duplicated and compared, on recorded lists and on made ones."""

from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.client.errors import ObjectListTooLong
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff, as_listed, as_manifest, with_checksums
from ccpr.pipeline.copying import COPY_OUTPUT
from ccpr.pipeline.errors import BadObjectList
from ccpr.pipeline.object_list import (
    check_known,
    conflicting_objects,
    diff_objects,
    read_list,
)
from tests.support.object_lists import NAMES, Row, a_list, dead, listed, live, stats_of


def numbers(objects: pa.Table) -> list[tuple[int, int]]:
    """(table id, object number) of each row."""
    ids, names = (objects.column(key).to_pylist() for key in ("table_id", "name"))
    return [(table_id, UUID(name[:36]).int) for table_id, name in zip(ids, names, strict=True)]


def test_what_is_out_of_scope_is_left_out() -> None:
    assert numbers(listed([live(1), live(2, table="out_of_scope"), live(3, table="u")])) == [(1, 1), (2, 3)]


def test_a_table_that_the_catalog_does_not_have_is_refused() -> None:
    with pytest.raises(BadObjectList, match=r"db\.ghost"):
        listed([live(1, table="ghost")])


def test_of_an_object_listed_twice_the_delete_counts() -> None:
    for rows in ([live(1), dead(1)], [dead(1), live(1)], [dead(1), live(1), dead(1)]):
        one = listed([*rows, live(2)])
        assert numbers(one) == [(1, 1), (1, 2)]
        assert one.column("delete_physical").to_pylist() == [20, None]


def test_the_same_object_in_two_tables_stands_twice() -> None:
    assert numbers(listed([live(1), live(1, table="u")])) == [(1, 1), (2, 1)]


def test_conflicting_stats_are_an_error() -> None:
    with pytest.raises(BadObjectList, match="contradicts itself"):
        listed([live(1), live(1, rows=11)])


def test_tables_that_share_an_object_have_to_agree_about_it() -> None:
    shared = [live(1), live(1, table="u"), live(2)]
    assert conflicting_objects(listed(shared), {}) == []
    assert conflicting_objects(listed(shared), {f"{UUID(int=1)}_00000": 500, f"{UUID(int=9)}_00000": 7}) == []
    assert conflicting_objects(listed(shared), {f"{UUID(int=2)}_00000": 499}) == [f"{UUID(int=2)}_00000"], (
        "another table's points have it otherwise"
    )
    for about in ({"size": 501}, {"rows": 11}, {"appendable": True}):
        assert conflicting_objects(listed([live(1), live(1, table="u", **about), live(2)]), {}) == [
            f"{UUID(int=1)}_00000"
        ]
    assert conflicting_objects(LISTED_SCHEMA.empty_table(), {}) == []


def test_what_was_born_and_is_gone_is_never_fetched() -> None:
    diff = diff_objects(listed([dead(1), live(2)]), LISTED_SCHEMA.empty_table(), complete=set())
    assert (numbers(diff.added), numbers(diff.removed)) == ([(1, 2)], [])


def test_what_the_last_point_knows_changes_nothing() -> None:
    known = listed([live(1), live(2)])
    diff = diff_objects(listed([live(1), dead(3)]), known, complete=set())
    assert (numbers(diff.added), numbers(diff.removed), diff.table_ids) == ([], [], set())


def test_a_full_list_shows_what_is_gone() -> None:
    known = listed([live(1), live(2), live(3, table="u")])
    diff = diff_objects(listed([live(2), live(4)]), known, complete={1})
    assert (numbers(diff.added), numbers(diff.removed)) == ([(1, 4)], [(1, 1)])


def test_a_manifest_keeps_what_a_list_said() -> None:
    rows = listed([live(1, appendable=True), ("db", "t", stats_of(2), 11, None, True)])
    nothing = COPY_OUTPUT.empty_table()
    assert as_listed(1, as_manifest(with_checksums(rows, nothing))) == rows
    assert as_listed(1, as_manifest(with_checksums(LISTED_SCHEMA.empty_table(), nothing))).num_rows == 0


def apply(known: pa.Table, diff: ObjectDiff) -> set[tuple[int, int]]:
    return (set(numbers(known)) - set(numbers(diff.removed))) | set(numbers(diff.added))


# A history: each object of table t lives from one time to another (100 = for ever).
HISTORY = st.dictionaries(st.integers(1, 30), st.tuples(st.integers(1, 9), st.integers(1, 10)), max_size=20)


@settings(deadline=None, max_examples=60)
@given(history=HISTORY, first=st.integers(1, 9), second=st.integers(1, 9))
def test_a_difference_and_a_full_list_lead_to_the_same_state(
    history: dict[int, tuple[int, int]], first: int, second: int
) -> None:
    old, new = sorted((first, second))
    lives = {number: (birth, birth + length) for number, (birth, length) in history.items()}

    def full(at: int) -> list[Row]:
        return [live(number, birth) for number, (birth, death) in lives.items() if birth <= at < death]

    difference = [
        dead(number, birth, death) if death <= new else live(number, birth)
        for number, (birth, death) in lives.items()
        if old <= birth <= new or old <= death <= new  # closed at both ends, as the upstream answers
    ]
    known = listed(full(old))
    by_difference = diff_objects(listed(difference), known, complete=set())
    by_full_list = diff_objects(listed(full(new)), known, complete={1})
    assert apply(known, by_difference) == apply(known, by_full_list) == set(numbers(listed(full(new))))
    assert not set(numbers(by_difference.added)) & set(numbers(known)), "nothing that is there is fetched again"


def test_a_list_that_gives_a_known_object_otherwise_is_refused() -> None:
    known = listed([live(1), live(2), live(2, table="u")])
    check_known(listed([live(1), dead(2), live(3)]), known, "a test")
    for other in (live(2, size=501), live(2, rows=11), live(2, create=11), dead(2, create=11)):
        with pytest.raises(BadObjectList, match=str(UUID(int=2))):
            check_known(listed([live(1), other]), known, "a test")


def test_the_create_time_of_an_appendable_object_may_change() -> None:
    known = listed([live(1, appendable=True)])
    check_known(listed([live(1, create=11, appendable=True)]), known, "a test")
    one = listed([live(1, create=11, appendable=True), live(1, create=9, appendable=True)])
    assert one.column("create_physical").to_pylist() == [9]
    with pytest.raises(BadObjectList, match="contradicts itself"):
        listed([live(1, create=11), live(1, create=9)])


def test_of_a_full_list_only_appendable_objects_are_kept_and_rows_that_show_nothing() -> None:
    rows = [live(1), live(2, appendable=True), live(3), ("db", "t", b"short", 10, None, False)]
    found = read_list(a_list(rows), NAMES, "a test", most_rows=2, appendable=True)
    assert found.column("stats_bytes").to_pylist() == [154, 5]
    assert found.column("appendable").to_pylist() == [True, None]


def test_a_difference_without_a_table_and_with_another() -> None:
    diff = ObjectDiff(listed([live(1), live(2, table="u")]), listed([live(3), live(4, table="u")]))
    rest = diff.without({1})
    assert (rest.table_ids, rest.added.num_rows, rest.removed.num_rows) == ({2}, 1, 1)
    assert diff.without({1}).joined(diff.without({2})).table_ids == {1, 2}
    assert diff.without(()) is diff


def test_a_list_that_never_ends_is_given_up_before_it_fills_the_memory():
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield from a_list([live(number) for number in range(100)])

    with pytest.raises(ObjectListTooLong, match="more than 1000 rows"):
        read_list(endless(), NAMES, "a test", most_rows=1000)
    assert taken == 11


def test_rows_of_tables_out_of_scope_do_not_count():
    batches = [
        batch for _ in range(50) for batch in a_list([live(number, table="out_of_scope") for number in range(100)])
    ]
    rows = read_list([*batches, *a_list([live(1)])], NAMES, "a test", most_rows=10)
    assert rows.num_rows == 1
