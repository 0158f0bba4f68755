"""Results of an open iteration: found again as they were, by who asks the same of the same snapshot."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from ccpr.base.errors import Failure
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff
from ccpr.pipeline.copying import COPY_OUTPUT, CopyReport
from ccpr.pipeline.findings import Findings
from ccpr.pipeline.options import Resync
from ccpr.pipeline.results import Listed, StepResults, sweep_results
from ccpr.pipeline.step_names import Step, step_under_way

REF = SnapshotRef("xr_abc_4_1", 4, 1, physical=1000)
FAILURE = Failure("OBJECT_GONE", "it is gone", "object x", "look")


def rows(*table_ids: int) -> pa.Table:
    values = [{"table_id": table_id, "name": f"o{table_id}", "size": 10 * table_id} for table_id in table_ids]
    return pa.Table.from_pylist(values, LISTED_SCHEMA)


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(LocalStore(tmp_path))


LISTED = Listed(ObjectDiff(rows(1, 2), rows(3)), rows(4), frozenset({2}), {7: FAILURE}, "lost")


def test_what_was_listed_is_found_again(mirror: Mirror) -> None:
    work = StepResults(mirror, REF, None)
    assert work.listed() is None
    assert step_under_way(REF, mirror.store) is Step.OBJECT_LIST
    work.keep_listed(LISTED)
    assert StepResults(mirror, REF, None).listed() == LISTED
    assert step_under_way(REF, mirror.store) is Step.COPY
    assert step_under_way(None, mirror.store) is None
    assert step_under_way(replace(REF, physical=None), mirror.store) is Step.CATALOG


@pytest.mark.parametrize(
    ("ref", "resync"),
    [
        (REF, Resync()),
        (REF, Resync("db.t")),
        (replace(REF, physical=1001), None),
        (replace(REF, name="xr_other_4_1"), None),
    ],
)
def test_results_of_another_question_are_not_taken(ref: SnapshotRef, resync: Resync | None, mirror: Mirror) -> None:
    StepResults(mirror, REF, None).keep_listed(LISTED)
    assert StepResults(mirror, ref, resync).listed() is None


def test_what_was_copied_is_void_with_the_list_that_it_was_copied_for(mirror: Mirror) -> None:
    work = StepResults(mirror, REF, None)
    found = Findings({2: 5}, {-1: "metadata version 4"})
    values = [
        ("a", 5, bytes(32), True, None, found.to_text(), True, b"sums"),
        ("b", 6, None, False, FAILURE.to_text(), None, False, None),
    ]
    columns = [
        pa.array(column, field.type) for column, field in zip(zip(*values, strict=True), COPY_OUTPUT, strict=True)
    ]
    report = CopyReport.of(pa.Table.from_arrays(columns, schema=COPY_OUTPUT))
    work.keep_listed(LISTED)
    work.keep_copied(report)
    copied = work.copied()
    assert copied is not None
    assert copied.rows.column("name").to_pylist() == ["a"]
    assert copied.failures == {"b": FAILURE}
    assert (copied.objects_fetched, copied.bytes_fetched) == (1, 5)
    assert Findings.from_text(copied.found["a"]) == found
    assert step_under_way(REF, mirror.store) is Step.APPLY
    work.keep_listed(LISTED)
    assert work.copied() is not None, "the list is there already"
    StepResults(mirror, REF, None).keep_listed(LISTED)
    assert work.copied() is None


OTHERWISE = '{"is_of": [1, "xr_abc_4_1", 1000, ""], "failures": {"x": 1}, "rebuilt": [], "base_lost": ""}'


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "nothing", OTHERWISE, OTHERWISE.replace('{"x": 1}', "{}").replace("[]", "[1.5]")]
)
def test_results_that_are_not_as_they_were_written_are_told(text: str, mirror: Mirror) -> None:
    work = StepResults(mirror, REF, None)
    work.keep_listed(LISTED)
    mirror.store.delete(f"{REF.work}/about.json")
    mirror.store.put(f"{REF.work}/about.json", [text.encode()])
    with pytest.raises(MirrorDamaged, match=REF.work):
        work.listed()


def test_a_table_that_fails_leaves_no_trace_in_what_is_applied() -> None:
    rest = LISTED.without({2: FAILURE, 4: FAILURE})
    assert rest.diff.added.column("table_id").to_pylist() == [1]
    assert rest.diff.removed.column("table_id").to_pylist() == [3]
    assert rest.refetched.num_rows == 0
    assert (rest.rebuilt, rest.repaired) == (frozenset(), set())
    assert set(rest.failures) == {2, 4, 7}


def test_only_results_of_earlier_iterations_are_swept(mirror: Mirror) -> None:
    for folder in ("work/3-0", "work/4-0", "work/4-1", "work/4-2", "work/5-0", "work/10-0"):
        mirror.store.put(f"{folder}/x", [b"x"])
    sweep_results(mirror, REF)
    assert sorted(mirror.store.names("work")) == ["work/10-0/x", "work/4-1/x", "work/4-2/x", "work/5-0/x"]
