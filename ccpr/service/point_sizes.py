"""What points cost: how much each shows, and how much only it keeps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccpr.state.ledger import Ledger


@dataclass(frozen=True, slots=True)
class PointSize:
    """Bytes of objects.

    Attributes
    ----------
    shown : of all objects that the point shows.
    alone : of those that no other point shows: what goes with it.
    """

    shown: int
    alone: int


def point_sizes(ledger: Ledger, points: Sequence[int]) -> dict[int, PointSize]:
    """By lsn. An object that several tables share counts once, for all points from the first to the last that has it.

    Parameters
    ----------
    points : lsn, oldest first.
    """
    sizes, begins, ends = ledger.spans()
    numbers = np.asarray(points, np.int64)
    first = np.searchsorted(numbers, begins)
    behind = np.where(ends < 0, len(numbers), np.searchsorted(numbers, ends))
    changes, alone = np.zeros(len(numbers) + 1, np.int64), np.zeros(len(numbers) + 1, np.int64)
    there = behind > first
    np.add.at(changes, first[there], sizes[there])
    np.subtract.at(changes, behind[there], sizes[there])
    single = behind == first + 1
    np.add.at(alone, first[single], sizes[single])
    return {
        lsn: PointSize(int(shown), int(own)) for lsn, shown, own in zip(points, np.cumsum(changes), alone, strict=False)
    }
