"""What can go wrong at a destination, each with a code and a remedy."""

from matrixone.errors import Terminal, Transient, Unknown


class TargetUnavailable(Transient):
    """The target database does not answer now: it restarts, is locked, full, or out of connections. What was under way
    was undone there."""

    code = "TARGET_UNAVAILABLE"
    about = "target"
    default_remedy = "Wait until the target answers, then run it again: what it has is not sent twice."


class TargetBusy(Transient):
    """Another process is applying the same subscription to this target."""

    code = "TARGET_BUSY"
    about = "target"
    default_remedy = (
        "Wait until the other one has ended: the server frees the lock when that one's connection ends. If its machine is dead, the server "
        "may not know: look at the connection in SHOW PROCESSLIST there, and end it with KILL <number>."
    )


class TargetAhead(Terminal):
    """The target stands at a point that the subscription's history here does not have: another copy of its state has
    carried it on."""

    code = "TARGET_AHEAD"
    about = "target"
    default_remedy = (
        "Nothing was changed. Carry it on from the state folder or catalog database that did so last; an old copy must not be used. "
        "If that one is lost, add another database as a target, and drop this one's tables."
    )


class TargetOutcomeUnknown(Unknown):
    """The connection was lost while a transaction was being committed, and the target does not answer the question
    whether it was."""

    code = "TARGET_OUTCOME_UNKNOWN"
    about = "table"
    default_remedy = (
        "Run it again when the target answers: the checkpoint row in it tells, and nothing is applied twice."
    )


class TargetDenied(Terminal):
    """The target does not take the login, or does not permit it to do this."""

    code = "TARGET_DENIED"
    about = "target"
    default_remedy = (
        "Check user and password, and grant on the database: SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, "
        "CREATE TEMPORARY TABLES, REFERENCES; the server has to allow LOAD DATA LOCAL (local_infile = ON)."
    )


class TargetRefused(Terminal):
    """The target answered a statement with an error that trying again does not cure; its number and text are in the
    message."""

    code = "TARGET_REFUSED"
    about = "target or table"
    default_remedy = "Look up the number in the documentation of the target. Nothing of the statement's transaction is in the target."


class TargetValueRefused(Terminal):
    """The target cannot hold a value as it is, for example a NaN, or a time beyond 838 hours. Nothing of the
    transaction is in it."""

    code = "TARGET_VALUE_REFUSED"
    about = "table"
    default_remedy = (
        "Keep the named column as text: `ccpr target alter NAME TARGET --as-text table.column`, then run it again. "
        "The mirror has the value in any case."
    )


class TargetTableForeign(Terminal):
    """The target has a table of this name that this subscription did not make, so it is not touched."""

    code = "TARGET_TABLE_FOREIGN"
    about = "table"
    default_remedy = "Rename or drop the table in the target if it is not wanted, or let the subscription write into another database."


class TargetTableDropped(Terminal):
    """A table that is being synced was dropped or renamed in the target by somebody else. It is not made again; its
    checkpoint is kept."""

    code = "TARGET_TABLE_DROPPED"
    about = "table"
    default_remedy = (
        "`ccpr target rebuild NAME TARGET TABLE` makes it anew from the mirror. "
        "Put back from a copy, with its mark, it goes on where it stood."
    )


class TargetTableAltered(Terminal):
    """Somebody else altered a table that is being synced: a column is gone or of another type or collation, or its key
    is another, so that values could change on their way in. It is left alone, and its checkpoint is kept.
    """

    code = "TARGET_TABLE_ALTERED"
    about = "table"
    default_remedy = (
        "Alter it back to what the message says; or drop it there and make it anew with `ccpr target rebuild NAME TARGET TABLE`; or "
        "release it with `ccpr release`. Indexes may be added."
    )


class TargetTableUnknown(Terminal):
    """The target's registry has no such table, or has it in a state in which rows are not applied to it."""

    code = "TARGET_TABLE_UNKNOWN"
    about = "table"
    default_remedy = (
        "Nothing was changed. Create the table in the target first; a released table is no longer written to."
    )


class TargetChangeStuck(Terminal):
    """A change of a table's definition was begun and a statement of it fails, so the table waits between two
    definitions."""

    code = "TARGET_CHANGE_STUCK"
    about = "table"
    default_remedy = "Remove the cause that the message names; the change goes on with its next statement when the target is opened again."


class TargetUnsupported(Terminal):
    """The server is of a kind or version that cannot be written to."""

    code = "TARGET_UNSUPPORTED"
    about = "target"
    default_remedy = "Use MariaDB 10.6 or later, or MySQL 8.0.23 or later."


class FileRequestRefused(Terminal):
    """The target asked for a file that it was not offered. It got nothing, and the connection was ended."""

    code = "FILE_REQUEST_REFUSED"
    about = "target"
    default_remedy = (
        "A sound server does not do this: find out what answers at that address before anything is sent to it again."
    )


class BadTargetUri(Terminal):
    """The text is not the URI of a target."""

    code = "BAD_TARGET_URI"
    about = "URI"
    default_remedy = "Write it as mysql://user:password@host:3306/database, options as ?ssl-mode=…&ssl-ca=…"


class DeltaUnfit(Terminal):
    """The columns of a change do not fit the table in the target. Nothing was applied."""

    code = "DELTA_UNFIT"
    about = "table"
    default_remedy = "Apply the change of the table's definition first; if it stays, report it with this text."
