"""Copying what the ledger knows already: the mirror's points are made of certain bytes, and nothing else may take
their place."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectMismatch
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.mirror.layout import object_path
from ccpr.mirror.local_store import LocalStore
from ccpr.pipeline import copying
from ccpr.pipeline.copying import COPY_INPUT, COPY_OUTPUT, CopyJob, copy_in_process, copy_known, copy_objects
from ccpr.pipeline.findings import Findings
from tests.matrixone.objects.building import column_entry, object_file, stats_bytes
from tests.support.values import a_subscription

NAMES = [f"00000000-0000-7000-8000-{number:012}_00000" for number in range(4)]
UPSTREAM = {name: name.encode() * 3 for name in NAMES}
OBJECTS = pa.table([NAMES, [len(UPSTREAM[name]) for name in NAMES], [bytes(154)] * 4], schema=COPY_INPUT)
TRUE = {name: hashlib.sha256(content).digest() for name, content in UPSTREAM.items()}


class Engine:
    """Copies out of UPSTREAM what is not there; what is there it takes for sound, as an engine does that finds a
    flipped bit of a value."""

    def __init__(self, store: LocalStore) -> None:
        self.store, self.fetched = store, []

    def __call__(self, job: CopyJob, objects: pa.Table) -> Iterator[pa.RecordBatch]:
        rows = []
        for name in objects.column("name").to_pylist():
            fetch = self.store.size(object_path(name)) is None
            if fetch:
                self.fetched.append(name)
                self.store.put(object_path(name), [UPSTREAM[name]])
            content = self.store.read(object_path(name)).to_pybytes()
            rows.append(
                {
                    "name": name,
                    "size": len(content),
                    "sha256": hashlib.sha256(content).digest(),
                    "fetched": fetch,
                    "failure": None,
                    "found": None,
                }
            )
        yield pa.RecordBatch.from_pylist(rows, schema=COPY_OUTPUT)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def test_what_was_damaged_in_the_mirror_is_fetched_again_and_the_rest_is_not(store: LocalStore) -> None:
    engine = Engine(store)
    store.put(object_path(NAMES[0]), [UPSTREAM[NAMES[0]]])
    store.put(object_path(NAMES[1]), [b"\0" + UPSTREAM[NAMES[1]][1:]])
    job = CopyJob.of(a_subscription(), store.url)
    report = copy_known(job, OBJECTS, engine, {name: TRUE[name] for name in NAMES[:3]}, store)
    assert engine.fetched == [NAMES[2], NAMES[3], NAMES[1]]
    assert {row["name"]: row["sha256"] for row in report.rows.to_pylist()} == TRUE
    assert {row["name"] for row in report.rows.to_pylist() if row["fetched"]} == set(NAMES[1:])
    assert report.failed.num_rows == 0
    assert store.read(object_path(NAMES[1])).to_pybytes() == UPSTREAM[NAMES[1]]


def test_other_bytes_upstream_under_a_known_name_are_an_error_and_leave_nothing(store: LocalStore) -> None:
    known = {NAMES[1]: bytes(32)}
    job = CopyJob.of(a_subscription(), store.url)
    with pytest.raises(ObjectMismatch, match="other bytes under this name") as raised:
        copy_known(job, OBJECTS, Engine(store), known, store)
    assert NAMES[1] in raised.value.subject
    assert store.size(object_path(NAMES[1])) is None
    report = copy_known(replace(job, collect_failures=True), OBJECTS, Engine(store), known, store)
    assert {row["name"] for row in report.rows.to_pylist()} == {NAMES[0], *NAMES[2:]}
    assert {name: failure.code for name, failure in report.failures.items()} == {NAMES[1]: "OBJECT_MISMATCH"}
    assert report.failed.to_pylist()[0]["sha256"] is None
    assert report.failed.schema == report.rows.schema == COPY_OUTPUT


def test_an_error_of_one_share_ends_the_others_with_the_object_that_they_are_at(
    monkeypatch: pytest.MonkeyPatch, store: LocalStore
) -> None:
    failed, copied = threading.Event(), []

    def endless(job: CopyJob, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if NAMES[1] in batches[0].column("name").to_pylist():
            failed.set()
            raise ObjectMismatch("not the one", subject="object")
        for number in range(100_000):
            failed.wait(30)
            copied.append(number)
            yield pa.RecordBatch.from_pylist([{"name": str(number), "size": 1, "fetched": True}], schema=COPY_OUTPUT)

    monkeypatch.setattr(copying, "copy_objects", endless)
    job = replace(CopyJob.of(a_subscription(), store.url), budget=copying.Budget(sessions=2))
    with pytest.raises(ObjectMismatch):
        list(copy_in_process(job, OBJECTS))
    assert len(copied) < 100_000


def _column(data: bytes) -> dict[int, tuple[int, bytes]]:
    return {0: (22, column_entry(22, data, len(data) // 4))}


FILE = object_file([(2000, _column(bytes(range(250)) * 32))])
STATS = stats_bytes(FILE, rows=2000, blocks=1)
NAME = ObjectStats.parse(STATS).name


def _copied(monkeypatch: pytest.MonkeyPatch, store: LocalStore, sent: bytes, stats: bytes = STATS) -> list[dict]:
    """The rows of copying one object from an upstream that sends these bytes for it."""
    monkeypatch.setattr(copying, "get_object", lambda *_: iter([memoryview(sent[:100]), memoryview(sent[100:])]))
    monkeypatch.setattr(CopyJob, "connect", lambda _: nullcontext())
    batch = pa.RecordBatch.from_pylist([{"name": NAME, "size": len(sent), "stats": stats}], schema=COPY_INPUT)
    return [row for done in copy_objects(CopyJob.of(a_subscription(), store.url), [batch]) for row in done.to_pylist()]


def test_what_an_earlier_run_left_is_kept_if_it_is_the_object_and_fetched_if_it_only_has_its_size(
    monkeypatch: pytest.MonkeyPatch, store: LocalStore
) -> None:
    store.put(object_path(NAME), [FILE[:-64].replace(FILE[64:80], bytes(16)) + FILE[-64:]])
    for fetched in (True, False):
        (row,) = _copied(monkeypatch, store, FILE)
        assert (row["fetched"], row["sha256"]) == (fetched, hashlib.sha256(FILE).digest())
    assert store.read(object_path(NAME)).to_pybytes() == FILE


def test_an_object_whose_columns_do_not_inflate_never_gets_its_name(
    monkeypatch: pytest.MonkeyPatch, store: LocalStore
) -> None:
    damaged = FILE[:64] + bytes(200) + FILE[264:]
    assert len(damaged) == len(FILE)
    with pytest.raises(ObjectDamaged):
        _copied(monkeypatch, store, damaged)
    assert store.size(object_path(NAME)) is None


ENTRY = column_entry(22, bytes(4), 1)
# Files with a part that is not known, and what is said of it.
UNKNOWN = {
    "a column type": (object_file([(1, {0: (230, ENTRY), 1: (22, ENTRY)})]), {}),
    "a column version": (
        object_file([(1, {0: (22, ENTRY), 1: (22, b"\2\0\3\0" + ENTRY[4:])})]),
        {1: "column version 3"},
    ),
    "a vector class": (object_file([(1, {0: (22, ENTRY[:4] + b"\2" + ENTRY[5:])})]), {0: "vector class 2"}),
    "a metadata version": (object_file([(1, {0: (22, ENTRY)})], meta_version=4), {-1: "metadata version 4"}),
    "a format version": (FILE[:8] + b"\2" + FILE[9:], {-1: "format version 2"}),
}


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_an_object_with_a_part_that_is_not_known_is_copied_as_it_is(
    unknown: str, monkeypatch: pytest.MonkeyPatch, store: LocalStore
) -> None:
    sent, reasons = UNKNOWN[unknown]
    rows = 2000 if sent[64:] == FILE[64:] else 1
    for fetched in (True, False):
        (row,) = _copied(monkeypatch, store, sent, stats_bytes(sent, rows=rows, blocks=1))
        assert (row["fetched"], row["sha256"], row["failure"]) == (fetched, hashlib.sha256(sent).digest(), None)
        found = Findings.from_text(row["found"])
        assert found.unread == {seqnum: f"{reason} is not known to this release" for seqnum, reason in reasons.items()}
    assert store.read(object_path(NAME)).to_pybytes() == sent


def test_a_part_that_is_far_from_what_is_known_is_damage(monkeypatch: pytest.MonkeyPatch, store: LocalStore) -> None:
    sent = object_file([(1, {0: (22, ENTRY[:4] + b"\xff" + ENTRY[5:])})])
    with pytest.raises(ObjectDamaged, match="vector class 255"):
        _copied(monkeypatch, store, sent, stats_bytes(sent, rows=1, blocks=1))
    assert store.size(object_path(NAME)) is None


def test_damage_behind_a_part_that_is_not_known_is_found(monkeypatch: pytest.MonkeyPatch, store: LocalStore) -> None:
    damaged = column_entry(22, bytes(8), 2)  # of two rows in a block of one
    sent = object_file([(1, {0: (22, ENTRY[:4] + b"\2" + ENTRY[5:]), 1: (22, damaged)})])
    with pytest.raises(ObjectDamaged, match="2 rows in a block of 1"):
        _copied(monkeypatch, store, sent, stats_bytes(sent, rows=1, blocks=1))


@pytest.mark.parametrize(("forms", "fetched"), [({0: 2}, 5), ({0: 2, 1: 3}, 6), ({0: 2, 1: 2, 2: 2}, 4)])
def test_an_object_of_a_form_that_no_other_has_is_fetched_twice(
    forms: dict[int, int], fetched: int, store: LocalStore
) -> None:
    """It may have been damaged on its way. `forms`: what is said of each object."""
    texts = {NAMES[number]: Findings(unread={0: f"vector class {form}"}).to_text() for number, form in forms.items()}

    class Odd(Engine):
        def __call__(self, job: CopyJob, objects: pa.Table) -> Iterator[pa.RecordBatch]:
            for batch in super().__call__(job, objects):
                rows = [{**row, "found": texts.get(row["name"])} for row in batch.to_pylist()]
                yield pa.RecordBatch.from_pylist(rows, schema=COPY_OUTPUT)

    engine, job = Odd(store), CopyJob.of(a_subscription(), store.url)
    report = copy_known(job, OBJECTS, engine, {}, store)
    assert len(engine.fetched) == fetched
    assert {row["name"]: row["sha256"] for row in report.rows.to_pylist()} == TRUE
    assert {name: text for name, text in report.found.items() if text} == texts
    if len(forms) < 3:
        for name in NAMES:
            store.delete(object_path(name))
        store.put(object_path(NAMES[0]), [b"\0" + UPSTREAM[NAMES[0]][1:]])
        with pytest.raises(ObjectDamaged, match="came twice"):
            copy_known(job, OBJECTS, engine, {}, store)
        assert store.size(object_path(NAMES[0])) is None
        assert copy_known(job, OBJECTS, engine, TRUE, store).failed.num_rows == 0
