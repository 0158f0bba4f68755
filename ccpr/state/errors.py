"""Errors of what is kept about subscriptions, and of what is asked of it."""

from ccpr.matrixone.errors import Terminal, Transient, Unknown


class SubscriptionMissing(Terminal):
    """There is no subscription of this name in this state folder."""

    code = "SUBSCRIPTION_MISSING"
    about = "subscription"
    default_remedy = "See `ccpr status` for the names, or create a subscription with `ccpr subscribe`."


class SubscriptionExists(Terminal):
    """A subscription of this name exists already."""

    code = "SUBSCRIPTION_EXISTS"
    about = "subscription"
    default_remedy = "Choose another name; see `ccpr status`."


class SubscriptionBusy(Transient):
    """Another run of the subscription is under way."""

    code = "SUBSCRIPTION_BUSY"
    about = "subscription"
    default_remedy = "Wait until it has ended. If its process is dead, its lease expires."


class SubscriptionPaused(Terminal):
    """The subscription is paused."""

    code = "SUBSCRIPTION_PAUSED"
    about = "subscription"
    default_remedy = "`ccpr resume NAME`: it continues from its checkpoint."


class TransitionRefused(Terminal):
    """The subscription's present state does not allow this action (docs/reference/states.md)."""

    code = "TRANSITION_REFUSED"
    about = "subscription"
    default_remedy = "See `ccpr status` for its state. `ccpr resume NAME` makes it run again, from its checkpoint."


class BadSetting(Terminal):
    """A setting has a value that is not allowed, or cannot be changed any more."""

    code = "BAD_SETTING"
    about = "setting"
    default_remedy = "See docs/reference/configuration.md for the settings and their values."


class LeaseLost(Transient):
    """Another executor has taken over the subscription."""

    code = "LEASE_LOST"
    about = "subscription"
    default_remedy = (
        "Run it again: the iteration continues where it stopped. If it happens often, "
        "look for a second executor or a suspended machine."
    )


class MirrorDisagrees(Terminal):
    """The mirror at this place is not the one that the catalog database knows. Neither was changed."""

    about = "mirror"


class MirrorMissing(MirrorDisagrees):
    """There is no mirror at its place, though the subscription has points."""

    code = "MIRROR_MISSING"
    default_remedy = (
        "Mount the disk, or restore the mirror to this place. If it was moved: `ccpr alter NAME --mirror URL`; if "
        "it is lost: `ccpr drop NAME`, and subscribe again."
    )


class MirrorForeign(MirrorDisagrees):
    """The mirror at this place belongs to another subscription, or another catalog database has taken it over."""

    code = "MIRROR_FOREIGN"
    default_remedy = (
        "If it is to belong to this catalog database again: `ccpr state adopt NAME`. Else name the right place: "
        "`ccpr alter NAME --mirror URL`."
    )


class MirrorAhead(MirrorDisagrees):
    """The mirror has points that the catalog database does not know: the database was restored from an older copy."""

    code = "MIRROR_AHEAD"
    default_remedy = (
        "`ccpr state adopt NAME` takes the mirror's points into the catalog database. Or restore the newest copy "
        "of that, or of `ccpr state export`."
    )


class MirrorBehind(MirrorDisagrees):
    """The mirror lacks points that the catalog database has: it was restored from an older copy."""

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
    """The key file is missing, or did not seal what is stored."""

    default_remedy = (
        "Restore the key file that sealed it, mode 600. If it is lost: `ccpr doctor` lists every login that it sealed, "
        "and how each is given again."
    )


class StateUnavailable(Transient):
    """The catalog database does not answer now: it restarts, is locked, is full, or has no free connections."""

    code = "STATE_UNAVAILABLE"
    about = "file or database"
    default_remedy = "When the database answers, run it again: nothing that was committed is lost."


class StateDiskFull(StateUnavailable):
    """The disk of the state folder's database is full."""

    code = "STATE_DISK_FULL"
    about = "file"
    default_remedy = (
        "Free space on that disk, then run it again: nothing that was committed is lost. "
        "`ccpr doctor` shows how much is free."
    )


class CommitOutcomeUnknown(Unknown):
    """The connection to the catalog database was lost during a commit and has not come back."""

    code = "COMMIT_OUTCOME_UNKNOWN"
    about = "subscription"
    default_remedy = "When the database answers, run it again: it looks up in mo_ccpr_log what was committed."


class PointTooOld(Terminal):
    """A checkpoint cannot go back: the location is before the saved one, or before the global point. Nothing was
    changed."""

    code = "POINT_TOO_OLD"
    about = "checkpoint"
    default_remedy = "Run the iteration again. If it fails again, report it with this text."


class CheckpointNotLoaded(Terminal):
    """A checkpoint was used before it was read from its database, or after a write whose outcome is not known."""

    code = "CHECKPOINT_NOT_LOADED"
    about = "checkpoint"
    default_remedy = "Run the iteration again."


class CheckpointSnapshotMissing(Terminal):
    """The frozen points of a checkpoint are unknown: stored, rolled back or discarded. Nothing was stored."""

    code = "CHECKPOINT_SNAPSHOT_MISSING"
    about = "checkpoint"
    default_remedy = "Run the iteration again: it starts from what is stored."


class CheckpointUnknown(Unknown):
    """The database failed during the commit of a checkpoint."""

    code = "CHECKPOINT_UNKNOWN"
    about = "checkpoint"
    default_remedy = "Run the iteration again when the database answers: it looks up what was committed."


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


class RelayPinned(Terminal):
    """A snapshot of this name exists at the relay already."""

    code = "RELAY_PINNED"
    about = "snapshot"
    default_remedy = "Use another name, or drop it: `ccpr relay pins NAME --drop SNAPSHOT`."


class RelayPins(Terminal):
    """The relay keeps no more snapshots of this subscription."""

    code = "RELAY_PINS"
    about = "snapshot"
    default_remedy = "See `ccpr relay pins NAME`, and drop those of clusters that are gone with `--drop SNAPSHOT`."


class RelayUserExists(Terminal):
    """There is a login of this name already. Letter case does not count."""

    code = "RELAY_USER_EXISTS"
    about = "login"
    default_remedy = "Choose another name, or change it: `ccpr login alter NAME`."


class RelayUserMissing(Terminal):
    """There is no login of this name."""

    code = "RELAY_USER_MISSING"
    about = "login"
    default_remedy = "See `ccpr login list`; add one with `ccpr login add NAME --role ROLE`."


class FollowerMissing(Terminal):
    """The subscription has no follower of this name."""

    code = "FOLLOWER_MISSING"
    about = "follower"
    default_remedy = "See `ccpr status NAME` for the names, or make one with `ccpr follower add`."


class FollowerExists(Terminal):
    """The subscription has a follower of this name, which is another cluster or another database."""

    code = "FOLLOWER_EXISTS"
    about = "follower"
    default_remedy = "Choose another name; `ccpr follower list NAME` lists those in use."


class FollowerLoginLost(Terminal):
    """Logins of a follower were sealed with a key file that was lost or replaced, or are not known here any more."""

    code = "FOLLOWER_LOGIN_LOST"
    about = "follower"
    default_remedy = (
        "Restore the key file that sealed them. Else type its `ccpr follower add` again with --new-login: its "
        "database there is dropped and loaded again. `ccpr follower remove NAME FOLLOWER --force` only forgets it."
    )


class PointsNeeded(Terminal):
    """Points that were to be dropped must stay: the newest, held ones, and what a table in quarantine, a target, a lake
    or a relay needs."""

    code = "POINTS_NEEDED"
    about = "points"
    default_remedy = (
        "`ccpr points NAME` says why each stays: release held points, sync, release or resync what needs them, or"
        " drop fewer."
    )


class PointsPinned(Terminal):
    """Snapshots that other clusters took through the relay keep these points. Nothing was done."""

    code = "POINTS_PINNED"
    about = "snapshots"
    default_remedy = (
        "`ccpr relay pins NAME` shows when each was last used. End the subscriptions of those clusters there; of "
        "a cluster that is gone: `ccpr relay pins NAME --drop SNAPSHOT`. `ccpr drop NAME --force` forgets all."
    )


BAD_ROW_REMEDY = (
    "Restore the catalog database from a copy, or end the subscription with `ccpr drop NAME --force`; "
    "its mirror stays readable."
)
