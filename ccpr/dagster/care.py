"""The checks of whether second copies are up to date, and restores were tried and files read again in time. They read
the catalog database and warn; they start nothing."""

from collections.abc import Sequence

import dagster as dg

from ccpr.dagster.health import health_key
from ccpr.dagster.keys import prefixed
from ccpr.dagster.replication import Replication, as_failure
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import printable
from ccpr.service.care_status import Care, care_of

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


def care_checks(subscription: str, prefix: Sequence[str] = ()) -> list[dg.AssetChecksDefinition]:
    asset = prefixed(health_key(subscription), prefix)

    @dg.asset_check(asset=asset, name=RESTORE_TRIED, description=_RESTORE)
    def restore_tried(replication: Replication) -> dg.AssetCheckResult:
        drill = _read(replication, subscription).drill
        if drill is None:
            return _result("", "no drills are asked for: `ccpr alter --drill-every`", {})
        shown = {} if drill.last is None else {"lsn": drill.last.lsn, "seconds": drill.last.seconds}
        return _result(drill.trouble, "the last drill was good", {**shown, "age_seconds": drill.age_seconds})

    @dg.asset_check(asset=asset, name=FILES_READ, description=_READ)
    def files_read_again(replication: Replication) -> dg.AssetCheckResult:
        scrub = _read(replication, subscription).scrub
        if scrub is None:
            return _result("", "files are not read again by themselves: `ccpr alter --verify-within`", {})
        return _result(scrub.trouble, "all files are as they were written", {"age_seconds": scrub.age_seconds})

    @dg.asset_check(asset=asset, name=COPIES, description=_COPIES)
    def copies_up_to_date(replication: Replication) -> dg.AssetCheckResult:
        copies = _read(replication, subscription).copies
        if not copies:
            return _result("", "there is no second copy: `ccpr copy`", {})
        lags = [one.lag_seconds for one in copies if one.lag_seconds is not None]
        shown = {"copies": float(len(copies)), **({"lag_seconds": max(lags)} if lags else {})}
        return _result("; ".join(one.trouble for one in copies if one.trouble), "each was copied to in time", shown)

    return [restore_tried, files_read_again, copies_up_to_date]


def _read(replication: Replication, name: str) -> Care:
    workspace = replication.workspace
    try:
        return care_of(workspace, workspace.log.row(name))
    except CcprError as error:
        raise as_failure(error) from error


def _result(trouble: str, well: str, shown: dict[str, float]) -> dg.AssetCheckResult:
    says = printable(trouble) or well
    warn = dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(passed=not trouble, severity=warn, description=says, metadata=shown)
