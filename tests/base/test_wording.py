"""A name that is not known is answered with those that may have been meant."""

import pytest

from ccpr.base.wording import meant

TABLES = ["shop.orders", "shop.order_lines", "crm.people", "crm.orders"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("shop.ordres", "Did you mean shop.orders or shop.order_lines?"),
        ("ORDERS", "Did you mean crm.orders or shop.orders?"),
        ("peple", "Did you mean crm.people?"),
        ("x", "Its tables are crm.orders, crm.people, shop.order_lines, shop.orders."),
        ("", "Its tables are crm.orders, crm.people, shop.order_lines, shop.orders."),
    ],
)
def test_names_like_it_are_named_else_the_first_ones(typed: str, said: str) -> None:
    assert meant(typed, TABLES, "tables") == said


def test_many_names_are_cut_short_and_none_are_said() -> None:
    many = [f"d.t{number:03}" for number in range(200)]
    assert meant("x", many, "tables").endswith("d.t008, d.t009 and 190 more.")
    assert meant("x", [], "columns") == "It has no columns."
