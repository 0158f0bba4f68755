"""The path of each file of a mirror, the schemas of the Arrow files, and the two files that are replaced as values:
what can be read, and whose mirror it is. docs/format/mirror.md describes all of them.
Names and schemas are persisted and never change.

The name of a point, manifest or ledger ends with a digest of its content. So a file vouches for those that it names,
other content never gets the same name, and what was damaged is found when it is read.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.objects.stats import STATS_SIZE
from ccpr.matrixone.schema import integer_of, text_of

FORMAT = 2
COMPLETE_EVERY = 16  # a reader of a point reads at most this many files of points
GUARDED = 3  # of `mirror.json`: releases that do not know held points may read the mirror, and must not write to it
ENCRYPTED = 5  # of `head.json` and `mirror.json` of an encrypted mirror, whose content is sealed in them
ENCRYPTED_1 = 4  # the same of a mirror whose files are not bound to it
HEAD = "head.json"
IDENTITY = "mirror.json"
FOLDERS = ("objects", "manifests", "ledger", "definitions", "sums", "points", "kept", "copies", "work")
MANIFEST_SCHEMA = pa.schema(
    [
        pa.field("stats", pa.binary(STATS_SIZE), nullable=False),
        pa.field("create_physical", pa.int64(), nullable=False),
        pa.field("create_logical", pa.int64(), nullable=False),
        pa.field("is_tombstone", pa.bool_(), nullable=False),
        pa.field(
            "sha256", pa.binary(32)
        ),  # of the object's file; null = the mirror does not keep it, or 0.1.0 copied it
        pa.field("sums", pa.large_binary()),  # of its parts (ccpr.matrixone.objects.object_layout); null = not known
    ]
)
MANIFEST_SCHEMA_1 = pa.schema(list(MANIFEST_SCHEMA)[:4])
_REMOVED = pa.field("is_removed", pa.bool_(), nullable=False)
CHANGES_SCHEMA = pa.schema([*MANIFEST_SCHEMA, _REMOVED])
# Of manifests without sums, which earlier releases wrote.
MANIFEST_SCHEMA_2 = pa.schema(list(MANIFEST_SCHEMA)[:5])
CHANGES_SCHEMA_2 = pa.schema([*MANIFEST_SCHEMA_2, _REMOVED])
LEDGER_SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("sha256", pa.binary(32), nullable=False),
    ]
)
SUMS_SCHEMA = pa.schema([pa.field("name", pa.string(), nullable=False), pa.field("sums", pa.binary(), nullable=False)])
DIGEST = "[0-9a-f]{16}"
_DIGEST_IN_NAME = re.compile(rf".*-({DIGEST})\.(?:arrow|json)")
KEPT = re.compile(rf"kept/([0-9]{{12,19}})-{DIGEST}\.json")
MANIFEST = re.compile(rf"manifests/([0-9]{{1,20}})/[0-9]{{1,19}}-[0-9]{{1,19}}(?:-{DIGEST})?\.arrow")
POINT = re.compile(rf"points/([0-9]{{12,19}})(?:-{DIGEST})?\.json")


def digest_of(content: bytes | memoryview | pa.Buffer) -> str:
    """64 bits of the SHA-256 of a file's content, as its name has them."""
    return hashlib.sha256(content).hexdigest()[:16]


def digest_in(name: str) -> str | None:
    """The digest that a name has; None for a manifest or ledger of 0.1.0, and for one that may change."""
    found = _DIGEST_IN_NAME.fullmatch(name)
    return found[1] if found else None


def object_path(name: str) -> str:
    return f"objects/{name}"


def manifest_path(table_id: int, lsn: int, fence: int, digest: str) -> str:
    return f"manifests/{table_id}/{lsn}-{fence}-{digest}.arrow"


def table_of_manifest(name: str) -> int | None:
    """The table's id in the path of a manifest; None for any other path."""
    found = MANIFEST.fullmatch(name)
    return int(found[1]) if found else None


def ledger_path(lsn: int, fence: int, digest: str) -> str:
    return f"ledger/{lsn}-{fence}-{digest}.arrow"


def definitions_path(lsn: int, fence: int, digest: str) -> str:
    return f"definitions/{lsn}-{fence}-{digest}.json"


def sums_path(digest: str) -> str:
    return f"sums/objects-{digest}.arrow"


def point_path(lsn: int, digest: str) -> str:
    return f"points/{lsn:012}-{digest}.json"


def kept_path(revision: int, digest: str) -> str:
    return f"kept/{revision:012}-{digest}.json"


def copy_path(epoch: str) -> str:
    """What a mirror knows of the second copy with this epoch."""
    return f"copies/{epoch}.json"


def revision_of_kept(name: str) -> int | None:
    """The revision in the path of a file of kept points; None for any other path, 0 where there is none yet."""
    found = KEPT.fullmatch(name)
    return int(found[1]) if found else (0 if name == "" else None)


def lsn_of_point(name: str) -> int | None:
    """The lsn in the path of a point's file; None for any other path."""
    found = POINT.fullmatch(name)
    return int(found[1]) if found else None


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
