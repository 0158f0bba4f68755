"""Names of tables as they are typed: the database may be omitted where it is clear which one is meant."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ccpr.mirror.errors import TableMissingInMirror
from ccpr.service.errors import SeveralDatabases

if TYPE_CHECKING:
    from ccpr.mirror.mirror import Mirror
    from ccpr.mirror.points import Point, TableRef
    from ccpr.service.point_loading import PointSource

_SHOWN = 10
_LOOKED_AT = 1000  # points that are searched for a former name


def full_name(typed: str, known: Collection[str], database: str | None = None) -> str:
    """The `database.table` of a table that is called so, in the subscription's database if there are several. A name
    that is not known is given as it is, for the error of who looks it up. Raises TableMissingInMirror if it is not
    clear."""
    if typed in known:
        return typed
    fitting = [name for name in known if name.partition(".")[2] == typed]
    if len(fitting) > 1:
        narrowed = [name for name in fitting if name.partition(".")[0] == database]
        if not narrowed:
            shown = ", ".join(sorted(fitting)[:_SHOWN])
            raise TableMissingInMirror(
                f"{len(fitting)} databases have a table of this name", subject=f"table {typed}", remedy=f"Say: {shown}."
            )
        fitting = narrowed
    if not fitting and database is not None and "." not in typed:
        return f"{database}.{typed}"
    return fitting[0] if len(fitting) == 1 else typed


def table_of(mirror: "Mirror", point: "Point", typed: str) -> "TableRef":
    """The table of a point that is called so. Raises what `full_name` and `Point.table` raise; the error says where it
    is a view or sequence, or what the table of this name is called now."""
    full = full_name(typed, {ref.qualified_name for ref in point.tables.values()})
    try:
        return point.table(full)
    except TableMissingInMirror as error:
        if (known := _without_rows(mirror, point, typed)) is not None:
            raise known from None
        if (renamed := _renamed(mirror, point, typed)) is not None:
            raise renamed from None
        raise error


def _without_rows(mirror: "Mirror", point: "Point", typed: str) -> TableMissingInMirror | None:
    for each in mirror.definitions(point):
        for one in each.all():
            if one.kind != "grant" and typed in (one.name, f"{each.database}.{one.name}"):
                return TableMissingInMirror(
                    f"it is a {one.kind}: a mirror has its definition, and no rows",
                    subject=f"{one.kind} {each.database}.{one.name} at lsn {point.lsn}",
                    remedy=f"`ccpr tables NAME {one.name}` shows it.",
                )
    return None


def _renamed(mirror: "Mirror", point: "Point", typed: str) -> TableMissingInMirror | None:
    """Of a table that an earlier point shows by this name, and this one by another."""
    for earlier in reversed([one for one in mirror.points() if one.lsn < point.lsn][-_LOOKED_AT:]):
        for ref in earlier.tables.values():
            now = point.tables.get(ref.table_id)
            if typed in (ref.name, ref.qualified_name) and now is not None:
                return TableMissingInMirror(
                    f"it was renamed: at this point it is {now.qualified_name}",
                    subject=f"table {ref.qualified_name} at lsn {point.lsn}",
                    remedy=f"Say {now.qualified_name}; with --at {earlier.lsn} it still has this name.",
                )
    return None


def point_source(
    mirror: "Mirror", point: "Point", own: str | None, wanted: str | None, named: Sequence[str]
) -> "PointSource":
    """The named tables of one database of a point, or all of it: the one that is wanted, the subscription's own, or the
    only one. A name may have the database before it. Raises SeveralDatabases, TableMissingInMirror."""
    from ccpr.service.point_loading import PointSource

    found = sorted({ref.database for ref in point.tables.values()})
    if wanted is not None and wanted not in (*found, own):
        raise TableMissingInMirror(
            f"point {point.lsn} has no table of it",
            subject=f"database {wanted}",
            remedy=f"It has those of: {', '.join(found[:20]) or 'none'}. Letter case counts.",
        )
    if wanted is None and own is None and len(found) > 1:
        raise SeveralDatabases(
            f"they are restored one by one, and there are {len(found)}",
            subject=f"point {point.lsn}",
            remedy=f"Name one with --database: {', '.join(found[:20])}.",
        )
    database = wanted or own or next(iter(found), "")
    there = {ref.name for ref in point.tables.values() if ref.database == database}  # one may be called `a.b`
    names = (name if name in there else name.removeprefix(f"{database}.") for name in named)
    return PointSource(mirror, point, database, tuple(names))
