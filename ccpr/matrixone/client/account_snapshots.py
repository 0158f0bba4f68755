"""The names of the snapshots that an iteration over several databases has (decision account-snapshots).

One is of the whole account: the point's time is its time, and until it is dropped everything that was live then stays.
Account sys has it, under its own name. Through the publication, so in the publisher's account, come one of a database,
made just before it, with whose time later lists are compared; and one of each database, made after it, whose list is
taken and cut at its time. All names are made from the first one's, so recording that records the others.
"""

import re

_OF_ACCOUNT = re.compile(r"xr_[0-9a-f]+_[0-9]+_[0-9]+_[0-9a-f]{6}a")


def account_snapshot(name: str) -> str:
    """The name of an account's snapshot, from a new name of the ordinary kind."""
    return f"{name}a"


def is_of_account(name: str) -> bool:
    return _OF_ACCOUNT.fullmatch(name) is not None


def marker_of(name: str) -> str:
    """The snapshot whose time is just before that of the account's snapshot `name`. Of an ordinary snapshot: itself."""
    return f"{name[:-1]}b" if is_of_account(name) else name


def list_snapshot(name: str, database_id: int) -> str:
    """The snapshot of a database from whose list comes what the database had at the account's snapshot."""
    return f"{name[:-1]}c{database_id:x}"
