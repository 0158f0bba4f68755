"""The statements of a first hour, and the page that lists them."""

import pytest

from tests.emulator.sql.first_hour import PAGE, outcomes, page

pytestmark = pytest.mark.integration


def test_at_most_fifteen_are_refused_and_the_page_says_which() -> None:
    found = outcomes()
    assert len(found) == 111
    assert sum("refused" in outcome for _, outcome in found) <= 15
    assert page(found) == PAGE.read_text(), "write it again: python -m tests.emulator.sql.first_hour"
