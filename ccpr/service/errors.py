"""Errors of commands on whole subscriptions, and of the service."""

from ccpr.matrixone.errors import Terminal

"""What can be wrong with a restore or a drill."""


class RestoreIncomplete(Terminal):
    """Tables of a point could not be loaded into a database. The others are there."""

    code = "RESTORE_INCOMPLETE"
    about = "tables"
    default_remedy = (
        "If the database has tables of these names, name another database or drop them. Otherwise do what the message "
        "says, and type the same again: what is there is not loaded twice."
    )


class RestoredDiffers(Terminal):
    """What was loaded into a database, or written to a file, is not what was read for it."""

    code = "RESTORED_DIFFERS"
    about = "table"
    default_remedy = (
        "Look who else writes there. Drop the table, and type the same again: the others are not loaded twice."
    )


class DrillFailed(Terminal):
    """A drill restored a point, and found not what was recorded, or a table could not be restored."""

    code = "DRILL_FAILED"
    about = "point"
    default_remedy = (
        "`ccpr drill NAME --history` shows what differed. `ccpr verify NAME --deep` says which files are damaged, and "
        "with `--repair` fetches what the upstream still has."
    )


class ScratchTaken(Terminal):
    """The place in which a drill restores has something that the drill did not make."""

    code = "SCRATCH_TAKEN"
    about = "folder or database"
    default_remedy = "Name an empty folder, or a server on which the login may make databases."


class ServiceRunning(Terminal):
    """Another `ccpr serve` runs on this state folder."""

    code = "SERVICE_RUNNING"
    about = "state folder"
    default_remedy = "One service runs all subscriptions. End the other one first, or set another CCPR_HOME."


class NoticeNotSent(Terminal):
    """The command of `--on-failure` failed or took too long, or `--webhook` gave no good answer within ten seconds,
    three times."""

    code = "NOTICE_NOT_SENT"
    about = "way of the notice"
    default_remedy = "Check the command, or the server of the address."


class ServiceNotServed(Terminal):
    """The pages of the service (/healthz, /metrics, /status) cannot be served at that address."""

    code = "SERVICE_NOT_SERVED"
    about = "address"
    default_remedy = "Choose another --port (0 takes a free one), or another --listen address of this machine."


class ScopeOverlap(Terminal):
    """Another subscription replicates the same tables of the same upstream already."""

    code = "SCOPE_OVERLAP"
    about = "subscription"
    default_remedy = (
        "Use the other subscription. To copy the tables twice, give one of the two --allow-overlap (ALLOW_OVERLAP "
        "= TRUE in SQL, `allow_overlap: true` in ccpr.yaml)."
    )


class MirrorInUse(Terminal):
    """The folder or bucket for the mirror has files of another subscription, perhaps of one that was dropped."""

    code = "MIRROR_IN_USE"
    about = "folder or URL of a mirror"
    default_remedy = "Choose another name, or name an empty folder or bucket with --mirror."


class SeveralDatabases(Terminal):
    """The command works with one database, and the subscription is to several databases of an account."""

    code = "SEVERAL_DATABASES"
    about = "subscription"
    default_remedy = (
        "Subscribe to the database on its own, with the same --from: `ccpr subscribe NAME --database DATABASE "
        "--allow-overlap`."
    )


class UpstreamDiffers(Terminal):
    """The new upstream does not have the snapshot of the last point: it is another cluster, or has lost the
    snapshot."""

    code = "UPSTREAM_DIFFERS"
    about = "subscription"
    default_remedy = "Give the new address of the same cluster; for another cluster create another subscription."


class SnapshotsHidden(Terminal):
    """The snapshots of a lost history are in the publisher's account, which only its own logins can read."""

    code = "SNAPSHOTS_HIDDEN"
    default_remedy = (
        "As that account: SELECT sname FROM mo_catalog.mo_snapshots WHERE sname LIKE 'xr%'. Drop those with the "
        "same twelve characters after `xr_` that `ccpr snapshots NAME` does not list: DROP SNAPSHOT."
    )


class TargetInUse(Terminal):
    """The target still has tables that are marked as synced."""

    code = "TARGET_IN_USE"
    about = "target"
    default_remedy = (
        "First make them ordinary tables with `ccpr target release NAME TARGET`. "
        "With --force the target is removed, and the tables stay as they are."
    )


class FollowerInUse(Terminal):
    """Other clusters follow the subscription. Without it nothing would serve them."""

    code = "FOLLOWER_IN_USE"
    about = "follower"
    default_remedy = (
        "First end it: `ccpr follower remove NAME FOLLOWER`. With --force the follower is forgotten, and its database "
        "stays as it is."
    )


class HoldExists(Terminal):
    """A point is held by this name already."""

    code = "HOLD_EXISTS"
    about = "held point"
    default_remedy = "Choose another name, or release the other one: `ccpr points release NAME HELD`."


class PointsHeld(Terminal):
    """The mirror has held points, and was to be deleted."""

    code = "POINTS_HELD"
    about = "held points"
    default_remedy = "Release them with `ccpr points release NAME HELD`, or repeat it with --force."
