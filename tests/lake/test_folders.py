"""Which folder a table gets: one that no other table has, on every file system."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.lake.lake_catalog import POINTS, new_folder

NAMES = st.text(min_size=1, max_size=80)


def test_a_plain_name_is_the_folders() -> None:
    assert new_folder("shop", "order_items-2", 7, ()) == "shop.order_items-2"


@pytest.mark.parametrize("taken", ["shop.orders", "shop.ORDERS"])
def test_a_name_that_is_taken_in_any_letter_case_has_the_tables_id_behind_it(taken: str) -> None:
    assert new_folder("shop", "orders", 7, (taken,)) == "shop.orders.7"


def test_the_table_of_points_keeps_its_folder() -> None:
    assert new_folder(*POINTS.split("."), 7, ()) == f"{POINTS}.7"


@given(NAMES, NAMES, NAMES, NAMES)
def test_tables_of_other_names_have_other_folders(one: str, other: str, third: str, fourth: str) -> None:
    first, second = new_folder(one, other, 1, ()), new_folder(third, fourth, 2, ())
    assert (first == second) == ((one, other) == (third, fourth))


@given(NAMES, NAMES)
def test_every_name_is_one_level_below_the_lake(database: str, name: str) -> None:
    found = new_folder(database, name, 1, ())
    assert len(found.encode()) <= 255
    assert "/" not in found
    assert found not in (".", "..")
    assert found.isascii()
