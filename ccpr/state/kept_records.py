"""Held points and points that stay by themselves, as rows of the catalog database, and how the file in the mirror
follows them: each change writes a new file with the next revision, in the transaction that changes the rows the new
file takes the place of the one before, and the head is published as after a commit.

No lease is needed to hold a point. A change is written only if the revision is still the one that was read; so no
change is lost, and a mirror and a catalog database that were restored from copies of different ages are
told apart by it. Source: decision kept-points-are-listed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from ccpr.matrixone.schema import integer_of, text_of
from ccpr.mirror.kept_points import HOLD_NAME, Hold, KeptPoint, KeptPoints
from ccpr.state.database import fetch, reading, repeatable, understood
from ccpr.state.history import GlobalPoint
from ccpr.state.records import Records, RowForm, converted
from ccpr.state.tables import holds, kept, kept_points

_KEPT = sa.select(kept).where(kept.c.task_id == sa.bindparam("task"))
_HOLDS = sa.select(holds).where(holds.c.task_id == sa.bindparam("task")).order_by(holds.c.hold_name)
_NEXTS = sa.select(kept_points).where(kept_points.c.task_id == sa.bindparam("task"))


class KeptChanged(Exception):
    """Another process has held, released or dropped points meanwhile."""


@dataclass(frozen=True, slots=True)
class KeptState:
    """What is kept besides the newest points.

    Attributes
    ----------
    revision, file : of the mirror's file; 0 and empty before the first.
    chain_from : points of a lesser lsn are listed in the file, the others are linked with the newest.
    holds : by name.
    nexts : of each listed point by its lsn, number and time of the point that came directly after it.
    """

    revision: int = 0
    file: str = ""
    chain_from: int = 0
    holds: tuple[Hold, ...] = ()
    nexts: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def ends(self, points: Sequence[GlobalPoint]) -> dict[int, tuple[int, int]]:
        """Number and time of the point that came directly after each; the newest has none. `points`: oldest first."""
        linked = {one.lsn: (later.lsn, later.at.physical) for one, later in pairwise(points)}
        return {**linked, **self.nexts}

    def content(self, points: Sequence[GlobalPoint]) -> KeptPoints:
        """What the mirror's file says. `points`: all of the subscription, oldest first."""
        listed = (point for point in points if point.lsn in self.nexts)
        found = (KeptPoint(one.file, one.lsn, one.at.physical, *self.nexts[one.lsn]) for one in listed)
        return KeptPoints(tuple(found), self.holds)


def _hold_name(cell: object) -> str:
    name = text_of(cell)
    if not HOLD_NAME.fullmatch(name):
        raise ValueError(f"{name!r:.80} is not the name of a held point")
    return name


_HOLD = RowForm(
    holds,
    Hold,
    "a held point cannot be read",
    {"name": converted("hold_name", _hold_name, str), "until": "held_until"},
)


class KeptRecords(Records):
    """What is kept of one subscription."""

    @repeatable
    def state(self) -> KeptState:
        """Raises StateUnreadable."""
        with reading(self.engine) as connection:
            found = fetch(connection, _KEPT, task=self.task_id)
            held = fetch(connection, _HOLDS, task=self.task_id)
            listed = fetch(connection, _NEXTS, task=self.task_id)
        with understood("what is kept of it cannot be read", f"task {self.task_id}"):
            row = found[0]._mapping if found else {"revision": 0, "file": "", "chain_from": 0}
            return KeptState(
                integer_of(row["revision"]),
                text_of(row["file"]),
                integer_of(row["chain_from"]),
                tuple(sorted(_HOLD.values(held), key=lambda hold: hold.name)),
                {integer_of(one.lsn): (integer_of(one.next_lsn), integer_of(one.next_ts)) for one in listed},
            )

    def holds(self) -> list[Hold]:
        """By name. Raises StateUnreadable."""
        return _HOLD.values(self._rows(_HOLDS))

    def write(self, connection: sa.Connection, before: KeptState, after: KeptState) -> None:
        """Replace what is kept, in the caller's transaction. Raises KeptChanged if it is not as before any more."""
        values = {"revision": after.revision, "file": after.file, "chain_from": after.chain_from}
        if before.revision == 0:
            try:
                self._insert(connection, kept, [values])
            except IntegrityError as error:
                raise KeptChanged from error
        else:
            mine = self._mine(kept, revision=before.revision)
            if connection.execute(kept.update().where(mine).values(**values)).rowcount != 1:
                raise KeptChanged
        if before.holds != after.holds:
            connection.execute(holds.delete().where(self._mine(holds)))
            self._insert(connection, holds, map(_HOLD.cells, after.holds))

    def write_nexts(self, connection: sa.Connection, found: Mapping[int, tuple[int, int]]) -> None:
        """Add those of points that leave the chain."""
        rows = ({"lsn": lsn, "next_lsn": after, "next_ts": at} for lsn, (after, at) in found.items())
        self._insert(connection, kept_points, rows)

    def check(self, connection: sa.Connection, before: KeptState) -> None:
        """In the transaction that is about to drop points. Raises KeptChanged if another process has changed what is
        kept."""
        revision = sa.select(kept.c.revision).where(self._mine(kept)).with_for_update()
        if (connection.scalar(revision) or 0) != before.revision:
            raise KeptChanged
