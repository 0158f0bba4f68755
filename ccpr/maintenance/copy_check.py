"""Reads a second copy again, and compares it with what vouches for its files: digests in their names, and the checksums
of the ledger and of the copy's own manifests. What is damaged is fetched from the mirror or from where the mirror's own
repair fetches it; a file takes the place of the damaged one when it was found to be what was written first.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa

from ccpr.maintenance.repair import Repair
from ccpr.maintenance.verify import Damage, Verified, problem_of
from ccpr.matrixone.objects.stats import stats_columns
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.files import MirrorFiles
from ccpr.mirror.layout import HEAD, IDENTITY, object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point, TableRef
from ccpr.mirror.store import Store
from ccpr.state.ledger import Ledger, LedgerEntry

_PAGE = 10_000  # objects


class CopyVerifier:
    """Verifies one copy. The caller has claimed its place, so that nothing goes there meanwhile.

    Parameters
    ----------
    ledger : of the mirror.
    sources : where damaged files are fetched again; None = repair nothing.
    """

    def __init__(
        self,
        copy: Mirror,
        ledger: Ledger,
        sources: Repair | None,
        *,
        deep: bool = False,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._copy, self._ledger, self._sources = copy, ledger, sources
        self._deep, self._on_progress = deep, on_progress
        self._objects = self._bytes = self._manifests = self._points = 0

    def run(self) -> Verified:
        """Verify everything. Raises StoreFailed, StateUnavailable, StateUnreadable, KeyWrong."""
        damages = self.small_files()
        damages += self.objects("", 2**63)[1]
        return Verified(self._objects, self._bytes, self._manifests, self._points, 0, tuple(damages))

    def small_files(self) -> list[Damage]:
        """Everything but the objects of the ledger. Raises what `run` raises."""
        for name, read in ((IDENTITY, self._copy.identity), (HEAD, self._copy.published_head)):
            try:
                there = read()
            except MirrorDamaged as error:
                return [Damage(name, error.message)]
            if there is None:
                return [Damage(name, "it is missing")]
        mending = Mirror(self._copy.store)
        mending.files = files_read = _Mending(self._copy.store, self._sources)
        others, seen = list[Damage](), set[str]()
        with suppress(MirrorDamaged):  # it is among the damages
            files = mending.point_files()
            for file in files.all():
                point = files.load(file)
                self._points += 1
                others += self._of_point(mending, point, seen)
        return [*files_read.damages.values(), *others]

    def _of_point(self, mending: Mirror, point: Point, seen: set[str]) -> Iterator[Damage]:
        for name in {point.ledger, point.definitions} - seen - {""}:
            seen.add(name)
            with suppress(MirrorDamaged):
                mending.files.read(name)
        for ref in point.tables.values():
            if ref.manifest not in seen:
                seen.add(ref.manifest)
                self._manifests += 1
                with suppress(MirrorDamaged):
                    yield from self._only_here(mending, ref)

    def _only_here(self, mending: Mirror, ref: TableRef) -> Iterator[Damage]:
        """Objects of a manifest that the ledger does not have any more."""
        for batch in mending.manifest(ref).objects.to_batches(_PAGE):
            stats = stats_columns(pa.array(batch.column("stats")))
            names, sizes = stats.column("name").to_pylist(), stats.column("size").to_pylist()
            known = self._ledger.look_up(names)
            for name, size, sha256 in zip(names, sizes, batch.column("sha256").to_pylist(), strict=True):
                if sha256 is not None and name not in known:
                    yield from self._checked(LedgerEntry(name, size, sha256))

    def objects(self, after: str, most_bytes: int) -> tuple[str, list[Damage]]:
        """Objects of the ledger that the copy is to have, behind one by name, until so many bytes were read. Returns
        the name of the last, empty if there are no more. Raises what `run` raises."""
        damages, size = list[Damage](), 0
        newest = self._copy.head_with_point().newest_point or 0
        for stored in self._ledger.stored_objects(after):
            damages += self._checked(stored, newest)
            size += stored.size
            if size >= most_bytes:
                return stored.name, damages
        return "", damages

    def _checked(self, stored: LedgerEntry, newest: int | None = None) -> Iterator[Damage]:
        problem = problem_of(self._copy, stored, deep=self._deep)
        self._objects, self._bytes = self._objects + 1, self._bytes + stored.size
        self._on_progress(stored.size)
        if problem is None or (newest is not None and not self._is_to_be_there(stored.name, newest)):
            return
        origin = "" if self._sources is None else self._sources.fetch_object(stored)
        yield Damage(object_path(stored.name), problem, repaired=bool(origin), origin=origin)

    def _is_to_be_there(self, name: str, newest: int) -> bool:
        """An object that a point of the copy may name; not one that came later, or has just gone."""
        return bool(self._ledger.look_up([name])) and any(
            reference.from_lsn <= newest for reference in self._ledger.references_to(name)
        )


class _Mending(MirrorFiles):
    """The files of a copy. What is damaged is noted, and read again when it was fetched.

    Attributes
    ----------
    damages : by path.
    """

    def __init__(self, store: Store, sources: Repair | None) -> None:
        super().__init__(store)
        self._sources = sources
        self.damages: dict[str, Damage] = {}

    def read(self, name: str) -> pa.Buffer:
        try:
            return super().read(name)
        except MirrorDamaged as error:
            if name in self.damages:
                raise
            origin = "" if self._sources is None else self._sources.fetch_file(name)
            self.damages[name] = Damage(name, error.message, repaired=bool(origin), origin=origin)
            if not origin:
                raise
            return super().read(name)
