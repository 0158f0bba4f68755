"""Orphan files are found a page at a time: the same ones as by the plain difference of sets, and no list of all names
is held."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind
from ccpr.mirror.layout import lsn_of_point, object_path
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import TableRef
from ccpr.retention import sweeping
from ccpr.retention.sweeping import NamedFiles, find_orphans
from ccpr.state import ledger as ledger_file
from ccpr.state.database import transaction
from ccpr.state.history import GlobalPoint, PointHistory
from ccpr.state.kept_records import KeptRecords, KeptState
from ccpr.state.ledger import Ledger, LedgerEntry
from ccpr.state.log import CcprLog
from ccpr.state.migrations import open_database
from ccpr.state.point_rows import TablePoint
from tests.support.traced_memory import memory_below
from tests.support.values import NOW, a_subscription, a_table

TASKS = itertools.count()
LSNS = range(4)
OBJECTS = [f"o{number}" for number in range(9)]


@dataclass
class World:
    """A subscription in the state database, and a folder of files."""

    mirror: Mirror
    ledger: Ledger
    history: PointHistory

    @classmethod
    def new(cls, engine: sa.Engine, folder: Path) -> "World":
        task_id = f"task-{next(TASKS)}"
        CcprLog(engine).insert(replace(a_subscription(task_id).to_row(NOW), task_id=task_id))
        folder = folder / task_id
        return cls(Mirror(LocalStore(folder)), Ledger(engine, task_id), PointHistory(engine, task_id))

    def know(self, stored: set[str], garbage: set[str], points: set[int], chain_from: int) -> None:
        """Write the ledger's objects, files to be deleted and points."""
        with transaction(self.ledger.engine) as connection:
            self.ledger.write(connection, [LedgerEntry(name, 1, bytes(32)) for name in sorted(stored)], [])
            self.ledger.schedule_deletion(connection, garbage, 1)
            for lsn in points:
                manifest, ledger, definitions, file = files_of(lsn)
                ref = TableRef(1, "db", "t", Kind.TABLE, lsn, manifest, 1, 1, 1)
                point = GlobalPoint(lsn, Timestamp(lsn + 1), f"xr_{lsn}", NOW, ledger, 1, 1, 1, file)
                self.history.write(connection, point, [TablePoint(a_table(), ref, lsn)], definitions)
            kept = KeptRecords(self.ledger.engine, self.ledger.task_id)
            kept.write(connection, KeptState(), KeptState(1, kept_file(1), chain_from))

    def put(self, paths: set[str]) -> None:
        root = self.mirror.store.folder
        assert root is not None
        for path in paths:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).touch()

    def found(self) -> list[str]:
        return [path for page in find_orphans(self.history, self.ledger, self.mirror) for path in page]


def files_of(lsn: int) -> tuple[str, str, str, str]:
    """A point's manifest, ledger, definitions and own file."""
    digest = f"{lsn:016x}"
    parts = (
        f"manifests/1/{lsn}-1-{digest}.arrow",
        f"ledger/{lsn}-1-{digest}.arrow",
        f"definitions/{lsn}-1-{digest}.json",
    )
    return *parts, f"points/{lsn:012}-{digest}.json"


def kept_file(revision: int) -> str:
    return f"kept/{revision:012}-{revision:016x}.json"


STRANGE = ["objects/a folder/o", "objects/a name", f"objects/{'n' * 250}", "points/notes.txt", "manifests/2/x"]
FILES = [
    *map(object_path, OBJECTS),
    *(path for lsn in LSNS for path in files_of(lsn)),
    *map(kept_file, range(3)),
    *STRANGE,
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Engine]:
    engine = open_database(f"sqlite:///{tmp_path_factory.mktemp('catalog')}/catalog.db")
    yield engine
    engine.dispose()


@settings(deadline=None, max_examples=60)
@given(
    stored=st.sets(st.sampled_from(OBJECTS)),
    garbage=st.sets(st.sampled_from(FILES)),
    points=st.sets(st.sampled_from(LSNS)),
    chain_from=st.sampled_from(LSNS),
    there=st.sets(st.sampled_from(FILES)),
    page=st.integers(1, 4),
    names=st.integers(1, 3),
)
def test_the_paged_search_finds_what_the_difference_of_sets_has(
    stored: set[str],
    garbage: set[str],
    points: set[int],
    chain_from: int,
    there: set[str],
    page: int,
    names: int,
    engine: sa.Engine,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    world = World.new(engine, tmp_path_factory.getbasetemp() / "orphans")
    world.know(stored, garbage, points, chain_from)
    world.put(there)
    oldest = min((lsn for lsn in points if lsn >= chain_from), default=0)
    named = {*map(object_path, stored), *(path for lsn in points for path in files_of(lsn)), kept_file(1)}
    older = {path for path in there if (lsn := lsn_of_point(path)) is not None and lsn < oldest}
    expected = there - named - garbage - older - (set(STRANGE) - {"manifests/2/x"})
    with patch.object(sweeping, "_PAGE", page), patch.object(ledger_file, "_NAMES", names):
        assert sorted(world.found()) == sorted(expected)


def test_what_was_committed_meanwhile_is_named_when_it_is_asked_for_again(engine: sa.Engine, tmp_path: Path) -> None:
    world = World.new(engine, tmp_path)
    world.put({"objects/o1", "objects/o2", *files_of(0)})
    found = world.found()
    assert len(found) == 6
    world.know({"o1"}, set(), {0}, 0)
    assert NamedFiles(world.history, world.ledger).lacking(found) == ["objects/o2"]


class ManyNames(LocalStore):
    """Has so many objects, without a file of any."""

    count = 30_000

    def each_name(self, folder: str) -> Iterator[str]:
        return (f"objects/{number:042}" for number in range(self.count)) if folder == "objects" else iter(())


def test_the_search_holds_a_page_of_the_names_of_objects(engine: sa.Engine, tmp_path: Path) -> None:
    world = World.new(engine, tmp_path)
    world.mirror.store = ManyNames(tmp_path)
    world.know({f"{number:042}" for number in range(ManyNames.count)} - {f"{7:042}"}, {f"objects/{8:042}"}, {0}, 0)
    world.found()  # statements are compiled
    with memory_below(7 << 20):  # 4.6 are measured; sets of all names took 11.1
        assert world.found() == [f"objects/{7:042}"]
