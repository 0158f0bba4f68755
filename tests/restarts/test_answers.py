"""No answer of a server that stops, starts or waits is taken for an end, and true ends are."""

import pymysql
import pytest

from ccpr.matrixone.client.classification import classify
from ccpr.matrixone.client.errors import UpstreamError
from ccpr.matrixone.errors import Terminal, Transient, Unknown
from tests.restarts.answers import (
    CHANGES,
    ENDS,
    LOGIN,
    LOGINS,
    LOST_PAST,
    NOT_SEEN,
    STATEMENTS,
    STOPS,
    WAITS,
    End,
    Given,
    given,
)


def classified(kind: str, number: int, text: str) -> UpstreamError:
    raised = pymysql.err.OperationalError(number, text)
    return classify(raised, STATEMENTS[kind], connecting=kind == LOGIN)


@pytest.mark.parametrize("one", given((*STOPS, *LOGINS, *WAITS, *NOT_SEEN)), ids=str)
def test_what_a_server_says_while_it_stops_or_waits_is_tried_again_or_looked_up(one: Given) -> None:
    found = classified(one.kind, one.number, one.text)
    assert isinstance(found, Unknown if one.kind in CHANGES else Transient), found.code


@pytest.mark.parametrize("one", given(LOST_PAST), ids=str)
def test_a_past_that_is_lost_is_no_end(one: Given) -> None:
    assert classified(one.kind, one.number, one.text).code == "HISTORY_UNREADABLE"


@pytest.mark.parametrize("end", ENDS, ids=lambda end: f"{end.kind}: {end.text[:60]}")
def test_true_ends_are_told_apart(end: End) -> None:
    found = classified(end.kind, end.number, end.text)
    assert found.code == end.code
    if end.code in ("ACCESS_DENIED", "PUBLICATION_MISSING", "DATABASE_MISSING"):
        assert isinstance(found, Terminal)
