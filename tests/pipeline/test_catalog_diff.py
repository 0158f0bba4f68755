"""Changes of the schema, by table id."""

from hypothesis import given
from hypothesis import strategies as st

from ccpr.schema.table_changes import ChangeKind, diff_catalogs
from tests.support.values import a_table


def kinds(before, after) -> list[ChangeKind]:
    return [change.kind for change in diff_catalogs(before, after)]


def test_nothing_changes_nothing() -> None:
    assert diff_catalogs([a_table(1), a_table(2)], [a_table(2), a_table(1)]) == ()


def test_a_table_comes_and_goes() -> None:
    assert kinds([], [a_table(1)]) == [ChangeKind.CREATED]
    assert kinds([a_table(1)], []) == [ChangeKind.DROPPED]


def test_dropped_and_created_under_the_same_name_are_two_changes() -> None:
    assert kinds([a_table(1, "t")], [a_table(2, "t")]) == [ChangeKind.DROPPED, ChangeKind.CREATED]


def test_truncate_keeps_the_logical_id() -> None:
    (change,) = diff_catalogs([a_table(1, "t")], [a_table(2, "t", logical_id=1)])
    assert change.kind is ChangeKind.REPLACED
    assert change.before == a_table(1, "t")


def test_a_rename_keeps_the_id_and_swapped_names_are_two_renames() -> None:
    assert kinds([a_table(1, "a")], [a_table(1, "b")]) == [ChangeKind.RENAMED]
    swapped = diff_catalogs([a_table(1, "a"), a_table(2, "b")], [a_table(1, "b"), a_table(2, "a")])
    assert [change.describe() for change in swapped] == ["db.a renamed to db.b", "db.b renamed to db.a"]


def test_another_definition_of_the_same_table_is_altered() -> None:
    assert kinds([a_table(1, columns="a")], [a_table(1, columns="ab")]) == [ChangeKind.ALTERED]


TABLES = st.dictionaries(
    st.integers(1, 8), st.tuples(st.sampled_from("pqr"), st.integers(1, 4), st.sampled_from(["a", "ab"])), max_size=6
).map(
    lambda found: [
        a_table(key, name, logical_id=logical, columns=columns) for key, (name, logical, columns) in found.items()
    ]
)


@given(before=TABLES, after=TABLES)
def test_the_changes_applied_to_the_old_list_give_the_new_one(before, after) -> None:
    tables = {table.id: table for table in before}
    for change in diff_catalogs(before, after):
        if change.before is not None:
            del tables[change.before.id]
        if change.after is not None:
            tables[change.after.id] = change.after
    assert tables == {table.id: table for table in after}
