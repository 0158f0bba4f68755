"""Fetches damaged files of a mirror again: objects from the upstream, if it still has those very bytes, and everything
from second copies. A file takes the place of the damaged one when it was found to be what was written first."""

from collections.abc import Callable, Iterable, Iterator

from ccpr.matrixone.client.object_answers import get_object
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.errors import CcprError, Terminal
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.store import Chunk, pieces, put_known
from ccpr.state.ledger import LedgerEntry

UPSTREAM = "the upstream"


class Repair:
    """Where files can be had. An upstream that does not answer is asked once.

    Parameters
    ----------
    connect : opens an upstream session.
    copies : second copies, or, for one of these, the mirror and the others; they are opened when the first one is
        needed.
    nearest : look in these before the upstream is asked.
    """

    def __init__(
        self,
        mirror: Mirror,
        publication: Publication,
        connect: Callable[[], Session],
        copies: Iterable[Mirror] = (),
        *,
        nearest: bool = False,
    ) -> None:
        self._nearest = nearest
        self._mirror, self._publication, self._connect = mirror, publication, connect
        self._left, self._opened = iter(copies), list[Mirror]()
        self._is_away = False

    def fetch_object(self, stored: LedgerEntry) -> str:
        """From where it could be had, with the ledger's checksum; empty if from nowhere."""
        if not self._nearest and self._from_upstream(stored):
            return UPSTREAM
        path = object_path(stored.name)
        for copy in self._copies():
            try:
                self._put(stored, pieces(copy.store.fresh(path)))
            except CcprError:
                continue
            return copy.store.url
        return UPSTREAM if self._nearest and self._from_upstream(stored) else ""

    def fetch_file(self, path: str) -> str:
        """The same for a small file, whose name has its digest."""
        for copy in self._copies():
            try:
                content = copy.files.read(path).to_pybytes()
                self._mirror.store.put(path, [content], overwrite=True)
                self._mirror.store.sync(path.partition("/")[0])
            except CcprError:
                continue
            return copy.store.url
        return ""

    def _from_upstream(self, stored: LedgerEntry) -> bool:
        if self._is_away or self._publication.is_own:  # in logical mode we wrote the objects
            return False
        try:
            session = self._connect()
        except CcprError:
            self._is_away = True
            return False
        try:
            with session:
                self._put(stored, get_object(session, self._publication, stored.name, stored.size))
        except CcprError as error:
            self._is_away = not isinstance(error, Terminal)
            return False
        return True

    def _put(self, stored: LedgerEntry, chunks: Iterable[Chunk]) -> None:
        """Raises MirrorDamaged if these are other bytes, and what the chunks and the store raise."""
        other = MirrorDamaged("there are other bytes", subject=f"object {stored.name}")
        put_known(self._mirror.store, object_path(stored.name), chunks, stored.sha256, other, overwrite=True)
        self._mirror.store.sync("objects")

    def _copies(self) -> Iterator[Mirror]:
        yield from self._opened
        for copy in self._left:
            self._opened.append(copy)
            yield copy
