"""A second copy of a mirror, at another place: the same files, point by point, with an identity of its own.

A point's file is written after all that it names, and the head after the point: so a file of a point that is there says
that the rest is, and a copy that was killed goes on. What the mirror does not name any more goes from the copy when the
mirror has deleted it, too; what the mirror has lost stays. A mirror notes which points it brings to a copy before they
are seen there, so that it is known for its own history when it has dropped them. Source: decisions
a-second-copy-has-the-same-files, a-place-is-claimed.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import compress, islice

import numpy as np

from ccpr.maintenance.claims import TTL_SECONDS, PlaceClaim, Worker, claimed
from ccpr.maintenance.errors import CopyDiverged
from ccpr.matrixone.objects.stats import stats_columns
from ccpr.matrixone.schema import text_of
from ccpr.mirror.errors import MirrorDamaged, PointNotReached, StoreFailed
from ccpr.mirror.layout import FOLDERS, HEAD, Head, Identity, copy_path, lsn_of_point, object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.point_files import PointFile, PointFiles
from ccpr.mirror.points import Point, TableRef, instant_text
from ccpr.mirror.store import pieces, put_known
from ccpr.state.errors import MirrorForeign, SubscriptionBusy
from ccpr.state.publishing import new_epoch

_THREADS = 4
_PAGE = 10_000  # names
_SWEPT = tuple(folder for folder in reversed(FOLDERS) if folder not in ("copies", "work"))  # points before the rest


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
    """Brings a copy to where the mirror is.

    Parameters
    ----------
    give_up : lsn of the copy's newest point, if what only the copy has may be lost.
    worker : who does it: one at a time at the place of the copy.

    Raises PointNotReached, CopyDiverged, MirrorForeign, SubscriptionBusy, and what reading and writing raise.
    """

    def __init__(
        self,
        mirror: Mirror,
        copy: Mirror,
        *,
        on_bytes: Callable[[int], None] = lambda size: None,
        give_up: int | None = None,
        worker: Worker | None = None,
    ) -> None:
        self._mirror, self._copy, self._on_bytes = mirror, copy, on_bytes
        self._give_up, self._worker = give_up, worker or Worker()
        self._objects = self._bytes = 0

    def run(self, keeping: Callable[[], AbstractContextManager[None]] = nullcontext) -> Copied:
        """`keeping` is entered as soon as the place is ours: it sees to it that no point of the mirror goes
        meanwhile."""
        self._check_place()
        with claimed(self._copy.store, "copy", self._worker) as claim, keeping():
            return self._run(claim)

    def _run(self, claim: PlaceClaim) -> Copied:
        head = self._mirror.published_head()
        if head is None or head.newest_point is None:
            raise PointNotReached("the mirror has no point yet", subject=self._mirror.store.url)
        published = _CopyHead(self._copy, claim, self._begin(head))
        there = published.head
        files = PointFiles(self._mirror.files, head)
        missing, before = self._missing(files, there), set[str]()
        reached = -1 if there is None or there.newest_point is None else there.newest_point
        if there != head:
            self._note(head, there, missing)
        if head.kept:
            self._same(head.kept)
        with ThreadPoolExecutor(_THREADS) as pool:
            for file in missing:
                point = files.load(file)
                self._bring(files, file, point, before, pool)
                before = {ref.manifest for ref in point.tables.values()}
                if reached < file.lsn < head.newest_point and file.lsn >= (head.oldest_point or 0):
                    published.move_to(_up_to(head, file, point))
        if there != head:
            self._copy.store.sync("kept")
            published.move_to(head)
        newest = files.newest()
        at = 0 if newest is None else newest.at
        return Copied(head.newest_point, at, len(missing), self._objects, self._bytes, self._sweep(published, head))

    # ---- whose it is

    def _check_place(self) -> tuple[Identity, Identity | None]:
        """Of the mirror, and of the copy if there is one. Raises MirrorForeign."""
        original, own = self._mirror.identity(), self._copy.identity()
        place = self._copy.store.url
        if original is None:
            text = "it does not say whose it is"
            raise MirrorForeign(text, subject=self._mirror.store.url, remedy="Run an iteration first: `ccpr run NAME`.")
        if own is None:
            named = (self._copy.store.names(folder) for folder in FOLDERS if folder != "work")
            if self._copy.store.size(HEAD) is not None or any(next(iter(names), None) is not None for names in named):
                raise MirrorForeign("there are files that do not say whose they are", subject=place, remedy=_ELSEWHERE)
        elif own.task_id != original.task_id or not own.is_copy:
            text = f"the mirror of subscription {own.subscription!r} is there, and not a copy of it"
            raise MirrorForeign(text, subject=place, remedy=_ELSEWHERE)
        return original, own

    def _begin(self, head: Head) -> Head | None:
        """The copy's head; its place is ours from now on. Raises MirrorForeign, CopyDiverged."""
        original, own = self._check_place()
        if own is None:
            mine = Identity(original.task_id, original.subscription, new_epoch(), guarded=True, is_copy=True)
            self._copy.write_identity(mine, new=True)
            return None
        there = self._copy.published_head()
        if there is not None and there.newest_point is not None and there.newest_point != self._give_up:
            self._check_follows(there, head, own)
        return there

    def _check_follows(self, there: Head, head: Head, own: Identity) -> None:
        """Raises CopyDiverged unless the copy's newest point is in the history of the mirror: it has it, or it has
        dropped it and noted before that it brought it here."""
        if (
            there.iteration_lsn > head.iteration_lsn
            or there.watermark > head.watermark
            or there.kept_revision > head.kept_revision
        ):
            raise self._diverged(f"it is at iteration {there.iteration_lsn}, the mirror at {head.iteration_lsn}")
        files, copied = PointFiles(self._mirror.files, head), self._copy.point()
        known = files.find(lambda file: file.lsn > copied.lsn)
        if known is not None and known.lsn == copied.lsn:
            point = files.load(known)
            if (point.snapshot, point.at) == (copied.snapshot, copied.at):
                return
        elif copied.lsn < (head.oldest_point or 0) and there.point in noted_points(self._mirror, own.epoch):
            return
        at = instant_text(copied.at.physical)
        raise self._diverged(f"its point {copied.lsn} of {at} is not in the mirror's history")

    def _diverged(self, how: str) -> CopyDiverged:
        newest = self._copy.head_with_point().newest_point
        remedy = (
            "Keep it, and copy to another place with --to; or go on from it: `ccpr copy NAME --promote URL`. Or lose "
            f"what only it has: `ccpr copy NAME --to URL --give-up {newest}`."
        )
        return CopyDiverged(how, subject=self._copy.store.url, remedy=remedy)

    def _note(self, head: Head, there: Head | None, missing: Iterable[PointFile]) -> None:
        """What will be the copy's newest point, one after the other. A mirror that cannot be written, on a full disk,
        can be copied: if it drops these points before the next time, somebody has to decide then."""
        own = self._copy.identity()
        paths = [*([there.point] if there is not None else []), *(file.path for file in missing), head.point]
        with suppress(StoreFailed):
            name = copy_path("" if own is None else own.epoch)
            self._mirror.files.write_sealed(name, {"points": list(dict.fromkeys(filter(None, paths)))})
            self._mirror.store.sync("copies")

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
        remedy = "`ccpr verify NAME --repair` fetches it again."
        other = MirrorDamaged("its checksum differs", subject=f"{self._mirror.store.url}/{path}", remedy=remedy)
        content = pieces(self._mirror.store.fresh(path))
        put_known(self._copy.store, path, content, sha256, other, overwrite=there is not None)
        return size

    def _same(self, name: str) -> None:
        if self._copy.store.size(name) is None:
            self._copy.store.put(name, [self._mirror.files.read(name).to_pybytes()])

    # ---- what goes

    def _sweep(self, published: "_CopyHead", head: Head) -> int:
        """Delete what neither the copy's points name nor the mirror has."""
        gone = {folder: self._left(folder) for folder in _SWEPT}
        if any(gone.values()):
            self._keep_named(head, gone)
        for names in gone.values():
            for name in sorted(names):
                published.confirm()
                self._copy.store.delete(name)
        return sum(map(len, gone.values()))

    def _left(self, folder: str) -> set[str]:
        """What the copy has in a folder and the mirror has not. The copy is listed first: what comes to either
        meanwhile is not among it. Of names hashes are held, 8 bytes each. A name with the hash of another one is found
        by the next process: each has hashes of its own."""
        theirs = np.unique(np.fromiter(map(hash, self._copy.store.each_name(folder)), np.int64))
        ours = np.zeros(len(theirs), bool)
        for _, hashes in _pages(self._mirror.store.each_name(folder)) if len(theirs) else ():
            at = np.searchsorted(theirs, hashes)
            at[at == len(theirs)] = 0
            ours[at[theirs[at] == hashes]] = True
        found, left = set[str](), theirs[~ours]
        for names, hashes in _pages(self._copy.store.each_name(folder)) if len(left) else ():
            found.update(compress(names, np.isin(hashes, left)))
        return found

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


def _pages(names: Iterator[str]) -> Iterator[tuple[list[str], np.ndarray]]:
    """Names with their hashes."""
    while page := list(islice(names, _PAGE)):
        yield page, np.fromiter(map(hash, page), np.int64, len(page))


class _CopyHead:
    """The copy's head as it was read or written here last: nobody else moves it."""

    def __init__(self, copy: Mirror, claim: PlaceClaim, head: Head | None) -> None:
        self._copy, self._claim, self.head = copy, claim, head
        self._confirmed = -TTL_SECONDS

    def move_to(self, head: Head) -> None:
        """Raises SubscriptionBusy."""
        self._confirm()
        self._copy.publish_head(head)
        self.head = head

    def confirm(self) -> None:
        """Before a file is deleted. Raises SubscriptionBusy."""
        if time.monotonic() - self._confirmed > TTL_SECONDS / 4:
            self._confirm()
            self._confirmed = time.monotonic()

    def _confirm(self) -> None:
        self._claim.confirm()
        if self._copy.published_head() != self.head:
            raise SubscriptionBusy("another copy has gone on there", subject=self._copy.store.url)


def noted_points(mirror: Mirror, epoch: str) -> list[str]:
    """Paths of the points that a mirror has brought to a copy last, or was about to; empty if it does not say."""
    name = copy_path(epoch)
    try:
        if mirror.store.size(name) is None:
            return []
        value = mirror.files.read_json(name)
        with mirror.files.understood(name):
            return [text_of(path) for path in value["points"]]
    except MirrorDamaged:
        return []


def forget_later(mirror: Mirror, head: Head) -> None:
    """Forget what was noted of copies when the mirror had points that this head does not have: its history is another
    one from now on."""
    for name in list(mirror.store.names("copies")):
        noted = noted_points(mirror, name.removeprefix("copies/").removesuffix(".json"))
        newest = max(noted, key=lambda path: lsn_of_point(path) or 0, default="")
        if (lsn_of_point(newest) or 0) >= (head.newest_point or 0) and newest != head.point:
            mirror.store.delete(name)


def _up_to(head: Head, file: PointFile, point: Point) -> Head:
    """The head as of a point that is not the newest: an iteration that goes on from it starts from its snapshot."""
    oldest = min(head.oldest_point or file.lsn, file.lsn)
    return Head(oldest, file.lsn, file.lsn + 1, point.at.physical, file.path)
