"""Which databases are meant: one, or several of an account."""

from dataclasses import dataclass
from typing import Annotated

import typer

from ccpr.matrixone.client.publication import EVERYTHING
from ccpr.state.patterns import NamePatterns

Database = Annotated[
    str | None,
    typer.Option(help="The database to replicate; or several of an account: 'shop,crm', 'shop_*', '*' for all."),
]
Account = Annotated[
    str | None,
    typer.Option(help="The account whose databases they are; without --database all of them. The same as --publisher."),
]


@dataclass(frozen=True, slots=True)
class Scope:
    """`database` is EVERYTHING if several are meant: those that match `databases`, patterns joined by commas."""

    database: str
    databases: str
    publisher: str | None

    @classmethod
    def of(cls, database: str | None, account: str | None, publisher: str | None) -> "Scope | None":
        """From the options; None if they name neither a database nor an account."""
        if account is not None and publisher not in (None, account):
            raise typer.BadParameter("--account and --publisher are the same, and differ", param_hint="--publisher")
        if database is None and account is None:
            return None
        wanted, owner = EVERYTHING if database is None else database, account or publisher
        if wanted == EVERYTHING:
            return cls(EVERYTHING, "", owner)
        if is_several(wanted):
            return cls(EVERYTHING, wanted, owner)
        return cls(wanted, "", owner)


def is_several(database: str) -> bool:
    """Whether it is patterns, and not a name. A database with such a name needs `ccpr sql`."""
    try:
        return database != "" and NamePatterns.of(database).names != (database.lower(),)
    except ValueError:
        return True  # `check_settings` says what is wrong with it
