"""How a replica, a target or a follower is: one verdict, as a check and as a point of a time series.

Verdicts come from the catalog database alone: neither the upstream nor a target nor the mirror is asked, so they are
there while all of these are away. Each iteration and each tick reports them, failing ones too. They are not
partitioned: Dagster stores one evaluation of a partition without a run, and no second one (decision
health-is-not-partitioned).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from ccpr.base.wording import filled
from ccpr.dagster import documentation, metadata
from ccpr.dagster.keys import Runless
from ccpr.dagster.metadata import HEALTH
from ccpr.matrixone.sql.quoting import printable
from ccpr.state.log_rows import LastError
from ccpr.state.settings import Settings

REPLICA_CURRENT = "replica_current"
TARGET_CURRENT = "target_current"
PRESSING = (  # Materialize, on the pages of health
    "It is a report, and there is nothing to materialize. Materialize `applied_tables` to run an iteration of the "
    "subscription now, and `target_databases` to sync its targets now: both begin at once, whatever the next attempt "
    "is. The jobs `ccpr_…_job` pause, resume, approve and rebuild."
)
FAILING, STOPPED = "failing", "stopped"  # states of what failed when it was last tried
UNATTENDED = "unattended"  # its time is over, and nothing runs it
_SLACK_SECONDS = 60.0
_SHOWN = 2_000  # characters of a text: an error may have 5000, and an event has room for 64 kB in MySQL


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a replica is current.

    Attributes
    ----------
    state : in a word, as `ccpr status` says it.
    current : whether it is as it should be: as new as its objective asks, with all tables, in all targets.
    grave : it is not, and gets older until something is done or passes.
    says : one sentence: how things are and what to do.
    as_of : when the state that it shows was the upstream's, by our clock; None before the first point.
    shown : further metadata.
    has_target_trouble : a target fails, or has tables that wait.
    grave_by_targets : it is grave for this alone: the data of a target that fails is older than the objective.
    block : a statement that belongs to the sentence, in Markdown.
    """

    subscription: str
    state: str
    current: bool
    grave: bool
    says: str
    as_of: datetime | None = None
    lag_seconds: float | None = None
    objective_seconds: float | None = None
    shown: dict[str, Any] = field(default_factory=dict)
    has_target_trouble: bool = field(default=False, kw_only=True)
    grave_by_targets: bool = field(default=False, kw_only=True)
    block: str = field(default="", kw_only=True)

    @property
    def key(self) -> dg.AssetKey:
        return health_key(self.subscription)

    @property
    def check(self) -> str:
        """The name of its check."""
        return REPLICA_CURRENT

    @property
    def verdict(self) -> str:
        """What it takes an event to change. It begins with the state."""
        grave = self.grave and not self.grave_by_targets
        return replica_verdict(self.state, grave=grave, has_target_trouble=self.has_target_trouble)

    @property
    def description(self) -> str:
        """Markdown, as Dagster's pages show it."""
        return f"{self.says}\n\n{self.block}" if self.block else self.says

    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = {metadata.STATE: self.state}
        if self.as_of is not None:
            found[metadata.CURRENT_AS_OF] = dg.MetadataValue.timestamp(self.as_of)
        if self.lag_seconds is not None:
            found[metadata.LAG_SECONDS] = round(self.lag_seconds, 3)
        if self.objective_seconds is not None:
            found[metadata.OBJECTIVE_SECONDS] = self.objective_seconds
        return {**found, **self.shown}

    def result(self) -> dg.AssetCheckResult:
        """For a run of the check."""
        return dg.AssetCheckResult(
            passed=self.current, severity=severity(self.grave), description=self.description, metadata=self.metadata()
        )

    def events(self) -> Iterator[Runless]:
        """For `DagsterInstance.report_runless_asset_event`: the check, and a point of the time series."""
        yield evaluation(self.key, self.check, self.result())
        shown = {metadata.IS_CURRENT: 1 if self.current else 0, **self.metadata(), metadata.SAYS: self.says}
        tags = {metadata.SUBSCRIPTION_TAG: self.subscription}
        yield dg.AssetMaterialization(self.key, self.description, metadata=shown, tags=tags)


def evaluation(key: dg.AssetKey, check: str, result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    """The result of a check, without a run."""
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=check,
        passed=result.passed,
        severity=result.severity,
        description=result.description,
        metadata=result.metadata,
    )


def severity(grave: bool) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.ERROR if grave else dg.AssetCheckSeverity.WARN


def health_key(subscription: str, target: str = "") -> dg.AssetKey:
    """Of a replica, or of one of its targets."""
    return metadata.asset_key(HEALTH, subscription, *([target] if target else []))


def replica_verdict(state: str, *, grave: bool, has_target_trouble: bool = False) -> str:
    """Whether an iteration is under way does not matter."""
    targets = ", targets behind" if has_target_trouble else ""
    return f"{'idle' if state == 'copying' else state}, {'grave' if grave else 'well'}{targets}"


def is_failing(verdict: str | None) -> bool:
    """Whether a verdict says that the last attempt failed."""
    return (verdict or "").startswith((FAILING, STOPPED))


def objective_seconds(interval: float) -> float:
    """How old a replica may be without `max_lag`: two intervals, and a minute for an iteration to end."""
    return 2 * interval + _SLACK_SECONDS


def objective_of(settings: Settings) -> float:
    return settings.max_lag or objective_seconds(settings.sync_interval)


def with_names(error: LastError, names: Mapping[str, str]) -> LastError:
    """With the names in the commands of its remedy."""
    return replace(error, remedy=filled(error.remedy, names))


def says_of(error: LastError, upcoming: float | None = None) -> str:
    """What has failed, what to do, and when it is tried again by itself."""
    times = f", {error.attempts} times in a row since {clock(error.first)}" if error.attempts > 1 else ""
    again = "" if upcoming is None or not error.again else f" Tried again at {clock(upcoming)}."
    return f"{error.code}{times}: {error.message}. {error.remedy}{again}"


def error_shown(error: LastError | None, upcoming: float | None) -> dict[str, Any]:
    if error is None:
        return {}
    texts = {
        metadata.ERROR_CODE: error.code,
        metadata.ERROR_MESSAGE: error.message,
        metadata.ERROR_SUBJECT: error.subject,
        metadata.REMEDY: error.remedy,
    }
    found: dict[str, Any] = {name: short(text) for name, text in texts.items()}
    found[metadata.EXPLAINED] = f"ccpr explain {error.code}"
    found[metadata.DOCUMENTATION] = documentation.of_code(error.code)
    found[metadata.FAILED_ATTEMPTS] = error.attempts
    if error.first:
        found[metadata.FAILING_SINCE] = dg.MetadataValue.timestamp(utc(error.first))
    if upcoming is not None:
        found[metadata.NEXT_ATTEMPT] = dg.MetadataValue.timestamp(utc(upcoming))
    return found


def short(text: str) -> str:
    """Without control characters, and not too long."""
    text = printable(text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def clock(seconds: float) -> str:
    return utc(seconds).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") + " UTC"
