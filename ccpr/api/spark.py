"""A table of a mirror, and its changes, as DataFrames of Spark. Nothing here imports Spark before it is called."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ccpr.api.differences import plan_changes
from ccpr.api.opening import Mirror, open_mirror
from ccpr.api.values import At, Location, plain_at
from ccpr.matrixone.schema import InvalidText
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr.mirror.errors import BadOption
from ccpr.mirror.filters import FilterTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(
    spark: "SparkSession",
    mirror: Mirror | Location,
    table: str,
    at: At = None,
    *,
    columns: Sequence[str] | None = None,
    filters: Iterable[FilterTuple] | None = None,
    hidden: bool = False,
) -> "DataFrame":
    """The rows of a table at a point as a DataFrame. The workers read the files; the point is fixed by this call.

    Parameters
    ----------
    spark : a session of Spark 4.1. This package must be installed where its driver and its workers run, and all of
        them must see the mirror.
    mirror : an open mirror, or its place.
    table : `database.table`.
    at, columns, filters, hidden : as of `ccpr.Table`. Workers apply the filters, and skip files and blocks by them;
        what `DataFrame.where` adds is applied by Spark, after all rows were read.

    Raises
    ------
    StoreNotShared
        The workers run on other machines than the mirror's folder.
    BadOption
        The mirror was opened with credentials of its own, which the workers do not have.
    TableMissingInMirror, PointNotReached, PointGone, BadFilter, BadOption, MirrorNotFound, MirrorDamaged, StoreFailed
        As of `ccpr.Table`. What goes wrong in a worker comes as an error of Spark, whose text has the code.
    """
    from ccpr.mirror.table_read import plan_read
    from ccpr.pipeline.spark.read import frame_of

    opened = _opened(mirror)
    chosen = None if columns is None else columns if isinstance(columns, str) else list(columns)
    options = {"columns": chosen, "filters": filters or (), "hidden": hidden, "reading": opened._reading}
    return frame_of(spark, plan_read(opened.url, table, plain_at(at), **options))


def read_changes(
    spark: "SparkSession", mirror: Mirror | Location, table: str, since: At, until: At = None
) -> "DataFrame":
    """What leads the rows of a table from one point to another, as a DataFrame: see `ccpr.Table.changes`.

    Its columns are `__ccpr_kind` (``upsert`` or ``delete``) and those of the table; of a delete only the columns of the
    key have values. Workers compute the changes.

    Raises
    ------
    StoreNotShared
        The workers run on other machines than the mirror's folder.
    """
    from ccpr.mirror.delta.change_rows import KIND
    from ccpr.mirror.table_read import plan_read
    from ccpr.pipeline.spark.read import delta_with_spark, frame_of

    opened = _opened(mirror)
    changes, _, until_lsn = plan_changes(opened._mirror, table, since, until, opened._reading)
    frame = delta_with_spark(spark, changes.delta, opened._reading)
    if changes.replaced is None or changes.after is None:
        return frame
    key = [column.name for column in changes.shape.key.columns]
    gone = delta_with_spark(spark, changes.replaced, opened._reading).select(KIND, *map(in_backquotes, key))
    texts = opened._reading.invalid_text  # keys of changes keep their escapes
    how = replace(opened._reading, invalid_text=InvalidText.ESCAPE if texts is InvalidText.REPLACE else texts)
    name = changes.after.ref.qualified_name
    present = frame_of(spark, plan_read(opened.url, name, until_lsn, columns=key, reading=how))
    same_key = [gone[name] == present[name] for name in map(in_backquotes, key)]
    return frame.unionByName(gone.join(present, same_key, "left_anti"), allowMissingColumns=True)


def spark_session(
    master: str = "local[*]",
    *,
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> "SparkSession":
    """A Spark session that can read mirrors. A process has one; later calls get the same.

    It runs on the Java of `JAVA_HOME` or `PATH` if that is 17 or 21, else on the one that is installed with this
    package; its time zone is UTC, and with a local master it listens on the loopback address only. Any other session of
    Spark 4.1 will do as well.

    Parameters
    ----------
    master : where Spark runs; ``local[*]`` = in this process and its children, on all cores.
    remote : a Spark Connect server, ``sc://host:port``, in place of `master`.
    config : further settings of Spark; they win.
    cache : a folder for what is made once to start Java; `~/.cache/ccpr/java` without it.

    Raises
    ------
    ExtraMissing, JavaMissing, SparkUnavailable
        The extra `spark` is not installed; no Java can be used; no session could be made.
    """
    from ccpr.pipeline.spark.session import SparkSettings
    from ccpr.pipeline.spark.session import spark_session as session_of

    folder = Path.home() / ".cache" / "ccpr" / "java" if cache is None else Path(cache)
    return session_of(SparkSettings(folder, master, remote, config=dict(config or {})))


def _opened(mirror: Mirror | Location) -> Mirror:
    """Raises BadOption for a mirror that was opened with credentials: they stay in this process."""
    if not isinstance(mirror, Mirror):
        return open_mirror(mirror)
    if mirror._credentials is not None:
        remedy = (
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give a role, where Spark's driver and workers run, "
            "and give the mirror's URL."
        )
        raise BadOption("Spark's workers do not get its credentials", subject=mirror.url, remedy=remedy)
    return mirror
