"""What can go wrong with the upstream, or on the way to it: one class for each kind of error.

`ccpr.matrixone.client.classification` finds the class of an error that the server or the client library reports.
"""

from functools import partial
from typing import Any, ClassVar

from ccpr.matrixone.errors import CcprError, Refused, Terminal, Transient, Unknown


class UpstreamError(CcprError):
    """Root of what this package raises.

    Attributes
    ----------
    number : the server's (or the client library's) error number; 0 if there is none.
    text : the server's own text, at most 600 characters; empty if there is none.
    """

    about = "statement"
    meaning: ClassVar[str] = "the upstream refused the statement"

    def __init__(
        self, message: str, *, subject: str, remedy: str | None = None, number: int = 0, text: str = ""
    ) -> None:
        super().__init__(message, subject=subject, remedy=remedy)
        self.number = number
        self.text = text

    def __reduce__(self) -> tuple[Any, Any]:
        fields = {"subject": self.subject, "remedy": self.remedy, "number": self.number, "text": self.text}
        return partial(type(self), **fields), (self.message,)


# -- trying again may help


class UpstreamUnreachable(UpstreamError, Transient):
    """No connection could be made; nothing was sent."""

    code = "UPSTREAM_UNREACHABLE"
    about = "upstream"
    meaning = "no connection to the upstream could be made"
    default_remedy = (
        "Check host and port of the URI (MatrixOne listens on 6001), that the server runs, and that no firewall blocks "
        "the way."
    )


class UpstreamBusy(UpstreamError, Transient):
    """The server cannot run the statement now: too many connections, a lock, a running garbage collection, a timeout
    inside the server."""

    code = "UPSTREAM_BUSY"
    meaning = "the upstream is busy"
    default_remedy = "Nothing: it is tried again. If it stays, look at load and logs of the upstream."


class UpstreamStopping(UpstreamError, Transient):
    """The server, or a node of its cluster, stops or restarts, and gave the statement up."""

    code = "UPSTREAM_STOPPING"
    meaning = "the upstream is stopping or restarting"
    default_remedy = "Nothing: it is tried again with a new login. If it stays, look at the logs of the upstream."


class HistoryUnreadable(UpstreamError, Transient):
    """The server cannot read its own history now, or gives an empty one, as some releases do for minutes after a
    restart."""

    code = "HISTORY_UNREADABLE"
    about = "snapshot"
    meaning = "the upstream cannot read its past now"
    default_remedy = (
        "Nothing: the next attempt takes a new snapshot. If it stays, restart the upstream's nodes one by one, or "
        "`ccpr run NAME --allow-resync`."
    )


class SnapshotWaits(UpstreamError, Transient):
    """CREATE SNAPSHOT waits upstream for a lock: since 4.2 for each open transaction with an ALTER of the database."""

    code = "SNAPSHOT_WAITS"
    about = "snapshot"
    meaning = "CREATE SNAPSHOT waits upstream for the end of a transaction with an ALTER"
    default_remedy = (
        "Nothing: it is asked for again. If it stays, end the open transaction upstream: COMMIT, ROLLBACK, or "
        "KILL its connection (SHOW PROCESSLIST)."
    )


class SnapshotLimit(UpstreamError, Transient):
    """The account has as many snapshots as the upstream lets it have."""

    code = "SNAPSHOT_LIMIT"
    about = "snapshot"
    meaning = "the account may have no more snapshots"
    default_remedy = (
        "Drop some that nobody needs (SHOW SNAPSHOTS, DROP SNAPSHOT …), but none that begins with xr_; or ask "
        "account sys to raise the limit, in mo_catalog.mo_feature_limit."
    )


class ConnectionLost(UpstreamError, Transient):
    """The connection broke, timed out or got out of step during a statement that may be repeated."""

    code = "CONNECTION_LOST"
    meaning = "the connection to the upstream was lost"
    default_remedy = (
        "Nothing: the next statement connects again. If it stays, look at the network and at the read timeout."
    )


class ConnectionStalled(ConnectionLost):
    """An answer came too slowly ever to end."""

    code = "CONNECTION_STALLED"
    meaning = "the answer of the upstream came too slowly"
    default_remedy = (
        "Nothing: the next statement connects again. For a line that is this slow set CCPR_STALL_SECONDS to more "
        "seconds, or CCPR_STALL_BYTES to fewer bytes."
    )


class NotFlushedYet(UpstreamError, Transient):
    """Not all rows of the snapshot are on storage yet, so its object list would be incomplete."""

    code = "NOT_FLUSHED_YET"
    about = "snapshot"
    meaning = "the snapshot is not flushed yet"
    default_remedy = (
        "It is tried again. As user sys with role moadmin this makes it faster: SELECT mo_ctl('dn','checkpoint','')."
    )


class StatementFailed(UpstreamError, Transient):
    """The upstream answered with an error that this program does not know."""

    code = "STATEMENT_FAILED"
    default_remedy = (
        "If it stays, look up number and text in the upstream's documentation and log, and report it with this text."
    )


# -- the outcome is not known


class SnapshotOutcomeUnknown(UpstreamError, Unknown):
    """CREATE or DROP SNAPSHOT got no answer, or an error that leaves open whether it was executed. The recorded name is
    looked up."""

    code = "SNAPSHOT_OUTCOME_UNKNOWN"
    meaning = "it is not known whether the snapshot was created or dropped"
    default_remedy = (
        "Look it up: __++__internal_get_snapshot_ts <snapshot> <publisher> <publication>; or repeat with "
        "IF [NOT] EXISTS."
    )


# -- only a change helps; what the server says of it (Refused) is confirmed before it counts


class BadUri(UpstreamError, Terminal):
    """The text is not the URI of an upstream."""

    code = "BAD_URI"
    about = "URI"
    default_remedy = (
        "Write it as mysql://<account>#<user>:<password>@<host>:<port>, options as ?ssl-mode=…&ssl-ca=…; a ':' inside "
        "the user part as %3A."
    )


class BadWord(UpstreamError, Terminal):
    """The name contains a blank or a quote, which the upstream's internal commands cannot have."""

    code = "NAME_NOT_PASSABLE"
    about = "name"
    default_remedy = "Choose or rename to a name without blanks and quotes."


class BadLimit(UpstreamError, Terminal):
    """An environment variable that sets a limit has a value that is not a number."""

    code = "BAD_LIMIT"
    about = "environment variable"
    default_remedy = "Set it to a whole number, or unset it. docs/reference/configuration.md says what it is for."


class AccessDenied(UpstreamError, Refused):
    """The user, password, account or role of the login is wrong."""

    code = "ACCESS_DENIED"
    about = "upstream"
    meaning = "the upstream refused the login"
    default_remedy = "Check account, user and password of the URI mysql://<account>#<user>:<password>@<host>:<port>."


class TlsFailed(UpstreamError, Refused):
    """The encrypted connection that the URI asks for could not be made."""

    code = "TLS_FAILED"
    about = "upstream"
    meaning = "the encrypted connection could not be made"
    default_remedy = (
        "Check ssl-ca against the server's certificate and the host name against the names in it; ssl-mode says how "
        "much is checked."
    )


class NotPermitted(UpstreamError, Refused):
    """The login works, but it has no privilege for this."""

    code = "NOT_PERMITTED"
    about = "login or statement"
    meaning = "the upstream does not permit this to the login"
    default_remedy = (
        "Log in as an administrator of account sys (role moadmin, which MatrixOne gives to root and dump only): "
        "mysql://sys#root:<password>@<host>:<port>."
    )


class PublicationMissing(UpstreamError, Refused):
    """The publication does not exist in that account. RESTORE DATABASE and RESTORE ACCOUNT drop those of what they
    restore, silently."""

    code = "PUBLICATION_MISSING"
    about = "publication"
    meaning = "the publication does not exist"
    default_remedy = (
        "Make it again, as admin of the publishing account: CREATE PUBLICATION <name> DATABASE <database> ACCOUNT "
        "sys (ACCOUNT ALL if that account is sys). Restored tables are copied again, since they have other ids."
    )


class PublicationAmbiguous(UpstreamError, Terminal):
    """Several publications cover what is to be replicated."""

    code = "PUBLICATION_AMBIGUOUS"
    about = "database or table"
    default_remedy = "Name it: --publication NAME --publisher ACCOUNT, in SQL: PUBLICATION <name> OF <account>."


class AccountMissing(UpstreamError, Terminal):
    """The account that is to publish the database does not exist upstream."""

    code = "ACCOUNT_MISSING"
    about = "account"
    meaning = "the publishing account does not exist"
    default_remedy = "Look for the right name, as sys: SELECT account_id, account_name FROM mo_catalog.mo_account."


class NotCovered(UpstreamError, Terminal):
    """The publication does not publish this database or table. One of single tables loses a table that is dropped or
    restored, before MatrixOne 4.2 also one whose columns an ALTER changed."""

    code = "NOT_COVERED"
    about = "publication"
    meaning = "the publication does not cover it"
    default_remedy = "As admin of the publishing account: CREATE PUBLICATION <name> DATABASE <database> ACCOUNT sys."


class SnapshotGone(UpstreamError, Refused):
    """A recorded snapshot no longer exists upstream."""

    code = "SNAPSHOT_GONE"
    about = "snapshot"
    meaning = "the snapshot no longer exists upstream"
    default_remedy = "`ccpr plan NAME` shows what a full list would bring, `ccpr run NAME --plan ID` does that."


class SnapshotExists(UpstreamError, Terminal):
    """A snapshot of this name exists already."""

    code = "SNAPSHOT_EXISTS"
    about = "snapshot"
    meaning = "a snapshot of this name exists already"
    default_remedy = (
        "Take another name, or drop it: DROP SNAPSHOT IF EXISTS <name> FROM <publisher> PUBLICATION <publication>."
    )


class StaleRead(UpstreamError, Refused):
    """The upstream's history no longer reaches back to the older snapshot."""

    code = "STALE_READ"
    about = "snapshot"
    meaning = "the upstream no longer knows what changed since the older snapshot"
    default_remedy = "`ccpr plan NAME` shows what a full list would bring, `ccpr run NAME --plan ID` does that."


class ObjectGone(UpstreamError, Refused):
    """The upstream's garbage collection removed the object's file: no snapshot protected it."""

    code = "OBJECT_GONE"
    about = "object"
    meaning = "the object's file no longer exists upstream"
    default_remedy = (
        "`ccpr run NAME` compares with a new snapshot; if it stays, `ccpr resync NAME` compares with a full list."
    )


class ObjectSizeMismatch(UpstreamError, Terminal):
    """An object is longer or shorter than the object list says, or arrived in other chunks."""

    code = "OBJECT_SIZE_MISMATCH"
    about = "object"
    default_remedy = "`ccpr run NAME` lists and fetches it again; if it stays, report it with this text."


class DatabaseMissing(UpstreamError, Refused):
    """The database does not exist upstream: it was dropped or renamed, or its name is written differently."""

    code = "DATABASE_MISSING"
    about = "database"
    meaning = "the database does not exist upstream"
    default_remedy = (
        "Check its name (letter case counts); if it was dropped upstream on purpose: DROP SUBSCRIPTION <name>."
    )


class TableMissing(UpstreamError, Refused):
    """The table does not exist upstream: it was dropped or renamed, or its name is written differently."""

    code = "TABLE_MISSING"
    about = "table"
    meaning = "the table does not exist upstream"
    default_remedy = (
        "Check its name (letter case counts); if it was dropped upstream on purpose: DROP SUBSCRIPTION <name>."
    )


class PartitionedTable(UpstreamError, Terminal):
    """The table's objects cannot be listed: its partitions are not certain, or its name has capital letters, a dot, a
    quote or a backslash, or its database's a dot, which such lists do not take."""

    code = "PARTITIONED_TABLE"
    about = "table"
    meaning = "the upstream cannot list the objects of a partitioned table"
    default_remedy = (
        "Look at its partitions: SELECT relname FROM mo_catalog.mo_tables WHERE reldatabase = '<database>' AND relkind "
        "= 'partition'; create the table again if they are damaged. With `--consistency isolated` the others go on."
    )


class UnsupportedTable(UpstreamError, Terminal):
    """The table is an external or cluster table, or of another kind without objects."""

    code = "UNSUPPORTED_TABLE"
    about = "table"
    meaning = "this kind of table cannot be replicated"
    default_remedy = "Move it into another database, or subscribe to the other tables one by one (--table)."


class StatementUnknown(UpstreamError, Refused):
    """The server does not know this statement: it has another version, or is not MatrixOne at all."""

    code = "STATEMENT_UNKNOWN"
    meaning = "the upstream does not know this statement"
    default_remedy = "Check that the URI leads to a MatrixOne with cross-cluster publications: SELECT version()."


class UpstreamTooOld(UpstreamError, Refused):
    """The upstream is a MatrixOne without the replication interface (3.0 or older), or no MatrixOne."""

    code = "UPSTREAM_TOO_OLD"
    about = "upstream"
    meaning = "this MatrixOne lacks the replication interface"
    default_remedy = "Use MatrixOne 4.0.0-rc1 or later (4.2.0 works), or check where the URI leads."


class BadAnswer(UpstreamError, Refused):
    """The upstream's answer is not in the expected form."""

    code = "BAD_ANSWER"
    about = "answer of the upstream"
    default_remedy = "Report this text together with the answer to SELECT version()."


class AnswerTooLong(BadAnswer):
    """The answer was longer than any valid one."""

    code = "ANSWER_TOO_LONG"


class ObjectListTooLong(BadAnswer):
    """The upstream's object list is longer than this program reads into memory."""

    code = "OBJECT_LIST_TOO_LONG"
    about = "snapshot"
    default_remedy = (
        "If there really are so many objects, set CCPR_OBJECT_LIST_ROWS or CCPR_OBJECT_LIST_BYTES to more (a "
        "million rows take up to 1 GB of memory), or subscribe to tables one by one."
    )


class UnreadableObjectList(BadAnswer):
    """The upstream's object list is in a form that cannot be read."""

    code = "OBJECT_LIST_MALFORMED"


class BadCatalog(BadAnswer):
    """The upstream's catalog of tables and columns is in a form that cannot be read."""

    code = "CATALOG_MALFORMED"


# Of an upstream that does not answer a statement: it does not know it, refuses it, or says what cannot be.
NO_ANSWER = (StatementUnknown, StatementFailed, NotPermitted, TableMissing, DatabaseMissing, BadAnswer)
