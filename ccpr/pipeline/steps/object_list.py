"""Step 2: the object list of the snapshot, checked, and compared with the manifests of the tables in it."""

import logging
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.client.errors import HistoryUnreadable
from ccpr.mirror.errors import TableMissingInMirror
from ccpr.pipeline.appendable import FullList, LaterSnapshot
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.databases import still_there
from ccpr.pipeline.errors import BaseSnapshotLost
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.listing import Listing
from ccpr.pipeline.object_list import NamedSequences
from ccpr.pipeline.options import Resync
from ccpr.pipeline.results import Listed
from ccpr.pipeline.table_lists import DatabaseLists, TableLists

_logger = logging.getLogger(__name__)


def list_objects(iteration: Iteration, record: IterationRecord, catalog: CatalogDiff) -> Listed:
    """Wait until the snapshot is flushed, then read its list. Raises what `Listing.diff` raises, and
    TableMissingInMirror for a table to resync that is not there."""
    memory, temporary, resync = iteration.memory, record.temporary, iteration.options.resync
    asked = None if resync is None else resync.table
    if asked not in {None, *(table.qualified_name for table in catalog.named.values())}:
        raise TableMissingInMirror(
            "there is no such table at the snapshot", subject=f"table {asked}", remedy="Check the spelling."
        )
    with still_there(iteration.subscription):
        temporary.wait_until_flushed(record.snapshot, catalog)
        known = {number: ref.objects for number, ref in iteration.last.tables.refs.items()}
        sequences = NamedSequences(catalog.sequences())
        later, one_by_one = LaterSnapshot(temporary, FullList(memory.context.list_rows, known), sequences), None
        if catalog.lists:
            one_by_one = DatabaseLists(temporary, catalog.lists, later, TableLists(temporary))
        elif catalog.is_partitioned:
            one_by_one = TableLists(temporary)
            sequences.not_listed(sequences.asked)
        listing = Listing(
            temporary, catalog, iteration.last, iteration.mirror, iteration.committer.ledger, later, one_by_one
        )
        base = None if memory.context.by_rows else memory.context.current  # no list names what we wrote
        listed = listing.diff(record.snapshot, base, resync)
    memory.context = replace(memory.context, list_rows=later.full_list.rows)  # remembered with the commit
    return listed


def check_allowed(iteration: Iteration, listed: Listed, objects: pa.Table) -> None:
    """Raises BaseSnapshotLost or HistoryUnreadable, which say what a full list would fetch (COPY_INPUT), if the list
    has to be a full one and that was not allowed."""
    if not listed.base_lost or iteration.allow_resync or iteration.options.resync == Resync():
        return
    subject, size = f"subscription {iteration.subscription.name}", pc.sum(objects.column("size")).as_py() or 0
    if size > iteration.subscription.settings.resync_limit:
        kind = HistoryUnreadable if listed.base_is_there else BaseSnapshotLost
        raise kind(
            f"{listed.base_lost}; comparing with a full list instead would fetch {objects.num_rows} objects, {size} "
            "bytes",
            subject=subject,
        )
    _logger.warning("%s: a full list takes the place of a lost snapshot, %d bytes to fetch", subject, size)
