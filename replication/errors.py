"""What can go wrong in an iteration, each with a code and a remedy. The upstream and object files have theirs in
`matrixone`."""

from matrixone.errors import Terminal, Transient, Unknown


class BadName(Terminal):
    """The name may not become a path, a key or a partition."""

    code = "BAD_NAME"
    about = "name"
    default_remedy = "Choose a name of letters, digits, '_' and '-', at most 60 characters."


class SubscriptionMissing(Terminal):
    """There is no subscription of this name in this state folder."""

    code = "SUBSCRIPTION_MISSING"
    about = "subscription"
    default_remedy = "See `ccpr subscriptions` for the names there are, or make one with `ccpr subscribe`."


class SubscriptionExists(Terminal):
    """A subscription of this name is there already."""

    code = "SUBSCRIPTION_EXISTS"
    about = "subscription"
    default_remedy = "Choose another name; see `ccpr subscriptions`."


class SubscriptionBusy(Transient):
    """Another run of the subscription is under way."""

    code = "SUBSCRIPTION_BUSY"
    about = "subscription"
    default_remedy = "Wait until the other run has ended; a dead one's lease ends by itself."


class SubscriptionPaused(Terminal):
    """The subscription is paused, and nothing runs it until it is resumed."""

    code = "SUBSCRIPTION_PAUSED"
    about = "subscription"
    default_remedy = "`ccpr resume NAME`: it goes on from its checkpoint."


class TransitionRefused(Terminal):
    """What was asked for is not a step out of the subscription's present state (docs/states.md)."""

    code = "TRANSITION_REFUSED"
    about = "subscription"
    default_remedy = (
        "See `ccpr subscriptions` for its state; `ccpr resume NAME` sets it right and keeps the checkpoint."
    )


class ScopeOverlap(Terminal):
    """Another subscription replicates the same tables of the same upstream already."""

    code = "SCOPE_OVERLAP"
    about = "subscription"
    default_remedy = "Use the other subscription; or say --allow-overlap (in SQL: WITH (ALLOW_OVERLAP = TRUE)) to copy the tables twice."


class MirrorInUse(Terminal):
    """The place of the mirror holds files of another subscription, of one that was dropped perhaps."""

    code = "MIRROR_IN_USE"
    about = "folder or URL of a mirror"
    default_remedy = "Choose another name, or an empty place with --mirror."


class BadSetting(Terminal):
    """A setting has a value that it cannot have, or cannot be changed any more."""

    code = "BAD_SETTING"
    about = "setting"
    default_remedy = "See docs/sql.md for the settings and their values."


class SqlSyntax(Terminal):
    """The statement is not one of docs/sql.md; the text shows the place, without passwords."""

    code = "SQL_SYNTAX"
    about = "place in the statement"
    default_remedy = "See docs/sql.md for the statements and an example of each."


class UpstreamDiffers(Terminal):
    """The new upstream does not have the snapshot of the last point: it is another cluster, or has lost it."""

    code = "UPSTREAM_DIFFERS"
    about = "subscription"
    default_remedy = "Name the same cluster by its new address; for another cluster make another subscription."


class LeaseLost(Transient):
    """Another executor has taken the subscription over, so nothing of this one may be committed any more."""

    code = "LEASE_LOST"
    about = "subscription"
    default_remedy = "Run it again: the iteration continues where it stopped. If it happens often, look for a second executor or a suspended machine."


class NoOpenIteration(Terminal):
    """A step was asked for alone, and no iteration is open that it could work on."""

    code = "NO_OPEN_ITERATION"
    about = "subscription"
    default_remedy = "Materialize upstream_snapshots first: it opens the iteration that the other steps work on."


class StepMissing(Terminal):
    """A step was asked for before the one that it stands on."""

    code = "STEP_MISSING"
    about = "subscription"
    default_remedy = (
        "Run the steps in their order: upstream_snapshots, catalog_ddl, object_diffs, copied_objects, applied_tables."
    )


class BadObjectList(Terminal):
    """The upstream's object list contradicts itself or our own list; nothing was copied."""

    code = "OBJECT_LIST_INVALID"
    about = "snapshot or object"
    default_remedy = (
        "Nothing was applied. Run again to take a new snapshot; if it stays, report it with the names given here."
    )


class BaseSnapshotLost(Terminal):
    """The snapshot of the last point is gone upstream, so the difference to it cannot be asked for."""

    code = "BASE_SNAPSHOT_LOST"
    about = "subscription"
    default_remedy = (
        "The replica stays at its last point. `ccpr plan NAME` shows what a full list would bring; `ccpr run NAME --plan ID` or "
        "`--allow-resync` does it, and the setting resync_limit lets it go on by itself up to so many bytes."
    )


class PlanOutdated(Terminal):
    """The world has moved on since the plan was made: what a run would do now is something else."""

    code = "PLAN_OUTDATED"
    about = "plan"
    default_remedy = "Nothing was done. Make a new plan with `ccpr plan NAME` and look at it."


class TableMissingInMirror(Terminal):
    """The point that was asked for has no such table, or several that are written the same way."""

    code = "TABLE_NOT_IN_POINT"
    about = "table"
    default_remedy = "See `ccpr tables NAME` for the tables of a point."


class PointNotReached(Terminal):
    """The replica, or this table of it, has not reached the point."""

    code = "POINT_NOT_REACHED"
    about = "point"
    default_remedy = "See `ccpr points NAME` for what there is; leave --at away for the newest."


class PointGone(Terminal):
    """The point was there once and has been let go, as the subscription's retention says."""

    code = "POINT_GONE"
    about = "point"
    default_remedy = "It is older than what is retained; see `ccpr points NAME`."


class MirrorDamaged(Terminal):
    """A file of the mirror is missing or is not what was written."""

    code = "MIRROR_DAMAGED"
    about = "file of the mirror"
    default_remedy = (
        "`ccpr verify NAME` fetches damaged objects again, `ccpr resync NAME --table DB.TABLE` also makes a lost manifest anew; "
        "else restore the named file from a copy."
    )


class StoreFailed(Transient):
    """The store refused a read or a write (full, read-only, unreachable)."""

    code = "STORE_FAILED"
    about = "file of the mirror"
    default_remedy = "Make room or access at the named place, then run again: the iteration continues where it stopped."


BAD_ROW_REMEDY = (
    "Restore the catalog database from a copy, or end it with `ccpr drop NAME --force`; its mirror stays readable."
)


class StateUnreadable(Terminal):
    """The catalog database or the key file cannot be used."""

    code = "STATE_UNREADABLE"
    about = "file or database"
    default_remedy = "Check CCPR_HOME and the permissions of the files in it."


class StateUnavailable(Transient):
    """The catalog database does not answer now: it restarts, is locked, full or out of connections."""

    code = "STATE_UNAVAILABLE"
    about = "file or database"
    default_remedy = "Wait until the database answers, then run it again: nothing that was committed is lost."


class CommitOutcomeUnknown(Unknown):
    """The catalog database was lost during a commit and has not come back, so whether the point was made is not known."""

    code = "COMMIT_OUTCOME_UNKNOWN"
    about = "subscription"
    default_remedy = (
        "When the database answers, run it again: the row of mo_ccpr_log tells, and the iteration goes on from there."
    )


class ScopeConflict(Terminal):
    """The one table that the subscription is of is not there upstream."""

    code = "TABLE_NOT_UPSTREAM"
    about = "table"
    default_remedy = "Check the spelling (letter case counts) and that the table still exists upstream."


class UpstreamClockBack(Terminal):
    """A new snapshot is older than the replica: the upstream's clock went back, or it is another upstream."""

    code = "UPSTREAM_CLOCK_BACK"
    about = "subscription"
    default_remedy = "Check that the URI names the cluster the subscription was made for, and that cluster's clock; the replica stays as it is."


class PointTooOld(Terminal):
    """A checkpoint was to be set back: the location is before the saved one, or before the global point (requirement
    C1)."""

    code = "POINT_TOO_OLD"
    about = "checkpoint"
    default_remedy = "Nothing was changed. Run the iteration again: it starts from what is stored. If it stays, report it with this text."


class CheckpointNotLoaded(Terminal):
    """A checkpoint was to be used before it was read from its database, or after a write whose outcome is not known."""

    code = "CHECKPOINT_NOT_LOADED"
    about = "checkpoint"
    default_remedy = "Run the iteration again: it reads what is stored first."


class CheckpointSnapshotMissing(Terminal):
    """A checkpoint's frozen points were to be stored that are not, or no longer, kept: stored already, rolled back,
    discarded."""

    code = "CHECKPOINT_SNAPSHOT_MISSING"
    about = "checkpoint"
    default_remedy = "Nothing was stored. Run the iteration again: it starts from what is stored."


class CheckpointUnknown(Unknown):
    """The database failed while a checkpoint was being committed: it may be stored or not, with all that was in its
    transaction."""

    code = "CHECKPOINT_UNKNOWN"
    about = "checkpoint"
    default_remedy = (
        "Run the iteration again when the database answers: it looks up which of the two it is, and goes on from there."
    )


class BadStateFile(Terminal):
    """The file is not a subscription's state as `ccpr state export` writes it, or something in it contradicts the rest."""

    code = "STATE_FILE_INVALID"
    about = "file"
    default_remedy = (
        "Nothing was written. Import the file as it was exported, or another export of the same subscription."
    )


class StateFileNewer(Terminal):
    """The state was exported by a newer version of this program."""

    code = "STATE_FILE_NEWER"
    about = "file"
    default_remedy = "Nothing was written. Import it with a program at least as new as the one that exported it."


class MirrorContradictsState(Terminal):
    """The mirror is not the one that the exported state is of, or is older or newer than it."""

    code = "MIRROR_CONTRADICTS_STATE"
    about = "mirror"
    default_remedy = (
        "Nothing was written. Import the export that was made when the mirror was as it is now; "
        "without one, subscribe anew with another mirror."
    )


class TargetMissing(Terminal):
    """The subscription has no target of this name."""

    code = "TARGET_MISSING"
    about = "target"
    default_remedy = "See `ccpr target list NAME`, or add one with `ccpr target add`."


class TargetExists(Terminal):
    """The subscription has a target of this name, or one that is the same database of the same server."""

    code = "TARGET_EXISTS"
    about = "target"
    default_remedy = "Choose another name or another database; see `ccpr target list NAME`."


class TargetInUse(Terminal):
    """The target still has tables that are being synced, with their mark; nobody would look after them any more."""

    code = "TARGET_IN_USE"
    about = "target"
    default_remedy = (
        "`ccpr release NAME --target TARGET` makes them ordinary tables first. With --force the target is forgotten, "
        "and they stay as they are."
    )


class DdlWaits(Terminal):
    """A change of a table's definition waits for a person, as the target's DDL policy says; the table stays at its
    point there."""

    code = "TARGET_DDL_WAITS"
    about = "table"
    default_remedy = (
        "Look at the statements in `ccpr status NAME` or `ccpr plan NAME`. `ccpr target alter NAME TARGET --ddl-policy full` lets the "
        "next run apply them."
    )


class NameTaken(Terminal):
    """A table is to come or to be renamed in the target, and the table that has its name there waits."""

    code = "TARGET_NAME_TAKEN"
    about = "table"
    default_remedy = "See `ccpr status NAME` for why the other table waits; when it goes on, this one does."


class TargetPointGone(Terminal):
    """The mirror no longer has the point at which a table of the target stands, so what has changed since cannot be
    told."""

    code = "TARGET_POINT_GONE"
    about = "table"
    default_remedy = (
        "Release the table in the target, drop it there and add the target anew: it is filled from the newest point. "
        "This happens where the target was restored from an old copy."
    )


class TableBehindInMirror(Transient):
    """The mirror's newest point does not show the table, which is in quarantine there; so the target cannot have it
    either."""

    code = "BEHIND_IN_MIRROR"
    about = "table"
    default_remedy = (
        "See the quarantined tables in `ccpr status NAME`; the target follows when the mirror has the table again."
    )
