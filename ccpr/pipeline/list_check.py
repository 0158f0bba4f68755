"""Whether every row of a de-duplicated object list is as an upstream's must be, before anything is believed.

Arrow alone does it: most lists are short and sound, and the import of a library for it would take longer than the rest
of an iteration. Dagster's assets ask pandera the same (`ccpr.dagster.checks`), and a test asks both.
Source: docs/requirements.md N2 (step 2), docs/format/object-file.md 9.5.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.stats import STATS_SIZE, are_sound, stats_columns
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.object_rows import count_objects
from ccpr.pipeline.errors import BadObjectList

# (list, time of the snapshot, what it is a list of); raises BadObjectList.
ListCheck: TypeAlias = Callable[[pa.Table, Timestamp, str], None]

POSITIVE = ("table_id", "size", "rows", "blocks", "create_physical")
NAME = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_[0-9]{5}$"
NOT_BEFORE, NOT_LATER = "no delete before its create", "nothing later than the snapshot"
_MOST_NAMED = 5


def check_list(listed: pa.Table, at: Timestamp, subject: str) -> None:
    """Check a list (LISTED_SCHEMA) of the snapshot at `at`. Raises BadObjectList with the first failures."""
    if not listed.num_rows:
        return
    count, failed = 0, list[str]()
    for column, rule, holds in _rules(listed, at):
        values = _failing(listed.column(column), holds)
        count += len(values)
        failed += [f"{column}: {rule} ({value})" for value in values.slice(0, _MOST_NAMED).to_pylist()]
    if count_objects(listed) != listed.num_rows:
        count += 1
        failed.append("name: each object once a table")
    if failed:
        more = f" and {count - _MOST_NAMED} more" if count > _MOST_NAMED else ""
        message = f"{count} checks failed: {'; '.join(failed[:_MOST_NAMED])}{more}"
        raise BadObjectList(message, subject=subject)
    check_stats(listed, subject)


def check_stats(listed: pa.Table, subject: str) -> None:
    """Check what the stats of a list say of each other; they have their length. Raises BadObjectList."""
    decoded = stats_columns(listed.column("stats").combine_chunks())
    wrong = decoded.filter(pc.invert(are_sound(decoded))).column("name").to_pylist()
    if wrong:
        message = f"{len(wrong)} objects have stats that contradict themselves: {', '.join(wrong[:3])}"
        raise BadObjectList(message, subject=subject)


def _rules(listed: pa.Table, at: Timestamp) -> Iterator[tuple[str, str, pa.ChunkedArray]]:
    """Of each rule the column that failures show, its name, and where it holds; null (a value is missing) is no."""
    for name in POSITIVE:
        yield name, "greater than 0", pc.greater(listed.column(name), 0)
    yield "name", "well formed", pc.match_substring_regex(listed.column("name"), NAME)
    yield "stats_bytes", f"equal to {STATS_SIZE}", pc.equal(listed.column("stats_bytes"), STATS_SIZE)
    yield "name_agrees", "true", listed.column("name_agrees")
    yield "is_tombstone", "given", pc.is_valid(listed.column("is_tombstone"))
    deleted, created = listed.column("delete_physical"), listed.column("create_physical")
    live = pc.is_null(deleted)
    in_order = pc.greater_equal(listed.column("delete_logical"), listed.column("create_logical"))
    same_moment = pc.and_kleene(pc.equal(deleted, created), in_order)
    yield "delete_physical", NOT_BEFORE, pc.or_kleene(live, pc.or_kleene(pc.greater(deleted, created), same_moment))
    gone_by = pc.or_kleene(live, pc.less_equal(deleted, at.physical))
    yield "create_physical", NOT_LATER, pc.and_kleene(pc.less_equal(created, at.physical), gone_by)


def _failing(values: pa.ChunkedArray, holds: pa.ChunkedArray) -> pa.Array:
    """The different values with which a rule does not hold."""
    if pc.all(holds, skip_nulls=False).as_py():
        return pa.nulls(0, values.type)
    return pc.unique(values.filter(pc.invert(pc.fill_null(holds, False))))
