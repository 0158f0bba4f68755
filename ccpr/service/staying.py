"""Why points stay, and which go. Read from the catalog database alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ccpr.maintenance.retention import Retention, look
from ccpr.mirror.holds import Hold
from ccpr.service.workspace import Workspace
from ccpr.state.subscription import Subscription

if TYPE_CHECKING:  # it imports Arrow
    from ccpr.pipeline.plan import Plan


@dataclass(frozen=True, slots=True)
class Staying:
    """Why the points of a subscription stay.

    Attributes
    ----------
    reasons : by lsn; without reasons a point goes with the next iteration.
    holds : what is held, by name.
    """

    reasons: dict[int, list[str]]
    holds: tuple[Hold, ...]

    @property
    def expiring(self) -> list[int]:
        return [lsn for lsn, why in self.reasons.items() if not why]


def staying(workspace: Workspace, name: str, retention: Retention | None = None) -> Staying:
    """By the rules of the subscription, or by others that are tried out."""
    row = workspace.log.row(name)
    subscription = Subscription.from_row(row)
    found = look(workspace.log.engine, row.task_id)
    rule = Retention.of(subscription.settings) if retention is None else retention
    return Staying(rule.reasons(found), found.kept.holds)


def expiring_after(workspace: Workspace, plan: "Plan") -> list[int]:
    """The points that go when an iteration has done what is planned, by lsn."""
    row = workspace.log.row(plan.subscription)
    subscription = Subscription.from_row(row)
    found = look(workspace.log.engine, row.task_id)
    after = found.after(plan.lsn, plan.at, point=bool(plan.tables or plan.changes))
    return Retention.of(subscription.settings).expired(after)
