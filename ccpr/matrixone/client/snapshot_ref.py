"""A snapshot of ours upstream, as a value, and the names of those that an iteration over several databases has
(decision account-snapshots).

One is of the whole account: the point's time is its time, and until it is dropped everything that was live then stays.
Account sys has it, under its own name. Through the publication, so in the publisher's account, come one of a database,
made just before it, with whose time later lists are compared; and one of each database, made after it, whose list is
taken and cut at its time. All names are made from the first one's, so recording that records the others.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import integer_of, text_of


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """One of our snapshots upstream. Its name is stored before it is created, so a crash leaves no unknown snapshot.

    Attributes
    ----------
    name : ``xr_<uid>_<lsn>_<attempt>_<random>``; the random part keeps a history that was lost and the one that
        replaces it apart.
    lsn, attempt : the iteration, and how many names it had used before.
    physical : its time on the upstream's clock in nanoseconds, None until it was read.
    taken_at : when it was created, in seconds since 1970 on our clock. `taken_at - physical` is the offset of the two
        clocks (decision lag-is-age).
    age : how old its data was then, in seconds, of a relay's, which may have had nothing new for long; else None.
    """

    name: str
    lsn: int
    attempt: int
    physical: int | None = None
    taken_at: float | None = None
    age: float | None = None

    @property
    def at(self) -> Timestamp:
        if self.physical is None:
            raise ValueError(f"the time of snapshot {self.name} has not been read")
        return Timestamp(self.physical)

    @property
    def marker(self) -> str:
        """The name with which lists are compared: the snapshot's, but for an account's, see above."""
        return marker_of(self.name)

    @property
    def work(self) -> str:
        """The folder of the iteration's intermediate results."""
        parts = self.name.split("_", 4)
        return "-".join([f"work/{self.lsn}-{self.attempt}", *parts[4:]])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SnapshotRef":
        """Raises ValueError, KeyError or TypeError for what `to_json` would not have written."""
        physical, taken_at, age = value.get("physical"), value.get("taken_at"), value.get("age")
        for number in (taken_at, age):
            if isinstance(number, bool) or not isinstance(number, int | float | None):
                raise TypeError("a time is not a number")
        at = None if physical is None else integer_of(physical)
        return cls(text_of(value["name"]), integer_of(value["lsn"]), integer_of(value["attempt"]), at, taken_at, age)


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
