"""Checkpoints of a Delta table: all actions of a version as a Parquet file, so that a reader needs no older commits.

Written by hand, since a library's checkpoint would lose the tags by which a file is known here again. Source: the
protocol of Delta Lake, "Checkpoints"; decision lake-commits.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ccpr.lake.stores import LakeStore

_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_SCHEMA = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                    ("tags", _TEXTS),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("extendedFileMetadata", pa.bool_()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("tags", _TEXTS),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("createdTime", pa.int64()),
                    ("configuration", _TEXTS),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
    ]
)
_ABOUT = b"ccpr"
_NAME = re.compile(r".*/([0-9]{20})\.checkpoint\.parquet")


def checkpoint_path(folder: str, version: int) -> str:
    return f"{folder}/_delta_log/{version:020}.checkpoint.parquet"


def checkpoint_version(name: str) -> int | None:
    """Of a path; None if it is no checkpoint."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def checkpoint_content(actions: Iterable[dict[str, Any]], about: dict[str, Any]) -> bytes:
    """A loop over files, not rows. `about` is kept in the file's metadata. A checkpoint changes no rows, so its adds
    say so."""
    schema = _SCHEMA.with_metadata({_ABOUT: json.dumps(about)})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(map(_unchanging, actions)), schema), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def read_checkpoint(store: LakeStore, folder: str, version: int) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """The actions, and what it is about. None for one that is missing, or that another program wrote. Raises ValueError
    for what is not as it was written."""
    content = store.read(checkpoint_path(folder, version))
    if content is None:
        return None
    try:
        table = read_whole(content)
    except pa.ArrowException as error:
        raise ValueError(f"a checkpoint that cannot be read: {error}") from error
    metadata = table.schema.metadata or {}
    if _ABOUT not in metadata:
        return None
    rows = table.to_pylist(maps_as_pydicts="strict")
    return [{kind: _without_nulls(value)} for row in rows for kind, value in row.items() if value is not None], (
        json.loads(metadata[_ABOUT])
    )


def read_whole(content: pa.Buffer) -> pa.Table:
    """A small Parquet file. `pq.read_table` would start threads of Arrow's datasets, which may outlive a command and
    abort it at its end. Raises ArrowException."""
    return pq.ParquetFile(pa.BufferReader(content), pre_buffer=False).read(use_threads=False)


def _unchanging(action: dict[str, Any]) -> dict[str, Any]:
    return {"add": {**action["add"], "dataChange": False}} if "add" in action else action


def _without_nulls(value: Any) -> Any:
    """As a commit has it: fields that are not there are absent."""
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(one) for key, one in value.items() if one is not None}
