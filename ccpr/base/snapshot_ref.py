"""A snapshot of ours upstream, as a value."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ccpr.matrixone.client.account_snapshots import marker_of
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
        """The name with which lists are compared: the snapshot's, but for an account's, see `account_snapshots`."""
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
