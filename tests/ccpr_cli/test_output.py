"""Numbers and time spans for people."""

import pytest

from ccpr_cli.output import counted, seconds_text


def test_one_is_not_a_plural() -> None:
    assert [counted(count, "object") for count in (0, 1, 2, 1200)] == [
        "0 objects",
        "1 object",
        "2 objects",
        "1,200 objects",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (119.4, "119 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (3 * 86400 + 4 * 3600, "3 d 4 h")],
)
def test_spans_are_short(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
