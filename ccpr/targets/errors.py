"""What can go wrong at a target, each with a code and a remedy."""

from ccpr.matrixone.errors import Terminal, Transient, Unknown


class TargetUnavailable(Transient):
    """The target does not answer now: it restarts, is locked, is full, or has no free connection. An open transaction
    was undone."""

    code = "TARGET_UNAVAILABLE"
    about = "target"
    default_remedy = "Wait until the target answers, then run it again."


class TargetBusy(Transient):
    """Another process is syncing the same subscription to this target."""

    code = "TARGET_BUSY"
    about = "target"
    default_remedy = (
        "Wait until it has ended. If its machine is dead, find its connection in SHOW PROCESSLIST there, and end "
        "it with KILL <number>."
    )


class TargetAhead(Terminal):
    """The target is at a point that the history here does not have: another copy of the state synced it, or an older
    copy of the mirror was promoted or adopted. Nothing was changed."""

    code = "TARGET_AHEAD"
    about = "target"
    default_remedy = (
        "Use the state folder or catalog database from which it was synced last. If that is lost, add another "
        "database; or `ccpr target remove NAME TARGET --force`, empty this one (DROP DATABASE, CREATE DATABASE), "
        "and add it again."
    )


class TargetMoved(Transient):
    """The target is at another point than it was left at, or at none: it was restored, made anew, or synced from
    another copy of the state."""

    code = "TARGET_MOVED"
    about = "target"
    default_remedy = "The next sync compares it with the history here, and brings it to the newest point if it can."


class TargetRegistryEdited(Terminal):
    """A row of the program's tables in the target is not this subscription's, or names a definition that no kept point
    has. Nothing of it was run."""

    code = "TARGET_REGISTRY_EDITED"
    about = "target or table"
    default_remedy = (
        "Find out who else writes to the target's `ccpr_` tables. A row of `ccpr_intents` can be deleted by hand, "
        "and its tables rebuilt with `ccpr target rebuild NAME TARGET TABLE`; so can a row of `ccpr_registry` "
        "whose table is not in the subscription."
    )


class TargetOutcomeUnknown(Unknown):
    """The connection was lost while a transaction was being committed, and the target does not answer whether it
    was."""

    code = "TARGET_OUTCOME_UNKNOWN"
    about = "table"
    default_remedy = "Run it again when the target answers: its checkpoint row says what was committed."


class TargetDenied(Transient):
    """The target refuses the login, or does not permit this. A server that starts refuses for a while."""

    code = "TARGET_DENIED"
    about = "target"
    default_remedy = (
        "Check user and password, and grant on the database: SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, "
        "INDEX, CREATE TEMPORARY TABLES, REFERENCES. The server must allow LOAD DATA LOCAL (local_infile = ON)."
    )


class TargetTlsFailed(Terminal):
    """The connection to the target cannot be encrypted as its URI asks."""

    code = "TARGET_TLS_FAILED"
    about = "target"
    default_remedy = (
        "Check ssl-mode, ssl-ca, ssl-cert and ssl-key of the target's URI, and set another URI with "
        "`ccpr target alter NAME TARGET --to …`."
    )


class TargetWantsPassword(Terminal):
    """The target's server asks for the password itself, without a checked certificate, and did not get it. MySQL 8 asks
    once for each user of its default login method."""

    code = "TARGET_WANTS_PASSWORD"
    about = "target"
    default_remedy = (
        "Have the certificate checked: add ?ssl-mode=verify_ca&ssl-ca=FILE to the target's URI "
        "(`ccpr target alter NAME TARGET --to …`); verify_identity checks the host name, too. "
        "Or let the target's user log in with mysql_native_password."
    )


class TargetRefused(Transient):
    """The target answered with an error that may pass or is not known. The statement's transaction was undone; the
    other tables go on."""

    code = "TARGET_REFUSED"
    about = "target or table"
    default_remedy = "If the error stays, look up its number in the documentation of the target."


class TargetValueRefused(Terminal):
    """The target cannot hold a value as it is, for example a NaN, or a time beyond 838 hours. The transaction was
    undone."""

    code = "TARGET_VALUE_REFUSED"
    about = "table"
    default_remedy = (
        "Keep the named column as text: `ccpr target alter NAME TARGET --as-text table.column`, then run it again."
        " The mirror has the value."
    )


class TargetKeyRefused(TargetValueRefused):
    """The target refuses a row because another one has its key, in the primary key or a unique index."""


class TargetDuplicateKeys(Terminal):
    """Two visible rows of the source have one primary key, since the upstream checks none in LOAD DATA. The table stays
    at its point."""

    code = "TARGET_DUPLICATE_KEYS"
    about = "table"
    default_remedy = (
        "Delete one of the rows upstream. Or keep the later commit: `ccpr target alter NAME TARGET "
        "--duplicate-keys last`."
    )


class TargetTableForeign(Terminal):
    """The target has a table of this name that this subscription did not make."""

    code = "TARGET_TABLE_FOREIGN"
    about = "table"
    default_remedy = (
        "Rename or drop the table in the target if it is not needed, or use another database for the subscription."
    )


class TargetTableDropped(Terminal):
    """Another user dropped or renamed a synced table in the target. Its checkpoint is kept."""

    code = "TARGET_TABLE_DROPPED"
    about = "table"
    default_remedy = (
        "`ccpr target rebuild NAME TARGET TABLE` rebuilds it from the mirror. Restored from a backup, with its "
        "mark, it continues from its checkpoint."
    )


class TargetTableAltered(Terminal):
    """Another user altered a synced table: a column, its type or collation, or the key. The table is not touched."""

    code = "TARGET_TABLE_ALTERED"
    about = "table"
    default_remedy = (
        "Alter it back to what the message says; or drop it there, and `ccpr target rebuild NAME TARGET TABLE`; "
        "or release it: `ccpr target release`. Indexes may be added."
    )


class TargetDropsHeld(Terminal):
    """Most or all of a target's tables are gone at once. They stay; the others go on."""

    code = "TARGET_DROPS_HELD"
    about = "table"
    default_remedy = (
        "If they are to go: `ccpr target approve NAME TARGET` drops those that `ccpr status NAME` lists. Once "
        "they are back upstream, they are synced again. `ccpr target alter NAME TARGET --max-drop NUMBER` sets "
        "how many go without asking."
    )


class TargetTableUnknown(Terminal):
    """The target's registry has no such table, or has it in a state in which rows are not applied to it."""

    code = "TARGET_TABLE_UNKNOWN"
    about = "table"
    default_remedy = (
        "Nothing was changed. Create the table in the target first. A released table is not written to any more."
    )


class TargetChangeStuck(Transient):
    """A statement of a begun change of a table's definition fails; each sync tries it again."""

    code = "TARGET_CHANGE_STUCK"
    about = "table"
    default_remedy = "Remove the cause that the message names; the change then continues."


class TargetUnsupported(Terminal):
    """The server is of a kind or version that cannot be written to."""

    code = "TARGET_UNSUPPORTED"
    about = "target"
    default_remedy = "Use MariaDB 10.6 or later, MySQL 8.0.23 or later, or a MatrixOne."


class FileRequestRefused(Terminal):
    """The target asked for a file that it was not offered. It got nothing, and the connection was ended."""

    code = "FILE_REQUEST_REFUSED"
    about = "target"
    default_remedy = "A proper server does not do this: find out what answers at that address."


class BadTargetUri(Terminal):
    """The text is not the URI of a target."""

    code = "BAD_TARGET_URI"
    about = "URI"
    default_remedy = "Write it as mysql://user:password@host:3306/database, with options as ?ssl-mode=…&ssl-ca=…"


class DeltaUnfit(Terminal):
    """The columns of a change do not match the table in the target. Nothing was applied."""

    code = "DELTA_UNFIT"
    about = "table"
    default_remedy = "Apply the change of the table's definition first. If the error remains, report it with this text."


# These keep one table from being synced until they pass. Every other Transient error is the whole target's.
PASSING_OF_A_TABLE = (TargetDenied, TargetRefused, TargetChangeStuck)


class DdlWaits(Terminal):
    """The target's DDL policy leaves a change of a table's definition to an operator. The table stays at its point."""

    code = "TARGET_DDL_WAITS"
    about = "table"
    default_remedy = (
        "Look at the statements in `ccpr status NAME`. `ccpr target approve NAME TARGET TABLE` runs them, `ccpr "
        "target alter NAME TARGET --ddl-policy full` all from now on."
    )


class NameTaken(Terminal):
    """A table is to be created or renamed in the target, but a table that waits has its name there."""

    code = "TARGET_NAME_TAKEN"
    about = "table"
    default_remedy = "See `ccpr status NAME` for why the other table waits."


class TargetPointGone(Terminal):
    """The mirror no longer has the point at which a table of the target is, so its changes are not known."""

    code = "TARGET_POINT_GONE"
    about = "table"
    default_remedy = "Rebuild the table from the mirror: `ccpr target rebuild NAME TARGET TABLE`."


class TableBehindInMirror(Transient):
    """The table is in quarantine in the mirror, so the newest point does not show it."""

    code = "BEHIND_IN_MIRROR"
    about = "table"
    default_remedy = (
        "See the quarantined tables in `ccpr status NAME`. The target follows when the mirror shows the table again."
    )
