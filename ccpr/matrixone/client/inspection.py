"""What can be found out about an upstream before anything is replicated from it (docs/requirements.md B13). Reads only.

What a server cannot answer is None: the answers are for messages, and replication needs none of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.errors import (
    NO_ANSWER,
)
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.table_catalog import TEMPORARY, kind_of, temporary_tables
from ccpr.matrixone.client.table_partitions import PARTITION_PREFIX
from ccpr.matrixone.client.upstream_session import Session, integer, text
from ccpr.matrixone.schema import Kind


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The difference between the clocks.

    Attributes
    ----------
    skew_seconds : our time minus the upstream's.
    uncertainty_seconds : the possible error: the upstream answers in whole seconds, and the answer took some time.
    """

    skew_seconds: float
    uncertainty_seconds: float


@dataclass(frozen=True, slots=True)
class DatabaseTables:
    """The relations of a database at present.

    Attributes
    ----------
    ids, names : of its ordinary and its partitioned tables.
    partitioned : names of partitioned tables.
    unreplicated : name and relkind of relations that are not replicated: v view, S sequence, e external, cluster,
        temporary.
    """

    ids: tuple[int, ...]
    names: tuple[str, ...]
    partitioned: tuple[str, ...]
    unreplicated: tuple[tuple[str, str], ...]


def server_version(session: Session) -> str | None:
    """The server's version text, e.g. ``8.0.30-MatrixOne-v3.0.0``."""
    return _word(session, upstream_sql.SERVER_VERSION)


def current_role(session: Session) -> str | None:
    """The current role of the login."""
    return _word(session, upstream_sql.CURRENT_ROLE)


def read_clock(session: Session, clock: Callable[[], float]) -> ClockReading | None:
    """The upstream's clock compared with ours (`clock`, seconds since 1970)."""
    before = clock()
    found = _word(session, upstream_sql.SERVER_TIME)
    after = clock()
    try:
        theirs = None if found is None else datetime.fromisoformat(found).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    if theirs is None:
        return None
    cut = 0.0 if "." in (found or "") else 0.5  # whole seconds are cut: half a second later is the best estimate
    return ClockReading((before + after) / 2 - theirs - cut, (after - before) / 2 + cut)


def read_tables(session: Session, publication: Publication, database: str) -> DatabaseTables | None:
    """The relations of the publisher's database at present."""
    try:
        answer = session.read(upstream_sql.select_tables(publication.publisher_id, database))
        found = [
            (
                integer(number, "rel_id"),
                text(name, "relname"),
                text(kind, "relkind"),
                text(parts, "partitioned") not in ("", "0"),
            )
            for number, name, kind, parts in answer.select("rel_id", "relname", "relkind", "partitioned")
        ]
        temporary = temporary_tables(session, publication, database, answer)
    except NO_ANSWER:
        return None
    found = [(number, name, TEMPORARY if number in temporary else kind, parts) for number, name, kind, parts in found]
    partitioned = tuple(sorted(name for _, name, _, parts in found if parts))
    tables = ((number, name) for number, name, kind, _ in found if kind_of(name, kind) is Kind.TABLE)
    ordinary = [one for one in tables if not (partitioned and one[1].startswith(PARTITION_PREFIX))]
    others = ((name, kind) for _, name, kind, _ in found if kind_of(name, kind) is Kind.OTHER)
    ids, names = tuple(number for number, _ in ordinary), tuple(name for _, name in ordinary)
    return DatabaseTables(ids, names, partitioned, tuple(sorted(others)))


def _word(session: Session, statement: str) -> str | None:
    """The only cell of the answer; None if there is none or another number of cells."""
    try:
        answer = session.read(statement)
        return text(answer.rows[0][0], statement) if len(answer.rows) == 1 and len(answer.rows[0]) == 1 else None
    except NO_ANSWER:
        return None
