"""Which names patterns match, and whether two subscriptions can have a table in common."""

import random
from itertools import product

import pytest

from ccpr.state.patterns import NamePatterns


@pytest.mark.parametrize(
    ("tables", "exclude", "inside", "outside"),
    [
        ("", "", ["a", "*", ""], []),
        ("order_*", "", ["order_", "order_1", "ORDER_x"], ["orders", "my_order_1", "order"]),
        ("order_*, item", "*_tmp", ["order_1", "item"], ["order_tmp", "order_1_TMP", "items"]),
        ("", "log_????", ["log_1", "log_12345"], ["log_2026", "LOG_1234"]),
        ("A[12]*", "", ["a1", "A2x"], ["a3", "a"]),
        ("a[*]b", "", ["a*b"], ["axb"]),
        ("a?b", "", ["a,b", "a\nb"], ["ab"]),
        ("a(b|c).", "", ["a(b|c)."], ["ab.", "a(b|c)x"]),
    ],
)
def test_names_match_as_in_a_shell_without_regard_to_letter_case(
    tables: str, exclude: str, inside: list[str], outside: list[str]
) -> None:
    patterns = NamePatterns.of(tables, exclude)
    assert [name for name in (*inside, *outside) if patterns.match(name)] == inside


@pytest.mark.parametrize("text", [",", "a,", "a,,b", " "])
def test_an_empty_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is empty"):
        NamePatterns.of(text, "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("order_*", ""), ("item_*", "")),
        (("order_*", ""), ("item", "")),
        (("a,b", ""), ("c,d", "")),
        (("", "log_*"), ("log_*", "")),
        (("", "*_tmp"), ("*_tmp", "")),
        (("", "log_*"), ("log_2026*,log_1", "")),
        (("", "order_*,item"), ("order_1*,item", "")),
    ],
)
def test_a_database_can_be_divided_among_subscriptions(one: tuple[str, str], other: tuple[str, str]) -> None:
    first, second = NamePatterns.of(*one), NamePatterns.of(*other)
    assert not first.may_share(second)
    assert not second.may_share(first)
    assert first.may_share(NamePatterns())


def test_patterns_that_have_a_name_in_common_may_share_it() -> None:
    rng = random.Random(5)
    names = ["".join(name) for count in range(4) for name in product("ab[]*", repeat=count)]

    def drawn() -> NamePatterns:
        texts = (",".join("".join(rng.choices("aab*?[]", k=rng.randint(1, 4))) for _ in range(2)) for _ in range(2))
        return NamePatterns.of(*texts)

    divided = 0
    for _ in range(2000):
        one, other = drawn(), drawn()
        shared = [name for name in names if one.match(name) and other.match(name)]
        assert one.may_share(other) or not shared, (one, other, shared)
        divided += not one.may_share(other)
    assert divided > 20


def test_a_table_of_its_own_subscription_is_compared_by_its_name() -> None:
    table = NamePatterns.of_name("Order*")
    assert not table.may_share(NamePatterns.of("item_*", ""))
    assert table.may_share(NamePatterns.of("order*", ""))
    assert not NamePatterns.of_name("a").may_share(NamePatterns.of_name("b"))
    assert NamePatterns.of_name("a").may_share(NamePatterns.of_name("A"))
