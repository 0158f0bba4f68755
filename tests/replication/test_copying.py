"""Copying what the ledger knows already: the mirror's points are made of certain bytes, and nothing else may take their place."""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from matrixone.objects.errors import ObjectMismatch
from replication import copying
from replication.copying import COPY_INPUT, COPY_OUTPUT, CopyJob, copy_in_process, copy_known
from replication.mirror import object_path
from replication.store import LocalStore
from tests.replication.values import a_subscription

NAMES = [f"00000000-0000-7000-8000-{number:012}_00000" for number in range(4)]
UPSTREAM = {name: name.encode() * 3 for name in NAMES}
OBJECTS = pa.table([NAMES, [len(UPSTREAM[name]) for name in NAMES], [bytes(154)] * 4], schema=COPY_INPUT)
TRUE = {name: hashlib.sha256(content).digest() for name, content in UPSTREAM.items()}


class Engine:
    """Copies out of UPSTREAM what is not there; what is there it takes for sound, as an engine does that finds a flipped bit of a value."""

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
            rows.append({"name": name, "size": len(content), "sha256": hashlib.sha256(content).digest(), "fetched": fetch, "failure": None})
        yield pa.RecordBatch.from_pylist(rows, schema=COPY_OUTPUT)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def test_what_was_damaged_in_the_mirror_is_fetched_again_and_the_rest_is_not(store: LocalStore) -> None:
    engine = Engine(store)
    store.put(object_path(NAMES[0]), [UPSTREAM[NAMES[0]]])
    store.put(object_path(NAMES[1]), [b"\0" + UPSTREAM[NAMES[1]][1:]])
    job = a_subscription().copy_job(store.url)
    report = copy_known(job, OBJECTS, engine, {name: TRUE[name] for name in NAMES[:3]}, store)
    assert engine.fetched == [NAMES[2], NAMES[3], NAMES[1]]
    assert {row["name"]: row["sha256"] for row in report.rows.to_pylist()} == TRUE
    assert {row["name"] for row in report.rows.to_pylist() if row["fetched"]} == set(NAMES[1:])
    assert report.failed.num_rows == 0
    assert store.read(object_path(NAMES[1])).to_pybytes() == UPSTREAM[NAMES[1]]


def test_other_bytes_upstream_under_a_known_name_are_an_error_and_leave_nothing(store: LocalStore) -> None:
    known = {NAMES[1]: bytes(32)}
    job = a_subscription().copy_job(store.url)
    with pytest.raises(ObjectMismatch, match="other bytes under this name") as raised:
        copy_known(job, OBJECTS, Engine(store), known, store)
    assert NAMES[1] in raised.value.subject
    assert store.size(object_path(NAMES[1])) is None
    report = copy_known(replace(job, collect_failures=True), OBJECTS, Engine(store), known, store)
    assert {row["name"] for row in report.rows.to_pylist()} == {NAMES[0], *NAMES[2:]}
    assert {name: failure.code for name, failure in report.failures.items()} == {NAMES[1]: "OBJECT_MISMATCH"}
    assert report.failed.to_pylist()[0]["sha256"] is None
    assert report.failed.schema == report.rows.schema == COPY_OUTPUT


def test_an_error_of_one_share_ends_the_others_with_the_object_that_they_are_at(monkeypatch: pytest.MonkeyPatch, store: LocalStore) -> None:
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
    job = replace(a_subscription().copy_job(store.url), budget=copying.Budget(sessions=2))
    with pytest.raises(ObjectMismatch):
        list(copy_in_process(job, OBJECTS))
    assert len(copied) < 100_000
