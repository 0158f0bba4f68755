"""When the rows of appendable objects were committed: the time alone makes them visible
(docs/format/object-file.md 9.2)."""

from dataclasses import dataclass

import numpy as np

from ccpr.base.newest import Newest
from ccpr.matrixone.objects.errors import ObjectUnsupported
from ccpr.matrixone.objects.reader import NEVER
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject, first_and_last
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.applying import may_have_commits


@dataclass(frozen=True, slots=True)
class _Span:
    """The first and the last commit of an object."""

    first: Timestamp
    last: Timestamp


_UNKNOWN = _Span(Timestamp(0), Timestamp(NEVER))


class CommitTimes:
    """Of the objects of a mirror, whose files do not change: those that were asked for last stay in memory.
    Thread-safe. Raises as `Mirror.open_object`."""

    def __init__(self, mirror: Mirror, *, most: int = 100_000) -> None:
        self._mirror, self._spans = mirror, Newest[bytes, _Span](most)

    def has_rows(self, listed: ListedObject, at: Timestamp) -> bool:
        """Whether a row of it exists at a time, deleted or not. Of an object that cannot be read it is not known that
        none does."""
        return self._span(listed).first <= at

    def gains_rows(self, listed: ListedObject, since: Timestamp, until: Timestamp) -> bool:
        """Whether a row of it was committed between two times."""
        span = self._span(listed)
        return (
            span.first <= until
            and since < span.last
            and may_have_commits(self._mirror, listed.stats.name, listed.sums, since, until)
        )

    def _span(self, listed: ListedObject) -> _Span:
        known = self._spans.get(listed.stats.object_id)
        if known is None:
            known = self._read(listed)
            self._spans.put(listed.stats.object_id, known)
        return known

    def _read(self, listed: ListedObject) -> _Span:
        try:
            file = self._mirror.open_object(listed.stats.name, listed.sums)
            blocks = [file.commit_timestamps(block.number) for block in file.blocks]
        except ObjectUnsupported:
            return _UNKNOWN
        times = [times for times in blocks if times is not None and len(times)]
        if not times:
            return _UNKNOWN
        return _Span(*first_and_last(np.concatenate(times)))
