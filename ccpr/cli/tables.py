"""Names of tables as they are typed: the database may be omitted where it is clear which one is meant."""

from collections.abc import Collection

from ccpr.mirror.errors import TableMissingInMirror

_SHOWN = 10


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
