"""What is read of an upstream before replication, also from answers that make no sense."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from ccpr.doctor.upstream_check import (
    ClockReading,
    DatabaseTables,
    current_role,
    read_clock,
    read_tables,
    server_version,
)
from ccpr.matrixone.client.errors import StatementUnknown
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.upstream_session import Answer

pytestmark = pytest.mark.integration

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
PUBLICATION = Publication("pub", "sys", 0)


class Answering:
    """A session with the same answer to every statement."""

    def __init__(self, *rows: tuple[Any, ...], columns: tuple[str, ...] = ("x",)) -> None:
        self.answer = Answer(
            columns, (), [tuple(cell if cell is None else str(cell).encode() for cell in row) for row in rows]
        )

    def read(self, statement: str) -> Answer:
        return self.answer


class Refusing:
    def read(self, statement: str) -> Answer:
        raise StatementUnknown("no", subject=statement)


def ticking(*times: float) -> Callable[[], float]:
    left: Iterator[float] = iter(times)
    return lambda: next(left)


def test_the_clock_is_read_between_question_and_answer() -> None:
    whole = read_clock(Answering(("2026-11-21 12:00:00",)), ticking(NOON + 10.4, NOON + 10.6))  # type: ignore[arg-type]
    assert whole == ClockReading(pytest.approx(10.0), pytest.approx(0.6))
    exact = read_clock(Answering(("2026-11-21 12:00:00.250",)), ticking(NOON, NOON + 0.5))  # type: ignore[arg-type]
    assert exact == ClockReading(pytest.approx(0.0), pytest.approx(0.25))


@pytest.mark.parametrize(
    "session", [Refusing(), Answering(("soon",)), Answering(), Answering(("1", "2")), Answering((None,))]
)
def test_a_clock_that_cannot_be_read_is_none(session: Any) -> None:
    assert read_clock(session, ticking(NOON, NOON)) is None


def test_what_a_server_does_not_answer_is_none() -> None:
    refusing: Any = Refusing()
    assert (server_version(refusing), current_role(refusing), read_tables(refusing, PUBLICATION, "db")) == (
        None,
        None,
        None,
    )
    assert read_tables(Answering((1,), columns=("rel_id",)), PUBLICATION, "db") is None  # type: ignore[arg-type]


def test_kinds_of_tables_are_distinguished() -> None:
    columns = ("rel_id", "relname", "relkind", "partitioned")
    rows = [
        (1, "t", "r", 0),
        (2, "p", "r", 1),
        (3, "v", "v", 0),
        (4, "e", "e", 0),
        (5, "__mo_index_secondary_x", "i", 0),
    ]
    session: Any = Answering(*rows, columns=columns)
    assert read_tables(session, PUBLICATION, "db") == DatabaseTables(
        (1, 2), ("t", "p"), ("p",), (("e", "e"), ("v", "v"))
    )


@pytest.mark.recordings
def test_version_role_and_tables_of_a_recorded_upstream_are_read(play: Callable[..., Any]) -> None:
    upstream = play("dml")
    with upstream.connect() as session:
        assert "MatrixOne" in (server_version(session) or "")
        assert current_role(session) == "moadmin"
        found = read_tables(session, upstream.publication, upstream.database)
        assert found is not None
        assert len(found.ids) == 1
        assert not session.encrypted
