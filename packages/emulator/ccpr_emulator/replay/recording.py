"""A recording of a real upstream, read from its folder: its answers at each snapshot.

A folder contains `about.json`, `scenario.sql`, `objects/` and `snapshot-001` … with the answers as JSON: `columns`,
`mysql_types`, `rows`. A cell `{"hex": …}` is binary, a string its UTF-8 bytes, null is NULL. Everything but the
objects is read and checked when the recording is opened, so that a bad file is reported then and not in the middle of
a statement.
"""

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ccpr.matrixone.objects.stats import OBJECT_NAME
from ccpr.matrixone.server.answers import Cell
from ccpr.matrixone.server.backing import CatalogAnswer, CatalogTable, ServedCatalog, ServedPublication
from ccpr_emulator.errors import BadRecording

_PUBLICATION = re.compile(
    r"\s*create\s+publication\s+`?(?P<name>[^\s`]+)`?\s+database\s+`?(?P<database>[^\s`]+)`?"
    r"(?:\s+table\s+(?P<tables>.+?))?\s+account\s+(?P<accounts>[^;]+)",
    re.IGNORECASE,
)
_OBJECT_LIST = ("db name", "table name", "stats", "create_at", "delete_at", "is_tombstone")
_TABLE_COLUMNS = ("rel_id", "rel_logical_id", "reldatabase", "relname", "relkind")


@dataclass(frozen=True, kw_only=True)
class RecordedSnapshot(ServedCatalog):
    """The answers at one snapshot.

    Attributes
    ----------
    index : 0 for snapshot-001.
    ts : nanoseconds since 1970.
    object_list : None if the upstream answered with an error; `list_error` is (number, text) then.
    against_previous : the difference from the previous snapshot; None for the first.
    """

    index: int
    ts: int
    object_list: CatalogAnswer | None
    against_previous: CatalogAnswer | None
    list_error: tuple[int, str] | None

    @property
    def id_of(self) -> dict[tuple[bytes, bytes], int]:
        return {(table.database, table.name): table.id for table in self.tables}


@dataclass(frozen=True, slots=True)
class Recording:
    """An opened recording. `objects` is a folder of files named by object name."""

    name: str
    publisher: str
    account_id: int
    publication: ServedPublication
    objects: Path
    snapshots: tuple[RecordedSnapshot, ...]

    def object_path(self, name: str) -> Path | None:
        """The file of an object; None if it was not recorded, or if the name is not the name of an object."""
        if OBJECT_NAME.fullmatch(name) is None:
            return None
        path = self.objects / name
        return path if path.is_file() else None


def open_recording(folder: Path) -> Recording:
    """Read a recording's folder.

    Raises
    ------
    BadRecording : naming the file that is missing or malformed.
    """
    about = _json(folder / "about.json")
    paths = sorted(folder.glob("snapshot-*"), key=lambda path: path.name)
    if not paths:
        raise BadRecording("there is no snapshot in this folder", subject=str(folder))
    snapshots = tuple(_snapshot(path, index) for index, path in enumerate(paths))
    for earlier, later in pairwise(snapshots):
        if later.ts <= earlier.ts:
            raise BadRecording(
                "its timestamp is not later than that of the snapshot before", subject=str(paths[later.index])
            )
    try:
        publisher, account_id, name = str(about["publisher"]), int(about["account_id"]), str(about["name"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadRecording(
            f"publisher, account_id or name is missing or malformed: {error}", subject=str(folder / "about.json")
        ) from error
    return Recording(name, publisher, account_id, _publication(folder, about, paths[0]), folder / "objects", snapshots)


def _publication(folder: Path, about: dict[str, Any], first: Path) -> ServedPublication:
    """From the statement in scenario.sql; if there is none, from about.json and the recorded get_snapshot_ts, whose
    last word is the publication."""
    scenario = folder / "scenario.sql"
    if scenario.is_file():
        with scenario.open(encoding="utf-8") as lines:
            for line in lines:
                found = _PUBLICATION.match(line[:65536])
                if found is not None:
                    accounts = re.sub(r"\s+comment\s.*", "", found["accounts"]).lower()
                    tables = _names(found["tables"] or "")
                    return ServedPublication(found["name"].lower(), found["database"], tables, _names(accounts))
    words = str(_json(first / "snapshot_ts.json").get("statement", "")).split()
    table = about.get("table")
    tables = (str(table),) if table else ()
    return ServedPublication(words[-1] if words else "pub", str(about.get("database") or "*"), tables, ("all",))


def _names(text: str) -> tuple[str, ...]:
    """Names separated by commas, with or without backquotes."""
    return tuple(name.strip().strip("`") for name in text.split(",") if name.strip())


def _snapshot(path: Path, index: int) -> RecordedSnapshot:
    if path.name != f"snapshot-{index + 1:03}":
        raise BadRecording(f"snapshot-{index + 1:03} is missing", subject=str(path.parent))
    ts = _answer(path / "snapshot_ts.json").rows
    if len(ts) != 1 or not isinstance(ts[0][0], int):
        raise BadRecording("it should hold one timestamp", subject=str(path / "snapshot_ts.json"))
    object_list = _answer(path / "object_list.json") if (path / "object_list.json").is_file() else None
    against = _answer(path / "object_list_against_previous.json") if index and object_list is not None else None
    for answer in (object_list, against):
        if answer is not None and answer.columns != _OBJECT_LIST:
            raise BadRecording(f"an object list has the columns {', '.join(_OBJECT_LIST)}", subject=str(path))
    mo_tables = _answer(path / "mo_tables.json", *_TABLE_COLUMNS)
    answers = _json(path / "indexes.json").items()
    indexes = {
        int(key): _parse(value, path / "indexes.json", "index_table_name") for key, value in answers if key.isdecimal()
    }
    return RecordedSnapshot(
        index=index,
        ts=ts[0][0],
        databases=_answer(path / "databases.json"),
        ddl=_answer(path / "ddl.json", "dbname", "tablename"),
        indexes=indexes,
        mo_database=_answer(path / "mo_database.json", "datname", "dat_id"),
        mo_tables=mo_tables,
        mo_columns=_answer(path / "mo_columns.json"),
        object_list=object_list,
        against_previous=against,
        list_error=None if object_list is not None else _list_error(path),
        tables=_tables(mo_tables, path / "mo_tables.json"),
    )


def _list_error(path: Path) -> tuple[int, str]:
    """`object_list_error.txt` in the snapshot's folder or in the recording's: `number: text`."""
    for place in (path / "object_list_error.txt", path.parent / "object_list_error.txt"):
        if place.is_file():
            number, colon, text = place.read_text(encoding="utf-8").strip().partition(": ")
            if not colon or not number.isdecimal() or int(number) > 0xFFFF:
                raise BadRecording("it should read `number: text`", subject=str(place))
            return int(number), text
    raise BadRecording("there is neither object_list.json nor object_list_error.txt", subject=str(path))


def _tables(answer: CatalogAnswer, path: Path) -> tuple[CatalogTable, ...]:
    places = [answer.position(column) for column in _TABLE_COLUMNS]
    tables: list[CatalogTable] = []
    for row in answer.rows:
        id_, logical_id, database, name, kind = (row[place] for place in places)
        if not isinstance(id_, int) or not isinstance(logical_id, int):
            raise BadRecording("a table id is not a number", subject=str(path))
        if not isinstance(database, bytes) or not isinstance(name, bytes) or not isinstance(kind, bytes):
            raise BadRecording("a name is not text", subject=str(path))
        tables.append(CatalogTable(id_, logical_id, database, name, kind))
    return tuple(tables)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadRecording("the file is missing", subject=str(path)) from error
    except (OSError, ValueError) as error:
        raise BadRecording(f"the file cannot be read as JSON: {error}", subject=str(path)) from error
    if not isinstance(value, dict):
        raise BadRecording("the file should hold a JSON object", subject=str(path))
    return value


def _answer(path: Path, *needed: str) -> CatalogAnswer:
    return _parse(_json(path), path, *needed)


def _parse(value: Any, path: Path, *needed: str) -> CatalogAnswer:
    """Raises BadRecording if the value is not an answer, or a column of `needed` is missing."""
    try:
        columns = tuple(str(name) for name in value["columns"])
        types = tuple(int(kind) for kind in value["mysql_types"])
        rows = tuple(tuple(_cell(cell) for cell in row) for row in value["rows"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadRecording(f"it should hold columns, mysql_types and rows: {error}", subject=str(path)) from error
    if len(types) != len(columns) or any(len(row) != len(columns) for row in rows):
        raise BadRecording("columns, mysql_types and rows have different lengths", subject=str(path))
    missing = [name for name in needed if name not in columns]
    if missing:
        raise BadRecording(f"the column {missing[0]} is missing", subject=str(path))
    return CatalogAnswer(columns, types, rows)


def _cell(value: Any) -> Cell:
    if value is None:
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return repr(value).encode()
    return bytes.fromhex(value["hex"])
