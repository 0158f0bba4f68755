"""Files that say which rows of a data file an Iceberg table does not show: a deletion vector in a Puffin file (of
version 3 of the format), or positions in a Parquet file (of version 2).

Each is of one data file, and its name follows from what Delta's log has of that, so that a commit that is repeated, and
one that takes the file away again, knows it without asking the table. Source: Iceberg's specifications of tables,
"Deletion Vectors" and "Position Delete Files", and of Puffin; decision lake-iceberg.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ccpr.lake.commit import ROWS
from ccpr.lake.object_files import stored_rows, stored_vector
from ccpr.mirror.store import Store

FOLDER = "deletes"
SUFFIXES = {2: "parquet", 3: "puffin"}
_PUFFIN = b"PFA1"
_FRAME = struct.Struct(">I")  # of a vector's size and of its checksum
_ROW_POSITION = 2147483645  # ids of fields that Iceberg reserves
_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """
    Attributes
    ----------
    path : below the table.
    offset, length : of the vector in the file; None for positions.
    rows : how many it hides.
    """

    path: str
    offset: int | None
    length: int | None
    rows: int


def delete_file(add: Mapping[str, Any], version: int) -> DeleteFile | None:
    """Of a data file, as Delta's log has it; None if all of its rows are shown. Raises KeyError for an action of
    another program."""
    vector = add.get("deletionVector")
    if vector is None:
        return None
    path = delete_path(add, version)
    if version == 2:
        return DeleteFile(path, None, None, int(vector["cardinality"]))
    return DeleteFile(path, len(_PUFFIN), int(vector["sizeInBytes"]) + 2 * _FRAME.size, int(vector["cardinality"]))


def delete_path(add: Mapping[str, Any], version: int) -> str:
    about = f"{add['path']} {add['tags'][ROWS]}"
    return f"{FOLDER}/{hashlib.sha256(about.encode()).hexdigest()[:32]}.{SUFFIXES[version]}"


def deletes_of(found: Iterable[Mapping[str, Any]]) -> set[str]:
    """The files, below the table, that adds or removes can have in Iceberg's metadata."""
    mine = [one for one in found if one.get("deletionVector") and ROWS in (one.get("tags") or ())]
    return {delete_path(one, version) for one in mine for version in SUFFIXES}


def write_deletes(store: Store, folder: str, add: Mapping[str, Any], location: str, version: int) -> int:
    """Write the file of an add that has a vector. Returns its size.

    Parameters
    ----------
    location : of the data file, as Iceberg's metadata name it.

    Raises LakeChanged, StoreFailed.
    """
    vector, name = add["deletionVector"], f"{folder}/{delete_path(add, version)}"
    if version == 2:
        content = _positions(location, stored_rows(store, folder, vector))
    else:
        content = _puffin(location, stored_vector(store, folder, vector), int(vector["cardinality"]))
    store.put(name, [content], overwrite=True)
    return len(content)


def _positions(location: str, rows: np.ndarray) -> bytes:
    paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), np.int32)), pa.array([location]))
    sink = pa.BufferOutputStream()
    table = pa.table([paths, pa.array(rows, pa.int64())], names=_POSITIONS.names)
    schema = pa.schema([_POSITIONS.field(0).with_type(paths.type), _POSITIONS.field(1)])
    pq.write_table(table.cast(schema), sink, compression="zstd", store_schema=False)
    return sink.getvalue().to_pybytes()


def _puffin(location: str, vector: bytes, cardinality: int) -> bytes:
    """The container of one vector, which is framed as in Delta's files."""
    blob = _FRAME.pack(len(vector)) + vector + _FRAME.pack(zlib.crc32(vector))
    about = {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION],
        "snapshot-id": -1,  # they are inherited from the manifest
        "sequence-number": -1,
        "offset": len(_PUFFIN),
        "length": len(blob),
        "properties": {"referenced-data-file": location, "cardinality": str(cardinality)},
    }
    footer = json.dumps({"blobs": [about], "properties": {"created-by": "matrixone-ccpr"}}).encode()
    return b"".join((_PUFFIN, blob, _PUFFIN, footer, struct.pack("<i", len(footer)), b"\0\0\0\0", _PUFFIN))
