"""What an upstream can do, found by statements and by what its objects say of themselves.

Nothing is taken from the text of its version: builds without a tag take that from the name of a branch. Source:
docs/upstream.md, "What differs by release".
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.errors import (
    NO_ANSWER,
    AccountMissing,
    DatabaseMissing,
    NotPermitted,
    PublicationMissing,
    SnapshotGone,
    StatementFailed,
    StatementUnknown,
    TableMissing,
    UpstreamError,
    UpstreamTooOld,
)

if TYPE_CHECKING:  # the value is read wherever a state is shown; only asking needs these
    from ccpr.matrixone.client.upstream_session import Session
    from ccpr.matrixone.objects.reader import ObjectFile
    from ccpr.matrixone.objects.timestamp import Timestamp

_ANSWERED = (SnapshotGone, PublicationMissing, NotPermitted, AccountMissing, StatementFailed)
_LONGEST_VERSION = 200  # characters that are kept of the version's text
_ZERO_DATE = b"0000-00-00"
_RELAY = b"relay of MatrixOne"
CHECKSUM_BYTES = 16


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What was found out about an upstream; None is not known.

    Attributes
    ----------
    version : the server's own text, for people; nothing depends on it.
    zero_dates : `0000-00-00` is a date, as since 4.2.0.
    flush : the login may use mo_ctl, so that a snapshot can be flushed on demand.
    early_creates : an appendable object is created before the commit times of its rows, as since 4.2.0.
    abort_column : its objects say which rows are of aborted transactions, as after 4.2.0.
    relay : it is a mirror that is served: it says how old the data of a snapshot is.
    checksums : it computes checksums of its catalog, so that one that is known is not read again.
    """

    version: str | None = None
    zero_dates: bool | None = None
    flush: bool | None = None
    early_creates: bool | None = None
    abort_column: bool | None = None
    relay: bool | None = None
    checksums: bool | None = None

    @property
    def alters_see_snapshots(self) -> bool:
        """Whether an ALTER that copies looks for snapshots of account sys (docs/upstream.md, "Snapshots and ALTER since
        4.2"). No statement asks for it; it came with the zero dates."""
        return bool(self.zero_dates)

    @property
    def branch_diffs(self) -> bool:
        """Whether a DATA BRANCH DIFF between two snapshots answers for all types (docs/upstream.md, "Differences of
        rows"). No statement asks for it; it came with the zero dates."""
        return bool(self.zero_dates)

    def seen_in(self, file: "ObjectFile", created: "Timestamp") -> "Capabilities":
        """With what an appendable data object says that was created by the TN. Raises ObjectDamaged."""
        from ccpr.matrixone.objects.reader import NEVER
        from ccpr.matrixone.objects.visibility import first_and_last

        times = file.commit_timestamps(0) if file.blocks else None
        found = replace(self, abort_column=file.has_abort_column)
        if times is None:
            return found
        there = times[times["physical"] != NEVER]
        if not len(there):
            return found
        return replace(found, early_creates=created < first_and_last(there)[0])

    def describe(self) -> list[str]:
        """A phrase for each, for people."""
        words = {True: "yes", False: "no", None: "not known yet"}
        return [f"{what}: {words[getattr(self, name)]}" for name, what in _FACTS.items()]

    @classmethod
    def from_json(cls, value: object) -> "Capabilities":
        """Unknown keys are skipped: a later release may know more. Raises TypeError."""
        if not isinstance(value, dict):
            raise TypeError("capabilities are not a JSON object")
        version, facts = value.get("version"), {name: value.get(name) for name in _FACTS}
        if not (version is None or isinstance(version, str)) or not all(
            fact is None or isinstance(fact, bool) for fact in facts.values()
        ):
            raise TypeError("a capability is not of its type")
        return cls(version, **facts)


_FACTS = {
    "zero_dates": "zero dates",
    "flush": "flush on demand",
    "early_creates": "objects created before their commits",
    "abort_column": "rows of aborted transactions marked",
    "relay": "a relay",
    "checksums": "checksums of the catalog",
}


def check_interface(session: "Session") -> None:
    """Raises UpstreamTooOld if the upstream lacks what replication needs: the internal commands, or the column
    `rel_logical_id`."""
    try:
        session.read(upstream_sql.snapshot_timestamp("ccpr_no_snapshot", "sys", "ccpr_no_publication"))
    except StatementUnknown as error:
        if "command format" not in error.text:
            raise _too_old(session, "the internal commands", error) from error
    except _ANSWERED:
        pass  # that there is no such snapshot, or no right to ask, is an answer
    try:
        session.read(upstream_sql.PROBE_LOGICAL_ID)
    except (StatementUnknown, StatementFailed) as error:
        if isinstance(error, StatementUnknown) or "rel_logical_id" in error.text:
            raise _too_old(session, "mo_tables.rel_logical_id", error) from error
    except NotPermitted:
        pass  # what reads the publication says which privilege is missing


def probe(session: "Session", known: Capabilities | None = None) -> Capabilities:
    """What can be found out by statements, which change nothing, with what objects said before (`known`).

    Two statements; three more, whether the login may flush, whether it is a relay and gives checksums, if that is not
    known or the others have other answers. Raises Transient errors only.
    """
    known = known or Capabilities()
    version = (_cell(session, upstream_sql.SERVER_VERSION) or b"").decode(errors="replace")[:_LONGEST_VERSION] or None
    zero_dates = _cell(session, upstream_sql.PROBE_ZERO_DATE) == _ZERO_DATE
    if None not in (known.flush, known.relay, known.checksums) and (version, zero_dates) == (
        known.version,
        known.zero_dates,
    ):
        return known
    is_relay = _cell(session, upstream_sql.SERVER_KIND) == _RELAY
    flush, checksums = _may_flush(session), _gives_checksums(session)
    return replace(known, version=version, zero_dates=zero_dates, flush=flush, relay=is_relay, checksums=checksums)


def _too_old(session: "Session", missing: str, error: UpstreamError) -> UpstreamTooOld:
    version = (_cell(session, upstream_sql.SERVER_VERSION) or b"").decode(errors="replace")[:_LONGEST_VERSION]
    return UpstreamTooOld(
        f"this MatrixOne lacks the replication interface: it does not know {missing}",
        subject=f"upstream {session.endpoint.masked()}" + (f", which calls itself {version}" if version else ""),
        number=error.number,
        text=error.text,
    )


def _may_flush(session: "Session") -> bool:
    """The privilege is checked before the words; the last of these is wrong, so that nothing is flushed."""
    try:
        session.read(upstream_sql.PROBE_FLUSH)
    except (NotPermitted, StatementUnknown):
        return False
    except (StatementFailed, TableMissing, DatabaseMissing):
        return True
    return True


def _gives_checksums(session: "Session") -> bool:
    try:
        rows = session.read(upstream_sql.probe_checksum()).rows
    except NO_ANSWER:
        return False
    return (
        len(rows) == 1 and len(rows[0]) == len(upstream_sql.SUM_COLUMNS) and len(rows[0][-1] or b"") == CHECKSUM_BYTES
    )


def _cell(session: "Session", statement: str) -> bytes | None:
    """The only cell of the answer; None if there is none, or an error."""
    try:
        answer = session.read(statement, answers=(StatementFailed,))
    except NO_ANSWER:
        return None
    return answer.rows[0][0] if len(answer.rows) == 1 and len(answer.rows[0]) == 1 else None
