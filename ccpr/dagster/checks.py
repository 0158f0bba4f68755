"""The blocking checks: what is copied was listed well, and what is applied is really there."""

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa

from ccpr.base.wording import filled
from ccpr.dagster import metadata
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.matrixone.objects.stats import STATS_SIZE
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.object_rows import ObjectDiff
from ccpr.pipeline.copying import CopyReport
from ccpr.pipeline.errors import BadObjectList, ObjectsNotStored
from ccpr.pipeline.list_check import NAME, NOT_BEFORE, NOT_LATER, POSITIVE, check_stats

if TYPE_CHECKING:
    import polars as pl
    from pandera.polars import DataFrameSchema

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


# ---- the schema of an object list for pandera. What it accepts and refuses is what `ccpr.pipeline.list_check` does.


def check_by_schema(listed: pa.Table, at: Timestamp, subject: str) -> None:
    """As `ccpr.pipeline.list_check.check_list`; the cause of a refusal is pandera's SchemaErrors."""
    if not listed.num_rows:
        return
    import pandera.errors
    import polars as pl

    checked = listed.drop_columns(["stats"])  # it stands in columns; as it is, polars cannot print it in a failure
    snapshot = pa.repeat(pa.scalar(at.physical, pa.int64()), listed.num_rows)
    try:
        object_list_schema().validate(pl.DataFrame(checked.append_column("snapshot_physical", snapshot)), lazy=True)
    except pandera.errors.SchemaErrors as error:
        failures = error.failure_cases.select("column", "check", "failure_case").unique(maintain_order=True)
        text = "; ".join(f"{column}: {check} ({case})" for column, check, case in failures.head(5).iter_rows())
        more = f" and {failures.height - 5} more" if failures.height > 5 else ""
        raise BadObjectList(f"{failures.height} checks failed: {text}{more}", subject=subject) from error
    check_stats(listed, subject)


@cache
def object_list_schema() -> "DataFrameSchema":
    """The pandera schema of a de-duplicated list (a polars frame of LISTED_SCHEMA without `stats`, with
    `snapshot_physical`)."""
    import pandera.polars as pandera
    import polars as pl
    from pandera import Check

    def holds(expression: pl.Expr, name: str) -> Check:
        return Check(lambda data: data.lazyframe.select(expression.fill_null(value=False)), name=name)

    return pandera.DataFrameSchema(
        {
            **{name: pandera.Column(pl.Int64, Check.gt(0)) for name in POSITIVE},
            "name": pandera.Column(pl.String, Check.str_matches(NAME)),
            "stats_bytes": pandera.Column(pl.Int32, Check.eq(STATS_SIZE)),
            "name_agrees": pandera.Column(pl.Boolean, Check.eq(True)),
            "is_tombstone": pandera.Column(pl.Boolean),
        },
        checks=[holds(expression, name) for name, expression in _times().items()],
        unique=["table_id", "name"],
    )


def _times() -> "dict[str, pl.Expr]":
    import polars as pl

    deleted = pl.col("delete_physical")
    not_before = (
        deleted.is_null()
        | (deleted > pl.col("create_physical"))
        | ((deleted == pl.col("create_physical")) & (pl.col("delete_logical") >= pl.col("create_logical")))
    )
    not_later = (pl.col("create_physical") <= pl.col("snapshot_physical")) & (
        deleted.is_null() | (deleted <= pl.col("snapshot_physical"))
    )
    return {NOT_BEFORE: not_before, NOT_LATER: not_later}
