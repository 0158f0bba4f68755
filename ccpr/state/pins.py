"""Snapshots that others took through the relay: each pins a point, so that it stays readable until it is dropped.

A pin is written in a transaction that locks the row of its point, and retention looks for pins in the transaction that
drops points, after it has locked their rows: so no point goes while a client pins it (docs/decisions/relay.md).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from ccpr.base.wording import first_names
from ccpr.mirror.errors import PointGone
from ccpr.state.database import fetch, transaction, unless_taken
from ccpr.state.errors import FollowerMissing, PointsPinned, RelayPinned, RelayPins
from ccpr.state.followers import SERVED, publication_of
from ccpr.state.records import Records, RowForm, StoredField
from ccpr.state.tables import followers, mo_ccpr_log, pins, points

MOST_PINS = 1000  # of one owner in one subscription: so that no login can fill the database, or keep others from theirs
FORGET_SECONDS = 7 * 24 * 3600  # after which an unused pin is reported
OURS = "this program"  # the owner of what this program takes for its own work: no login can have that name
_OURS_BEFORE = ("ccpr_copy_", "ccpr_drill_", "ccpr_restore_", "ccpr_work_")  # earlier releases left their owner out

_NEEDED = sa.select(pins.c.lsn).where(pins.c.task_id == sa.bindparam("task"))


@dataclass(frozen=True, slots=True)
class Pin:
    """A snapshot of the relay.

    Attributes
    ----------
    name : in lower case.
    lsn, at : the point that it shows; its time in nanoseconds.
    table : None for the whole of the subscription.
    created_at, seen_at : when it was made, and when its owner last asked for anything; by our clock, UTC.
    owner : the login of the relay that made it, or `OURS`; None if that is not known.
    """

    name: str
    lsn: int
    at: int
    table: str | None
    created_at: datetime
    seen_at: datetime
    owner: str | None = None

    def is_forgotten(self, now: datetime, seconds: float = FORGET_SECONDS) -> bool:
        return (now - self.seen_at).total_seconds() > seconds


def _owner(login: str | None, name: str) -> str | None:
    return login or (OURS if name.startswith(_OURS_BEFORE) else None)


_FORM = RowForm(
    pins,
    Pin,
    "its row cannot be read",
    {
        "name": "snapshot_name",
        "at": "snapshot_ts",
        "table": StoredField(
            ("scope", "table_name"),
            lambda scope, name: name if scope == "table" else None,
            lambda table: ("database" if table is None else "table", table or ""),
        ),
        "owner": StoredField(("login_name", "snapshot_name"), _owner, lambda owner: (owner,)),
    },
    lambda row: f"snapshot {row['snapshot_name']} of task {row['task_id']}",
)


class Pins(Records):
    """The pins of one subscription. `follower`: they are taken for this one, as long as it is served. `login`: whose
    they are: no others are seen, made or dropped; None = all are, and `OURS` are made. Where the owner is not known,
    they are every login's, except a follower's."""

    def __init__(self, engine: sa.Engine, task_id: str, follower: str | None = None, login: str | None = None) -> None:
        super().__init__(engine, task_id)
        self.follower, self.login = follower, login

    def seen_by(self, login: str) -> "Pins":
        return Pins(self.engine, self.task_id, self.follower, login)

    def _seen(self) -> sa.ColumnElement[bool]:
        here = self._mine(pins)
        if self.login is None:
            return here
        mine = pins.c.login_name == self.login
        if self.follower is not None:
            return here & mine
        ours = sa.or_(*(pins.c.snapshot_name.startswith(prefix, autoescape=True) for prefix in _OURS_BEFORE))
        return here & (mine | (pins.c.login_name.is_(None) & ~ours))

    def all(self) -> list[Pin]:
        """The oldest point first. Raises StateUnreadable."""
        query = sa.select(pins).where(self._seen()).order_by(pins.c.lsn, pins.c.snapshot_name)
        return _FORM.values(self._rows(query))

    def needed_points(self) -> list[int]:
        """The lsn of each pinned point, whoever pinned it."""
        return [row.lsn for row in self._rows(_NEEDED)]

    def find(self, name: str) -> Pin | None:
        return self._first(_FORM, sa.select(pins).where(self._seen(), pins.c.snapshot_name == name))

    def add(self, pin: Pin) -> None:
        """Raises PointGone if the point or the subscription is not there, RelayPinned for a name that is taken,
        RelayPins for too many, FollowerMissing if the follower has ended: what ended it has dropped its pins, or is
        about to.
        """
        point = sa.select(points.c.snapshot_ts).where(self._mine(points, lsn=pin.lsn))
        dropped_at = sa.select(mo_ccpr_log.c.drop_at).where(self._mine(mo_ccpr_log))
        owner = self.login or OURS
        count = sa.select(sa.func.count()).select_from(pins).where(self._mine(pins, login_name=owner))
        stage = sa.select(followers.c.stage).where(self._mine(followers, follower_name=self.follower))
        subject = f"snapshot {pin.name}"
        taken = RelayPinned("there is a snapshot of that name", subject=subject)
        with unless_taken(taken), transaction(self.engine) as connection:
            if connection.scalar(point.with_for_update()) != pin.at:
                raise PointGone(f"point {pin.lsn} has been dropped", subject=subject)
            if connection.scalar(dropped_at) is not None:
                raise PointGone("the subscription has been dropped", subject=subject)
            if self.follower is not None and connection.scalar(stage.with_for_update()) not in SERVED:
                raise FollowerMissing("it does not follow any more", subject=f"follower {self.follower}")
            if (connection.scalar(count) or 0) >= MOST_PINS:
                raise RelayPins(f"{owner} has pinned {MOST_PINS} points", subject=subject)
            self._insert(connection, pins, [_FORM.cells(replace(pin, owner=owner))])

    def drop(self, name: str) -> bool:
        """Whether there was one."""
        return self._write(pins.delete().where(self._seen(), pins.c.snapshot_name == name)) > 0

    def seen(self, name: str, now: datetime) -> None:
        """Its owner asks for something now."""
        self._write(pins.update().where(self._seen(), pins.c.snapshot_name == name).values(seen_at=now))


def any_pinned(connection: sa.Connection, task_id: str, lsns: Collection[int]) -> bool:
    """Whether one of these points is pinned, in the transaction that is about to drop them. From now on none can be
    pinned, nor held."""
    lock_points(connection, task_id, points.c.lsn <= max(lsns))
    pinned = connection.scalars(sa.select(pins.c.lsn).where(pins.c.task_id == task_id, pins.c.lsn <= max(lsns)))
    return not set(lsns).isdisjoint(pinned)


def end_pins(connection: sa.Connection, task_id: str, *, force: bool) -> None:
    """In the transaction that ends the subscription: raises PointsPinned if a point is pinned, or, with `force`,
    forgets the pins. From now on none can be added."""
    lock_points(connection, task_id)
    query = sa.select(pins).where(pins.c.task_id == task_id).order_by(pins.c.lsn, pins.c.snapshot_name)
    if not force:
        check_unpinned(_FORM.values(fetch(connection, query)))
    connection.execute(pins.delete().where(pins.c.task_id == task_id))


def check_unpinned(found: Sequence[Pin]) -> None:
    """Raises PointsPinned if there are any."""
    if found:
        text = first_names(f"point {pin.lsn} was last used at {pin.seen_at:%Y-%m-%d %H:%M} UTC" for pin in found)
        raise PointsPinned(text, subject=f"snapshots {first_names(pin.name for pin in found)}")


def lock_points(connection: sa.Connection, task_id: str, *which: sa.ColumnElement[bool]) -> None:
    """Wait for pins and holds that are being added; those that come later find what this transaction has done."""
    connection.execute(sa.select(points.c.lsn).where(points.c.task_id == task_id, *which).with_for_update()).all()


def give_to_followers(connection: sa.Connection) -> None:
    """Snapshots without a login become those of the followers whose clusters took them: these have the number of the
    subscription there in their names. States of before had no logins."""
    query = sa.select(followers.c.task_id, followers.c.follower_name, followers.c.downstream_task)
    for task_id, name, task in connection.execute(query.where(followers.c.downstream_task.is_not(None))).all():
        taken = pins.c.snapshot_name.startswith(f"ccpr_{task}_", autoescape=True)
        mine = pins.update().where(pins.c.task_id == task_id, pins.c.login_name.is_(None), taken)
        connection.execute(mine.values(login_name=publication_of(task_id, name)))
