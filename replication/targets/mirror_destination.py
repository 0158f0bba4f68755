"""The mirror as a destination: the first one, which an iteration writes and all others are fed from.

It takes objects, not rows, and is written by the iteration alone (`replication.iteration.iteration`), under the
subscription's lease; its locations are the upstream's snapshots, stored by the commit. So a session of it shows where
it stands, and everything that writes is refused.
"""

from collections.abc import Iterable, Sequence
from typing import NoReturn

from replication.checkpoint.store import NOWHERE, Location
from replication.mirror.mirror import Mirror
from replication.mirror.points import Point
from replication.targets.base import Applied, Capabilities, LoadPart, Registered, Rows, TableState, TargetTable
from replication.targets.errors import TargetUnsupported

CAPABILITIES = Capabilities(
    kind="mirror",
    takes_rows=False,
    alters=False,
    releases=False,
    resumes_load=True,
    reads_old_points=True,
    shares_its_place=False,
    consistent_across_tables=True,
)


class MirrorDestination:
    """See `replication.targets.base.Destination`. What takes rows or definitions raises TargetUnsupported."""

    capabilities = CAPABILITIES

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def open(self) -> None:
        return

    def close(self) -> None:
        return

    def tables(self) -> dict[int, Registered]:
        """What the newest point shows, with names as they are upstream; reads all manifests. Raises MirrorDamaged."""
        point = self._newest()
        if point is None:
            return {}
        location = Location(point.lsn, point.at.physical)
        sources = [self._mirror.manifest(ref).table for ref in point.tables.values()]
        return {
            table.id: Registered(TargetTable(table, table.database, table.name), TableState.LIVE, location)
            for table in sources
        }

    def points(self) -> dict[int, Location]:
        point = self._newest()
        return {} if point is None else dict.fromkeys(point.tables, Location(point.lsn, point.at.physical))

    def global_point(self) -> Location:
        """The newest point without tables behind is looked for by whoever needs one; this is the newest that can be
        read."""
        point = self._newest()
        return NOWHERE if point is None else Location(point.lsn, point.at.physical)

    def stuck(self) -> dict[int, str]:
        return {}

    def begin(self, location: Location) -> None:
        """Nothing: an iteration that is under way stands in the log."""

    def create(
        self,
        table: TargetTable,
        parts: Sequence[LoadPart],
        location: Location,
        *,
        replaces: Sequence[int] = (),
        again: bool = False,
    ) -> Applied:
        self._refuse()

    def apply(self, table_id: int, parts: Iterable[Rows], location: Location) -> Applied:
        self._refuse()

    def alter(self, tables: Sequence[TargetTable], statements: Sequence[str]) -> None:
        self._refuse()

    def drop(self, table_ids: Sequence[int]) -> None:
        self._refuse()

    def forget(self, table_ids: Sequence[int]) -> None:
        self._refuse()

    def release(self, table_id: int) -> tuple[str, ...]:
        self._refuse()

    def advance(self, location: Location, behind: Sequence[int] = ()) -> Location:
        """Where the mirror stands: its own commit has moved it."""
        return self.global_point()

    def _newest(self) -> Point | None:
        head = self._mirror.published_head()
        return None if head is None or head.newest_point is None else self._mirror.point()

    def _refuse(self) -> NoReturn:
        raise TargetUnsupported(
            "the mirror takes objects, and from an iteration alone",
            subject=f"mirror {self._mirror.store.url}",
            remedy="`ccpr run NAME`.",
        )
