"""Names of tables as they are typed: the database may be left out where it is clear which one is meant."""

from collections.abc import Collection


def full_name(typed: str, known: Collection[str], database: str | None = None) -> str:
    """The `database.table` of a table that is called so, in the subscription's database if there are several. A name
    that is not known, or not clear, is given as it is, for the error of who looks it up."""
    if typed in known:
        return typed
    fitting = [name for name in known if name.partition(".")[2] == typed]
    if len(fitting) > 1:
        fitting = [name for name in fitting if name.partition(".")[0] == database]
    if not fitting and database is not None and "." not in typed:
        return f"{database}.{typed}"
    return fitting[0] if len(fitting) == 1 else typed
