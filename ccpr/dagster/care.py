"""The checks of whether second copies are up to date, and restores were tried and files read again in time, for
subscriptions that ask for it. They read the catalog database and warn; they start nothing. Ticks report news.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import dagster as dg

from ccpr.dagster.health import evaluation, health_key
from ccpr.dagster.keys import Runless
from ccpr.dagster.replication import state_check
from ccpr.dagster.verdicts import known_verdicts, news_of, remember, verdict_key
from ccpr.matrixone.sql.quoting import printable
from ccpr.service.care_status import CopyStatus, DrillStatus, ScrubStatus, care_of, with_care
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable
from ccpr.state.log_rows import LogRow

RESTORE_TRIED, FILES_READ, COPIES = "restore_tried", "files_read_again", "copies_up_to_date"
_RESTORE = (
    "The last drill (`ccpr drill`) restored a kept point and found it as it was recorded, not longer ago than two "
    "intervals of `drill_every`. Executing the check drills nothing; the job `ccpr_drill_job` does."
)
_READ = (
    "All files of the mirror were read again within two times `verify_within`, and none is damaged that could not be "
    "repaired. Executing the check reads none; `ccpr serve` does."
)
_COPIES = (
    "The last attempt to bring each second copy to where the mirror is (`ccpr copy`) was good, that to `copy_to` not "
    "longer ago than two intervals of `copy_every`. Executing the check copies nothing; `ccpr serve` does."
)
_DESCRIPTIONS = {RESTORE_TRIED: _RESTORE, FILES_READ: _READ, COPIES: _COPIES}
_WARN = dg.AssetCheckSeverity.WARN


@dataclass(frozen=True, slots=True)
class CareHealth:
    """What one of the checks says.

    Attributes
    ----------
    check : its name.
    trouble : what requires operator action; empty if nothing does.
    well : what is said then.
    facts : what it takes an event to change: no age, which grows with each tick.
    """

    subscription: str
    check: str
    trouble: str
    well: str
    facts: str = ""
    shown: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        return f"{'trouble' if self.trouble else 'well'}, {self.facts}"

    @property
    def says(self) -> str:
        return printable(self.trouble) or self.well

    def result(self) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(
            passed=not self.trouble, severity=_WARN, description=self.says, metadata=dict(self.shown)
        )

    def event(self) -> dg.AssetCheckEvaluation:
        return evaluation(health_key(self.subscription), self.check, self.result())


def care_checks(subscription: str, prefix: Sequence[str] = ()) -> list[dg.AssetChecksDefinition]:
    """Of a subscription that has, or is to have, drills, scrubs or second copies."""

    def read(workspace: Workspace, name: str) -> dg.AssetCheckResult:
        return care_health(workspace, workspace.log.row(subscription))[name].result()

    return [
        state_check(health_key(subscription), name, description, prefix, partial(read, name=name))
        for name, description in _DESCRIPTIONS.items()
    ]


def care_events(instance: dg.DagsterInstance, workspace: Workspace, rows: Sequence[LogRow]) -> list[Runless]:
    """News of all subscriptions that have care: checks whose reported verdict is another one, or missing. Raises
    StateUnavailable."""
    found: dict[str, CareHealth] = {}
    for row in with_care(workspace, rows):
        with suppress(StateUnreadable):  # its `replica_current` says so
            healths = care_health(workspace, row)
            found |= {verdict_key("care", f"{row.task_id} {name}"): one for name, one in healths.items()}
    news = news_of(known_verdicts(instance, found), found) if found else {}
    remember(instance, news)
    return [health.event() for health in news.values()]


def care_health(workspace: Workspace, row: LogRow) -> dict[str, CareHealth]:
    """By the names of the checks. Raises StateUnreadable, StateUnavailable."""
    care, name = care_of(workspace, row), row.subscription_name
    found = _of_drill(name, care.drill), _of_scrub(name, care.scrub), _of_copies(name, care.copies)
    return {one.check: one for one in found}


def _of_drill(name: str, drill: DrillStatus | None) -> CareHealth:
    if drill is None:
        return CareHealth(name, RESTORE_TRIED, "", "no drills are asked for: `ccpr alter --drill-every`")
    well, shown, last = "the first drill is not due yet", {"age_seconds": drill.age_seconds}, drill.last
    if last is not None:
        well, shown = "the last drill was good", {**shown, "lsn": last.lsn, "seconds": last.seconds}
    facts = f"{None if last is None else last.started_at}, overdue: {drill.overdue}"
    return CareHealth(name, RESTORE_TRIED, drill.trouble, well, facts, shown)


def _of_scrub(name: str, scrub: ScrubStatus | None) -> CareHealth:
    if scrub is None:
        return CareHealth(name, FILES_READ, "", "files are not read again by themselves: `ccpr alter --verify-within`")
    facts = f"{[] if scrub.scrub is None else sorted(scrub.scrub.damaged)}, overdue: {scrub.overdue}"
    shown = {"age_seconds": scrub.age_seconds}
    return CareHealth(name, FILES_READ, scrub.trouble, "all files are as they were written", facts, shown)


def _of_copies(name: str, copies: Sequence[CopyStatus]) -> CareHealth:
    if not copies:
        return CareHealth(name, COPIES, "", "there is no second copy: `ccpr copy`")
    lags = [one.lag_seconds for one in copies if one.lag_seconds is not None]
    shown = {"copies": float(len(copies)), **({"lag_seconds": max(lags)} if lags else {})}
    failed = [(one.copy.place, one.overdue, one.copy.failure and one.copy.failure.code) for one in copies]
    trouble = "; ".join(one.trouble for one in copies if one.trouble)
    return CareHealth(name, COPIES, trouble, "each was copied to in time", str(sorted(failed, key=str)), shown)
