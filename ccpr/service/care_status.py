"""Whether second copies were brought up to date, restores were tried and files read again as often as a subscription
wants it: for `ccpr status`, Dagster and the figures of the service. Read from the catalog database alone."""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from ccpr.base.wording import seconds_text
from ccpr.mirror.encryption_keys import without_key
from ccpr.service.workspace import Workspace
from ccpr.state.care_records import CopyRecord, Drill, Scrub
from ccpr.state.errors import StateUnreadable
from ccpr.state.log_rows import LogRow
from ccpr.state.records import tasks_in
from ccpr.state.subscription import Subscription
from ccpr.state.tables import copies, drills

_SECOND = 1e9  # nanoseconds
_OBJECTIVE = 2.0  # intervals: after so many without a good drill, or a round of reading, something is wrong


@dataclass(frozen=True, slots=True)
class DrillStatus:
    """`every`: how often the service is to drill, seconds; 0 = never. `last`, `last_good`: None before the first.
    `age_seconds`: of the last good one, or, if there is none, of the subscription."""

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
            return f"the last drill, of point {self.last.lsn}, failed: {self.last.problem:.500}"
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


@dataclass(frozen=True, slots=True)
class ScrubStatus:
    """`within`: in how many seconds all files are to be read again; 0 = they are not. `scrub`: how far it is; None
    before the first. `age_seconds`: since the last whole round began, or since the subscription was made."""

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
            return f"damaged files that could not be repaired: {_damaged(self.scrub)}"
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


def _damaged(scrub: Scrub) -> str:
    path, reason = next(iter(scrub.damaged.items()))
    return f"{path}: {reason}{f' and {len(scrub.damaged) - 1} more' if len(scrub.damaged) > 1 else ''}"


@dataclass(frozen=True, slots=True)
class CopyStatus:
    """
    Attributes
    ----------
    copy : what was recorded of it.
    every : how often the service is to bring it up to date, seconds; 0 = never.
    lag_seconds : by how much the newest point of the copy is older than the mirror's, by the upstream's clock; None if
        it has no point yet.
    age_seconds : since the last good attempt began, or, if there is none, since the subscription was made.
    scrub : how its files were read again; None before the first.
    """

    copy: CopyRecord
    every: int
    lag_seconds: float | None
    age_seconds: float
    scrub: Scrub | None = None

    @property
    def overdue(self) -> bool:
        return bool(self.every) and self.age_seconds > self.every * _OBJECTIVE

    @property
    def trouble(self) -> str:
        """What requires operator action; empty if nothing does."""
        if self.copy.failure is not None:
            how = f"{self.copy.failure.code}: {self.copy.failure.message:.500}"
            away = f"`ccpr copy NAME --forget {shlex.quote(self.copy.place)}` ends it if it is not wanted"
            return f"second copy {self.copy.place} could not be brought up to date: {how}; {away}"
        if self.scrub is not None and self.scrub.damaged:
            how = f"{_damaged(self.scrub)}. `ccpr verify NAME --copy --repair` fetches them again"
            return f"second copy {self.copy.place} has damaged files: {how}"
        if self.overdue:
            return f"second copy {self.copy.place}: not brought up to date for {seconds_text(self.age_seconds)}"
        return ""

    def to_json(self) -> dict[str, Any]:
        one, verified = self.copy, None if self.scrub is None else self.scrub.last_began_at
        return {
            "place": one.place,
            "every": self.every,
            "lsn": one.lsn,
            "lag_seconds": self.lag_seconds,
            "age_seconds": round(self.age_seconds, 3),
            "copied_at": None if one.copied_at is None else one.copied_at.isoformat(),
            "verified_at": None if verified is None else verified.isoformat(),
            "damaged": {} if self.scrub is None else dict(self.scrub.damaged),
            "attempts": one.attempts,
            "failure": None if one.failure is None else asdict(one.failure),
            "overdue": self.overdue,
            "trouble": self.trouble,
        }


@dataclass(frozen=True, slots=True)
class Care:
    """All of it, of one subscription. None and empty where nothing was asked for, and nothing done."""

    drill: DrillStatus | None = None
    scrub: ScrubStatus | None = None
    copies: tuple[CopyStatus, ...] = ()

    @property
    def troubles(self) -> tuple[str, ...]:
        found = (*self.copies, *(one for one in (self.drill, self.scrub) if one is not None))
        return tuple(one.trouble for one in found if one.trouble)

    def to_json(self) -> dict[str, Any]:
        return {
            "drill": None if self.drill is None else self.drill.to_json(),
            "scrub": None if self.scrub is None else self.scrub.to_json(),
            "copies": [one.to_json() for one in self.copies],
        }


def with_care(workspace: Workspace, rows: Iterable[LogRow]) -> list[LogRow]:
    """Those that have, or are to have, drills, scrubs or second copies; without rows that cannot be read."""
    had = tasks_in(workspace.log.engine, drills) | tasks_in(workspace.log.engine, copies)
    return [row for row in rows if row.task_id in had or _asks_for_care(row)]


def _asks_for_care(row: LogRow) -> bool:
    try:
        settings = Subscription.from_row(row).settings
    except StateUnreadable:
        return False
    return bool(settings.drill_every or settings.verify_within or settings.copy_every)


def care_of(workspace: Workspace, row: LogRow) -> Care:
    """Raises StateUnreadable."""
    subscription, made = Subscription.from_row(row), row.created_at.timestamp()
    drill, scrub = drill_status(workspace, subscription, made), scrub_status(workspace, subscription, made)
    return Care(drill, scrub, tuple(copy_statuses(workspace, subscription, made)))


def copy_statuses(workspace: Workspace, subscription: Subscription, made_at: float) -> Iterator[CopyStatus]:
    """Of all copies that are known, and of the one that the service is to make."""
    records, settings = workspace.of(subscription), subscription.settings
    known = {copy.place: copy for copy in records.copies.all()}
    wanted, encrypt = without_key(settings.copy_to) if settings.copy_to else ("", "")
    if wanted and settings.copy_every:
        known.setdefault(wanted, CopyRecord(wanted, encrypt, datetime.fromtimestamp(made_at, UTC)))
    newest = records.history.newest() if known else None
    for one in known.values():
        behind = None if one.at is None or newest is None else max(0.0, (newest.at.physical - one.at) / _SECOND)
        since = made_at if one.copied_at is None else one.copied_at.timestamp()
        every = settings.copy_every if one.place == wanted else 0
        scrub = records.scrubs.get(one.place)
        yield CopyStatus(one, every, behind, max(0.0, workspace.clock() - since), scrub)


def drill_status(workspace: Workspace, subscription: Subscription, made_at: float) -> DrillStatus | None:
    """None if no drills are asked for and there was none. `made_at`: when the subscription was made, seconds."""
    last, good = workspace.of(subscription).drills.last()
    if last is None and not subscription.settings.drill_every:
        return None
    since = made_at if good is None else good.started_at.timestamp()
    return DrillStatus(subscription.settings.drill_every, last, good, max(0.0, workspace.clock() - since))


def scrub_status(workspace: Workspace, subscription: Subscription, made_at: float) -> ScrubStatus | None:
    """None if files are not to be read again."""
    if not subscription.settings.verify_within:
        return None
    found = workspace.of(subscription).scrubs.get()
    whole = None if found is None else found.last_began_at
    since = made_at if whole is None else whole.timestamp()
    return ScrubStatus(subscription.settings.verify_within, found, max(0.0, workspace.clock() - since))
