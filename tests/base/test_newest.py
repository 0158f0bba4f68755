from ccpr.base.newest import Newest


def test_what_was_used_last_is_kept_up_to_its_weight() -> None:
    newest = Newest[str, int](10)
    for name, weight in (("a", 4), ("b", 4), ("c", 2)):
        newest.put(name, weight, weight)
    assert newest.get("a") == 4
    newest.put("d", 3, 3)
    assert [newest.get(name) for name in "abcd"] == [4, None, 2, 3]
    newest.put("d", 1, 1)
    newest.put("e", 3, 3)
    assert [newest.get(name) for name in "acde"] == [4, 2, 1, 3]
    newest.drop("a")
    newest.put("f", 4, 4)
    assert [newest.get(name) for name in "acdef"] == [None, 2, 1, 3, 4]


def test_what_is_too_heavy_takes_no_other_place() -> None:
    newest = Newest[str, int](10)
    newest.put("a", 1, 5)
    newest.put("b", 1, 5)
    newest.put("b", 2, 11)
    assert (newest.get("a"), newest.get("b")) == (1, None)
    newest.put("c", 3, 5)
    assert (newest.get("a"), newest.get("c")) == (1, 3)
