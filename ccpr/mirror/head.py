"""The two files of a mirror that are replaced, as values: what can be read, and whose mirror it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ccpr.base.snapshot_ref import SnapshotRef
from ccpr.matrixone.schema import integer_of, text_of
from ccpr.mirror.layout import GUARDED, lsn_of_point, revision_of_kept


@dataclass(frozen=True, slots=True)
class Head:
    """Which points can be read, and how far the replica is.

    Attributes
    ----------
    oldest_point, newest_point : lsn of the points between which all can be read; None before the first.
    iteration_lsn : the next iteration's lsn; idle iterations, which make no point, count too.
    watermark : time up to which the replica is complete, by the upstream's clock, in nanoseconds.
    point : path of the newest point's file; empty before the first.
    snapshots : those of the last iterations, the newest first: what the next difference can start from.
    kept : path of the file of earlier points that stay, and of held ones (`ccpr.mirror.kept_points`); empty if there
        never were any.
    """

    oldest_point: int | None
    newest_point: int | None
    iteration_lsn: int
    watermark: int
    point: str = ""
    snapshots: tuple[SnapshotRef, ...] = ()
    kept: str = ""

    @property
    def kept_revision(self) -> int:
        return revision_of_kept(self.kept) or 0

    def to_json(self) -> dict[str, Any]:
        return {
            "oldest_point": self.oldest_point,
            "newest_point": self.newest_point,
            "iteration_lsn": self.iteration_lsn,
            "watermark": self.watermark,
            "point": self.point,
            "snapshots": [ref.to_json() for ref in self.snapshots],
            **({"kept": self.kept} if self.kept else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Head":
        """Raises ValueError, KeyError or TypeError for what `to_json` would not have written."""
        oldest, newest = (
            None if value[key] is None else integer_of(value[key]) for key in ("oldest_point", "newest_point")
        )
        lsn, watermark = integer_of(value["iteration_lsn"]), integer_of(value["watermark"])
        point = text_of(value["point"])
        if (point == "") != (newest is None) or (point and lsn_of_point(point) != newest):
            raise ValueError(f"its newest point is {newest} and {point!r:.80}")
        kept = text_of(value.get("kept", ""))
        if revision_of_kept(kept) is None:
            raise ValueError(f"its kept points are {kept!r:.80}")
        return cls(oldest, newest, lsn, watermark, point, tuple(map(SnapshotRef.from_json, value["snapshots"])), kept)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose mirror it is.

    Attributes
    ----------
    task_id : of the subscription.
    subscription : its name when the file was written.
    epoch : random; a new one is made whenever another catalog database takes the mirror over, so that the former one
        cannot go on with it.
    guarded : releases that do not know held points cannot write to the mirror.
    is_copy : it is a second copy, which no iteration writes to.
    """

    task_id: str
    subscription: str
    epoch: str
    guarded: bool = False
    is_copy: bool = False

    def to_json(self) -> dict[str, Any]:
        format_ = {"format": GUARDED} if self.guarded else {}
        copy = {"is_copy": True} if self.is_copy else {}
        return {**format_, "task_id": self.task_id, "subscription": self.subscription, "epoch": self.epoch, **copy}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Identity":
        """Raises ValueError, KeyError or TypeError for what `to_json` would not have written."""
        known = tuple(text_of(value[key]) for key in ("task_id", "subscription", "epoch"))
        return cls(*known, guarded=value["format"] == GUARDED, is_copy=value.get("is_copy") is True)
