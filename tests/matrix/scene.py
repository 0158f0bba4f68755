"""One upstream with a table for each type and each oddity, its replica, and what readers got of it."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import typer.testing

from ccpr.cli.main import app
from ccpr.matrixone.objects.types import arrow_schema
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.matrix.values import KINDS, ODDITIES, Kind, Oddity, to_arrow
from tests.support.mariadb import MariaDb
from tests.support.replica import source_uri

DATABASE, NAME, LAKE, TARGET = "m", "s", "lake", "t"
EMPTY, FULL, DELETED = 0, 1, 2  # the points: a null in each table; all values; every second row deleted again


@dataclass(frozen=True)
class Tried:
    """A table of the upstream, with what is in it at the point `FULL`.

    Attributes
    ----------
    rows : by the number in `id`.
    families : of the columns, `id` first.
    """

    of: Kind | Oddity
    table: str
    columns: dict[str, str]
    families: tuple[str, ...]
    rows: dict[int, tuple[Any, ...]]

    @property
    def label(self) -> str:
        return self.of.name if isinstance(self.of, Kind) else self.of.label

    @property
    def full_name(self) -> str:
        return f"{DATABASE}.{self.table}"


@dataclass(frozen=True)
class Read:
    """What a program that is not ours read of a table: names of the columns, and the rows."""

    names: list[str]
    rows: list[list[Any]]


@dataclass(frozen=True)
class Refused:
    """What a command said of a table instead. `code`: its exit code, or None of an exception."""

    said: str
    code: int | None = None


@dataclass(frozen=True)
class Passed:
    """What was compared by the command itself, and is not there any more."""


Found: TypeAlias = Read | Refused | Passed
Tables: TypeAlias = dict[str, Found]


@dataclass
class Scene:
    """
    Attributes
    ----------
    home : the folder of files; `home/home` is the state folder.
    server : a MariaDB, for the databases of targets.
    ran : the exit code and the document of the last run.
    """

    storage: Storage
    port: int
    home: Path
    server: MariaDb
    tried: list[Tried]
    ran: tuple[int, Any] = (0, None)

    def ccpr(self, *words: str) -> tuple[int, str]:
        """The exit code of a command, and what it printed; a defect is code 70."""
        result = typer.testing.CliRunner().invoke(app, list(words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            return 70, f"{result.output} {type(result.exception).__name__}: {result.exception}"
        return result.exit_code, result.stdout if "--json" in words else result.output

    def json(self, *words: str) -> tuple[int, Any]:
        place = words.index("--") if "--" in words else len(words)
        code, text = self.ccpr(*words[:place], "--json", *words[place:])
        try:
            return code, json.loads(text)
        except ValueError:
            return 70, text

    def by_name(self, name: str) -> Tried | None:
        return next((one for one in self.tried if one.table == name), None)

    def refused(self, document: Any, code: int) -> Tables:
        """The tables that a document names, whatever it says of them."""
        texts = list(_texts(document)) if code else []
        found: Tables = {}
        for one in self.tried:
            said = [text for text in texts if re.search(rf"{re.escape(one.full_name)}(?!\w)", text)]
            if said:
                found[one.table] = Refused("; ".join(said)[:500], code)
        return found


def _texts(document: Any) -> Iterator[str]:
    """What a document says of things that went wrong; what it did has an action, a file or a number of rows."""
    if isinstance(document, dict):
        if document.keys().isdisjoint(("action", "file", "rows", "statement")):
            yield from (f"{key}: {value}" for key, value in document.items() if isinstance(value, str))
        for value in document.values():
            if not isinstance(value, str):
                yield from _texts(value)
    elif isinstance(document, list):
        for value in document:
            yield from [value] if isinstance(value, str) else _texts(value)


@contextmanager
def environment(home: Path, server: MariaDb) -> Iterator[None]:
    before = dict(os.environ)
    secrets = {"UPSTREAM_PASSWORD": "111", "TARGET_PASSWORD": server.password}
    os.environ |= {"CCPR_HOME": str(home / "home"), **secrets, "COLUMNS": "20000000"}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def tables(*, whole: bool) -> list[Tried]:
    """Of all types and oddities, or of some."""
    found = []
    for number, kind in enumerate(KINDS):
        values = [one.value for one in kind.values if whole or one.some]
        rows = {0: (None,)} | {place: (value,) for place, value in enumerate(values, start=1)}
        found.append(Tried(kind, f"v{number:02}", {"v": kind.type}, (kind.family,), rows))
    for odd in ODDITIES:
        if whole or odd.some:
            families = tuple("int" if kind == "int" else "text" for kind in odd.columns.values())
            rows: dict[int, tuple[Any, ...]] = {0: (None,) * len(families)}
            for number in (1, 2):
                row = odd.row(number).values()
                rows[number] = tuple(value.encode() if isinstance(value, str) else value for value in row)
            found.append(Tried(odd, odd.table, odd.columns, families, rows))
    return found


@contextmanager
def upstream(home: Path, server: MariaDb, *, whole: bool) -> Iterator[Scene]:
    """An upstream with the tables, a null in each, and a subscription that has not run yet."""
    storage, tried = Storage(), tables(whole=whole)
    storage.create_database(DATABASE)
    for one in tried:
        storage.create_table(DATABASE, one.table, {"id": "int not null", **one.columns}, primary_key=["id"])
    storage.create_publication("p", DATABASE)
    with SimulatedUpstream(storage, password="111") as emulator, environment(home, server):
        scene = Scene(storage, emulator.port, home, server, tried)
        insert(scene, [0])
        scope = ("--database", DATABASE, "--publication", "p", "--publisher", "sys")
        assert scene.ccpr("subscribe", NAME, "--from", source_uri(emulator.port), *scope)[0] == 0
        yield scene


def insert(scene: Scene, only: Sequence[int] | None = None) -> None:
    """All rows but that of the null, or some."""
    with scene.storage.begin() as transaction:
        for one in scene.tried:
            numbers = [number for number in one.rows if (number > 0 if only is None else number in only)]
            columns = scene.storage.table(DATABASE, one.table, account="sys").definition.user_columns
            schema = arrow_schema(columns)
            arrays = [pa.array(numbers, schema.field(0).type)]
            for place, family in enumerate(one.families):
                kind = one.of if isinstance(one.of, Kind) else Kind("", family, ())
                arrays.append(
                    to_arrow(kind, [one.rows[number][place] for number in numbers], schema.field(place + 1).type)
                )
            transaction.insert(DATABASE, one.table, pa.table(arrays, schema=schema))


def delete(scene: Scene) -> None:
    """Every second row."""
    with scene.storage.begin() as transaction:
        for one in scene.tried:
            gone = pa.array([number for number in one.rows if number % 2], pa.int32())
            transaction.delete(DATABASE, one.table, pc.is_in(pc.field("id"), value_set=gone))


def mysql_rows(server: Any, database: str, name: str) -> Read:
    """A table by PyMySQL, as bytes. A float is shown with six digits, a double with all of them."""
    with closing(server.connect(database)) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM `{name.replace('`', '``')}` LIMIT 0")
            shown = [(column[0], column[1]) for column in cursor.description]
        connection.decoders, connection.use_unicode = {}, False
        columns = [f"`{column.replace('`', '``')}`" + (" + 0e0" if kind == 4 else "") for column, kind in shown]
        connection.query(f"SELECT {', '.join(columns)} FROM `{name.replace('`', '``')}`")
        return Read([column for column, _ in shown], [list(row) for row in connection._result.rows])
