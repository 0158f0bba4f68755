"""What the upstream, or the way to it, can answer badly; and which of these an error number and text mean.

Numbers say little: most errors of the server arrive as 20101 and are told apart by their text (upstream-interface.md 2
and 12, native-behaviour.md 7.3). So the table below looks at text and number together, line by line. An error that no
line knows is `StatementFailed`: terminal, with number and text kept.
"""

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from matrixone.errors import CcprError, Terminal, Transient, Unknown

_LONGEST_SUBJECT = 200
_LONGEST_TEXT = 600


class UpstreamError(CcprError):
    """Root of what this package raises.

    Attributes
    ----------
    number : the server's (or the client library's) error number; 0 where there is none.
    text : the server's own words, at most 600 characters; empty where there are none.
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
        return _rebuild, (type(self), self.message, self.subject, self.remedy, self.number, self.text)


def _rebuild(
    kind: type[UpstreamError], message: str, subject: str, remedy: str, number: int, text: str
) -> UpstreamError:
    return kind(message, subject=subject, remedy=remedy, number=number, text=text)


# -- trying again may help


class UpstreamUnreachable(UpstreamError, Transient):
    """No connection could be made; nothing was sent."""

    code = "UPSTREAM_UNREACHABLE"
    about = "upstream"
    meaning = "no connection to the upstream could be made"
    default_remedy = "Check host and port of the URI (MatrixOne listens on 6001), that the server runs and no firewall stands between."


class UpstreamBusy(UpstreamError, Transient):
    """The server is there and says: not now. Too many connections, a lock, a collection that is running, a time-out
    inside the server."""

    code = "UPSTREAM_BUSY"
    meaning = "the upstream is busy"
    default_remedy = "Nothing: it is tried again. If it stays, look at the load and the logs of the upstream."


class ConnectionLost(UpstreamError, Transient):
    """The connection broke, timed out or fell out of step during a statement that may be repeated."""

    code = "CONNECTION_LOST"
    meaning = "the connection to the upstream was lost"
    default_remedy = (
        "Nothing: the next statement connects anew. If it stays, look at the network and at the read timeout."
    )


class NotFlushedYet(UpstreamError, Transient):
    """The snapshot's rows are not all on storage yet, so its object list would be incomplete."""

    code = "NOT_FLUSHED_YET"
    about = "snapshot"
    meaning = "the snapshot is not flushed yet"
    default_remedy = (
        "It is tried again. As user sys with role moadmin this hurries it: SELECT mo_ctl('dn','checkpoint','')."
    )


# -- the outcome is not known


class SnapshotOutcomeUnknown(UpstreamError, Unknown):
    """The connection broke in the middle of CREATE or DROP SNAPSHOT, and it is not known whether it was carried out.

    Both are written so that repeating them is safe, and the name was recorded before: the next attempt looks at the
    same name.
    """

    code = "SNAPSHOT_OUTCOME_UNKNOWN"
    meaning = "the connection was lost while a snapshot was created or dropped: it may have happened or not"
    default_remedy = "Look it up: __++__internal_get_snapshot_ts <snapshot> <publisher> <publication>; or repeat with IF [NOT] EXISTS."


# -- a person has to act


class BadUri(UpstreamError, Terminal):
    """The text is not the URI of an upstream."""

    code = "BAD_URI"
    about = "URI"
    default_remedy = "Write it as mysql://<account>#<user>:<password>@<host>:<port>, options as ?ssl-mode=…&ssl-ca=…; a ':' inside the user part as %3A."


class BadWord(UpstreamError, Terminal):
    """The name holds a blank or a quote, and the upstream's internal commands, which know no quoting, cannot carry it."""

    code = "NAME_NOT_PASSABLE"
    about = "name"
    default_remedy = "Choose or rename to a name without blanks and quotes: internal commands take names literally and cannot quote them."


class AccessDenied(UpstreamError, Terminal):
    """User, password, account or role of the login is wrong."""

    code = "ACCESS_DENIED"
    about = "upstream"
    meaning = "the upstream refused the login"
    default_remedy = "Check account, user and password of the URI mysql://<account>#<user>:<password>@<host>:<port>."


class TlsFailed(UpstreamError, Terminal):
    """The encrypted connection that the URI asks for could not be made."""

    code = "TLS_FAILED"
    about = "upstream"
    meaning = "the encrypted connection could not be made"
    default_remedy = "Check ssl-ca against the server's certificate and the host name against the names in it; ssl-mode says how much is checked."


class NotPermitted(UpstreamError, Terminal):
    """The login works, but may not do this."""

    code = "NOT_PERMITTED"
    about = "login or statement"
    meaning = "the upstream does not permit this to the login"
    default_remedy = (
        "Log in as an administrator of account sys (role moadmin, which MatrixOne gives to root and dump only): "
        "mysql://sys#root:<password>@<host>:<port>."
    )


class PublicationMissing(UpstreamError, Terminal):
    """The publication that the subscription names does not exist in that account."""

    code = "PUBLICATION_MISSING"
    about = "publication"
    meaning = "the publication does not exist"
    default_remedy = "As admin of the publishing account: CREATE PUBLICATION <name> DATABASE <database> ACCOUNT sys."


class PublicationAmbiguous(UpstreamError, Terminal):
    """Several publications cover what is to be replicated, and none was named."""

    code = "PUBLICATION_AMBIGUOUS"
    about = "database or table"
    default_remedy = "Name it: --publication NAME --publisher ACCOUNT, in SQL: PUBLICATION <name> OF <account>."


class AccountMissing(UpstreamError, Terminal):
    """The account that is to publish the database does not exist upstream."""

    code = "ACCOUNT_MISSING"
    about = "account"
    meaning = "the publishing account does not exist"
    default_remedy = (
        "Look for the right name, as a user of account sys: SELECT account_id, account_name FROM mo_catalog.mo_account."
    )


class NotCovered(UpstreamError, Terminal):
    """The publication exists but does not publish this database or table."""

    code = "NOT_COVERED"
    about = "publication"
    meaning = "the publication does not cover it"
    default_remedy = "As admin of the publishing account: CREATE PUBLICATION <name> DATABASE <database> ACCOUNT sys."


class SnapshotGone(UpstreamError, Terminal):
    """A snapshot that was recorded no longer exists upstream: somebody dropped it, or the upstream swept it."""

    code = "SNAPSHOT_GONE"
    about = "snapshot"
    meaning = "the snapshot no longer exists upstream"
    default_remedy = (
        "Nothing can be compared with it any more. `ccpr plan NAME` shows what a full list would bring, "
        "`ccpr run NAME --plan ID` does that."
    )


class SnapshotExists(UpstreamError, Terminal):
    """A snapshot of this name is there already."""

    code = "SNAPSHOT_EXISTS"
    about = "snapshot"
    meaning = "a snapshot of this name exists already"
    default_remedy = (
        "Take another name, or drop it: DROP SNAPSHOT IF EXISTS <name> FROM <publisher> PUBLICATION <publication>."
    )


class StaleRead(UpstreamError, Terminal):
    """The upstream's history no longer reaches back to the older snapshot."""

    code = "STALE_READ"
    about = "snapshot"
    meaning = "the upstream no longer knows what changed since the older snapshot"
    default_remedy = (
        "Only a full list can help: `ccpr plan NAME` shows what it would bring, `ccpr run NAME --plan ID` does that."
    )


class ObjectGone(UpstreamError, Terminal):
    """The object's file was collected upstream: no snapshot protected it."""

    code = "OBJECT_GONE"
    about = "object"
    meaning = "the object's file no longer exists upstream"
    default_remedy = (
        "`ccpr run NAME` compares with a new snapshot; if it stays, `ccpr resync NAME` compares with a full list "
        "and says first what it costs."
    )


class ObjectSizeMismatch(UpstreamError, Terminal):
    """An object came longer, shorter or in other pieces than its list said."""

    code = "OBJECT_SIZE_MISMATCH"
    about = "object"
    default_remedy = "`ccpr run NAME` lists and fetches it again; if it stays, the upstream's list and its files disagree: report it with this text."


class DatabaseMissing(UpstreamError, Terminal):
    """The database does not exist upstream: it was dropped or renamed, or its name is written differently."""

    code = "DATABASE_MISSING"
    about = "database"
    meaning = "the database does not exist upstream"
    default_remedy = (
        "Check its name (letter case counts); if it was dropped upstream on purpose: DROP SUBSCRIPTION <name>."
    )


class TableMissing(UpstreamError, Terminal):
    """The table does not exist upstream: it was dropped or renamed, or its name is written differently."""

    code = "TABLE_MISSING"
    about = "table"
    meaning = "the table does not exist upstream"
    default_remedy = (
        "Check its name (letter case counts); if it was dropped upstream on purpose: DROP SUBSCRIPTION <name>."
    )


class PartitionedTable(UpstreamError, Terminal):
    """The upstream cannot list the objects of a database that holds a partitioned table: it answers with an internal
    error."""

    code = "PARTITIONED_TABLE"
    about = "table"
    meaning = "the upstream cannot list the objects of a partitioned table, nor of a database that holds one"
    default_remedy = (
        "Find them: SELECT relname FROM mo_catalog.mo_tables WHERE reldatabase = '<database>' AND partitioned = 1; "
        "then replace them by unpartitioned tables, or move them into a database of their own."
    )


class UnsupportedTable(UpstreamError, Terminal):
    """The table is an external, cluster or other one that has no objects of its own, so there is nothing to copy."""

    code = "UNSUPPORTED_TABLE"
    about = "table"
    meaning = "this kind of table cannot be replicated"
    default_remedy = "Move it into another database, or subscribe to the other tables one by one (--table)."


class StatementUnknown(UpstreamError, Terminal):
    """The server does not know this statement: another version, or no MatrixOne at all."""

    code = "STATEMENT_UNKNOWN"
    meaning = "the upstream does not know this statement"
    default_remedy = "Check that the URI leads to a MatrixOne with cross-cluster publications: SELECT version()."


class StatementFailed(UpstreamError, Terminal):
    """The upstream answered with an error that this program does not know; its number and text are in the message."""

    code = "STATEMENT_FAILED"
    default_remedy = (
        "Look up the number and text in the upstream's documentation and log; if it stays, report it with this text."
    )


class BadAnswer(UpstreamError, Terminal):
    """The answer came, but not in the shape that it has to have."""

    code = "BAD_ANSWER"
    about = "answer of the upstream"
    default_remedy = (
        "The upstream may be of another version: report this text together with the answer to SELECT version()."
    )


class AnswerTooLong(BadAnswer):
    """The answer was cut off where it grew beyond what it can be."""

    code = "ANSWER_TOO_LONG"


class UnreadableObjectList(BadAnswer):
    """An object list came from the upstream in a shape that cannot be read."""

    code = "OBJECT_LIST_MALFORMED"


class BadCatalog(BadAnswer):
    """The tables or columns of the database came from the upstream in a shape that cannot be read."""

    code = "CATALOG_MALFORMED"


# -- from number and text to a class

_IDENTIFIED = re.compile(r"(identified\s+by\s+)('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")", re.I)
_URI = re.compile(
    r"mysql://[^\s'\"]*", re.I
)  # the whole run at once: a hostile text could make many starts each look for its end


def mask(text: str) -> str:
    """`text` without the passwords of URIs and of IDENTIFIED BY clauses."""
    return _URI.sub(_masked_uri, _IDENTIFIED.sub(r"\1'***'", text))


def _masked_uri(found: re.Match[str]) -> str:
    credentials, at, place = found[0].rpartition("@")
    user, colon, _ = credentials[len("mysql://") :].partition(":")
    return f"{credentials[: len('mysql://')]}{user}:***@{place}" if at and colon else found[0]


def describe(statement: str) -> str:
    """A statement as the subject of an error: masked, on one line, at most 200 characters."""
    line = " ".join(mask(statement).split())
    return f"statement {line if len(line) <= _LONGEST_SUBJECT else line[: _LONGEST_SUBJECT - 1] + '…'}"


def _admit(found: re.Match[str], _statement: str) -> str:
    account, publisher, publication = found["account"], found["publisher"], found["publication"]
    clause = "ALL" if account == publisher else f"ADD {account}"
    return f"As admin of account {publisher}: ALTER PUBLICATION {publication} ACCOUNT {clause}."


def _publish(found: re.Match[str], _statement: str) -> str:
    publisher, publication = found["publisher"], found["publication"]
    clause = "ALL" if publisher == "sys" else "sys"
    return f"As admin of account {publisher}: SHOW PUBLICATIONS; or CREATE PUBLICATION {publication} DATABASE <database> ACCOUNT {clause}."


@dataclass(frozen=True, slots=True)
class _Rule:
    """The first rule that fits decides. `text` and `numbers` are alternatives: either is enough."""

    kind: type[UpstreamError]
    text: re.Pattern[str] | None = None
    numbers: frozenset[int] = frozenset()
    remedy: Callable[[re.Match[str], str], str] | None = None


def _rule(
    kind: type[UpstreamError], text: str = "", *numbers: int, remedy: Callable[[re.Match[str], str], str] | None = None
) -> _Rule:
    return _Rule(kind, re.compile(text, re.I | re.S) if text else None, frozenset(numbers), remedy)


_NAME = r"['\"`]?(?P<{}>[^\s'\"`]+?)['\"`]?"
_BUSY = (
    r"GC is running|need retry|service unavailable|temporarily unavailable|temporary failure|rpc (?:error|timeout)|backend"
    r"|deadline exceeded"
    r"|timeout|timed out|connection re(?:set|fused)|broken pipe|network error|invalid connection|bad connection|too many connections"
    r"|unexpected EOF"
)
_RULES = (
    _rule(NotPermitted, r"not allowed to execute publication internal command"),
    _rule(
        NotPermitted,
        rf"account {_NAME.format('account')} does not have permission to access publication {_NAME.format('publisher')}\."
        rf"{_NAME.format('publication')}(?=[\s,;:'\"`]|$)",
        remedy=_admit,
    ),
    _rule(NotPermitted, r"does not have permission to access publication|not allowed to access publication"),
    _rule(
        PublicationMissing,
        rf"publication {_NAME.format('publisher')}\.{_NAME.format('publication')} (?:does not|doesn't) exist",
        remedy=_publish,
    ),
    _rule(
        PublicationMissing,
        r"publication \S+ (?:does not|doesn't) exist|there is no publication|publication \S+ is not exist",
    ),
    _rule(SnapshotGone, r"find 0 snapshot records by name|snapshot not found|snapshot \S+ does not exist"),
    _rule(StaleRead, r"stale read", 22101),
    _rule(ObjectGone, r"file \S+ is not found", 20405),
    _rule(PartitionedTable, r"panic\b.*\bnot implemented"),
    _rule(UnsupportedTable, r"(?:external|cluster) table is not supported"),
    _rule(SnapshotExists, r"duplicate entry .* for key '?\(?sname|snapshot \S+ already exists"),
    _rule(NotPermitted, r"do not have privilege to execute"),
    _rule(DatabaseMissing, r"\bdatabase .+ (?:does not|doesn't) exist|unknown database", 1049, 1008),
    _rule(TableMissing, r"\btable .+ (?:does not|doesn't) exist|no such table", 1146, 1051),
    _rule(StatementUnknown, r"SQL parser error|SQL syntax|invalid .* command format", 1064, 1149),
    _rule(
        AccessDenied,
        r"access denied|there is no (?:tenant|account|user|role)\b|check password failed|has not been granted to the user|\bsuspended\b",
        1044,
        1045,
        1698,
    ),
    _rule(UpstreamBusy, "", 1040, 1043, 1205, 1213, 1226),
    _rule(UpstreamBusy, _BUSY),
    # Wrappers whose inner text no line above knew. They stand last: a database must not look dropped because the
    # server was busy.
    _rule(SnapshotGone, r"failed to (?:resolve (?:against )?|query )snapshot"),
    _rule(DatabaseMissing, r"failed to get database"),
    _rule(TableMissing, r"failed to get table"),
)

_LOST = frozenset(
    {0, 2006, 2013, 2014, 2027, 2055}
)  # numbers of the client library; 0: it gave none (packets out of step)
_NOT_CONNECTED = frozenset({2002, 2003, 2005})
_TLS = 2026
_TLS_HANG_UP = ssl.SSLEOFError, ssl.SSLZeroReturnError  # the peer went away during the handshake: that passes
_SNAPSHOT_CHANGE = re.compile(r"\s*(?:create|drop)\s+snapshot\b", re.I)


def classify(
    error: Exception, statement: str, *, connecting: bool = False, subject: str | None = None
) -> UpstreamError:
    """The typed error for what the client library raised. Nothing is lost: `.number` and `.text` keep the original.

    Parameters
    ----------
    error : what PyMySQL raised, or what an answer that is no MySQL protocol made it raise.
    statement : the statement that ran; decides whether the outcome is unknown.
    connecting : true while no session exists yet: then nothing was executed.
    subject : what the error is about; by default the statement.
    """
    number, text = _number_and_text(error)
    about = subject or describe(statement)
    kind, remedy = _kind(error, number, text, statement, connecting)
    message = f"{kind.meaning} ({number}: {text})" if number else f"{kind.meaning} ({text})"
    return kind(message, subject=about, remedy=remedy, number=number, text=text)


def _number_and_text(error: Exception) -> tuple[int, str]:
    arguments = error.args
    if arguments and isinstance(arguments[0], int):
        number, text = arguments[0], str(arguments[1]) if len(arguments) > 1 else ""
    else:
        number, text = 0, str(error)
    text = " ".join(mask(text).split()) or type(error).__name__
    return number, text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def _kind(
    error: Exception, number: int, text: str, statement: str, connecting: bool
) -> tuple[type[UpstreamError], str | None]:
    cause = getattr(error, "original_exception", error)
    if number == _TLS or (isinstance(cause, ssl.SSLError) and not isinstance(cause, _TLS_HANG_UP)):
        return TlsFailed, None
    if number in _NOT_CONNECTED:
        return UpstreamUnreachable, None
    if number in _LOST:
        if connecting:
            return UpstreamUnreachable, None
        return (SnapshotOutcomeUnknown if _SNAPSHOT_CHANGE.match(statement) else ConnectionLost), None
    for rule in _RULES:
        found = rule.text.search(text) if rule.text is not None else None
        if found is None and number not in rule.numbers:
            continue
        if rule.kind is UpstreamBusy and found is not None and not connecting and _SNAPSHOT_CHANGE.match(statement):
            return SnapshotOutcomeUnknown, None  # a time-out inside the server: its commit may have gone through
        return rule.kind, rule.remedy(found, statement) if rule.remedy is not None and found is not None else None
    return StatementFailed, None
