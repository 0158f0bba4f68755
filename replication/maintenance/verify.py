"""Is the mirror what was written? Every object against the ledger, every manifest against the points; what is damaged
is fetched again.

Source: requirement B2, B3; architecture.md, "What bad input gets": what changes after arrival is caught by the
ledger's checksum.
"""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa

from matrixone.errors import CcprError
from matrixone.objects.content import Content
from matrixone.objects.reader import ObjectFile
from matrixone.upstream.objects import get_object
from matrixone.upstream.publications import Publication
from matrixone.upstream.session import Session
from replication.errors import MirrorDamaged
from replication.mirror.layout import object_path
from replication.mirror.mirror import Mirror
from replication.state.history import GlobalPoint, PointHistory, TablePoint
from replication.state.ledger import Ledger, LedgerEntry
from replication.state.quarantine import Quarantine

THREADS = 2
_AHEAD = 64


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not what was written.

    Attributes
    ----------
    path : in the mirror's store.
    reason : in words.
    repaired : it was fetched again from the upstream and is now what the ledger says.
    points : lsn -> tables that cannot be read there because of it; empty if repaired.
    """

    path: str
    reason: str
    repaired: bool = False
    points: dict[int, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verified:
    """What was looked at, and what was found."""

    objects: int
    bytes: int
    manifests: int
    damages: tuple[Damage, ...]

    @property
    def sound(self) -> bool:
        return all(damage.repaired for damage in self.damages)


def problem_of(mirror: Mirror, stored: LedgerEntry, *, deep: bool = False) -> str | None:
    """What is wrong with an object's file, None if nothing is. `deep` decodes every column, too."""
    try:
        content = mirror.store.read(object_path(stored.name))
        if content.size != stored.size:
            return f"{content.size} bytes instead of {stored.size}"
        if hashlib.sha256(content).digest() != stored.sha256:
            return "its checksum is another"
        if deep:
            ObjectFile(content, subject=f"object {stored.name}").check(deep=True)
    except MirrorDamaged:
        return "it is missing"
    except CcprError as error:
        return error.message
    return None


def unsound_objects(mirror: Mirror, ledger: Ledger, objects: pa.Table, *, checksums: bool) -> pa.Table:
    """Those of `objects` (columns `name` and `size` at least) whose file is missing or of another size, or, with
    `checksums`, is not what the ledger says.
    """
    names, sizes = (objects.column(name).to_pylist() for name in ("name", "size"))
    if checksums:
        known = ledger.look_up(names)
        unsound = [name not in known or problem_of(mirror, known[name]) is not None for name in names]
    else:
        unsound = [mirror.store.size(object_path(name)) != size for name, size in zip(names, sizes, strict=True)]
    return objects.filter(pa.array(unsound, pa.bool_()))


class Verifier:
    """Verifies one subscription's mirror.

    Parameters
    ----------
    connect : opens an upstream session when something has to be fetched again; None repairs nothing.
    deep : decode every column of every object, too.
    on_progress : hears of bytes as objects have been read.
    """

    def __init__(
        self,
        mirror: Mirror,
        history: PointHistory,
        ledger: Ledger,
        publication: Publication,
        connect: Callable[[], Session] | None,
        *,
        deep: bool = False,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._mirror, self._history, self._ledger, self._publication = mirror, history, ledger, publication
        self._connect, self._deep, self._on_progress = connect, deep, on_progress
        self._behind = Quarantine(history.engine, history.task_id).behind_by_point()

    def run(self) -> Verified:
        points = self._history.global_points()
        states = list(self._history.states())
        damages = list(self._manifests(states, points))
        objects = size = 0
        with ThreadPoolExecutor(THREADS) as pool:
            for stored, problem in _ordered(pool, self._problem, self._ledger.stored_objects()):
                objects, size = objects + 1, size + stored.size
                self._on_progress(stored.size)
                if problem is not None:
                    damages.append(self._publish_pending(stored, problem, points))
        return Verified(objects, size, len(states), tuple(damages))

    def _problem(self, stored: LedgerEntry) -> str | None:
        return problem_of(self._mirror, stored, deep=self._deep)

    def _publish_pending(self, stored: LedgerEntry, problem: str, points: list[GlobalPoint]) -> Damage:
        path = object_path(stored.name)
        if self._connect is not None and self._fetch_again(stored):
            return Damage(path, problem, repaired=True)
        spoiled: dict[int, list[str]] = {}
        for reference in self._ledger.references_to(stored.name):
            for point in points:
                named = reference.from_lsn <= point.lsn and (
                    reference.until_lsn is None or point.lsn < reference.until_lsn
                )
                if named and reference.table_id not in self._behind.get(point.lsn, {}):
                    spoiled.setdefault(point.lsn, []).append(self._table_name(point.lsn, reference.table_id))
        return Damage(path, problem, points=spoiled)

    def _fetch_again(self, stored: LedgerEntry) -> bool:
        """Fetch an object as long as the upstream has it; only the very bytes of the ledger are accepted."""

        digest = hashlib.sha256()

        def hashed(chunks: Iterator[memoryview]) -> Iterator[memoryview]:
            for chunk in chunks:
                digest.update(chunk)
                yield chunk

        def check(content: Content) -> None:
            if digest.digest() != stored.sha256:
                raise MirrorDamaged("the upstream has other bytes", subject=f"object {stored.name}")

        assert self._connect is not None
        try:
            with self._connect() as session:
                chunks = get_object(session, self._publication, stored.name, stored.size)
                self._mirror.store.put(object_path(stored.name), hashed(chunks), check=check)
                self._mirror.store.sync("objects")
        except CcprError:
            return False
        return True

    def _manifests(self, states: list[TablePoint], points: list[GlobalPoint]) -> Iterator[Damage]:
        for state in states:
            assert state.ref is not None
            try:
                manifest = self._mirror.manifest(state.ref)
                problem = (
                    None if manifest.objects.num_rows == state.ref.objects else "it names another number of objects"
                )
            except MirrorDamaged as error:
                problem = error.message
            if problem is not None:
                shown = [point.lsn for point in points if self._shows(point, state)]
                yield Damage(state.ref.manifest, problem, points={lsn: [state.table.qualified_name] for lsn in shown})

    def _shows(self, point: GlobalPoint, state: TablePoint) -> bool:
        """Does the point show the table in this very state?"""
        if state.table.id in self._behind.get(point.lsn, {}):
            return False
        shown = self._history.tables(point.lsn).get(state.table.id)
        return shown is not None and shown.lsn == state.lsn

    def _table_name(self, lsn: int, table_id: int) -> str:
        state = self._history.tables(lsn).get(table_id)
        return state.table.qualified_name if state else f"table {table_id}"


def _ordered(
    pool: ThreadPoolExecutor, work: Callable[[LedgerEntry], str | None], items: Iterator[LedgerEntry]
) -> Iterator[tuple[LedgerEntry, str | None]]:
    """Each item with its result, in order; a bounded number is under way."""
    while page := list(islice(items, _AHEAD)):
        yield from zip(page, pool.map(work, page), strict=True)
