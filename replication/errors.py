"""What can go wrong in an iteration, each with a code and a remedy. The upstream and object files have theirs in `matrixone`."""

from matrixone.errors import Terminal, Transient


class BadName(Terminal):
    """A name that may not become a path, a key or a partition."""

    code = "BAD_NAME"
    default_remedy = "Choose a name of letters, digits, '_' and '-', at most 60 characters."


class SubscriptionMissing(Terminal):
    code = "SUBSCRIPTION_MISSING"
    default_remedy = "See `ccpr subscriptions` for the names there are, or make one with `ccpr subscribe`."


class SubscriptionExists(Terminal):
    code = "SUBSCRIPTION_EXISTS"
    default_remedy = "Choose another name; see `ccpr subscriptions`."


class SubscriptionBusy(Transient):
    """Somebody else holds the subscription's lease."""

    code = "SUBSCRIPTION_BUSY"
    default_remedy = "Wait until the other run has ended; a dead one's lease ends by itself."


class LeaseLost(Transient):
    """Our lease was taken over: nothing of ours may be committed any more (requirement O5)."""

    code = "LEASE_LOST"
    default_remedy = (
        "Run it again: the iteration continues where it stopped. If it happens often, look for a second executor or a suspended machine."
    )


class NoOpenIteration(Terminal):
    code = "NO_OPEN_ITERATION"
    default_remedy = "Materialize upstream_snapshots first: it opens the iteration that the other steps work on."


class StepMissing(Terminal):
    """A step was asked for before the one that it stands on."""

    code = "STEP_MISSING"
    default_remedy = "Run the steps in their order: upstream_snapshots, catalog_ddl, object_diffs, copied_objects, applied_tables."


class BadObjectList(Terminal):
    """The upstream's object list contradicts itself or our own list; nothing was copied."""

    code = "OBJECT_LIST_INVALID"
    default_remedy = "Nothing was applied. Run again to take a new snapshot; if it stays, report it with the names given here."


class BaseSnapshotLost(Terminal):
    """The snapshot of the last point is gone upstream, so the difference to it cannot be asked for (architecture 11)."""

    code = "BASE_SNAPSHOT_LOST"
    default_remedy = (
        "The replica stays at its last point. `ccpr run NAME --allow-resync` compares with a full list and copies what is named."
    )


class TableMissingInMirror(Terminal):
    code = "TABLE_NOT_IN_POINT"
    default_remedy = "See `ccpr tables NAME` for the tables of a point."


class PointNotReached(Terminal):
    """A point that the replica, or this table of it, has not reached."""

    code = "POINT_NOT_REACHED"
    default_remedy = "See `ccpr points NAME` for what there is; leave --at away for the newest."


class PointGone(Terminal):
    code = "POINT_GONE"
    default_remedy = "It is older than what is retained; see `ccpr points NAME`."


class MirrorDamaged(Terminal):
    """A file of the mirror is missing or is not what was written."""

    code = "MIRROR_DAMAGED"
    default_remedy = "Restore the named file from a copy, or make the mirror anew under another subscription."


class StoreFailed(Transient):
    """The store refused a read or a write (full, read-only, unreachable)."""

    code = "STORE_FAILED"
    default_remedy = "Make room or access at the named place, then run again: the iteration continues where it stopped."


class StateUnreadable(Terminal):
    """The catalog database or the key file cannot be used."""

    code = "STATE_UNREADABLE"
    default_remedy = "Check CCPR_HOME and the permissions of the files in it."


class ScopeConflict(Terminal):
    """The table of a table-level subscription is not there upstream."""

    code = "TABLE_NOT_UPSTREAM"
    default_remedy = "Check the spelling (letter case counts) and that the table still exists upstream."


class UpstreamClockBack(Terminal):
    """A new snapshot is older than the replica: the upstream's clock went back, or it is another upstream."""

    code = "UPSTREAM_CLOCK_BACK"
    default_remedy = (
        "Check that the URI names the cluster the subscription was made for, and that cluster's clock; the replica stays as it is."
    )
