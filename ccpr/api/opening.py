"""A mirror to read from: its points, the tables of a point, a table by its name."""

import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from ccpr.api.scan import Scan
from ccpr.api.table import Selection, Table
from ccpr.api.values import (
    At,
    Definition,
    Location,
    Point,
    PointChanges,
    TableInfo,
    changes_by_point,
    plain_at,
    point_of,
)
from ccpr.base.errors import require
from ccpr.matrixone.objects.types import unreadable_columns
from ccpr.matrixone.schema import DEFAULT_READING, Reading
from ccpr.mirror.errors import BadOption, MirrorNotFound, QueryFailed, TableMissingInMirror
from ccpr.mirror.layout import HEAD
from ccpr.mirror.mirror import Mirror as StoredMirror
from ccpr.mirror.mirror import ReadMirror
from ccpr.mirror.open_store import open_store
from ccpr.mirror.points import Point as StoredPoint
from ccpr.mirror.points import TableRef
from ccpr.mirror.table_read import point_at, reading_of

if TYPE_CHECKING:
    import duckdb

    from ccpr.mirror.buckets import Credentials

_READERS = 8  # manifests are small: on an object store waiting is most of the time


def open_mirror(
    location: Location,
    *,
    storage_options: Mapping[str, str] | None = None,
    invalid_text: str = "escape",
    zero_dates: str = "null",
) -> "Mirror":
    """Open a mirror for reading.

    Parameters
    ----------
    location : the mirror's folder as a path or `file:///` URL, or `s3://bucket/prefix`, followed if needed by
        `?region=…&endpoint_override=host:port&scheme=http`, and never with credentials.
    storage_options : of an object store: `access_key_id`, `secret_access_key`, `session_token`, `region`,
        `endpoint_url`, each also with `aws_` before it. Without credentials those of the environment
        (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`), its files or the machine's role are used. They are kept in
        memory only, for this mirror, and are in no text that is made of it.
    invalid_text : how text is read that is not UTF-8, since MatrixOne stores any bytes in a text column. ``escape``:
        each byte that is not part of a character is a private character, U+10FE80 to U+10FEFF, so that nothing is
        lost; ``replace``: it is U+FFFD (not in the keys of changes); ``binary``: text columns are read as bytes;
        ``error``: reading ends with ValueRefused. Filters compare what is stored, whatever is chosen.
    zero_dates : what `0000-00-00` is read as: ``null``; ``keep``, the day or the microsecond before 0001-01-01, which
        Python's own dates do not have; or ``error``. To filters it is null.

    Returns
    -------
    Mirror
        What it reads is always the newest state of the files: a mirror that is written meanwhile can be read. Open it
        once for many tables: it keeps the points that were read last.

    Raises
    ------
    MirrorNotFound
        Nothing is there, or no point yet.
    BadName
        Not a path or a URL of these kinds.
    BadOption
        `invalid_text`, `zero_dates` or an option of the store is none of these.
    StoreFailed
        The object store does not answer, or refuses.
    """
    how = reading_of(invalid_text, zero_dates)
    url, credentials = os.fspath(location), None
    if storage_options:
        from ccpr.mirror.buckets import with_options  # loads a client library that a local mirror does not need

        url, credentials = with_options(url, storage_options)
    store = open_store(url, credentials=credentials)
    if store.size(HEAD) is None:
        raise MirrorNotFound("no point of a mirror is here", subject=store.url)
    return Mirror(ReadMirror(store), how, credentials)


class Mirror:
    """A mirror of tables of one upstream; made by `open_mirror`."""

    def __init__(
        self, mirror: StoredMirror, reading: Reading = DEFAULT_READING, credentials: "Credentials | None" = None
    ) -> None:
        self._mirror, self._reading, self._credentials = mirror, reading, credentials

    @property
    def url(self) -> str:
        """Where it is, without secrets."""
        return self._mirror.store.url

    def __repr__(self) -> str:
        return f"<ccpr.Mirror {self.url}>"

    def points(self) -> list[Point]:
        """The points that can be read, oldest first.

        Raises
        ------
        MirrorDamaged, StoreFailed
            A file of the mirror is missing, is not what was written, or cannot be read.
        """
        return [point_of(point) for point in self._mirror.points()]

    def point(self, at: At = None) -> Point:
        """The point that shows a time.

        Parameters
        ----------
        at : a number is always an lsn, a datetime always a time. A text is an lsn if it has digits only (from 10^15 on
            nanoseconds since 1970), the name of a held point if it begins with a letter, and else an ISO time such as
            ``2026-11-21T09:30``. A `Point` is itself. None = the newest point. A time without a zone is UTC. Of a time
            the point that was the newest then is taken; an lsn of an iteration that found nothing new reads as the
            point before it.

        Raises
        ------
        PointNotReached
            The mirror does not reach up to there.
        PointGone
            The point was there and is no longer retained.
        HoldMissing
            No point is held by that name.
        BadOption
            `at` is none of these.
        """
        return point_of(point_at(self._mirror, plain_at(at)))

    def tables(self, at: At = None) -> list[TableInfo]:
        """The tables that a point shows, by name. One small file is read a table.

        Parameters
        ----------
        at : see `point`.

        Raises
        ------
        PointNotReached, PointGone, BadOption, MirrorDamaged, StoreFailed
            See `point` and `points`.
        """
        from concurrent.futures import ThreadPoolExecutor  # brings logging, which nothing else here needs

        refs = sorted(point_at(self._mirror, plain_at(at)).tables.values(), key=lambda ref: ref.qualified_name)
        with ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(self._info, refs))

    def table(self, name: str, at: At = None) -> Table:
        """A table by its name, `database.table`; letter case counts.

        The name is looked up at once, and again at each point that is read: tables come, go and are renamed.

        Parameters
        ----------
        at : the point at which the table has this name, and which it shows where a call names no other; see `point`.
            None = it is looked up at the newest point, and always shows the newest one.

        Raises
        ------
        TableMissingInMirror
            The point has no such table. The remedy names those whose names are alike.
        PointNotReached, PointGone, BadOption, MirrorDamaged, StoreFailed
            See `point` and `points`.
        """
        point = point_at(self._mirror, plain_at(at))
        if at is not None or not point.knows(name):  # a table that lags now may be read at another point
            try:
                point.table(name)
            except TableMissingInMirror as error:
                remedy = f"{error.remedy} A table that another point shows: table({name!r}, at=…)."
                raise TableMissingInMirror(error.message, subject=error.subject, remedy=remedy) from None
        return Table(self._mirror, name, self._reading, None if at is None else point.lsn)

    def scan(self, name: str, at: At = None, **selection: Unpack[Selection]) -> Scan:
        """What is to be read of a table, as a value: ``table(name).scan(at, …)``."""
        return Table(self._mirror, name, self._reading).scan(at, **selection)

    def ddl(self, name: str, at: At = None) -> str:
        """CREATE TABLE of a table as of a point, as the upstream gave it; empty for an index table, which has none.

        Parameters
        ----------
        name : `database.table`.
        at : see `point`.

        Raises
        ------
        TableMissingInMirror, PointNotReached, PointGone, BadOption, MirrorDamaged, StoreFailed
            See `table`.
        """
        return self._mirror.manifest(point_at(self._mirror, plain_at(at)).table(name)).table.ddl

    def definitions(self, at: At = None) -> list[Definition]:
        """What the databases have besides tables at a point: views, sequences with their value, functions and grants,
        in an order that can be run.

        Parameters
        ----------
        at : see `point`.

        Raises
        ------
        PointNotReached, PointGone, BadOption, MirrorDamaged, StoreFailed
            See `point` and `points`.
        """
        found = self._mirror.definitions(point_at(self._mirror, plain_at(at)))
        return [
            Definition(each.database, getattr(one, "name", ""), one.kind, one.statements(each.database))
            for each in found
            for one in each.all()
        ]

    def history(self, table: str | None = None) -> list[PointChanges]:
        """What each point brought that can be read, oldest first. All that the oldest shows counts as changed there.

        Parameters
        ----------
        table : only the points that changed this one, or in which it went, `database.table`.

        Raises
        ------
        MirrorDamaged, StoreFailed
            See `points`.
        """
        return [
            one
            for one in changes_by_point(self._mirror.points())
            if table is None or table in one.changed or table in one.gone
        ]

    def to_duckdb(
        self, connection: "duckdb.DuckDBPyConnection | None" = None, at: At = None, *, views: bool = False
    ) -> "duckdb.DuckDBPyConnection":
        """All tables of a point in a connection of DuckDB, as `database.table`, and where there is one database as
        `table` too. Of index tables there are none.

        No row is copied: queries read the columns and blocks that they need, as streams. One small file is read a
        table.

        Parameters
        ----------
        connection : to add them to; views of these names are replaced. None = a new one in memory, whose time zone is
            UTC.
        at : see `point`.
        views : the upstream's views, too, in DuckDB's words as far as that goes (it needs sqlglot). What they answer
            can differ where the two compare and calculate differently. One that DuckDB cannot have, or that reads
            anything but tables and views of the point, is left out with a Python warning that says why.

        Raises
        ------
        ExtraMissing
            duckdb is not installed, or with `views` sqlglot.
        QueryFailed
            The names of two tables differ in letter case only, which DuckDB takes for one.
        PointNotReached, PointGone, BadOption, MirrorDamaged, StoreFailed
            See `point` and `points`.
        """
        point = point_at(self._mirror, plain_at(at))
        return _in_duckdb(self._mirror, point, self._reading, connection, views=views)

    def _info(self, ref: TableRef) -> TableInfo:
        columns = self._mirror.manifest(ref).table.user_columns
        names, numbers = tuple(column.name for column in columns), (ref.rows, ref.bytes, ref.objects, ref.changed_lsn)
        zero_dates = {column.name: column.zero_dates for column in columns if column.zero_dates}
        about = (unreadable_columns(columns), zero_dates)
        return TableInfo(ref.qualified_name, ref.table_id, ref.kind.value, names, *numbers, *about)


def _in_duckdb(
    mirror: StoredMirror,
    point: StoredPoint,
    reading: Reading,
    connection: "duckdb.DuckDBPyConnection | None",
    *,
    views: bool,
) -> "duckdb.DuckDBPyConnection":
    """As `Mirror.to_duckdb`."""
    require("duckdb", "duckdb")
    import duckdb

    from ccpr.mirror.sql import ZONE, PointDatabase

    if not isinstance(connection, duckdb.DuckDBPyConnection | None):
        message = f"{type(connection).__name__} is not a connection of DuckDB"
        raise BadOption(message, subject=mirror.store.url, remedy="Give what duckdb.connect() returns, or nothing.")
    databases = {ref.database for ref in point.tables.values()}
    only = next(iter(databases)) if len(databases) == 1 else ""
    shown = PointDatabase(mirror, point, only, reading, ZONE if connection is None else None, connection)
    shown.show_all()
    if views:
        _add_views(mirror, point, shown.connection, {name.lower() for name in shown.tables})
    return shown.connection


def _add_views(
    mirror: StoredMirror, point: StoredPoint, connection: "duckdb.DuckDBPyConnection", known: set[str]
) -> None:
    import duckdb

    from ccpr.matrixone.definitions import views_in_order
    from ccpr.mirror.duckdb_rows import quoted
    from ccpr.mirror.sql import create_view

    for each in mirror.definitions(point):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(each.database)}")
        for view in views_in_order(each.views):
            try:
                connection.execute(create_view(view, each.database, known))
            except (QueryFailed, duckdb.Error) as error:
                why = error.message if isinstance(error, QueryFailed) else " ".join(str(error).split())
                warnings.warn(f"view {each.database}.{view.name} is left out: {why:.300}", stacklevel=4)
                continue
            known.add(f"{each.database}.{view.name}".lower())
