"""Step 2: the upstream's object list, compared with what the mirror has.

A list is joined with table ids, cut to the subscription's scope, de-duplicated (a delete wins) and checked
(`ccpr.pipeline.list_check`) before anything is believed. Source: docs/requirements.md N2 (step 2),
docs/format/object-file.md 9.5, docs/upstream.md 5.7.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.client.endpoint import Publication
from ccpr.matrixone.client.errors import ObjectListTooLong
from ccpr.matrixone.client.limits import ListLimit, list_limit
from ccpr.matrixone.client.object_answers import object_list
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.objects.stats import are_appendable, without_unknown_flags
from ccpr.mirror.object_rows import (
    LISTED_SCHEMA,
    ObjectDiff,
    count_objects,
    decode_stats,
    first_of_each_name,
    in_order,
    join_objects,
    matched,
)
from ccpr.pipeline.errors import BadObjectList

_CREATE_TIME = ("create_physical", "create_logical")
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class NamedSequences:
    """Which sequences lists name: their objects are not copied, but one that has a new one may have a new value.

    Attributes
    ----------
    asked : names of all of them, without databases.
    found : those that were named, or stand where no list would have named them.
    """

    asked: frozenset[str]
    found: set[str] = field(default_factory=set)

    def note(self, batches: Batches, *, appendable: bool = False) -> Batches:
        """The same batches; with `appendable` only rows of appendable objects count."""
        if not self.asked:
            return batches
        return self._noted(batches, pa.array(sorted(self.asked), pa.string()), appendable=appendable)

    def _noted(self, batches: Batches, asked: pa.Array, *, appendable: bool) -> Batches:
        for batch in batches:
            rows = batch.filter(pc.is_in(batch.column("table").cast(pa.string()), asked))
            if appendable and rows.num_rows:
                rows = rows.filter(are_appendable(rows.column("stats").cast(pa.binary())))
            self.found.update(rows.column("table").to_pylist())
            yield batch

    def not_listed(self, names: Iterable[str]) -> None:
        """No list is read of these tables, sequences among them."""
        self.found.update(self.asked.intersection(names))


def ask_list(
    session: Session,
    publication: Publication,
    snapshot: str,
    against: str | None,
    table_ids: Mapping[str, Mapping[str, int | None]],
    subject: str,
    *,
    appendable: bool = False,
    through: Callable[[Batches], Batches] = iter,
) -> pa.Table:
    """`read_list` of the list that the upstream gives of a snapshot, against another or in full. `through` is called
    with the batches before they are read."""
    limit = list_limit()
    batches = object_list(session, snapshot, publication, against=against, longest=limit.bytes)
    return read_list(through(batches), table_ids, subject, limit.rows, appendable=appendable)


def read_list(
    batches: Iterable[pa.RecordBatch],
    table_ids: Mapping[str, Mapping[str, int | None]],
    subject: str,
    most_rows: int = ListLimit().rows,
    *,
    appendable: bool = False,
) -> pa.Table:
    """The list (OBJECT_LIST_SCHEMA batches) as LISTED_SCHEMA; with `appendable` only the rows of appendable objects.

    `table_ids` maps database and table name to the id at the snapshot, None for a table that is out of scope; a name
    that is in neither is an error: list and catalog are of the same snapshot. Raises ObjectListTooLong as soon as more
    than `most_rows` rows are in scope; of those out of scope only one batch at a time is in memory.
    """
    parts, kept = [], 0
    for batch in batches:
        if not batch.num_rows:  # as in most iterations
            continue
        in_scope, ids = _join_ids(batch, table_ids, subject)
        batch = batch.append_column("table_id", ids).filter(in_scope)
        if appendable:
            batch = batch.filter(are_appendable(batch.column("stats").cast(pa.binary())))
        kept += batch.num_rows
        if kept > most_rows:
            raise ObjectListTooLong(f"the object list has more than {most_rows} rows", subject=subject)
        parts.append(decode_stats(batch))
    return pa.Table.from_batches(parts, LISTED_SCHEMA)


def deduplicate(listed: pa.Table, subject: str) -> pa.Table:
    """One row an object and table; where a list has several, a delete wins. Conflicting stats are an error, but for
    flags that are not known; so are create times, but for those of appendable objects, which may change
    (`_lasting_times`)."""
    if not listed.num_rows:
        return listed
    keys = ["table_id", "name"]
    unique = count_objects(listed)
    if unique == listed.num_rows:
        return listed
    facts = ["stats", "is_tombstone", *_CREATE_TIME]
    lasting = _lasting_times(listed)
    place = lasting.schema.get_field_index("stats")
    lasting = lasting.set_column(place, "stats", without_unknown_flags(lasting.column("stats")))
    if lasting.group_by(keys + facts).aggregate([]).num_rows != unique:
        counts = (
            lasting.select(keys + facts)
            .group_by(keys + facts)
            .aggregate([])
            .group_by(keys)
            .aggregate([([], "count_all")])
        )
        sample = counts.filter(pc.greater(counts.column("count_all"), 1)).slice(0, 3).column("name").to_pylist()
        raise BadObjectList(f"the list contradicts itself about {', '.join(map(str, sample))}", subject=subject)
    order = [
        ("table_id", "ascending", "at_end"),
        ("name", "ascending", "at_end"),
        ("delete_physical", "ascending", "at_end"),
        *((name, "ascending", "at_end") for name in _CREATE_TIME),
    ]
    ranked = listed.take(pc.sort_indices(listed, sort_keys=order))
    first = _first_of_each(ranked, keys)
    return ranked.filter(first)


def check_known(listed: pa.Table, known: pa.Table, subject: str) -> None:
    """An object is never written over: what a list says of one that a manifest has must be what the manifest says, but
    for the create time of an appendable object (`_lasting_times`). Raises BadObjectList."""
    if not (listed.num_rows and known.num_rows):
        return
    theirs, ours = (_lasting_times(rows) for rows in matched(listed, known))
    for name in ("size", "rows", "is_tombstone", *_CREATE_TIME):
        differ = theirs.filter(pc.not_equal(theirs.column(name), ours.column(name)))
        if differ.num_rows:
            sample = ", ".join(sorted(differ.column("name").to_pylist())[:3])
            raise BadObjectList(f"the list gives another {name} of {sample} than the point before", subject=subject)


def conflicting_objects(added: pa.Table, stored: Mapping[str, int]) -> list[str]:
    """Names of objects that tables share and that are not described alike everywhere: by the rows (LISTED_SCHEMA) of
    several tables, or by a size (`stored`, by name) with which the mirror has it for others. An object is there once,
    and never written over.
    """
    if not added.num_rows:
        return []
    rows = added.select(["name", "size", "rows", "blocks", "appendable"])
    first, own = first_of_each_name(rows)
    others = rows.take(first[own])
    names = set[str]()
    for fact in rows.column_names[1:]:
        names.update(rows.filter(pc.not_equal(rows.column(fact), others.column(fact))).column("name").to_pylist())
    ours = rows.filter(pc.is_in(rows.column("name"), pa.array(list(stored), pa.string())))
    sizes = zip(ours.column("name").to_pylist(), ours.column("size").to_pylist(), strict=True)
    return sorted(names | {name for name, size in sizes if size != stored[name]})


def diff_objects(listed: pa.Table, known: pa.Table, *, complete: set[int]) -> ObjectDiff:
    """Compare a de-duplicated, checked list with the manifests of the tables in it.

    Parameters
    ----------
    known : LISTED_SCHEMA, the live objects that the mirror's last point has of the same tables.
    complete : ids of tables whose list is complete (a full list) and not a difference: what it does not name is
        gone.

    An object that was born and is gone within the interval is in neither result and is never fetched (decision
    identity-by-id). A row that repeats what the last point already knows (the interval is closed at both ends)
    changes nothing.
    """
    if not (listed.num_rows or complete):
        return ObjectDiff(listed, listed)
    live = listed.filter(pc.is_null(listed.column("delete_physical")))
    dead = listed.filter(pc.is_valid(listed.column("delete_physical")))
    added = join_objects(live, known, "left anti")
    removed = join_objects(known, dead, "left semi")
    if complete:
        of_complete = known.filter(pc.is_in(known.column("table_id"), pa.array(sorted(complete), pa.int64())))
        vanished = join_objects(join_objects(of_complete, live, "left anti"), dead, "left anti")
        removed = pa.concat_tables([removed, vanished])
    return ObjectDiff(in_order(added), in_order(removed))


def _join_ids(
    batch: pa.RecordBatch, table_ids: Mapping[str, Mapping[str, int | None]], subject: str
) -> tuple[pa.Array, pa.Array]:
    """For each row: is it in scope, and its table id. The look-up is by distinct name: one step a table, not a row."""
    text = pc.binary_join_element_wise(batch.column("database"), batch.column("table"), "\0")
    codes = text.dictionary_encode()
    names = [(value or "\0").split("\0", 1) for value in codes.dictionary.to_pylist()]
    unknown = [name for name in names if name[1] not in table_ids.get(name[0], {})]
    if unknown or codes.null_count:
        shown = ", ".join(".".join(name) for name in unknown[:3]) or "a table without a name"
        message = f"the list names {shown}, which the catalog of the same snapshot does not have"
        raise BadObjectList(message, subject=subject)
    ids = pa.array([table_ids[database][table] for database, table in names], pa.int64()).take(codes.indices)
    return pc.is_valid(ids), ids


def _lasting_times(rows: pa.Table) -> pa.Table:
    """Rows without the create times that may change: since 4.2 the replay of the write-ahead log moves the create time
    of an appendable object from its preparation to its first commit (docs/upstream.md 5.7)."""
    for name in _CREATE_TIME:
        place = rows.schema.get_field_index(name)
        times = pc.if_else(rows.column("appendable"), pa.scalar(0, pa.int64()), rows.column(name))
        rows = rows.set_column(place, rows.schema.field(place), times)
    return rows


def _first_of_each(ranked: pa.Table, keys: list[str]) -> pa.Array:
    """True for the first row of each run of equal keys."""
    later, earlier = ranked.slice(1), ranked.slice(0, ranked.num_rows - 1)
    same = [pc.equal(later.column(key), earlier.column(key)).combine_chunks() for key in keys]
    both = same[0]
    for mask in same[1:]:
        both = pc.and_(both, mask)
    return pa.concat_arrays([pa.array([True]), pc.invert(both)])
