"""Step 2's questions to the upstream: which list is asked for, against what, and what it means for the tables of the last point."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute

from matrixone.errors import CcprError
from matrixone.upstream import snapshots
from matrixone.upstream.errors import SnapshotGone, StaleRead
from matrixone.upstream.objects import object_list
from matrixone.upstream.retry import with_retry
from matrixone.upstream.session import Session
from replication.applying import known_objects
from replication.catalog_diff import CatalogDiff, ChangeKind
from replication.context import SnapshotRef
from replication.errors import BaseSnapshotLost
from replication.mirror import Mirror
from replication.object_diff import ObjectDiff, deduplicate, diff_objects, read_list, validate
from replication.points import TablePoint
from replication.subscription import Subscription

pc: Any = pyarrow.compute  # its functions are made at import, where type checkers do not see them


@dataclass(frozen=True, slots=True)
class Listing:
    """One iteration's view: the catalog at its snapshot, and the tables of the last point by id."""

    session: Session
    subscription: Subscription
    catalog: CatalogDiff
    before: Mapping[int, TablePoint]
    mirror: Mirror

    def diff(self, ref: SnapshotRef, base: SnapshotRef | None, *, allow_resync: bool) -> ObjectDiff:
        """From the last point, whose snapshot is `base`, to `ref`. Raises BadObjectList, BaseSnapshotLost."""
        if base is None:
            return self._compare(ref, None, set(self.catalog.tables))
        new = {change.table.id for change in self.catalog.changes if change.kind in (ChangeKind.CREATED, ChangeKind.REPLACED)}
        try:
            diff = self._compare(ref, base, set())
        except (SnapshotGone, StaleRead) as error:
            return self._without_base(ref, base, error, allow_resync=allow_resync)
        # A difference shows what was written since the base. A table that we do not know yet may hold older objects (CLONE): its part comes
        # from a full list.
        return diff if not new else _merge(diff, self._compare(ref, None, new), new)

    def _without_base(self, ref: SnapshotRef, base: SnapshotRef, cause: CcprError, *, allow_resync: bool) -> ObjectDiff:
        """The base snapshot is gone. A full list shows what is missing, never silently (architecture 11)."""
        snapshots.snapshot_timestamp(self.session, ref.name, self.subscription.publication)  # raises if our own snapshot is gone
        full = self._compare(ref, None, set(self.catalog.tables) | set(self.before))
        if allow_resync:
            return full
        size = pc.sum(full.added.column("size")).as_py() or 0
        raise BaseSnapshotLost(
            f"the upstream no longer has snapshot {base.name} of the last point; comparing with a full list instead would fetch "
            f"{full.added.num_rows} objects, {size} bytes",
            subject=f"subscription {self.subscription.name}",
        ) from cause

    def _compare(self, ref: SnapshotRef, base: SnapshotRef | None, complete: set[int]) -> ObjectDiff:
        """The list of `ref`, against `base` or in full, beside the manifests. In full, only the tables in `complete` are looked at."""
        catalog = self.catalog
        names: dict[str, dict[str, int | None]] = {self.subscription.database: dict.fromkeys(name for name, _ in catalog.unreplicated)}
        for table in catalog.catalog.tables:
            in_scope = table.id in catalog.tables and (base is not None or table.id in complete)
            names.setdefault(table.database, {})[table.name] = table.id if in_scope else None
        against, subject = base.name if base else None, f"snapshot {ref.name}"

        def read() -> pa.Table:
            return read_list(object_list(self.session, ref.name, self.subscription.publication, against=against), names, subject)

        listed = deduplicate(with_retry(read), subject)
        validate(listed, ref.at, subject)
        touched = complete | set(pc.unique(listed.column("table_id")).to_pylist())
        known = known_objects(self.mirror, (self.before[table_id] for table_id in sorted(touched) if table_id in self.before))
        return diff_objects(listed, known, complete=complete)


def _merge(diff: ObjectDiff, full: ObjectDiff, new: set[int]) -> ObjectDiff:
    """The difference, with the tables in `new` as the full list has them."""
    ids = pa.array(sorted(new), pa.int64())

    def others(rows: pa.Table) -> pa.Table:
        return rows.filter(pc.invert(pc.is_in(rows.column("table_id"), ids)))

    return ObjectDiff(pa.concat_tables([others(diff.added), full.added]), pa.concat_tables([others(diff.removed), full.removed]))
