"""The snapshots that an iteration takes beside its own, to list what its own shows. They are dropped when it ends, and
each name is recorded before its snapshot is made (decision snapshot-names-first)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from ccpr.matrixone.client import upstream_snapshots
from ccpr.matrixone.client.errors import ConnectionLost, SnapshotGone
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.upstream_session import Session
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.memory import Memory
from ccpr.pipeline.options import IterationOptions, Sessions
from ccpr.state.subscription import Subscription


@dataclass(slots=True)
class TemporarySnapshots:
    """Of one open snapshot.

    Attributes
    ----------
    sessions : the iteration's session, and another one, to flush tables by.
    memory : where names are recorded, and which of them the upstream has answered for.
    """

    sessions: Sessions
    subscription: Subscription
    options: IterationOptions
    memory: Memory
    _later: dict[str, SnapshotRef] = field(default_factory=dict)  # by database
    _followed: int | None = None  # the connection on which a snapshot was made after the flush

    @property
    def session(self) -> Session:
        return self.sessions.session

    def of_databases(self, ref: SnapshotRef, databases: Mapping[str, int]) -> dict[str, SnapshotRef]:
        """A snapshot of each of these databases of an account, later than `ref`, the account's. A run that takes the
        iteration up finds the same ones. Raises DatabaseMissing for one that was dropped."""
        publication, memory, taken = self.subscription.publication, self.memory, {}
        lists = memory.change(lambda context: context.with_lists(databases.values(), memory.clock()))
        for database, later in zip(databases, lists, strict=True):
            upstream_snapshots.create_snapshot(self.session, later.name, publication, database)
            memory.answered.add(later.name)
            at = upstream_snapshots.snapshot_timestamp(self.session, later.name, publication)
            if at <= ref.at:
                message = f"snapshot {later.name} is of {at}, not later than {ref.name}"
                raise ConnectionLost(message, subject=f"snapshot {later.name}")
            taken[database] = replace(later, physical=at.physical)
        return taken

    def wait_until_flushed(self, ref: SnapshotRef, catalog: CatalogDiff) -> None:
        """Until all rows of the open snapshot, and of those of its databases, are in objects."""
        on_demand = self.subscription.settings.flush == "on_demand"
        waited: dict[str, Callable[[], Collection[int]]] = {
            one.ref.name: one.ids.values for one in catalog.lists.values()
        }
        tables = sum(len(one.ids) for one in catalog.lists.values())
        if not waited:  # the ids of a catalog that was not read are asked for only to flush one by one
            waited = {ref.name: lambda: [table.id for table in catalog.catalog.tables]}
            tables = len(catalog.catalog.tables if catalog.known is None else catalog.named)
        for name, ids in waited.items():
            upstream_snapshots.wait_until_flushed(
                self.session,
                name,
                self.subscription.publication,
                requests=upstream_snapshots.flush_requests(self.sessions.connect, ids, tables=tables)
                if on_demand
                else (),
                timeout_seconds=self.options.timeouts.flush,
                sleep=self.options.sleep,
            )

    def later(self, database: str) -> SnapshotRef:
        """A second snapshot of the database, later than the flush of the first one; the same one each time."""
        if database not in self._later:
            self._later[database] = self.after_flush(database)
        return self._later[database]

    def after_flush(self, database: str, table: str | None = None) -> SnapshotRef:
        """A snapshot of the database, or of a table of it, later than the flush of the open one.

        A session's transaction may begin before what the session has seen of others, but never before its own last
        commit. So a snapshot is created only to be committed after the flush, and those after it are later than that.
        """
        if self._followed is None:
            opened = self.session.opened
            self._create(database)
            self._followed = opened
        later = self._create(database, table)
        at = upstream_snapshots.snapshot_timestamp(self.session, later.name, self.subscription.publication)
        if self.session.opened != self._followed:  # another connection may be to another node, which lags
            self._followed = None
            lost = SnapshotGone if table is None else ConnectionLost  # a full list takes its place; it is taken again
            raise lost("the connection was lost between two snapshots", subject=f"snapshot {later.name}")
        return replace(later, physical=at.physical)

    def _create(self, database: str, table: str | None = None) -> SnapshotRef:
        memory = self.memory
        ref = memory.change(lambda context: context.with_temporary(self.subscription.uid, memory.clock()))
        upstream_snapshots.create_snapshot(self.session, ref.name, self.subscription.publication, database, table)
        memory.answered.add(ref.name)
        return ref
