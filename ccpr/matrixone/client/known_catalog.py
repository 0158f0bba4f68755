"""A catalog that is known: whether the upstream still has the same, and the names in it.

The upstream computes a checksum over the rows that would be read, 128 bits for the tables and as many for their
columns: an XOR of the MD5 of each row (docs/upstream.md, "Checksums of the catalog"). Two catalogs have the same one by
accident with a probability of 2^-128. On purpose it can be made: by one who may define tables in the published
database, and who could as well drop what is in it.
"""

import logging

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.capabilities import CHECKSUM_BYTES
from ccpr.matrixone.client.errors import (
    NO_ANSWER,
    BadAnswer,
)
from ccpr.matrixone.client.publication import Publication
from ccpr.matrixone.client.table_catalog import TableCatalog, kind_of, only_database
from ccpr.matrixone.client.upstream_session import Session, integer, text
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind, Table

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
