"""Files of the mirror that nothing names: what attempts left that did not become a point. They are recorded for
deletion; until then readers and a later attempt may use them (decision files-go-an-hour-later).

A mirror has millions of objects, so neither the names in its store nor those in the ledger are held: the store is
listed in pages, and the state database is asked for the names of each.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from ccpr.mirror.layout import lsn_of_point
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.store import is_name
from ccpr.state.history import PointHistory
from ccpr.state.ledger import Ledger

_PAGE = 5_000  # names
_FOLDERS = ("objects", "manifests", "ledger", "definitions", "kept", "points")
_LONGEST = 255  # characters of a path that can be recorded


class NamedFiles:
    """What the state database names, at the moment when this is made; objects, and files to be deleted, at the moment
    when they are asked for. It holds the names of some files for each point and for each table that a point changed,
    none of an object."""

    def __init__(self, history: PointHistory, ledger: Ledger) -> None:
        self._ledger = ledger
        self._names = {history.head().kept, *history.definitions().values()}
        self._names |= {point.ledger for point in history.global_points()}
        self._names |= {path for ref in history.all_refs() for path in ref.files}
        self._names |= {file.path for file in history.files()}
        self._oldest = min((file.lsn for file in history.chain()), default=0)

    def lacking(self, paths: Sequence[str]) -> list[str]:
        """Those of the files that neither a point nor the list of files to be deleted names."""
        return self._ledger.unknown([path for path in paths if self._may_be_orphan(path)])

    def _may_be_orphan(self, path: str) -> bool:
        if path in self._names or not is_name(path) or len(path) > _LONGEST:  # nobody of ours gave it such a name
            return False
        if path.startswith("points/"):
            lsn = lsn_of_point(path)  # those before the oldest may be what it differs from; they go with it
            return lsn is not None and lsn >= self._oldest
        return True


def find_orphans(history: PointHistory, ledger: Ledger, mirror: Mirror) -> Iterator[list[str]]:
    """Paths of files that neither a point nor the list of files to be deleted names, a page at a time. Lists the whole
    mirror.

    No iteration may be open: its files are named by nothing yet. Who holds the lease knows that none begins, and may
    record what is found. Who does not asks `NamedFiles` again when he does: another process may have committed what was
    found. Other changes do no harm: what a point named stays in the list of files to be deleted until it is gone.
    """
    named = NamedFiles(history, ledger)
    for folder in _FOLDERS:
        names = mirror.store.each_name(folder)
        while page := list(islice(names, _PAGE)):
            if lacking := named.lacking(page):
                yield lacking
