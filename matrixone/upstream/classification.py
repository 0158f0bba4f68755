"""Which error of `matrixone.upstream.errors` an error number and text mean.

Numbers say little: most errors of the server arrive as 20101 and are distinguished by their text (docs/upstream.md 2
and 12). So the rules below look at text and number together, one after another. An error that no rule knows is
`StatementFailed`: terminal, with number and text kept.
"""

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from matrixone.upstream.errors import (
    AccessDenied,
    ConnectionLost,
    ConnectionStalled,
    DatabaseMissing,
    NotPermitted,
    ObjectGone,
    PartitionedTable,
    PublicationMissing,
    SnapshotExists,
    SnapshotGone,
    SnapshotOutcomeUnknown,
    StaleRead,
    StatementFailed,
    StatementUnknown,
    TableMissing,
    TlsFailed,
    UnsupportedTable,
    UpstreamBusy,
    UpstreamError,
    UpstreamUnreachable,
)
from matrixone.upstream.progress import Stalled

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


def _admit(found: re.Match[str], _statement: str) -> str:
    account, publisher, publication = found["account"], found["publisher"], found["publication"]
    clause = "ALL" if account == publisher else f"ADD {account}"
    return f"As admin of account {publisher}: ALTER PUBLICATION {publication} ACCOUNT {clause}."


def _publish(found: re.Match[str], _statement: str) -> str:
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
    remedy: Callable[[re.Match[str], str], str] | None = None


def _rule(
    kind: type[UpstreamError], text: str = "", *numbers: int, remedy: Callable[[re.Match[str], str], str] | None = None
) -> _Rule:
    return _Rule(kind, re.compile(text, re.I | re.S) if text else None, frozenset(numbers), remedy)


_NAME = r"['\"`]?(?P<{}>[^\s'\"`]+?)['\"`]?"
_BUSY = (
    r"GC is running|need retry|service unavailable|temporarily unavailable|temporary failure|rpc (?:error|timeout)"
    r"|backend|deadline exceeded|timeout|timed out|connection re(?:set|fused)|broken pipe|network error"
    r"|invalid connection|bad connection|too many connections|unexpected EOF"
)
_RULES = (
    _rule(NotPermitted, r"not allowed to execute publication internal command"),
    _rule(
        NotPermitted,
        rf"account {_NAME.format('account')} does not have permission to access publication "
        rf"{_NAME.format('publisher')}\.{_NAME.format('publication')}(?=[\s,;:'\"`]|$)",
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
        r"access denied|there is no (?:tenant|account|user|role)\b|check password failed"
        r"|has not been granted to the user|\bsuspended\b",
        1044,
        1045,
        1698,
    ),
    _rule(UpstreamBusy, "", 1040, 1043, 1205, 1213, 1226),
    _rule(UpstreamBusy, _BUSY),
    # Wrappers whose inner text no rule above knows. They are last, so that a database does not look dropped because
    # the server was busy.
    _rule(SnapshotGone, r"failed to (?:resolve (?:against )?|query )snapshot"),
    _rule(DatabaseMissing, r"failed to get database"),
    _rule(TableMissing, r"failed to get table"),
)

# Numbers of the client library; 0 if it gave none (packets out of step).
_LOST = frozenset({0, 2006, 2013, 2014, 2027, 2055})
_NOT_CONNECTED = frozenset({2002, 2003, 2005})
_TLS = 2026
_TLS_HANG_UP = ssl.SSLEOFError, ssl.SSLZeroReturnError  # the peer closed during the handshake: trying again may help
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
        return TlsFailed, None
    if number in _NOT_CONNECTED:
        return UpstreamUnreachable, None
    if number in _LOST:
        if connecting:
            return UpstreamUnreachable, None
        if _SNAPSHOT_CHANGE.match(statement):
            return SnapshotOutcomeUnknown, None
        return (ConnectionStalled if isinstance(error, Stalled) else ConnectionLost), None
    for rule in _RULES:
        found = rule.text.search(text) if rule.text is not None else None
        if found is None and number not in rule.numbers:
            continue
        if rule.kind is UpstreamBusy and found is not None and not connecting and _SNAPSHOT_CHANGE.match(statement):
            return SnapshotOutcomeUnknown, None  # a timeout inside the server: the commit may have succeeded
        return rule.kind, rule.remedy(found, statement) if rule.remedy is not None and found is not None else None
    return StatementFailed, None
