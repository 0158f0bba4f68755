"""Targets of a subscription, as rows of the catalog database. A target is a database into which its points are synced.

The target itself stores which point it is at, in the transaction that wrote the rows. The catalog has a copy of that,
for `ccpr status` and for retention, which has to know which points are still needed. The copy is written after the
target has committed, so it is never ahead of the target.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from ccpr.base.errors import Failure
from ccpr.matrixone.client.retry import BACK_OFF
from ccpr.matrixone.schema import integer_of, text_of
from ccpr.schema.choices import Dialect
from ccpr.state.database import fetch, reading, repeatable, transaction, unless_taken
from ccpr.state.errors import TargetExists, TargetMissing
from ccpr.state.log_rows import LastError
from ccpr.state.records import Records, RowForm, StoredField, converted, time_of
from ccpr.state.settings import TARGET_SETTINGS, TargetSettings
from ccpr.state.tables import iceberg_tables, points, targets

_MOST_DOUBLINGS = 20
_FIRST_WAIT_SECONDS = 60.0
_ASK_AFTER_SECONDS, _ASK_AFTER_INTERVALS = 600.0, 3.0
VERIFY_SECONDS = 60.0  # between two times that a target which has nothing to do is asked where it is


class TargetState(StrEnum):
    ACTIVE = "active"
    RELEASED = "released"  # its tables are ordinary ones now, and are not synced any more


_TASK = sa.bindparam("task")
_OF_ACTIVE = (targets.c.task_id == _TASK, targets.c.state == TargetState.ACTIVE.value)
_NEEDED = sa.select(targets.c.needed_lsn).where(*_OF_ACTIVE, targets.c.needed_lsn.is_not(None))
_NEWEST = sa.select(sa.func.max(points.c.lsn)).where(points.c.task_id == _TASK).scalar_subquery()
_LACKS_A_POINT = targets.c.lsn.is_(None) | (targets.c.lsn < _NEWEST)
_ACTIVE = sa.select(
    targets.c.target_name,
    targets.c.failure,
    targets.c.attempts,
    targets.c.last_failed_at,
    sa.case((_LACKS_A_POINT, 1), else_=0).label("lacks_a_point"),
).where(*_OF_ACTIVE)
_LAGGING = _ACTIVE.where((targets.c.attempts > 0) | _LACKS_A_POINT)
_IN_TROUBLE = (
    sa.select(targets.c.task_id)
    .where(targets.c.state == TargetState.ACTIVE.value, targets.c.failure.is_not(None) | (targets.c.behind != "[]"))
    .distinct()
)
_QUIET = sa.select(targets.c.task_id, targets.c.target_name, targets.c.verified_at).where(
    targets.c.state == TargetState.ACTIVE.value,
    targets.c.lsn.is_not(None),
    targets.c.failure.is_(None),
    targets.c.verified_at.is_(None)
    | (targets.c.verified_at <= sa.bindparam("until"))
    | (targets.c.verified_at > sa.bindparam("now")),
)
_TO_TRY_AGAIN = (
    sa.select(targets.c.task_id).where(targets.c.state == TargetState.ACTIVE.value, targets.c.attempts > 0).distinct()
)


@dataclass(frozen=True, slots=True)
class LaggingTargetTable:
    """A table of a target that is not at the target's point.

    Attributes
    ----------
    table : its name upstream, `db.t`.
    failure : why.
    statements : statements on its definition that require operator action; empty if the reason is another.
    again : whether it is tried again by itself, as the target's `retrying` says.
    """

    table: str
    failure: Failure
    statements: tuple[str, ...] = ()
    again: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "LaggingTargetTable":
        """Raises ValueError, KeyError or TypeError for what `to_json` would not have written."""
        again = value.get("again", False)
        if not isinstance(again, bool):
            raise TypeError("not a bool")
        statements = tuple(map(text_of, value["statements"]))
        return cls(text_of(value["table"]), Failure.from_json(value["failure"]), statements, again)


@dataclass(frozen=True, slots=True)
class Retrying:
    """Consecutive attempts to sync a target that left something to be tried again. `first`, `last`: times of the first
    and the last, on our clock, UTC."""

    attempts: int
    first: datetime
    last: datetime

    def next_attempt(self, interval: float) -> datetime:
        """When it is tried again: after the subscription's interval in seconds or a minute, if that is less, doubled
        with each further failure, up to `BACK_OFF.longest`."""
        doublings = min(max(self.attempts - 1, 0), _MOST_DOUBLINGS)
        wait = min(min(interval, _FIRST_WAIT_SECONDS) * 2.0**doublings, BACK_OFF.longest)
        return self.last + timedelta(seconds=wait)


@dataclass(frozen=True, slots=True)
class Failing:
    """Consecutive failed attempts to sync a target as a whole. `failure`: the last one. `first`, `last`: times of the
    first and the last, on our clock, UTC."""

    failure: Failure
    attempts: int
    first: datetime
    last: datetime

    @property
    def last_error(self) -> LastError:
        first, last = self.first.timestamp(), self.last.timestamp()
        return LastError.of(self.failure, again=True, attempts=self.attempts, first=first, last=last)


@dataclass(frozen=True, slots=True)
class Target:
    """One target of a subscription.

    Attributes
    ----------
    uri : without password; of a lake the URL of its store.
    dialect : None for a lake.
    source_database : of a subscription to several databases the one whose tables are synced; else empty.
    lsn, snapshot_ts : the point it is at; None before the first.
    needed_lsn : the oldest point that one of its tables needs to be synced from; None if no point is needed.
    behind : the tables that are not at that point.
    failing : None if the last attempt succeeded.
    retrying : the attempts until now, if it fails as a whole or in tables; None if nothing is tried again.
    lake : how a lake is kept, as JSON (`ccpr.lake.lake_options.LakeOptions`); None for a database.
    verified_at : when it last said itself where it is, at a sync or because it was asked; on our clock, UTC.
    """

    task_id: str
    name: str
    uri: str
    sealed_password: str = field(repr=False)
    dialect: Dialect | None
    settings: TargetSettings
    created_at: datetime
    state: TargetState = TargetState.ACTIVE
    lsn: int | None = None
    snapshot_ts: int | None = None
    needed_lsn: int | None = None
    behind: tuple[LaggingTargetTable, ...] = ()
    failing: Failing | None = None
    source_database: str = ""
    retrying: Retrying | None = None
    lake: str | None = None
    verified_at: datetime | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether it has a point, and its last sync has not failed as a whole."""
        return self.state is TargetState.ACTIVE and self.lsn is not None and self.failing is None

    def is_to_verify(self, now: datetime) -> bool:
        """Whether it was not asked for `VERIFY_SECONDS`. A clock that was set back ends the wait."""
        at = self.verified_at
        return at is None or not at <= now < at + timedelta(seconds=VERIFY_SECONDS)

    def takes(self, database: str) -> bool:
        """Whether the tables of this database upstream are synced."""
        return self.source_database in ("", database)


def _behind(text: str) -> tuple[LaggingTargetTable, ...]:
    return tuple(map(LaggingTargetTable.from_json, json.loads(text)))


def _behind_text(behind: Sequence[LaggingTargetTable]) -> str:
    return json.dumps([table.to_json() for table in behind], ensure_ascii=False)


def _retrying(attempts: int, first: object, last: object) -> Retrying | None:
    return None if last is None else Retrying(integer_of(attempts), time_of(first), time_of(last))


def _failing(failure: str | None, attempts: int, first: object, last: object) -> Failing | None:
    if failure is None:
        return None
    return Failing(Failure.from_text(failure), integer_of(attempts), time_of(first), time_of(last))


def _failing_cells(failing: Failing | None) -> tuple[object, ...]:
    if failing is None:
        return None, 0, None, None
    return failing.failure.to_text(), failing.attempts, failing.first, failing.last


FAILING = StoredField(("failure", "attempts", "first_failed_at", "last_failed_at"), _failing, _failing_cells)
_FORM = RowForm(
    targets,
    Target,
    "its row cannot be read",
    {
        "name": "target_name",
        "dialect": StoredField(
            ("dialect", "lake"),
            lambda dialect, lake: Dialect(dialect) if lake is None else None,
            lambda dialect: ("" if dialect is None else dialect.value,),
        ),
        "settings": StoredField(
            tuple(TARGET_SETTINGS),
            lambda *cells: TargetSettings.from_row(dict(zip(TARGET_SETTINGS, cells, strict=True))),
            lambda settings: tuple(settings.columns(TARGET_SETTINGS).values()),
        ),
        "state": converted("state", TargetState, str),
        "behind": converted("behind", _behind, _behind_text),
        "failing": FAILING,
        "retrying": StoredField(("attempts", "first_failed_at", "last_failed_at"), _retrying, lambda _: ()),
        "source_database": converted(
            "source_database", lambda cell: text_of(cell or ""), lambda database: database or None
        ),
    },
    lambda row: f"target {row['target_name']} of task {row['task_id']}",
)


class TargetRecords(Records):
    """The targets of one subscription."""

    def all(self) -> list[Target]:
        """All targets, by name. Raises StateUnreadable."""
        return _FORM.values(self._rows(sa.select(targets).where(self._mine(targets)).order_by(targets.c.target_name)))

    def databases(self) -> list[Target]:
        """Those that are databases, by name. Raises StateUnreadable."""
        return [target for target in self.all() if target.lake is None]

    def lakes(self) -> list[Target]:
        """Those that are lakes, by name. Raises StateUnreadable."""
        return [target for target in self.all() if target.lake is not None]

    def get(self, name: str) -> Target:
        """A database of that name. Raises TargetMissing, StateUnreadable."""
        return self._named(name, self.databases(), "target")

    def lake(self, name: str) -> Target:
        """A lake of that name. Raises TargetMissing, StateUnreadable."""
        return self._named(name, self.lakes(), "lake")

    def any(self, name: str) -> Target:
        """Of either kind. Raises TargetMissing, StateUnreadable."""
        return self._named(name, self.all(), "target")

    def _named(self, name: str, targets: Sequence[Target], kind: str) -> Target:
        for target in targets:
            if target.name == name:
                return target
        raise TargetMissing(f"the subscription has no {kind} of that name", subject=f"{kind} {name}")

    def add(self, target: Target) -> None:
        """Add a target that has no point yet. Raises TargetExists."""
        taken = TargetExists("the subscription has a target of that name", subject=f"target {target.name}")
        with unless_taken(taken), transaction(self.engine) as connection:
            connection.execute(targets.insert().values({**_FORM.cells(target), "task_id": self.task_id}))

    def remove(self, name: str) -> None:
        self._write(*(one.delete().where(self._mine(one, target_name=name)) for one in (targets, iceberg_tables)))

    def record_sync(
        self,
        target: Target,
        lsn: int,
        snapshot_ts: int,
        needed_lsn: int,
        behind: Sequence[LaggingTargetTable],
        now: datetime,
    ) -> None:
        """The target is at a point, except for the lagging tables. Ends failing; what of these tables may pass
        is tried again."""
        again = any(table.again for table in behind)
        before = target.retrying if target.failing is None else None
        self.change(
            target.name,
            lsn=lsn,
            snapshot_ts=snapshot_ts,
            needed_lsn=needed_lsn,
            behind=_behind_text(behind),
            failure=None,
            verified_at=now,
            **(attempted(before, now) if again else NOT_RETRYING),
        )

    def record_verified(self, target: Target, now: datetime) -> None:
        """The target has said that it is where it is recorded."""
        self.change(target.name, verified_at=now)

    def record_failure(self, target: Target, failure: Failure, now: datetime) -> None:
        """The target as a whole could not be synced."""
        self.change(target.name, failure=failure.to_text(), **attempted(target.failing, now))

    def lagging(self, now: datetime, interval: float, *, ask: bool = False) -> list[str]:
        """Names of those that have to be synced now although nothing may have changed: they are not at the newest
        point, or failed, as a whole or in tables, and their wait is over (`Retrying.next_attempt`), or all are to be
        asked. Tables that require operator action do not count. A clock that was set back ends a wait.
        """
        return [row.target_name for row in self._rows(_ACTIVE if ask else _LAGGING) if not _waits(row, now, interval)]

    def needed_points(self) -> list[int]:
        """The lsn of the oldest point that each target still needs. Retention keeps these points and all later ones."""
        return [row.needed_lsn for row in self._rows(_NEEDED)]

    def change(self, name: str, **values: Any) -> None:
        """Set columns of a target's row. Nothing happens if there is no such target."""
        self._write(targets.update().where(self._mine(targets, target_name=name)).values(**values))


NOT_RETRYING: dict[str, Any] = {"attempts": 0, "first_failed_at": None, "last_failed_at": None}


def attempted(before: Failing | Retrying | None, now: datetime) -> dict[str, Any]:
    """The columns after one more attempt."""
    attempts, first = (before.attempts + 1, before.first) if before else (1, now)
    return {"attempts": attempts, "first_failed_at": first, "last_failed_at": now}


@repeatable
def tasks_with_target_trouble(engine: sa.Engine) -> set[str]:
    """Task ids of the subscriptions with a target that fails, or has lagging tables."""
    with reading(engine) as connection:
        return {row.task_id for row in fetch(connection, _IN_TROUBLE)}


def may_be_restored(pause_seconds: float, interval: float) -> bool:
    """Whether catalog database and mirror may be copies that were restored since the last iteration, so that targets
    are asked where they are, although they are recorded at the newest point (decision registry-tells-what-lacks).
    `pause_seconds`: since the last iteration. `interval`: seconds between two iterations."""
    return pause_seconds > max(_ASK_AFTER_SECONDS, _ASK_AFTER_INTERVALS * interval)


@repeatable
def tasks_to_try_again(engine: sa.Engine) -> set[str]:
    """Task ids of the subscriptions with a target that is tried again after a failure, now or later."""
    with reading(engine) as connection:
        return {row.task_id for row in fetch(connection, _TO_TRY_AGAIN)}


@repeatable
def targets_to_verify(engine: sa.Engine, now: datetime) -> dict[str, list[str]]:
    """Names of the targets that are to be asked where they are (`Target.is_to_verify`), by task id. Those that fail are
    not among them: they are synced again."""
    until = now - timedelta(seconds=VERIFY_SECONDS)
    with reading(engine) as connection:
        rows = fetch(connection, _QUIET, until=until, now=now)
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.task_id, []).append(row.target_name)
    return found


def _waits(row: sa.Row, now: datetime, interval: float) -> bool:
    if row.last_failed_at is None or (row.failure is None and row.lacks_a_point):
        return False  # a new point does not wait for the tables that failed
    last = row.last_failed_at
    return last <= now < Retrying(int(row.attempts), last, last).next_attempt(interval)
