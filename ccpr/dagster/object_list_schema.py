"""The schema of an object list for pandera, by which Dagster's assets and the sensor check it. What it accepts and
refuses is what `ccpr.pipeline.list_check` does."""

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from ccpr.matrixone.objects.stats import STATS_SIZE
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.pipeline.errors import BadObjectList
from ccpr.pipeline.list_check import NAME, NOT_BEFORE, NOT_LATER, POSITIVE, check_stats

if TYPE_CHECKING:
    import polars as pl
    from pandera.polars import DataFrameSchema


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
