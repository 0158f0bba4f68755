"""The path of each file of a mirror, and the schemas of the Arrow files. docs/format/mirror.md describes all of them.
Names and schemas are persisted and never change.

The name of a point, manifest or ledger ends with a digest of its content. So a file vouches for those that it names,
other content never gets the same name, and what was damaged is found when it is read.
"""

import hashlib
import re

import pyarrow as pa

from ccpr.matrixone.objects.stats import STATS_SIZE

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
