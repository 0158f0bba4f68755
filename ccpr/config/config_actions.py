"""What is done to make a state folder what a file says: the steps, how they ended, and their execution."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from ccpr.base.errors import Failure
from ccpr.config.wanted import WantedFollower
from ccpr.matrixone.errors import CcprError
from ccpr.service.drop import Dropped
from ccpr.service.workspace import Workspace


class Verb(StrEnum):
    DROP = "drop subscription"
    CREATE = "create subscription"
    ALTER = "alter subscription"
    PAUSE = "pause subscription"
    RESUME = "resume subscription"
    REMOVE_TARGET = "remove target"
    ADD_TARGET = "add target"
    ALTER_TARGET = "alter target"
    REMOVE_LAKE = "remove lake"
    ADD_LAKE = "add lake"
    ALTER_LAKE = "alter lake"
    FOLLOW = "add follower"
    ALTER_FOLLOWER = "alter follower"
    UNFOLLOW = "remove follower"
    SET_SPARK = "set Spark"


class Following(Protocol):
    """How followers of a subscription are begun, altered and ended."""

    def follow(self, workspace: Workspace, name: str, one: WantedFollower) -> object: ...

    def check(self, workspace: Workspace, name: str, one: WantedFollower, *, is_new: bool) -> object:
        """Whether it can be begun; `is_new`: the subscription is not there yet."""
        ...

    def unfollow(self, workspace: Workspace, name: str, follower: str) -> object: ...

    def check_end(self, workspace: Workspace, name: str, follower: str) -> object:
        """Whether its cluster can be asked."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """Of one setting, as text without passwords."""

    setting: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to be done. `about`: what it is done with, for people. `check`: looks whether it can be done, and
    writes nothing; None if nothing needs to be asked."""

    verb: Verb
    subscription: str = ""
    target: str = ""
    follower: str = ""
    about: str = ""
    changes: tuple[Change, ...] = ()
    do: Callable[[Workspace], object] = field(repr=False, compare=False, default=id)
    check: Callable[[Workspace], object] | None = field(repr=False, compare=False, default=None)

    @property
    def destructive(self) -> bool:
        return self.verb in (Verb.DROP, Verb.REMOVE_TARGET, Verb.REMOVE_LAKE, Verb.UNFOLLOW)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an action ended. `skipped`: not tried, since one before it failed for the same subscription. `note`: what is
    left to do."""

    action: Action
    failure: Failure | None = None
    skipped: bool = False
    note: str = ""

    @property
    def done(self) -> bool:
        return self.failure is None and not self.skipped


@dataclass(frozen=True, slots=True)
class Plan:
    """`actions`: in the order in which they are done. `unlisted`: what the state has and the file does not:
    subscriptions, `subscription.target`, `subscription.follower`, `spark`. `unchanged`: how many subscriptions are as
    the file has them."""

    actions: tuple[Action, ...]
    unlisted: tuple[str, ...]
    unchanged: int


def perform(workspace: Workspace, actions: tuple[Action, ...], report: Callable[[Outcome], None]) -> list[Outcome]:
    """Do them one after the other. If one fails, those of other subscriptions go on."""
    outcomes: list[Outcome] = []
    failed: set[str] = set()
    for action in actions:
        if action.subscription in failed:
            outcome = Outcome(action, skipped=True)
        else:
            try:
                outcome = Outcome(action, note=_note(action.do(workspace)))
            except CcprError as error:
                failed.add(action.subscription)
                outcome = Outcome(action, Failure.of(error))
        outcomes.append(outcome)
        report(outcome)
    return outcomes


def try_out(workspace: Workspace, actions: tuple[Action, ...], report: Callable[[Outcome], None]) -> list[Outcome]:
    """Ask upstreams, targets, lakes and followers, as `perform` would, whether it can be done. What cannot."""
    outcomes: list[Outcome] = []
    for action in actions:
        try:
            if action.check is not None:
                action.check(workspace)
        except CcprError as error:
            outcomes.append(Outcome(action, Failure.of(error)))
            report(outcomes[-1])
    return outcomes


def _note(result: object) -> str:
    if isinstance(result, Dropped) and result.snapshots_left:
        left = len(result.snapshots_left)
        return f"{left} snapshots may still be upstream ({result.reason}); `ccpr drop {result.name}` tries again"
    return ""
