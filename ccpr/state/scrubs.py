"""How far files of mirrors and second copies have been read again, as a row of the catalog database for each."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

import sqlalchemy as sa

from ccpr.state.copies import copy_id
from ccpr.state.records import Records, RowForm, texts_field
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


_MESSAGE, _STORED = "how far files were read again cannot be read", {"damaged": texts_field("damaged")}
_FORMS = {table: RowForm(table, Scrub, _MESSAGE, _STORED) for table in (scrubs, copy_scrubs)}


class ScrubRecords(Records):
    """Those of one subscription's mirror, and of its second copies by their places."""

    def get(self, place: str = "") -> Scrub | None:
        """Of the copy at a place; of the mirror if none is named. Raises StateUnreadable."""
        table, key = _row_of(place)
        found = self._rows(sa.select(table).where(self._mine(table, **key)))
        return _FORMS[table].value(found[0]) if found else None

    def put(self, scrub: Scrub, place: str = "") -> None:
        table, key = _row_of(place)
        cells = _FORMS[table].cells(replace(scrub, damaged=dict(islice(scrub.damaged.items(), _MOST_DAMAGED))))
        self._write(
            table.delete().where(self._mine(table, **key)), table.insert().values(task_id=self.task_id, **key, **cells)
        )


def _row_of(place: str) -> tuple[sa.Table, dict[str, str]]:
    return (copy_scrubs, {"copy_id": copy_id(place)}) if place else (scrubs, {})
