"""A second copy of a mirror, at another place: the same files, point by point, with an identity of its own.

A point's file is written after all that it names, and the head after the point: so a file of a point that is there says
that the rest is, and a copy that was killed goes on. What the mirror does not name any more goes from the copy when the
mirror has deleted it, too; what the mirror has lost stays. Source: decision a-second-copy-has-the-same-files.
"""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import compress, islice

import numpy as np

from ccpr.maintenance.errors import CopyDiverged
from ccpr.matrixone.objects.content import Content
from ccpr.matrixone.objects.stats import stats_columns
from ccpr.mirror.errors import MirrorDamaged, PointGone, PointNotReached
from ccpr.mirror.head import Head, Identity
from ccpr.mirror.layout import FOLDERS, HEAD, object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.point_files import PointFile, PointFiles
from ccpr.mirror.points import Point, TableRef
from ccpr.mirror.store import pieces
from ccpr.state.errors import MirrorForeign
from ccpr.state.publishing import new_epoch

_THREADS = 4
_PAGE = 10_000  # names
_SWEPT = tuple(folder for folder in reversed(FOLDERS) if folder != "work")  # points before what they name


@dataclass(frozen=True, slots=True)
class Copied:
    """What was brought to the copy.

    Attributes
    ----------
    newest_point, at : lsn of the newest that the copy has now, and its time in nanoseconds.
    points, objects, bytes : how many of each were copied; bytes of objects.
    deleted : files that no point of the copy names, and the mirror has deleted, too.
    """

    newest_point: int
    at: int
    points: int
    objects: int
    bytes: int
    deleted: int


class SecondCopy:
    """Brings a copy to where the mirror is. The caller sees to it that no point of the mirror goes meanwhile.

    Raises PointNotReached, CopyDiverged, MirrorForeign, and what reading and writing raise.
    """

    def __init__(self, mirror: Mirror, copy: Mirror, *, on_bytes: Callable[[int], None] = lambda size: None) -> None:
        self._mirror, self._copy, self._on_bytes = mirror, copy, on_bytes
        self._objects = self._bytes = 0

    def run(self) -> Copied:
        head = self._mirror.published_head()
        if head is None or head.newest_point is None:
            raise PointNotReached("the mirror has no point yet", subject=self._mirror.store.url)
        there = self._begin(head)
        files = PointFiles(self._mirror.files, head)
        missing, before = self._missing(files, there), set[str]()
        reached = -1 if there is None or there.newest_point is None else there.newest_point
        if head.kept:
            self._same(head.kept)
        with ThreadPoolExecutor(_THREADS) as pool:
            for file in missing:
                point = files.load(file)
                self._bring(files, file, point, before, pool)
                before = {ref.manifest for ref in point.tables.values()}
                if reached < file.lsn < head.newest_point and file.lsn >= (head.oldest_point or 0):
                    self._copy.publish_head(_up_to(head, file, point))
        if there != head:
            self._copy.store.sync("kept")
            self._copy.publish_head(head)
        newest = files.newest()
        at = 0 if newest is None else newest.at
        return Copied(head.newest_point, at, len(missing), self._objects, self._bytes, self._sweep(head))

    # ---- whose it is

    def _begin(self, head: Head) -> Head | None:
        """The copy's head; its place is ours from now on. Raises MirrorForeign, CopyDiverged."""
        original, own = self._mirror.identity(), self._copy.identity()
        place = self._copy.store.url
        if original is None:
            text = "it does not say whose it is"
            raise MirrorForeign(text, subject=self._mirror.store.url, remedy="Run an iteration first: `ccpr run NAME`.")
        if own is None:
            if any(next(iter(self._copy.store.names(folder)), None) is not None for folder in FOLDERS):
                raise MirrorForeign("there are files that do not say whose they are", subject=place, remedy=_ELSEWHERE)
            mine = Identity(original.task_id, original.subscription, new_epoch(), guarded=True, is_copy=True)
            self._copy.write_identity(mine, new=True)
            return None
        if own.task_id != original.task_id or not own.is_copy:
            text = f"the mirror of subscription {own.subscription!r} is there, and not a copy of it"
            raise MirrorForeign(text, subject=place, remedy=_ELSEWHERE)
        there = self._copy.published_head()
        if there is not None and there.newest_point is not None:
            self._check_follows(there, head)
        return there

    def _check_follows(self, there: Head, head: Head) -> None:
        """Raises CopyDiverged if the copy has what the mirror never had."""
        ahead = there.iteration_lsn > head.iteration_lsn or there.watermark > head.watermark
        if ahead or there.kept_revision > head.kept_revision:
            text = f"the copy is at iteration {there.iteration_lsn}, the mirror at {head.iteration_lsn}"
            raise CopyDiverged(text, subject=self._copy.store.url)
        copied = self._copy.point()
        try:
            known = self._mirror.point(copied.lsn)
        except PointGone:
            return
        if known.lsn == copied.lsn and (known.snapshot, known.at) != (copied.snapshot, copied.at):
            raise CopyDiverged(f"its point {copied.lsn} is another one than the mirror's", subject=self._copy.store.url)

    # ---- what is brought

    def _missing(self, files: PointFiles, there: Head | None) -> list[PointFile]:
        """The points that the copy does not have, oldest first."""
        former = PointFiles(self._copy.files, there or Head(None, None, 0, 0))
        listed = {one.path for one in former.kept.points}
        missing = [file for file in files.listed() if file.path not in listed]
        chain: list[PointFile] = []
        newest = former.newest()
        for file in files.chain():
            if file == newest and there is not None and (there.oldest_point or 0) <= (files.head.oldest_point or 0):
                break  # the files that it names are those of the copy
            chain.append(file)
        return [file for file in [*missing, *reversed(chain)] if self._copy.store.size(file.path) is None]

    def _bring(
        self, files: PointFiles, file: PointFile, point: Point, before: set[str], pool: ThreadPoolExecutor
    ) -> None:
        """All that a point names, and then its file. `before`: manifests that are there."""
        for ref in point.tables.values():
            if ref.manifest not in before and self._copy.store.size(ref.manifest) is None:
                self._bring_objects(ref, pool)
                for path in reversed(ref.files):  # the parts before the manifest that names them
                    self._same(path)
        for name in (point.ledger, point.definitions):
            if name:
                self._same(name)
        for folder in ("objects", "manifests", "ledger", "definitions"):
            self._copy.store.sync(folder)
        for path in reversed(files.paths(file)):
            self._same(path)
        self._copy.store.sync("points")

    def _bring_objects(self, ref: TableRef, pool: ThreadPoolExecutor) -> None:
        objects = self._mirror.manifest(ref).objects
        stats = stats_columns(objects.column("stats").combine_chunks())
        names, sizes = stats.column("name").to_pylist(), stats.column("size").to_pylist()
        for size in pool.map(self._bring_object, names, sizes, objects.column("sha256").to_pylist()):
            self._objects += size > 0
            self._bytes += size
            self._on_bytes(size)

    def _bring_object(self, name: str, size: int, sha256: bytes | None) -> int:
        """How many bytes were copied. Raises MirrorDamaged if the mirror's is not what was written."""
        path = object_path(name)
        if sha256 is None:
            return 0  # of an index table, which the mirror does not keep
        there = self._copy.store.size(path)
        if there == size:
            return 0
        content, digest = self._mirror.store.fresh(path), hashlib.sha256()

        def check(_: Content) -> None:
            if digest.digest() != sha256:
                remedy = "`ccpr verify NAME --repair` fetches it again."
                subject = f"{self._mirror.store.url}/{path}"
                raise MirrorDamaged("its checksum differs", subject=subject, remedy=remedy)

        self._copy.store.put(path, pieces(content), check=check, overwrite=there is not None, hashing=lambda: digest)
        return size

    def _same(self, name: str) -> None:
        if self._copy.store.size(name) is None:
            self._copy.store.put(name, [self._mirror.files.read(name).to_pybytes()])

    # ---- what goes

    def _sweep(self, head: Head) -> int:
        """Delete what neither the copy's points name nor the mirror has."""
        gone = {folder: self._left(folder) for folder in _SWEPT}
        if any(gone.values()):
            self._keep_named(head, gone)
        for names in gone.values():
            for name in sorted(names):
                self._copy.store.delete(name)
        return sum(map(len, gone.values()))

    def _left(self, folder: str) -> set[str]:
        """What the copy has in a folder and the mirror has not. Of the mirror's names hashes are held, 8 bytes each. A
        name with the hash of another one is found by the next process: each has hashes of its own."""
        ours = np.sort(np.fromiter(map(hash, self._mirror.store.each_name(folder)), np.int64))
        left, names = set[str](), self._copy.store.each_name(folder)
        while page := list(islice(names, _PAGE)):
            hashes = np.fromiter(map(hash, page), np.int64, len(page))
            first, last = np.searchsorted(ours, hashes, "left"), np.searchsorted(ours, hashes, "right")
            left.update(compress(page, first == last))
        return left

    def _keep_named(self, head: Head, gone: dict[str, set[str]]) -> None:
        """Remove from what goes the files that the copy's points need."""
        files = PointFiles(self._copy.files, head)
        named = {HEAD, head.kept}
        manifests: dict[str, TableRef] = {}
        for file in files.all():
            point = files.load(file)
            named |= {*files.paths(file), point.ledger, point.definitions}
            manifests |= {ref.manifest: ref for ref in point.tables.values()}
        for names in gone.values():
            names -= named
            names.difference_update(path for ref in manifests.values() for path in ref.files)
        for ref in manifests.values() if gone["objects"] else ():
            for batch in self._copy.manifest(ref).objects.to_batches(_PAGE):
                names = stats_columns(batch.column("stats")).column("name").to_pylist()
                gone["objects"].difference_update(map(object_path, names))


_ELSEWHERE = "Name an empty folder or bucket with --to."


def _up_to(head: Head, file: PointFile, point: Point) -> Head:
    """The head as of a point that is not the newest: an iteration that goes on from it starts from its snapshot."""
    oldest = min(head.oldest_point or file.lsn, file.lsn)
    return Head(oldest, file.lsn, file.lsn + 1, point.at.physical, file.path)
