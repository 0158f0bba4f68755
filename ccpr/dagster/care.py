"""The job that tries a restore, and the checks of whether restores were tried and files read again in time."""

from datetime import UTC

import dagster as dg

from ccpr.dagster.health import health_key
from ccpr.dagster.replication import Replication, as_failure
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import printable
from ccpr.service.care_status import DrillStatus, ScrubStatus, drill_status, scrub_status
from ccpr.service.drilling import drill, place_of
from ccpr.state.subscription import Subscription

DRILL_JOB = "ccpr_drill_job"
RESTORE_TRIED, FILES_READ = "restore_tried", "files_read_again"
_RESTORE = (
    "The last drill (`ccpr drill`) restored a kept point and found it as it was recorded, not longer ago than two "
    "intervals of `drill_every`. Executing the check drills nothing; the job `ccpr_drill_job` does."
)
_READ = (
    "All files of the mirror were read again within two times `verify_within`, and none is damaged that could not be "
    "repaired. Executing the check reads none; `ccpr serve` does."
)


class DrillConfig(dg.Config):
    """Which subscription; `into` and `at` as for `ccpr drill`."""

    subscription: str
    into: str = ""
    at: str = ""


@dg.op(description="Restore a kept point into a scratch place, compare it with what was recorded, and drop it again.")
def tried_restore(context: dg.OpExecutionContext, config: DrillConfig, replication: Replication) -> None:
    from ccpr.mirror.points import parse_at

    workspace = replication.workspace
    try:
        settings = Subscription.from_row(workspace.log.row(config.subscription)).settings
        place = place_of(workspace, config.into or settings.drill_into)
        done = drill(workspace, config.subscription, place, at=parse_at(config.at) if config.at else None)
    except CcprError as error:
        raise as_failure(error) from error
    shown = {
        "lsn": done.lsn,
        "rows": done.rows,
        "bytes": done.bytes,
        "seconds": done.seconds,
        "compared": done.compared,
    }
    context.add_output_metadata(shown)
    if done.failure is not None:
        text = f"{done.failure.code}: {printable(done.failure.message)}. {printable(done.failure.remedy)}"
        raise dg.Failure(description=text, metadata=shown)
    if done.differences:
        text = "; ".join(f"{printable(table)}: {how}" for table, how in done.differences.items())
        raise dg.Failure(description=text[:2000], metadata=shown, allow_retries=False)


@dg.job(name=DRILL_JOB, description="Try a restore of one subscription.", executor_def=dg.in_process_executor)
def ccpr_drill_job() -> None:
    tried_restore()


def care_checks(subscription: str) -> list[dg.AssetChecksDefinition]:
    """They warn, and stop nothing."""

    @dg.asset_check(asset=health_key(subscription), name=RESTORE_TRIED, description=_RESTORE)
    def restore_tried(replication: Replication) -> dg.AssetCheckResult:
        drill, _ = _read(replication, subscription)
        if drill is None:
            return _result("", "nobody has asked for drills", {})
        shown = {} if drill.last is None else {"lsn": drill.last.lsn, "seconds": drill.last.seconds}
        return _result(drill.trouble, "the last drill was good", {**shown, "age_seconds": drill.age_seconds})

    @dg.asset_check(asset=health_key(subscription), name=FILES_READ, description=_READ)
    def files_read_again(replication: Replication) -> dg.AssetCheckResult:
        _, scrub = _read(replication, subscription)
        if scrub is None:
            return _result("", "nobody has asked for it", {})
        return _result(scrub.trouble, "all files are as they were written", {"age_seconds": scrub.age_seconds})

    return [restore_tried, files_read_again]


def _read(replication: Replication, name: str) -> tuple[DrillStatus | None, ScrubStatus | None]:
    workspace = replication.workspace
    try:
        row = workspace.log.row(name)
        subscription, made = Subscription.from_row(row), row.created_at.replace(tzinfo=UTC).timestamp()
        return drill_status(workspace, subscription, made), scrub_status(workspace, subscription, made)
    except CcprError as error:
        raise as_failure(error) from error


def _result(trouble: str, well: str, shown: dict[str, float]) -> dg.AssetCheckResult:
    says = printable(trouble) or well
    warn = dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(passed=not trouble, severity=warn, description=says, metadata=shown)
