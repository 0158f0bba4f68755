"""Followers of a subscription, as rows of the catalog database. A follower is a database of another MatrixOne, which
takes its points from the relay by a subscription of its own.

That cluster knows how far it is; the row has what it said when it was last asked. The row is written before anything
is done there, so that whatever is interrupted is known (decision followers-are-rows).
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ccpr.base.errors import Failure
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.schema import integer_of
from ccpr.state.database import fetch, reading, repeatable, transaction, unless_taken
from ccpr.state.errors import FollowerExists, FollowerLoginLost, FollowerMissing, KeyLost, StateUnreadable
from ccpr.state.records import Records, RowForm, StoredField, converted
from ccpr.state.tables import followers
from ccpr.state.targets import FAILING, NOT_RETRYING, Failing, attempted

if TYPE_CHECKING:
    from ccpr.state.credentials import Vault


class FollowerStage(StrEnum):
    """How far a command has come with a follower."""

    STARTING = "starting"  # its database may be there, or not yet
    FOLLOWING = "following"
    LEAVING = "leaving"  # its subscription there is being dropped
    LOADING = "loading"  # a writable copy is being loaded
    LOADED = "loaded"  # the copy is whole; what followed is being dropped
    CLEARED = "cleared"  # what followed is gone; the copy gets its name
    PLACED = "placed"  # the copy has its name


PROMOTING = (FollowerStage.LOADING, FollowerStage.LOADED, FollowerStage.CLEARED, FollowerStage.PLACED)
SERVED = frozenset(
    {FollowerStage.STARTING, FollowerStage.FOLLOWING, FollowerStage.LOADING}
)  # in which the relay knows it


@dataclass(frozen=True, slots=True)
class TaskSeen:
    """What the other cluster said of its subscription; see `ccpr.relay.downstream.Task`. `asked_at`: when, by our
    clock, UTC. `watermark`: time of the point that it shows, in nanoseconds; 0 before the first."""

    asked_at: datetime
    state: int
    iterations: int
    watermark: int
    error: str


@dataclass(frozen=True, slots=True)
class Follower:
    """One follower of a subscription.

    Attributes
    ----------
    uri : of the other cluster, without password.
    sealed_login : the password with which it logs in at the relay.
    database : its name there.
    relay_address : where it reaches the relay, HOST:PORT.
    downstream_task : id of its subscription there; None as long as it is not known.
    seen : None as long as it has not answered.
    resumes, resumed_at : how often its subscription was resumed in a row without progress, and when last.
    failing : None if it answered when it was last asked, and all is well there.
    promoted_lsn : the point that is being promoted.
    database_id : of its database there, which tells it from another one of the same name; None if it is not known.
    copy_id : of the writable copy that takes its place; None before it is whole.
    approved_lsn : up to this point it may drop however many tables; -1 if none was approved.
    """

    task_id: str
    name: str
    uri: str
    sealed_password: str = field(repr=False)
    sealed_login: str = field(repr=False)
    database: str
    relay_address: str
    created_at: datetime
    stage: FollowerStage = FollowerStage.STARTING
    downstream_task: str | None = None
    seen: TaskSeen | None = None
    resumes: int = 0
    resumed_at: datetime | None = None
    failing: Failing | None = None
    promoted_lsn: int | None = None
    database_id: int | None = None
    copy_id: int | None = None
    approved_lsn: int = -1

    def has_taken(self, snapshot: str) -> bool:
        """Whether a snapshot of the relay is one that its subscription there has taken."""
        return self.downstream_task is not None and snapshot.startswith(f"ccpr_{self.downstream_task}_")

    @property
    def publication(self) -> str:
        """What the relay offers to it alone; it logs in there under the same name."""
        return publication_of(self.task_id, self.name)


def publication_of(task_id: str, name: str) -> str:
    return f"ccpr_follow_{hashlib.sha256(f'{task_id} {name}'.encode()).hexdigest()[:20]}"


def seal_login(vault: "Vault", publication: str, password: str) -> str:
    return vault.seal(f"{publication} {password}", None)


def open_login(vault: "Vault", follower: Follower) -> str:
    """The password of its login at the relay; empty if the row has that of another. Raises FollowerLoginLost,
    StateUnreadable."""
    with _lost_of(follower):
        owner, _, password = vault.open(follower.sealed_login, None).partition(" ")
    return password if owner == follower.publication else ""


def open_password(vault: "Vault", follower: Follower) -> str:
    """The password of its cluster. Raises FollowerLoginLost, StateUnreadable."""
    with _lost_of(follower):
        return vault.open(follower.sealed_password, parse_uri(follower.uri)[0])


@contextmanager
def _lost_of(follower: Follower) -> Iterator[None]:
    try:
        yield
    except KeyLost as error:
        raise FollowerLoginLost(
            f"its logins cannot be opened: {error.message}", subject=f"follower {follower.name}"
        ) from error


def _seen(asked: datetime | None, state: int, iterations: int, watermark: int, error: str | None) -> TaskSeen | None:
    if asked is None:
        return None
    return TaskSeen(asked, integer_of(state), integer_of(iterations), integer_of(watermark), error or "")


_FORM = RowForm(
    followers,
    Follower,
    "its row cannot be read",
    {
        "name": "follower_name",
        "database": "database_name",
        "stage": converted("stage", FollowerStage, str),
        "seen": StoredField(
            ("asked_at", "downstream_state", "iterations", "watermark", "downstream_error"),
            _seen,
            lambda seen: (None,) * 5 if seen is None else astuple(seen),
        ),
        "failing": FAILING,
        "approved_lsn": converted(
            "approved_lsn",
            lambda cell: -1 if cell is None else integer_of(cell),
            lambda lsn: None if lsn < 0 else lsn,
        ),
    },
    lambda row: f"follower {row['follower_name']} of task {row['task_id']}",
)


class FollowerRecords(Records):
    """The followers of one subscription."""

    def all(self) -> list[Follower]:
        """By name. Raises StateUnreadable."""
        return _FORM.values(
            self._rows(sa.select(followers).where(self._mine(followers)).order_by(followers.c.follower_name))
        )

    def find(self, name: str) -> Follower | None:
        """Raises StateUnreadable for this one's row; that of another does not matter."""
        return self._first(_FORM, sa.select(followers).where(self._mine(followers, follower_name=name)))

    def get(self, name: str) -> Follower:
        """Raises FollowerMissing, StateUnreadable."""
        found = self.find(name)
        if found is None:
            raise FollowerMissing("the subscription has no follower of that name", subject=f"follower {name}")
        return found

    def add(self, follower: Follower) -> None:
        """Raises FollowerExists."""
        taken = FollowerExists("the subscription has a follower of that name", subject=f"follower {follower.name}")
        with unless_taken(taken), transaction(self.engine) as connection:
            connection.execute(followers.insert().values({**_FORM.cells(follower), "task_id": self.task_id}))

    def remove(self, name: str) -> None:
        self._write(followers.delete().where(self._mine(followers, follower_name=name)))

    def remove_all(self) -> None:
        self._write(followers.delete().where(self._mine(followers)))

    def record_seen(self, follower: Follower, downstream_task: str, seen: TaskSeen, failure: Failure | None) -> None:
        """The cluster has answered; `failure` is what is wrong by its answer. Progress ends the count of resumes."""
        before = follower.seen
        moved = before is not None and (before.iterations, before.watermark) != (seen.iterations, seen.watermark)
        self.change(
            follower.name,
            downstream_task=downstream_task,
            asked_at=seen.asked_at,
            downstream_state=seen.state,
            iterations=seen.iterations,
            watermark=seen.watermark,
            downstream_error=seen.error,
            **_failing(follower, failure, seen.asked_at),
            **({"resumes": 0, "resumed_at": None} if moved else {}),
        )

    def record_failure(self, follower: Follower, failure: Failure, now: datetime) -> None:
        """It could not be asked, or has no such subscription."""
        self.change(follower.name, **_failing(follower, failure, now))

    def claim_resume(self, follower: Follower, now: datetime) -> bool:
        """Record that its subscription is about to be resumed. False if another process has done so."""
        same = self._mine(followers, follower_name=follower.name, resumes=follower.resumes)
        return self._write(followers.update().where(same).values(resumes=follower.resumes + 1, resumed_at=now)) == 1

    def change(self, name: str, **values: Any) -> None:
        """Set columns of a follower's row. Nothing happens if there is none."""
        self._write(followers.update().where(self._mine(followers, follower_name=name)).values(**values))


def _failing(follower: Follower, failure: Failure | None, now: datetime) -> dict[str, Any]:
    """The columns of `Failing`. Another code begins a new count."""
    if failure is None:
        return {**NOT_RETRYING, "failure": None}
    before = follower.failing
    again = before is not None and before.failure.code == failure.code
    return {**attempted(before if again else None, now), "failure": failure.to_text()}


@repeatable
def all_followers(engine: sa.Engine) -> tuple[list[Follower], list[StateUnreadable]]:
    """Those of all subscriptions, and what is wrong with the rows that cannot be read."""
    with reading(engine) as connection:
        rows = fetch(connection, sa.select(followers).order_by(followers.c.task_id, followers.c.follower_name))
    found: list[Follower] = []
    bad: list[StateUnreadable] = []
    for row in rows:
        try:
            found.append(_FORM.value(row))
        except StateUnreadable as error:
            bad.append(error)
    return found, bad
