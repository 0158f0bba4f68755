"""Whether restores have been tried, and files read again, as often as a subscription wants it: for `ccpr status`,
Dagster and the figures of the service. Read from the catalog database alone."""

from dataclasses import dataclass
from typing import Any

from ccpr.base.copy_meter import seconds_text
from ccpr.service.workspace import Workspace
from ccpr.state.drills import Drill, DrillRecords
from ccpr.state.scrubs import Scrub, ScrubRecords
from ccpr.state.subscription import Subscription

_OBJECTIVE = 2.0  # intervals: after so many without a good drill, or a round of reading, something is wrong


@dataclass(frozen=True, slots=True)
class DrillStatus:
    """
    Attributes
    ----------
    every : how often the service is to drill, seconds; 0 = never.
    last, last_good : None before the first.
    age_seconds : of the last good one, or, if there is none, of the subscription.
    """

    every: int
    last: Drill | None
    last_good: Drill | None
    age_seconds: float

    @property
    def objective_seconds(self) -> float:
        return self.every * _OBJECTIVE

    @property
    def overdue(self) -> bool:
        return bool(self.every) and self.age_seconds > self.objective_seconds

    @property
    def trouble(self) -> str:
        """What requires operator action; empty if nothing does."""
        if self.last is not None and not self.last.good:
            how = f"{self.last.failure.code}: {self.last.failure.message}" if self.last.failure else _shown(self.last)
            return f"the last drill, of point {self.last.lsn}, failed: {how:.500}"
        if self.overdue:
            wanted = seconds_text(self.objective_seconds)
            return f"no good drill for {seconds_text(self.age_seconds)}, and {wanted} are the objective"
        return ""

    def to_json(self) -> dict[str, Any]:
        return {
            "every": self.every,
            "age_seconds": round(self.age_seconds, 3) if self.last_good is not None else None,
            "overdue": self.overdue,
            "last": None if self.last is None else self.last.to_json(),
            "last_good": None if self.last_good is None else self.last_good.to_json(),
            "trouble": self.trouble,
        }


def _shown(drill: Drill) -> str:
    return "; ".join(f"{table}: {how}" for table, how in drill.differences.items())


@dataclass(frozen=True, slots=True)
class ScrubStatus:
    """
    Attributes
    ----------
    within : in how many seconds all files are to be read again; 0 = they are not.
    scrub : how far it is; None before the first.
    age_seconds : since the last whole round began, or since the subscription was made.
    """

    within: int
    scrub: Scrub | None
    age_seconds: float

    @property
    def overdue(self) -> bool:
        return bool(self.within) and self.age_seconds > self.within * _OBJECTIVE

    @property
    def trouble(self) -> str:
        """What requires operator action; empty if nothing does."""
        if self.scrub is not None and self.scrub.damaged:
            path, reason = next(iter(self.scrub.damaged.items()))
            more = f" and {len(self.scrub.damaged) - 1} more" if len(self.scrub.damaged) > 1 else ""
            return f"damaged files that could not be repaired: {path}: {reason}{more}"
        if self.overdue:
            return f"not all files were read again for {seconds_text(self.age_seconds)}"
        return ""

    def to_json(self) -> dict[str, Any]:
        return {
            "within": self.within,
            "age_seconds": round(self.age_seconds, 3),
            "overdue": self.overdue,
            "damaged": {} if self.scrub is None else dict(self.scrub.damaged),
            "repaired": 0 if self.scrub is None else self.scrub.repaired,
            "trouble": self.trouble,
        }


def drill_status(workspace: Workspace, subscription: Subscription, made_at: float) -> DrillStatus | None:
    """None if no drills are asked for and there was none. `made_at`: when the subscription was made, seconds."""
    last, good = DrillRecords(workspace.log.engine, subscription.task_id).last()
    if last is None and not subscription.settings.drill_every:
        return None
    since = made_at if good is None else good.started_at.timestamp()
    return DrillStatus(subscription.settings.drill_every, last, good, max(0.0, workspace.clock() - since))


def scrub_status(workspace: Workspace, subscription: Subscription, made_at: float) -> ScrubStatus | None:
    """None if files are not to be read again."""
    if not subscription.settings.verify_within:
        return None
    found = ScrubRecords(workspace.log.engine, subscription.task_id).get()
    whole = None if found is None else found.last_began_at
    since = made_at if whole is None else whole.timestamp()
    return ScrubStatus(subscription.settings.verify_within, found, max(0.0, workspace.clock() - since))
