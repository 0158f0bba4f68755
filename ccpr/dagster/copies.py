"""A table's copy in a target: a database, or a lake, where it has its database's name."""

from ccpr.matrixone.schema import Table
from ccpr.mirror.points import TableRef
from ccpr.state.targets import Target
from ccpr.targets.address import address_of


def copy_database(target: Target, database: str) -> str:
    """The database of the copy of a table; `database` is the table's upstream."""
    return database if target.lake is not None else address_of(target).database


def has_copy(target: Target, table: Table | TableRef) -> bool:
    """Whether the target takes the table."""
    if target.lake is None or not target.takes(table.database):
        return target.takes(table.database)
    from ccpr.lake.lake_options import LakeOptions

    return LakeOptions.from_text(target.lake).patterns.match(table.name)
