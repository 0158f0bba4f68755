"""Which error of `ccpr.matrixone.client.errors` an error number and text mean.

Numbers say little: most errors of the server arrive as 20101 and are distinguished by their text (docs/upstream.md 2
and 12). So the rules below look at text and number together, one after another. The inner text decides, whatever is
wrapped around it: a server that is stopping says "failed to get database: context canceled" of one that is there. An
error that no rule knows is `StatementFailed`: it is tried again, with number and text kept.
"""

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from ccpr.matrixone.client import errors
from ccpr.matrixone.client.errors import UpstreamError
from ccpr.matrixone.client.limits import Stalled

_LONGEST_SUBJECT = 200
_LONGEST_TEXT = 600
_IDENTIFIED = re.compile(r"(identified\s+by\s+)('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")", re.I)
# Takes all characters up to a blank or a quote at once: in a hostile text each of many starts could search for an end.
_URI = re.compile(r"mysql://[^\s'\"]*", re.I)


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


def _admit(found: re.Match[str]) -> str:
    account, publisher, publication = found["account"], found["publisher"], found["publication"]
    clause = "ALL" if account == publisher else f"ADD {account}"
    return f"As admin of account {publisher}: ALTER PUBLICATION {publication} ACCOUNT {clause}."


def _publish(found: re.Match[str]) -> str:
    publisher, publication = found["publisher"], found["publication"]
    clause = "ALL" if publisher == "sys" else "sys"
    create = f"CREATE PUBLICATION {publication} DATABASE <database> ACCOUNT {clause}"
    return (
        f"As admin of account {publisher}: SHOW PUBLICATIONS; or {create}. A RESTORE of the database or account there "
        "drops its publications; the next run copies restored tables again, since they have other ids."
    )


@dataclass(frozen=True, slots=True)
class _Rule:
    """The first rule that matches decides. Either `text` or one of `numbers` is enough."""

    kind: type[UpstreamError]
    text: re.Pattern[str] | None = None
    numbers: frozenset[int] = frozenset()
    remedy: Callable[[re.Match[str]], str] | None = None


def _rule(
    kind: type[UpstreamError], text: str = "", *numbers: int, remedy: Callable[[re.Match[str]], str] | None = None
) -> _Rule:
    return _Rule(kind, re.compile(text, re.I | re.S) if text else None, frozenset(numbers), remedy)


_NAME = r"['\"`]?(?P<{}>[^\s'\"`]+?)['\"`]?"
# What a server or a node says while it stops, starts or loses another node. With these nothing is known of what the
# statement was about, so they come first.
_STOPPING = (
    r"context canceled|\bwait active\b|server shutdown in progress|txn commit status is unknown|lock table bind changed"
    r"|rolling restart|backend connection closed|broken pipe|connection re(?:set|fused)|rpc (?:client|stream) closed"
    r"|no available backend|cannot connect to backend"
)
_STOPPING_NUMBERS = (1053, 1815, 20501, 20502, 20503, 20504, 20505, 20634, 20635, 20638, 20702)
_HISTORY = (
    r"No available checkpoints for snapshot read|checkpoint gap\b|overlapping incremental checkpoint"
    r"|out-of-order checkpoint"
    r"|failed to query mo_indexes: .*\btable \S*mo_indexes\S* does not exist"
)
_BUSY = (
    r"GC is running|need retry|service unavailable|temporarily unavailable|temporary failure|rpc (?:error|timeout)"
    r"|backend|deadline exceeded|timeout|timed out|network error|invalid connection|bad connection"
    r"|too many connections|unexpected EOF|w-w conflict|write conflict|deadlock|try restarting transaction"
)
# Of MySQL; of MatrixOne for calls between nodes and transactions, and for locks (docs/upstream.md 12).
_BUSY_NUMBERS = (
    *(1040, 1043, 1205, 1213, 1226),
    *(20500, 20506, 20600, 20605, 20609, 20619, 20628, 20631),
    *(20701, 20703, 20705, 20706, 20709, 20710),
)
_RULES = (
    _rule(errors.UpstreamStopping, _STOPPING, *_STOPPING_NUMBERS),
    _rule(errors.HistoryUnreadable, _HISTORY),
    _rule(errors.NotPermitted, r"not allowed to execute publication internal command"),
    _rule(
        errors.NotPermitted,
        rf"account {_NAME.format('account')} does not have permission to access publication "
        rf"{_NAME.format('publisher')}\.{_NAME.format('publication')}(?=[\s,;:'\"`]|$)",
        remedy=_admit,
    ),
    _rule(errors.NotPermitted, r"does not have permission to access publication|not allowed to access publication"),
    _rule(
        errors.PublicationMissing,
        rf"publication {_NAME.format('publisher')}\.{_NAME.format('publication')} (?:does not|doesn't) exist",
        remedy=_publish,
    ),
    _rule(
        errors.PublicationMissing,
        r"publication \S+ (?:does not|doesn't) exist|there is no publication|publication \S+ is not exist",
    ),
    _rule(errors.SnapshotGone, r"find 0 snapshot records by name|snapshot not found|snapshot \S+ does not exist"),
    _rule(errors.StaleRead, r"stale read", 22101),
    _rule(errors.ObjectGone, r"file \S+ is not found", 20405),
    _rule(errors.PartitionedTable, r"panic\b.*\bnot implemented|invalid table name \S"),
    _rule(errors.UnsupportedTable, r"(?:external|cluster) table is not supported"),
    _rule(errors.SnapshotExists, r"duplicate entry .* for key '?\(?sname|snapshot \S+ already exists"),
    _rule(errors.SnapshotLimit, r"feature SNAPSHOT with scope \w+ has reached the limit"),
    _rule(errors.NotPermitted, r"do not have privilege to execute"),
    _rule(errors.DatabaseMissing, r"\bdatabase .+ (?:does not|doesn't) exist|unknown database", 1049, 1008),
    _rule(errors.TableMissing, r"\btable .+ (?:does not|doesn't) exist|no such table", 1146, 1051),
    _rule(errors.StatementUnknown, r"SQL parser error|SQL syntax|invalid .* command format", 1064, 1149),
    _rule(
        errors.AccessDenied,
        r"access denied|there is no (?:tenant|account|user|role)\b|check password failed"
        r"|has not been granted to the user|\bsuspended\b",
        1044,
        1045,
        1698,
    ),
    _rule(errors.UpstreamBusy, _BUSY, *_BUSY_NUMBERS),
    # The only inner text of a wrapper that says that what it names is not there: so for a database that is missing, and
    # for one of a past that cannot be read. Which of the two, the present says (`ccpr.pipeline.ends`).
    _rule(errors.DatabaseMissing, r"failed to get database: ExpectedEOB"),
    _rule(errors.HistoryUnreadable, r"\bExpectedEOB\b"),
)

# Numbers of the client library; 0 if it gave none (packets out of step).
_LOST = frozenset({0, 2006, 2013, 2014, 2027, 2055})
_NOT_CONNECTED = frozenset({2002, 2003, 2005})
_EMPTY_PAST = re.compile(r"\bExpectedEOB\b")  # the server's own error packet may have number 0
_TLS = 2026
_TLS_HANG_UP = ssl.SSLEOFError, ssl.SSLZeroReturnError  # the peer closed during the handshake: trying again may help
_MAY_HAVE_HAPPENED = frozenset({errors.UpstreamStopping, errors.UpstreamBusy})
_TIMED_OUT = "timed out"  # the client library's word for an answer that has not come
_CREATE_SNAPSHOT = re.compile(r"\s*create\s+snapshot\b", re.I)
_SNAPSHOT_CHANGE = re.compile(r"\s*(?:create|drop)\s+snapshot\b", re.I)


def classify(
    error: Exception, statement: str, *, connecting: bool = False, subject: str | None = None
) -> UpstreamError:
    """The typed error for what the client library raised; its `number` and `text` are the original ones.

    Parameters
    ----------
    error : what PyMySQL raised, including what it raises for answers that are not MySQL protocol.
    statement : the statement that ran; it decides whether the outcome is unknown.
    connecting : true while there is no session yet, so that nothing was executed.
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
        return errors.TlsFailed, None
    if number in _NOT_CONNECTED:
        return errors.UpstreamUnreachable, None
    if number == 0 and _EMPTY_PAST.search(text):
        return errors.HistoryUnreadable, None
    if number in _LOST:
        if connecting:
            return errors.UpstreamUnreachable, None
        if _SNAPSHOT_CHANGE.match(statement):
            waits = _CREATE_SNAPSHOT.match(statement) and _TIMED_OUT in text
            return (errors.SnapshotWaits if waits else errors.SnapshotOutcomeUnknown), None
        return (errors.ConnectionStalled if isinstance(error, Stalled) else errors.ConnectionLost), None
    for rule in _RULES:
        found = rule.text.search(text) if rule.text is not None else None
        if found is None and number not in rule.numbers:
            continue
        if rule.kind in _MAY_HAVE_HAPPENED and not connecting and _SNAPSHOT_CHANGE.match(statement):
            # Where it was given up, or waited for something inside the server, the commit may have succeeded.
            return errors.SnapshotOutcomeUnknown, None
        return rule.kind, rule.remedy(found) if rule.remedy is not None and found is not None else None
    if not connecting and _SNAPSHOT_CHANGE.match(statement):
        return errors.SnapshotOutcomeUnknown, None
    return errors.StatementFailed, None
