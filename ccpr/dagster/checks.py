"""The blocking checks: what is copied was listed well, and what is applied is really there."""

import warnings
from typing import Any

import dagster as dg

from ccpr.base.wording import filled
from ccpr.dagster import metadata
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.object_rows import ObjectDiff
from ccpr.pipeline.copying import CopyReport
from ccpr.pipeline.errors import BadObjectList, ObjectsNotStored

FAILURES = "failures"
FAILURE_SAMPLE = "failure_sample"
OBJECTS_CHECKED = "objects_checked"
_SAMPLE_ROWS = 10


OBJECT_LIST_VALID, OBJECTS_STORED = "object_list_valid", "objects_stored"
_DESCRIPTIONS = {
    OBJECT_LIST_VALID: "Every row of the upstream's object list satisfies the schema: a well-formed name that agrees "
    "with its stats, a size, rows and blocks above zero, no delete before its create, nothing later than the snapshot, "
    "each object once a table. The same schema guards the command line; here its findings are shown.",
    OBJECTS_STORED: "Every object that the point needs is in the store with the size in the ledger, also where an "
    "earlier, interrupted run brought it.",
}


def blocking_check(name: str, asset: dg.AssetKey) -> dg.AssetCheckSpec:
    """A check with a history for each subscription: without partitions the last run would overwrite the others'
    results."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", dg.PreviewWarning
        )  # of `partitions_def`; tests/ccpr_assets pins what we rely on
        return dg.AssetCheckSpec(
            name, asset=asset, description=_DESCRIPTIONS[name], blocking=True, partitions_def=SUBSCRIPTIONS
        )


def object_list_accepted(diff: ObjectDiff) -> dg.AssetCheckResult:
    """What is listed has been through the schema."""
    return _result(OBJECT_LIST_VALID, True, {FAILURES: 0, OBJECTS_CHECKED: diff.added.num_rows + diff.removed.num_rows})


def object_list_refused(error: BadObjectList, subscription: str) -> dg.AssetCheckResult:
    """The error, and the rows that failed where it was the schema that refused them."""
    import pandera.errors

    shown: dict[str, Any] = {
        "message": error.message,
        "subject": error.subject,
        "remedy": filled(error.remedy, {"NAME": subscription}),
    }
    if isinstance(error.__cause__, pandera.errors.SchemaErrors):
        cases = error.__cause__.failure_cases
        rows = (
            cases.select("column", "check", "failure_case")
            .unique(maintain_order=True)
            .head(_SAMPLE_ROWS)
            .rows(named=True)
        )
        columns: dict[str, str] = dict.fromkeys(("column", "check", "failure_case"), "string")
        sample = ({name: str(value) for name, value in row.items()} for row in rows)
        shown |= {FAILURES: cases.height, FAILURE_SAMPLE: metadata.table(sample, columns)}
    return _result(OBJECT_LIST_VALID, False, shown)


def objects_stored(report: CopyReport) -> dg.AssetCheckResult:
    """The step has looked for each of them."""
    return _result(OBJECTS_STORED, True, {FAILURES: 0, OBJECTS_CHECKED: report.rows.num_rows})


def objects_not_stored(error: ObjectsNotStored) -> dg.AssetCheckResult:
    sample = metadata.table(({"object": name} for name in error.missing[:_SAMPLE_ROWS]), {"object": "string"})
    shown = {OBJECTS_CHECKED: error.checked, FAILURES: len(error.missing), FAILURE_SAMPLE: sample}
    return _result(OBJECTS_STORED, False, shown)


def not_checked(name: str, subscription: str) -> dg.AssetCheckResult:
    """Of a step that has failed again: Dagster wants a result, and an error would fail the run."""
    says = f"not checked: the step has failed again, and `{metadata.HEALTH}/{subscription}` says why"
    return dg.AssetCheckResult(
        passed=False, check_name=name, severity=dg.AssetCheckSeverity.WARN, description=printable(says)
    )


def _result(check: str, passed: bool, shown: dict[str, Any]) -> dg.AssetCheckResult:
    """Of the asset whose step gives it."""
    return dg.AssetCheckResult(passed=passed, check_name=check, metadata=shown)
