"""The catalog that is not read, since it is known to be what the last point shows (decision catalog-by-checksum).

The upstream computes a checksum over the rows that would be read, 128 bits for the tables and as many for their
columns: an XOR of the MD5 of each row (docs/upstream.md, "Checksums of the catalog"). Two catalogs have the same one by
accident with a probability of 2^-128. On purpose it can be made: by one who may define tables in the published
database, and who could as well drop what is in it.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.capabilities import CHECKSUM_BYTES, Capabilities
from ccpr.matrixone.client.endpoint import Publication
from ccpr.matrixone.client.errors import NO_ANSWER, BadAnswer, HistoryUnreadable
from ccpr.matrixone.client.publication_offers import read_offer
from ccpr.matrixone.client.table_catalog import TEMPORARY, TableCatalog, kind_of, only_database
from ccpr.matrixone.client.upstream_session import Session, integer, text
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind, Table, zero_dates_of
from ccpr.pipeline.catalog_diff import CatalogDiff, digest_of, relations_of
from ccpr.pipeline.committing import IterationResult, Last
from ccpr.pipeline.findings import RELEASE, is_measured
from ccpr.pipeline.scope import is_whole
from ccpr.state.context import MOST_UNREPLICATED, Context, Settled, settled_digest
from ccpr.state.point_tables import DefinitionsOf
from ccpr.state.subscription import Subscription

_FORMAT = 1
_MOST_ZERO_DATES = 200  # tables that have some; the context is read and written in every iteration


def catalog_inputs(
    session: Session, subscription: Subscription, capabilities: Capabilities | None, at: Timestamp
) -> tuple[str, bool]:
    """A digest of all that the subscription's catalog at a time follows from, but the last point: the rows of the
    upstream's catalog, what the server prints texts of, what is published, what is asked for, and this release. Empty
    if the upstream cannot say it. And whether the subscription is of the whole database.

    Raises PublicationMissing, and what a lost connection raises.
    """
    if subscription.of_account or capabilities is None or not capabilities.checksums:
        return "", False
    publication, settings = subscription.publication, subscription.settings
    checksum = catalog_checksum(session, publication, subscription.database, at)
    if checksum is None:
        return "", False
    offer = read_offer(session, publication, at)
    inputs = [
        [_FORMAT, RELEASE],
        [subscription.endpoint.address, capabilities.version, capabilities.zero_dates, checksum],
        None if offer is None else [offer.database, offer.tables],
        [asdict(publication), subscription.database, subscription.table, *subscription.chosen],
        [settings.with_indexes, settings.consistency],
    ]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest(), is_whole(subscription, offer)


def known_catalog(
    session: Session,
    subscription: Subscription,
    context: Context,
    last: Last,
    at: Timestamp,
    inputs: str,
    *,
    whole: bool,
) -> CatalogDiff | None:
    """The catalog at a time, if what it follows from proves that the last point shows it; else None."""
    settled = context.settled
    if not inputs or settled is None or last.behind or settled.digest != settled_digest(inputs, last.tables.refs):
        return None

    def read() -> TableCatalog:
        found = read_names(session, subscription.publication, subscription.database, at)
        relations = digest_of(relations_of(found)) if whole else ""
        if not last.tables.keys() <= {table.id for table in found.tables} or relations != context.relations:
            message = f"the catalog at {at} is not that of its checksum"
            raise HistoryUnreadable(message, subject=f"database {subscription.database}")
        return found

    return CatalogDiff(
        cache(read),
        DefinitionsOf(last.tables),
        last.tables.refs,
        (),
        context.unreplicated,
        relations_digest=context.relations,
        is_whole=whole,
        known=settled,
        inputs=inputs,
    )


def settled_by(
    subscription: Subscription, lsn: int, context: Context, catalog: CatalogDiff, last: Last, result: IterationResult
) -> Settled | None:
    """That the point which is there after the commit shows the catalog. None if it does not, or if more than names and
    numbers would have to be known to say so.

    Parameters
    ----------
    lsn : of the iteration.
    context : as it is committed.
    last : the point before.
    """
    points = result.points or ()
    if not catalog.inputs or result.behind or result.failed:
        return None
    if catalog.known is not None and not points:
        return catalog.known
    after = last.tables.moved(lsn, points)
    digest = settled_digest(catalog.inputs, after.refs)
    if catalog.known is not None:
        moved = [point.table for point in points]
        names = {table.qualified_name for table in moved}
        rest = {name: columns for name, columns in catalog.known.zero_dates.items() if name not in names}
        return _settled(digest, {**rest, **zero_dates_of(moved)})
    recorded = {number: point.table for number, point in after.items()}
    same = (
        not catalog.is_partitioned
        and len(catalog.unreplicated) <= MOST_UNREPLICATED
        and all(kind != TEMPORARY for _, kind in catalog.unreplicated)
        and catalog.relations_digest == context.relations
        and recorded.keys() == catalog.tables.keys()
        and all(_is_same(table, recorded[number]) for number, table in catalog.tables.items())
        and all(is_measured(table) for table in recorded.values() if subscription.copies(table))
    )
    return _settled(digest, zero_dates_of(recorded.values())) if same else None


def _settled(digest: str, zero_dates: Mapping[str, Mapping[str, int]]) -> Settled | None:
    return Settled(digest, zero_dates) if len(zero_dates) <= _MOST_ZERO_DATES else None


def _is_same(table: Table, recorded: Table) -> bool:
    """Whether the catalog has of the table what the point has, with what does not count when tables are compared."""
    return (
        table == recorded
        and table.indexes == recorded.indexes
        and all(
            one.default_text == other.default_text for one, other in zip(table.columns, recorded.columns, strict=True)
        )
    )


_logger = logging.getLogger(__name__)


def catalog_checksum(session: Session, publication: Publication, database: str, at: Timestamp) -> str | None:
    """Another one whenever the catalog of the database has other rows. None if the upstream does not answer it, or has
    no table there: the catalog itself is read then.

    Raises what a lost connection raises.
    """
    what = publication.publisher_id, database, at.physical
    try:
        found = [_sum_of(session, ask(*what)) for ask in (upstream_sql.checksum_tables, upstream_sql.checksum_columns)]
    except NO_ANSWER as error:
        _logger.info("the catalog of %s is read as a whole: %s", database, error)
        return None
    return None if any(number == 0 for number, _ in found) else " ".join(f"{number}:{value}" for number, value in found)


def read_names(session: Session, publication: Publication, database: str, at: Timestamp) -> TableCatalog:
    """What `read_catalog` reads, without columns, texts and logical ids: of a database that is known to have neither
    temporary nor partitioned tables then. Raises DatabaseMissing, BadCatalog."""
    owner, tables, others = publication.publisher_id, list[Table](), list[tuple[str, str]]()
    number, _ = only_database(session.read(upstream_sql.select_databases(owner, database, at.physical)), at)
    answer = session.read(upstream_sql.select_names(owner, database, at.physical))
    for rel_id, relname, relkind in answer.select(*upstream_sql.NAME_COLUMNS):
        name, relation = text(relname, "relname"), text(relkind, "relkind")
        kind = kind_of(name, relation)
        tables.append(Table(integer(rel_id, f"rel_id of table {name}"), 0, database, name, kind, ()))
        if kind is Kind.OTHER:
            others.append((name, relation))
    tables.sort(key=lambda table: table.id)
    return TableCatalog(database, number, at, tuple(tables), unreplicated=tuple(sorted(others)))


def _sum_of(session: Session, statement: str) -> tuple[int, str]:
    """The number of rows and their checksum in hexadecimal digits. Raises BadAnswer."""
    rows = list(session.read(statement).select(*upstream_sql.SUM_COLUMNS))
    if len(rows) != 1 or len(rows[0][1] or b"") != CHECKSUM_BYTES:
        raise BadAnswer("it is not a number and a checksum of 16 bytes", subject="checksum of the catalog")
    number, value = rows[0]
    return integer(number, "number of rows", least=0), (value or b"").hex()
