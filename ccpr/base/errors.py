"""The errors of replication, each with a code and a remedy. Errors about the upstream and object files are in
`ccpr.matrixone`."""

import traceback
from typing import Self

from ccpr.matrixone.errors import Refused, Terminal, Transient, Unknown


class BadName(Terminal):
    """The name cannot be used in a path, a key or a partition."""

    code = "BAD_NAME"
    about = "name"
    default_remedy = "Choose a name of letters, digits, '_' and '-', at most 60 characters."


class SubscriptionMissing(Terminal):
    """There is no subscription of this name in this state folder."""

    code = "SUBSCRIPTION_MISSING"
    about = "subscription"
    default_remedy = "See `ccpr subscriptions` for the names, or create a subscription with `ccpr subscribe`."


class SubscriptionExists(Terminal):
    """A subscription of this name exists already."""

    code = "SUBSCRIPTION_EXISTS"
    about = "subscription"
    default_remedy = "Choose another name; see `ccpr subscriptions`."


class SubscriptionBusy(Transient):
    """Another run of the subscription is under way."""

    code = "SUBSCRIPTION_BUSY"
    about = "subscription"
    default_remedy = "Wait until the other run has ended. If its process is dead, its lease expires by itself."


class ServiceRunning(Terminal):
    """Another `ccpr serve` runs on this state folder."""

    code = "SERVICE_RUNNING"
    about = "state folder"
    default_remedy = "One is enough: it runs all subscriptions. End the other one first, or set another CCPR_HOME."


class UnexpectedError(Transient):
    """A service met an error that this program does not expect, in one of the things that it does again and again: an
    iteration, the sync of a target, a question to a follower's cluster, a notice. It is a defect of this program, or of
    what it depends on. Everything else goes on, and what failed is tried again."""

    code = "UNEXPECTED"
    about = "module and line"
    default_remedy = "Report the lines that the service has logged, with the version and what stood before them."

    @classmethod
    def of(cls, error: Exception) -> Self:
        return cls(f"{type(error).__name__}: {error}"[:1000], subject=raised_at(error))


def raised_at(error: Exception) -> str:
    """File and line."""
    last = traceback.extract_tb(error.__traceback__, limit=-1)[-1]
    return f"{last.filename}:{last.lineno}"


class NoticeNotSent(Terminal):
    """A notice of `ccpr serve` did not arrive: the command of `--on-failure` failed or took too long, or the address of
    `--webhook` refused it or gave no answer in HTTP within ten seconds, three times. Later notices are sent all the
    same; `ccpr status` has what this one would have told."""

    code = "NOTICE_NOT_SENT"
    about = "way of the notice"
    default_remedy = "Check the command, or the server of the address; /healthz says so until a later one has arrived."


class ServiceNotServed(Terminal):
    """The pages of the service (/healthz, /metrics, /status) cannot be served at that address."""

    code = "SERVICE_NOT_SERVED"
    about = "address"
    default_remedy = "Choose another --port (0 takes a free one), or another --listen address of this machine."


class SubscriptionPaused(Terminal):
    """The subscription is paused and does not run until it is resumed."""

    code = "SUBSCRIPTION_PAUSED"
    about = "subscription"
    default_remedy = "`ccpr resume NAME`: it continues from its checkpoint."


class TransitionRefused(Terminal):
    """What was asked for is not possible in the subscription's present state (docs/reference/states.md)."""

    code = "TRANSITION_REFUSED"
    about = "subscription"
    default_remedy = (
        "See `ccpr subscriptions` for its state. `ccpr resume NAME` makes it run again, from its checkpoint."
    )


class ScopeOverlap(Terminal):
    """Another subscription replicates the same tables of the same upstream already."""

    code = "SCOPE_OVERLAP"
    about = "subscription"
    default_remedy = (
        "Use the other subscription. To copy the tables twice, say so for one of the two: --allow-overlap of `ccpr "
        "subscribe` or `ccpr alter`, ALLOW_OVERLAP = TRUE in SQL, `allow_overlap: true` in ccpr.yaml."
    )


class MirrorInUse(Terminal):
    """The folder or bucket for the mirror has files of another subscription, perhaps of one that was dropped."""

    code = "MIRROR_IN_USE"
    about = "folder or URL of a mirror"
    default_remedy = "Choose another name, or name an empty folder or bucket with --mirror."


class BadSetting(Terminal):
    """A setting has a value that is not allowed, or cannot be changed any more."""

    code = "BAD_SETTING"
    about = "setting"
    default_remedy = "See docs/reference/sql.md for the settings and their values."


class SeveralDatabases(Terminal):
    """It works with one database, and the subscription is to several of an account."""

    code = "SEVERAL_DATABASES"
    about = "subscription"
    default_remedy = (
        "Subscribe to the database on its own, with the same --from: `ccpr subscribe NAME --database DATABASE "
        "--allow-overlap`. It has its own mirror and its own points."
    )


class SqlSyntax(Terminal):
    """The statement is not one of docs/reference/sql.md. The error shows the place, without passwords."""

    code = "SQL_SYNTAX"
    about = "place in the statement"
    default_remedy = "See docs/reference/sql.md for the statements and an example of each."


class UpstreamDiffers(Terminal):
    """The new upstream does not have the snapshot of the last point. It is another cluster, or has lost it."""

    code = "UPSTREAM_DIFFERS"
    about = "subscription"
    default_remedy = "Give the new address of the same cluster. For another cluster create another subscription."


class LeaseLost(Transient):
    """Another executor has taken over the subscription, so this one cannot commit any more."""

    code = "LEASE_LOST"
    about = "subscription"
    default_remedy = (
        "Run it again: the iteration continues where it stopped. If it happens often, "
        "look for a second executor or a suspended machine."
    )


class NoOpenIteration(Terminal):
    """A single step was asked for, and there is not an open iteration that it could work on."""

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


class BadObjectList(Terminal):
    """The upstream's object list contradicts itself or the mirror. Nothing was copied."""

    code = "OBJECT_LIST_INVALID"
    about = "snapshot or object"
    default_remedy = (
        "Nothing was applied. Run it again to take a new snapshot. If it fails again, report it with this text."
    )


class BaseSnapshotLost(Refused):
    """The upstream no longer has the snapshot of the last point, so it cannot list the difference to it."""

    code = "BASE_SNAPSHOT_LOST"
    about = "subscription"
    default_remedy = (
        "The replica stays at its last point. `ccpr plan NAME` shows what a full list would copy. "
        "`ccpr run NAME --plan ID` or `ccpr run NAME --allow-resync` copies it. "
        "The setting resync_limit allows this without asking, up to so many bytes."
    )


class PlanOutdated(Terminal):
    """A run would now do something else than the plan says."""

    code = "PLAN_OUTDATED"
    about = "plan"
    default_remedy = "Nothing was done. Make a new plan with `ccpr plan NAME` and check it."


class TableMissingInMirror(Terminal):
    """The point has no table of this name, or several whose database and name are written the same way."""

    code = "TABLE_NOT_IN_POINT"
    about = "table"
    default_remedy = "See `ccpr tables NAME` for the tables of a point."


class PointNotReached(Terminal):
    """The replica, or this table of it, has not reached the point."""

    code = "POINT_NOT_REACHED"
    about = "point"
    default_remedy = "See `ccpr points NAME` for the points; omit --at for the newest."


class PointGone(Terminal):
    """The point has expired, by the subscription's retention."""

    code = "POINT_GONE"
    about = "point"
    default_remedy = "See `ccpr points NAME` for the points that are retained."


class MirrorDamaged(Terminal):
    """A file of the mirror is missing or is not what was written."""

    code = "MIRROR_DAMAGED"
    about = "file of the mirror"
    default_remedy = (
        "`ccpr verify NAME --repair` fetches damaged objects again. `ccpr resync NAME --table DB.TABLE` also creates a "
        "lost manifest again. Else restore the named file from a copy."
    )


class StoreFailed(Transient):
    """The store refused a read or a write (full, read-only, unreachable)."""

    code = "STORE_FAILED"
    about = "file of the mirror"
    default_remedy = (
        "Free space or give access at the named place, then run it again: the iteration continues where it stopped."
    )


class StorageFailed(Transient):
    """The storage of the upstream, that objects are read from without it, did not answer as it should."""

    code = "STORAGE_FAILED"
    about = "file in the upstream's storage"
    default_remedy = (
        "Check that the storage is reachable from here; then run it again: the iteration continues where it stopped. "
        "Without it: `ccpr alter NAME --objects-from ''`."
    )


class StorageMissing(StorageFailed):
    """There is no folder or bucket where the upstream's storage should be: a disk is not mounted, or it is another
    machine. If an object alone is missing, the upstream is asked for it."""

    code = "STORAGE_MISSING"
    about = "upstream's storage"
    default_remedy = (
        "Mount the folder on each machine that copies, or correct the place: `ccpr alter NAME --objects-from URL`; "
        "'' asks the upstream for all objects."
    )


class StorageRefused(StorageFailed):
    """The storage of the upstream refuses to be read with the credentials of this environment. It is tried again: keys
    are changed one place after another, and rights take a while to arrive. When the storage is named to a subscription
    it has to be readable."""

    code = "STORAGE_REFUSED"
    about = "file in the upstream's storage"
    default_remedy = (
        "Give the login the right that is named, to read only. It comes from the environment (AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS) or from the machine's role; a service has that with "
        "which it was started."
    )


BAD_ROW_REMEDY = (
    "Restore the catalog database from a copy, or end the subscription with `ccpr drop NAME --force`; "
    "its mirror stays readable."
)


class StoreConflict(Terminal):
    """A file of a mirror that never changes once written exists already, with other bytes. Nothing is overwritten."""

    code = "STORE_CONFLICT"
    about = "file"
    default_remedy = (
        "Another program may write to this mirror, or it was put together from copies: `ccpr verify NAME` says which "
        "files are what was written."
    )


class MirrorDisagrees(Terminal):
    """The mirror at this place is not the one that the catalog database knows. Nothing was changed, here or there."""

    about = "mirror"


class SnapshotsHidden(Terminal):
    """The snapshots of a lost history are in the list of the publisher's account, which only a login of that account
    can read."""

    code = "SNAPSHOTS_HIDDEN"
    default_remedy = (
        "As that account: SELECT sname FROM mo_catalog.mo_snapshots WHERE sname LIKE 'xr%'; the names that `ccpr "
        "snapshots NAME` does not list, and that have the same twelve characters after `xr_`, are lost: DROP SNAPSHOT."
    )


class MirrorMissing(MirrorDisagrees):
    """The subscription has points, but where its mirror should be there is none: its disk is not mounted, it was
    moved, or it is on another machine."""

    code = "MIRROR_MISSING"
    default_remedy = (
        "Mount the disk, or restore the mirror to this place: then it goes on by itself. "
        "If it was moved: `ccpr alter NAME --mirror URL`. "
        "If it is lost: `ccpr drop NAME`, and subscribe again."
    )


class MirrorForeign(MirrorDisagrees):
    """The mirror at this place belongs to another subscription, or another catalog database has taken it over."""

    code = "MIRROR_FOREIGN"
    default_remedy = (
        "If it is to belong to this catalog database again: `ccpr state adopt NAME`. Else name the right place: "
        "`ccpr alter NAME --mirror URL`."
    )


class MirrorAhead(MirrorDisagrees):
    """The mirror has points that the catalog database does not know, as after a restore of the catalog database from
    an older copy."""

    code = "MIRROR_AHEAD"
    default_remedy = (
        "`ccpr state adopt NAME` takes the mirror's points into the catalog database and goes on from there. Or "
        "restore the newest copy of the catalog database, or of `ccpr state export`."
    )


class MirrorBehind(MirrorDisagrees):
    """The mirror lacks points that the catalog database has, as after a restore of the mirror from an older copy."""

    code = "MIRROR_BEHIND"
    default_remedy = (
        "Restore the newest copy of the mirror. Or `ccpr state adopt NAME`: it goes back to the mirror's newest point, "
        "and the next iteration fetches what is missing."
    )


class StateUnreadable(Terminal):
    """The catalog database or the key file cannot be used."""

    code = "STATE_UNREADABLE"
    about = "file or database"
    default_remedy = "Check CCPR_HOME and the permissions of the files in it."


class KeyLost(StateUnreadable):
    """The key file is missing, or is not the one that sealed what is stored."""

    default_remedy = (
        "Restore the key file that sealed it, mode 600. If it is lost: `ccpr doctor` lists every login that it sealed, "
        "and how each is given again."
    )


class StateUnavailable(Transient):
    """The catalog database does not answer now: it restarts, is locked, is full, or has no free connections."""

    code = "STATE_UNAVAILABLE"
    about = "file or database"
    default_remedy = "Wait until the database answers, then run it again: nothing that was committed is lost."


class CommitOutcomeUnknown(Unknown):
    """The connection to the catalog database was lost during a commit and has not come back. Whether the point was
    committed is not known."""

    code = "COMMIT_OUTCOME_UNKNOWN"
    about = "subscription"
    default_remedy = (
        "When the database answers, run it again: it looks up in mo_ccpr_log what happened, and continues from there."
    )


class ScopeConflict(Terminal):
    """The upstream does not have the one table of the subscription, or none that its patterns match."""

    code = "TABLE_NOT_UPSTREAM"
    about = "table"
    default_remedy = "Check the spelling (letter case counts) and that the table still exists upstream."


class UpstreamClockBack(Terminal):
    """A new snapshot is older than the replica. The upstream's clock was set back, or it is another upstream."""

    code = "UPSTREAM_CLOCK_BACK"
    about = "subscription"
    default_remedy = (
        "Check that the URI is that of the cluster for which the subscription was created, and that cluster's clock. "
        "The replica stays as it is."
    )


class TableChangedMeanwhile(Transient):
    """A table was dropped, renamed, truncated or rewritten between the snapshot of its database and the listing of its
    objects. In a database with a partitioned table the tables are listed one by one, and by their names."""

    code = "TABLE_CHANGED_MEANWHILE"
    about = "table"
    default_remedy = (
        "Nothing: the next attempt takes a new snapshot. Where tables come and go all the time, "
        "`ccpr alter NAME --consistency isolated` leaves only those behind."
    )


class PointTooOld(Terminal):
    """A checkpoint cannot go back: the location is before the saved one, or before the global point."""

    code = "POINT_TOO_OLD"
    about = "checkpoint"
    default_remedy = (
        "Nothing was changed. Run the iteration again: it starts from what is stored. "
        "If it fails again, report it with this text."
    )


class CheckpointNotLoaded(Terminal):
    """A checkpoint was used before it was read from its database, or after a write whose outcome is not known."""

    code = "CHECKPOINT_NOT_LOADED"
    about = "checkpoint"
    default_remedy = "Run the iteration again: it first reads what is stored."


class CheckpointSnapshotMissing(Terminal):
    """The frozen points of a checkpoint are unknown. They have been stored, rolled back or discarded."""

    code = "CHECKPOINT_SNAPSHOT_MISSING"
    about = "checkpoint"
    default_remedy = "Nothing was stored. Run the iteration again: it starts from what is stored."


class CheckpointUnknown(Unknown):
    """The database failed during the commit of a checkpoint. Whether the transaction was committed is not known."""

    code = "CHECKPOINT_UNKNOWN"
    about = "checkpoint"
    default_remedy = (
        "Run the iteration again when the database answers: it looks up what happened, and continues from there."
    )


class BadStateFile(Terminal):
    """The file is not a subscription's state as `ccpr state export` writes it, or contradicts itself."""

    code = "STATE_FILE_INVALID"
    about = "file"
    default_remedy = (
        "Nothing was written. Import the file as it was exported, or another export of the same subscription."
    )


class StateFileNewer(Terminal):
    """The state was exported by a newer version of this program."""

    code = "STATE_FILE_NEWER"
    about = "file"
    default_remedy = (
        "Nothing was written. Import it with a version of this program at least as new as the one that exported it."
    )


class MirrorContradictsState(Terminal):
    """The mirror does not belong to the exported state, or is older or newer than it."""

    code = "MIRROR_CONTRADICTS_STATE"
    about = "mirror"
    default_remedy = (
        "Nothing was written. Import the state that was exported when the mirror was as it is now. "
        "If there is none, subscribe again with another mirror."
    )


class TargetMissing(Terminal):
    """The subscription has no target of this name."""

    code = "TARGET_MISSING"
    about = "target"
    default_remedy = "See `ccpr target list NAME`, or add one with `ccpr target add`."


class TargetExists(Terminal):
    """The subscription already has a target of this name, or one that is the same database of the same server."""

    code = "TARGET_EXISTS"
    about = "target"
    default_remedy = "Choose another name or another database; see `ccpr target list NAME`."


class TargetInUse(Terminal):
    """The target still has tables that are marked as synced. Nothing would sync them any more."""

    code = "TARGET_IN_USE"
    about = "target"
    default_remedy = (
        "First make them ordinary tables with `ccpr release NAME --target TARGET`. "
        "With --force the target is removed, and the tables stay as they are."
    )


class RelayPinned(Terminal):
    """A snapshot of this name exists at the relay already."""

    code = "RELAY_PINNED"
    about = "snapshot"
    default_remedy = "Use another name, or drop it: `ccpr relay pins NAME --drop SNAPSHOT`."


class RelayPins(Terminal):
    """The relay keeps no more snapshots of this subscription: each keeps a point and its files."""

    code = "RELAY_PINS"
    about = "snapshot"
    default_remedy = "See `ccpr relay pins NAME`, and drop those of downstreams that are gone with `--drop SNAPSHOT`."


class RelayUserExists(Terminal):
    """The relay already has a user of this name. Letter case does not count."""

    code = "RELAY_USER_EXISTS"
    about = "user of the relay"
    default_remedy = "Choose another name, or drop it first: `ccpr relay user drop NAME`."


class RelayUserMissing(Terminal):
    """The relay has no user of this name."""

    code = "RELAY_USER_MISSING"
    about = "user of the relay"
    default_remedy = "See `ccpr relay user list`; add one with `ccpr relay user add NAME`."


class FollowerMissing(Terminal):
    """The subscription has no follower of this name."""

    code = "FOLLOWER_MISSING"
    about = "follower"
    default_remedy = "See `ccpr status NAME` for the names, or make one with `ccpr follower add`."


class FollowerExists(Terminal):
    """The subscription has a follower of this name, which is another cluster or another database."""

    code = "FOLLOWER_EXISTS"
    about = "follower"
    default_remedy = "Choose another name; `ccpr follower list NAME` has those that there are."


class FollowerLoginLost(Terminal):
    """The logins that are kept for a follower, that of its cluster and the one with which that cluster logs in at the
    relay, were sealed with a key file that was lost or replaced, or are not known here any more."""

    code = "FOLLOWER_LOGIN_LOST"
    about = "follower"
    default_remedy = (
        "Restore the key file that sealed them. Else type its `ccpr follower add` again with --new-login: its database "
        "there is dropped and loaded again, as no cluster takes another login for a subscription that it has. "
        "`ccpr follower remove NAME FOLLOWER --force` only forgets it."
    )


class FollowerInUse(Terminal):
    """Other clusters follow the subscription. Nothing would serve them any more."""

    code = "FOLLOWER_IN_USE"
    about = "follower"
    default_remedy = (
        "First end it: `ccpr follower remove NAME FOLLOWER`. With --force it is forgotten, and stays as it is."
    )


class PointsPinned(Terminal):
    """Other clusters have taken snapshots of the subscription through the relay: each keeps a point that its cluster
    reads from. Without the subscription nothing serves them, and without the point they have to load everything
    again. Nothing was done."""

    code = "POINTS_PINNED"
    about = "snapshots"
    default_remedy = (
        "`ccpr relay pins NAME` shows when each was last used. End the subscriptions of those clusters there, or drop "
        "what is of a cluster that is gone for good: `ccpr relay pins NAME --drop SNAPSHOT`. `ccpr drop NAME --force` "
        "forgets all of them."
    )


class DdlWaits(Terminal):
    """A change of a table's definition waits for a person, by the target's DDL policy. The table stays at its point in
    the target."""

    code = "TARGET_DDL_WAITS"
    about = "table"
    default_remedy = (
        "Look at the statements in `ccpr status NAME` or `ccpr plan NAME`. "
        "After `ccpr target alter NAME TARGET --ddl-policy full` the next run applies them."
    )


class NameTaken(Terminal):
    """A table is to be created or renamed in the target, but a table that waits has its name there."""

    code = "TARGET_NAME_TAKEN"
    about = "table"
    default_remedy = "See `ccpr status NAME` for why the other table waits. When it continues, this one does, too."


class TargetPointGone(Terminal):
    """The mirror no longer has the point at which a table of the target is, so the changes since then are not known."""

    code = "TARGET_POINT_GONE"
    about = "table"
    default_remedy = (
        "Rebuild the table from the mirror: `ccpr target rebuild NAME TARGET TABLE`. "
        "This happens if the target was restored from an old copy."
    )


class TableBehindInMirror(Transient):
    """The table is in quarantine in the mirror, and the newest point does not show it. So the target cannot have it
    either."""

    code = "BEHIND_IN_MIRROR"
    about = "table"
    default_remedy = (
        "See the quarantined tables in `ccpr status NAME`. The target follows when the mirror shows the table again."
    )


class ExtraMissing(Terminal):
    """What was asked for needs packages that are not installed, since only some users need them. An extra of this
    program brings them: spark, dagster, dagster-spark, emulator, duckdb, pandas, polars, or all of these."""

    code = "EXTRA_MISSING"
    about = "extra"
    default_remedy = "pip install 'matrixone-ccpr[all]'"
