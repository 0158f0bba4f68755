"""What can be wrong in an iteration."""

from collections.abc import Sequence
from typing import Self

from ccpr.matrixone.errors import Refused, Terminal, Transient
from ccpr.mirror.errors import MirrorDamaged


class NoOpenIteration(Terminal):
    """A single step was asked for, and there is no open iteration."""

    code = "NO_OPEN_ITERATION"
    about = "subscription"
    default_remedy = "Materialize upstream_snapshots first: it opens the iteration that the other steps work on."


class StepMissing(Terminal):
    """A step was asked for before the step that it depends on."""

    code = "STEP_MISSING"
    about = "subscription"
    default_remedy = (
        "Run the steps in their order: upstream_snapshots, catalog_ddl, object_diffs, copied_objects, applied_tables."
    )


class ColumnNotCarried(Terminal):
    """In logical mode a column has a type that the upstream does not print exactly."""

    code = "COLUMN_NOT_CARRIED"
    about = "column"
    default_remedy = (
        "Leave the table out (--exclude-tables), or subscribe with a login of account sys, which copies object files."
    )


class DifferenceHangs(Transient):
    """In logical mode the upstream does not answer what differs in a table."""

    code = "DIFFERENCE_HANGS"
    about = "statement"
    default_remedy = "Nothing: the table is read as a whole."


class RowsDisagree(Transient):
    """In logical mode the rows that were read of a table are not as many as the upstream counts at the snapshot."""

    code = "ROWS_DISAGREE"
    about = "table"
    default_remedy = "Nothing: the table is read again as a whole. If it stays, report it with this text."


class ObjectsNotStored(MirrorDamaged):
    """Copied objects are missing from the store, or have another size there.

    Attributes
    ----------
    missing, checked : their names, and how many objects were looked for.
    """

    missing: tuple[str, ...] = ()
    checked: int = 0

    @classmethod
    def of(cls, missing: Sequence[str], *, checked: int) -> Self:
        text = f"{len(missing)} copied objects are not in the store as copied"
        error = cls(text, subject=f"object {missing[0]}")
        error.missing, error.checked = tuple(missing), checked
        return error


class BadObjectList(Terminal):
    """The upstream's object list contradicts itself or the mirror. Nothing was copied."""

    code = "OBJECT_LIST_INVALID"
    about = "snapshot or object"
    default_remedy = "Run it again to take a new snapshot. If it fails again, report it with this text."


class BaseSnapshotLost(Refused):
    """The upstream no longer has the last point's snapshot, so it cannot list the difference."""

    code = "BASE_SNAPSHOT_LOST"
    about = "subscription"
    default_remedy = (
        "`ccpr plan NAME` shows what a full list would copy; `ccpr run NAME --plan ID` or `ccpr run NAME "
        "--allow-resync` copies it. The setting resync_limit allows so many bytes without asking."
    )


class PlanOutdated(Terminal):
    """A run would now do something other than the plan says."""

    code = "PLAN_OUTDATED"
    about = "plan"
    default_remedy = "Nothing was done. Make a new plan with `ccpr plan NAME` and check it."


class StorageFailed(Transient):
    """The upstream's storage, from which objects are read directly, did not answer as it should."""

    code = "STORAGE_FAILED"
    about = "file in the upstream's storage"
    default_remedy = (
        "Check that the storage is reachable from here; then run it again. Without it: `ccpr alter NAME "
        "--objects-from ''`."
    )


class StorageMissing(StorageFailed):
    """There is no folder or bucket where the upstream's storage should be: a disk is not mounted, or it is another
    machine."""

    code = "STORAGE_MISSING"
    about = "upstream's storage"
    default_remedy = (
        "Mount the folder on each machine that copies, or correct the place: `ccpr alter NAME --objects-from URL`; "
        "'' asks the upstream for all objects."
    )


class StorageRefused(StorageFailed):
    """The upstream's storage refuses the credentials of this environment, which may pass while keys or rights are being
    changed."""

    code = "STORAGE_REFUSED"
    about = "file in the upstream's storage"
    default_remedy = (
        "Give the login the named right, for reading only. It comes from the environment (AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS) or from the machine's role; a service keeps that "
        "with which it was started."
    )


class ScopeConflict(Terminal):
    """The upstream does not have the one table of the subscription, or none that its patterns match."""

    code = "TABLE_NOT_UPSTREAM"
    about = "table"
    default_remedy = "Check the spelling (letter case counts)."


class UpstreamClockBack(Terminal):
    """A new snapshot is older than the replica: the upstream's clock was set back, or it is another upstream."""

    code = "UPSTREAM_CLOCK_BACK"
    about = "subscription"
    default_remedy = (
        "Check that the URI leads to the cluster of the subscription, and that cluster's clock. The replica stays "
        "as it is."
    )


class TableChangedMeanwhile(Transient):
    """In a database with partitioned tables one was dropped, renamed, truncated or rewritten between the snapshot and
    the listing of its objects."""

    code = "TABLE_CHANGED_MEANWHILE"
    about = "table"
    default_remedy = (
        "Nothing: the next attempt takes a new snapshot. Where this happens all the time, `ccpr alter NAME "
        "--consistency isolated` lets the other tables go on."
    )
