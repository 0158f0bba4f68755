"""Files of the mirror that nothing names: what attempts left that did not become a point. They are recorded for
deletion; until then readers and a later attempt may use them (decision orphan-files-are-looked-for)."""

from collections.abc import Iterator

from ccpr.mirror.layout import lsn_of_point, object_path
from ccpr.mirror.mirror import Mirror
from ccpr.state.history import PointHistory
from ccpr.state.ledger import Ledger


def find_orphans(history: PointHistory, ledger: Ledger, mirror: Mirror) -> Iterator[str]:
    """Paths of files that neither a point nor the list of files to be deleted names. Lists the whole mirror.

    No iteration may be open: its objects are named by nothing yet.
    """
    waiting = ledger.garbage()
    named = {object_path(entry.name) for entry in ledger.stored_objects()}
    named |= {name for state in history.states() if state.ref is not None for name in state.ref.files}
    named |= {point.ledger for point in history.global_points()} | set(history.definitions().values())
    named.add(history.head().kept)
    points = {file.path for file in history.files()}
    oldest = min((file.lsn for file in history.chain()), default=0)
    for folder in ("objects", "manifests", "ledger", "definitions", "kept"):
        yield from (path for path in mirror.store.names(folder) if path not in named and path not in waiting)
    for path in mirror.store.names("points"):
        lsn = lsn_of_point(path)  # those before the oldest may be what it differs from; they go with it
        if lsn is not None and lsn >= oldest and path not in points and path not in waiting:
            yield path
