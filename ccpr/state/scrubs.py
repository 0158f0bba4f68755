"""How far files of mirrors and second copies have been read again, as a row of the catalog database for each."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import sqlalchemy as sa

from ccpr.matrixone.schema import integer_of, text_of
from ccpr.state.copies import copy_id
from ccpr.state.database import fetch, reading, repeatable, stored_time, transaction, understood
from ccpr.state.tables import copy_scrubs, scrubs

_MOST_DAMAGED = 1_000  # that are remembered one by one


@dataclass(frozen=True, slots=True)
class Scrub:
    """
    Attributes
    ----------
    position : name of the last object of this round that was read; empty at its beginning.
    began_at : of this round, by our clock, UTC.
    last_began_at : of the last round that came to its end; None before.
    repaired : files of this round that were damaged and are what they were again.
    damaged : path and reason of those that are still damaged.
    """

    position: str
    began_at: datetime
    last_began_at: datetime | None = None
    repaired: int = 0
    damaged: Mapping[str, str] = field(default_factory=dict)


class ScrubRecords:
    """That of one subscription's mirror, or of its second copy at a place."""

    def __init__(self, engine: sa.Engine, task_id: str, place: str = "") -> None:
        self.engine, self.task_id = engine, task_id
        self._table = copy_scrubs if place else scrubs
        self._key = {"task_id": task_id, **({"copy_id": copy_id(place)} if place else {})}

    @property
    def _mine(self) -> list[sa.ColumnElement[bool]]:
        return [self._table.c[name] == value for name, value in self._key.items()]

    @repeatable
    def get(self) -> Scrub | None:
        """Raises StateUnreadable."""
        with reading(self.engine) as connection:
            found = fetch(connection, sa.select(self._table).where(*self._mine))
        return _scrub(found[0]._mapping) if found else None

    @repeatable
    def put(self, scrub: Scrub) -> None:
        last = scrub.last_began_at
        damaged = dict(list(scrub.damaged.items())[:_MOST_DAMAGED])
        values = {
            **self._key,
            "position": scrub.position,
            "began_at": stored_time(scrub.began_at),
            "last_began_at": None if last is None else stored_time(last),
            "repaired": scrub.repaired,
            "damaged": json.dumps(damaged, ensure_ascii=False),
        }
        with transaction(self.engine) as connection:
            connection.execute(self._table.delete().where(*self._mine))
            connection.execute(self._table.insert().values(values))


def _scrub(row: Mapping) -> Scrub:
    with understood("how far files were read again cannot be read", f"task {row['task_id']}"):
        damaged = json.loads(row["damaged"])
        if not isinstance(damaged, dict):
            raise TypeError("the damaged files are no JSON object")
        last = row["last_began_at"]
        return Scrub(
            text_of(row["position"]),
            row["began_at"].replace(tzinfo=UTC),
            None if last is None else last.replace(tzinfo=UTC),
            integer_of(row["repaired"]),
            {text_of(path): text_of(reason) for path, reason in damaged.items()},
        )
