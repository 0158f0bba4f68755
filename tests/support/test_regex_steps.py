import re

from tests.support.regex_steps import Matcher


def steps(pattern: re.Pattern[str], text: str) -> int:
    matcher = Matcher(pattern, text)
    assert list(matcher.ends()) == [found.end() for found in pattern.finditer(text)]
    return matcher.steps


def test_work_that_grows_with_the_length_and_work_that_grows_with_its_square_are_distinguished() -> None:
    linear, square = re.compile(r"[ab]+|c"), re.compile(r"a*?b|a[^b]*c|.")
    assert steps(linear, "a" * 400) < 5 * steps(linear, "a" * 100)
    assert steps(square, "a" * 400) > 12 * steps(square, "a" * 100)


def test_it_reads_as_the_expression_does() -> None:
    pattern = re.compile(
        r"(?P<a>[^\W\d]\w{1,3}(?:\.[a-z]+)?)|'(?:[^']|'')*+'|--(?=\s|\Z)|-(?!-)|[0-9]+?5|\S|\s", re.DOTALL
    )
    for text in ("abcdef.gh.'x''y'--\n-a 12545 '", "--", "- -'", "é_1 9\n"):
        assert steps(pattern, text) > len(text) / 4
