"""Every way out of a replica, and how another program reads what came out."""

import csv
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

import ccpr
from ccpr.service.workspace import Workspace
from ccpr.state.subscription import Subscription
from tests.matrix.forms import Form, plain
from tests.matrix.scene import (
    DELETED,
    EMPTY,
    FULL,
    LAKE,
    NAME,
    TARGET,
    Found,
    Passed,
    Read,
    Refused,
    Scene,
    Tables,
    Tried,
    mysql_rows,
)
from tests.matrix.values import KINDS
from tests.support.driving import iterate
from tests.support.matrixone_server import matrixone_server
from tests.support.relayed import relaying, subscribe_through

QUOTE = '"'
CLIENT = shutil.which("mariadb") or shutil.which("mysql")
csv.field_size_limit(1 << 26)


@dataclass(frozen=True)
class Way:
    """A way out.

    Attributes
    ----------
    read : what came out of each table.
    rows : which rows that has to be, by their numbers.
    at : which of the points is the newest when it is gone.
    refuses : the labels of what it may refuse; all else has to be right.
    """

    label: str
    form: Form
    read: Callable[[Scene], Tables]
    rows: Callable[[int], bool] = lambda number: True
    at: int = FULL
    refuses: frozenset[str] = frozenset()


def _each(scene: Scene, read: Callable[[Tried], Found]) -> Tables:
    return {one.table: read(one) for one in scene.tried}


def _tried(read: Callable[[], Read]) -> Found:
    """What another program cannot read at all is refused by nobody."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 # of any library
        return Refused(f"{type(error).__name__}: {error}"[:500])


# ---- databases


def _database(scene: Scene, server: Any, database: str, document: Any, code: int) -> Tables:
    """What is in a database, and of the other tables what the command said."""
    with closing(server.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        there = {name for (name,) in cursor.fetchall()}
    found = {
        name: _tried(lambda name=name: mysql_rows(server, database, name)) for name in there if scene.by_name(name)
    }
    return found | scene.refused(document, code)  # one that is named may be there as it was before


def _uri(scene: Scene, database: str) -> str:
    return f"mysql://{scene.server.user}:env:TARGET_PASSWORD@{scene.server.host}:{scene.server.port}/{database}"


def database_of(scene: Scene, what: str) -> str:
    return f"matrix_{scene.home.name[-20:]}_{what}"


def _target(scene: Scene) -> Tables:
    code, document = scene.ran
    (outcome,) = [one for one in document["targets"] if one["target"] == TARGET]
    return _database(scene, scene.server, database_of(scene, TARGET), outcome, code)


def _restored(scene: Scene) -> Tables:
    database = database_of(scene, "restored")
    code, document = scene.json("restore", NAME, "--into", _uri(scene, database), "--at", str(FULL))
    return _database(scene, scene.server, database, document, code)


def _into_matrixone(scene: Scene) -> Tables:
    with matrixone_server() as server:
        server.create_database("restored")
        into = f"mysql://dump:env:UPSTREAM_PASSWORD@127.0.0.1:{server.port}/restored"
        code, document = scene.json("restore", NAME, "--into", into, "--at", str(FULL))
        return _database(scene, server, "restored", document, code)


def _dumped(scene: Scene) -> Tables:
    database, file = database_of(scene, "dumped"), scene.home / "dump.sql"
    code, document = scene.json("export", NAME, "--format", "sql", "--out", str(file), "--at", str(FULL))
    scene.server.create_database(database)
    login = [f"-u{scene.server.user}", f"-p{scene.server.password}", f"-h{scene.server.host}", f"-P{scene.server.port}"]
    words = [str(CLIENT), "--no-defaults", *login, "--protocol=tcp", database]
    if file.exists():
        with file.open("rb") as script:
            loaded = subprocess.run(words, stdin=script, capture_output=True, check=False)
        if loaded.returncode:
            return {
                one.table: Refused(f"the client: {loaded.stderr.decode(errors='replace')[:300]}") for one in scene.tried
            }
    return _database(scene, scene.server, database, document, code)


# ---- files


def _parquet(file: Path) -> Read:
    table = pq.ParquetFile(file).read()
    return Read(table.column_names, plain(table))


def _csv(file: Path) -> Read:
    """The values as Python's csv has them; Arrow tells which of the empty ones are null."""
    with file.open(newline="", encoding="utf-8") as lines:
        names, *rows = csv.reader(lines)
    kinds = dict.fromkeys(names, pa.string())
    convert = pc.ConvertOptions(
        column_types=kinds, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    block = pc.ReadOptions(block_size=1 << 28)
    nulls = pc.read_csv(
        file, read_options=block, parse_options=pc.ParseOptions(newlines_in_values=True), convert_options=convert
    )
    null = zip(*(column.is_null().to_pylist() for column in nulls.columns), strict=True)
    found = [[None if gone else cell for cell, gone in zip(*row, strict=True)] for row in zip(rows, null, strict=True)]
    return Read(names, found)


def _lines(file: Path) -> Read:
    with file.open(encoding="utf-8", newline="\n") as lines:
        found = [json.loads(line) for line in lines]
    return Read(list(found[0]), [list(row.values()) for row in found])


_FILES: Mapping[str, Callable[[Path], Read]] = {"parquet": _parquet, "csv": _csv, "jsonl": _lines}


def _exported(ending: str) -> Callable[[Scene], Tables]:
    return lambda scene: _files(scene, ending, ("export", NAME, "--at", str(FULL)))


def _files(scene: Scene, ending: str, words: tuple[str, ...]) -> Tables:
    """The files of all tables, by one command."""
    folder = scene.home / f"{words[1]}-{ending}"
    code, document = scene.json(*words, "--out", str(folder), "--format", ending)
    listed = document if isinstance(document, list) else document.get("tables", [])
    files = {one["table"]: Path(one["file"]) for one in listed if one.get("file")}
    return scene.refused(document, code) | {
        one.table: _tried(lambda one=one: _FILES[ending](files[one.full_name]))
        for one in scene.tried
        if one.full_name in files
    }


def _asked_file(ending: str) -> Callable[[Scene], Tables]:
    def read(scene: Scene) -> Tables:
        def one(tried: Tried) -> Found:
            file = scene.home / f"asked.{ending}"
            code, document = scene.json("query", NAME, _select(tried), "--out", str(file), "--at", str(FULL))
            return (
                Refused(json.dumps(document, ensure_ascii=False), code)
                if code
                else _tried(lambda: _FILES[ending](file))
            )

        return _each(scene, one)

    return read


# ---- commands


def _select(tried: Tried) -> str:
    return f'SELECT * FROM "{tried.table.replace(QUOTE, QUOTE * 2)}" ORDER BY id'


def _asked(scene: Scene) -> Tables:
    return _documents(scene, lambda one: ("query", NAME, _select(one), "--at", str(FULL)))


def _head(scene: Scene) -> Tables:
    return _documents(scene, lambda one: ("query", NAME, "-n", "1000", "--at", str(FULL), "--", one.full_name))


def _documents(scene: Scene, words: Callable[[Tried], tuple[str, ...]], part: str = "") -> Tables:
    """A command for each table; `part` of each row that it gives, or the whole row."""

    def read(one: Tried) -> Found:
        code, document = scene.json(*words(one))
        if code:
            return Refused(json.dumps(document, ensure_ascii=False), code)
        rows = [row[part] if part else row for row in document["rows"]]
        return Read(list(rows[0]), [list(row.values()) for row in rows])

    return _each(scene, read)


def _screen(scene: Scene) -> Tables:
    def read(one: Tried) -> Found:
        first = next(iter(one.columns))
        sql = _select(one).replace("*", f'id, "{first.replace(QUOTE, QUOTE * 2)}"', 1)
        code, text = scene.ccpr("query", NAME, sql, "--at", str(FULL))
        if code:
            return Refused(text, code)
        width = max(2, len(str(max(one.rows))))
        rows: list[list[Any]] = []
        for line in text.split("\n")[1:]:
            if line[:width].strip(" ").isdecimal() and len(rows) < len(one.rows):
                rows.append([int(line[:width]), line[width:].strip(" ")])
            elif rows and line[:width].isspace():  # a folded cell goes on
                rows[-1][1] += line[width:].strip(" ")
            else:
                break
        return Read(["id", first], rows)

    return _each(scene, read)


def _diff(scene: Scene) -> Tables:
    options = ("--from", str(EMPTY), "--to", str(FULL), "--limit", "1000", "--")
    return _documents(scene, lambda one: ("diff", NAME, *options, one.full_name), "after")


def _changes(scene: Scene) -> Tables:
    def read(one: Tried) -> Found:
        try:
            mirror = ccpr.open_mirror(scene.home / "home" / "mirrors" / NAME)
            found = mirror.table(one.full_name).changes(since=EMPTY, until=FULL).upserts
        except ccpr.CcprError as error:
            return Refused(f"{error.subject}: {error}", 1)
        except KeyError as error:  # a defect, which no command is there to show
            return Refused(repr(error), 70)
        return Read(found.column_names, plain(found))

    return _each(scene, read)


# ---- lakes


def _lake(scene: Scene) -> Tables:
    return _of_lake(
        scene,
        lambda uri, version: pa.table(
            QueryBuilder().register("t", DeltaTable(uri, version=version)).execute("SELECT * FROM t")
        ),
    )


def _polars(scene: Scene) -> Tables:
    import polars as pl

    return _of_lake(scene, lambda uri, version: pl.scan_delta(uri, version=version).collect().to_arrow())


def _feed(kind: str) -> Callable[[Scene], Tables]:
    """The rows that came with the values, and those that went again: each with all its values."""

    def read(scene: Scene) -> Tables:
        def rows(uri: str, version: int) -> pa.Table:
            feed = pa.table(DeltaTable(uri).load_cdf(starting_version=version, ending_version=version))
            come = [number for number, one in enumerate(feed.column("_change_type").to_pylist()) if one == kind]
            values = feed.drop_columns(["_change_type", "_commit_version", "_commit_timestamp"])
            return pa.concat_tables([values.slice(number, 1) for number in come] or [values.slice(0, 0)])

        return _of_lake(scene, rows)

    return read


def _of_lake(scene: Scene, rows: Callable[[str, int], pa.Table]) -> Tables:
    _, document = scene.json("target", "status", NAME, LAKE)
    found = scene.refused(document, 3)
    (lake,) = document
    for table in lake["tables"]:
        one = scene.by_name(table["table"].partition(".")[2])
        if one is not None and not table["behind"]:

            def read(table: dict[str, Any] = table) -> Read:
                seen = rows(table["uri"], table["version"])
                return Read(seen.column_names, plain(seen))

            found[one.table] = _tried(read)
    return found


# ---- drills and relays


def _drilled(into: Callable[[Scene], str]) -> Callable[[Scene], Tables]:
    """A drill leaves nothing to be read: what it says of each table. That it sees a value that differs is shown in
    tests/features/test_drills.py."""

    def read(scene: Scene) -> Tables:
        code, document = scene.json("drill", NAME, "--at", str(FULL), "--into", into(scene))
        failed = scene.refused(document, code)
        done = isinstance(document, dict) and document.get("tables") == len(scene.tried) - len(failed)
        return failed | {one.table: Passed() for one in scene.tried if done and one.table not in failed}

    return read


def _relayed(scene: Scene) -> Tables:
    """The mirror of a subscription to the relay, as Parquet."""
    folder = scene.home / "second"
    with closing(Workspace()) as first, relaying(first) as relay:
        before = Subscription.from_row(first.log.row(NAME))
        with closing(subscribe_through(relay.port, folder, before)) as second:
            assert iterate(second, "again").point
    with patch.dict(os.environ, CCPR_HOME=str(folder)):
        return _files(scene, "parquet", ("export", "again"))


def _come(number: int) -> bool:
    return number > 0


def _gone(number: int) -> bool:
    return number % 2 == 1


def _left(number: int) -> bool:
    return number % 2 == 0


_CASE = frozenset(f"names that differ by case, {which}" for which in ("lower", "upper"))
_FILES_LACK = frozenset(("name with slash", "name of 64 characters of four bytes"))
_IN_MARIADB = frozenset(
    (
        *(kind.name for kind in KINDS if kind.label in ("not finite", "beyond 838:59:59", "no member")),
        *(
            "name that ends with a blank",
            "name with emoji",
            "name of 64 characters of four bytes",
            "columns with each sign",
        ),
        *("column that ends with a blank", "1,100 columns", "300 columns VARCHAR(200)"),
    )
)
_IN_MATRIXONE = frozenset(
    (
        "names that differ by case, upper",
        "column __mo_fake_pk_col",
        *(kind.name for kind in KINDS if kind.label in ("not finite", "zero")),
    )
)
_IN_FEED = frozenset(f"column {name}" for name in ("_change_type", "_commit_version", "_commit_timestamp"))
_IN_CHANGES = frozenset(("column __ccpr_kind",))
WAYS = (
    Way("target, MariaDB", Form.MYSQL, _target, refuses=_IN_MARIADB),
    Way("`restore`, MariaDB", Form.MYSQL, _restored, refuses=_IN_MARIADB),
    Way("`restore`, MatrixOne", Form.MYSQL, _into_matrixone, refuses=_IN_MATRIXONE),
    Way("`dump`, by the client", Form.MYSQL, _dumped, refuses=_IN_MARIADB | {"name with line end"}),
    Way("`export`, Parquet", Form.ARROW, _exported("parquet"), refuses=_FILES_LACK),
    Way("`export`, CSV", Form.CSV, _exported("csv"), refuses=_FILES_LACK),
    Way("`export`, JSON lines", Form.JSON, _exported("jsonl"), refuses=_FILES_LACK),
    Way("`query`, screen", Form.SCREEN, _screen, refuses=_CASE),
    Way("`query --json`", Form.JSON, _asked, refuses=_CASE),
    Way("`query`, CSV", Form.CSV, _asked_file("csv"), refuses=_CASE),
    Way("`query`, JSON lines", Form.JSON, _asked_file("jsonl"), refuses=_CASE),
    Way("`query`, Parquet", Form.ARROW, _asked_file("parquet"), refuses=_CASE),
    Way("`head --json`", Form.JSON, _head),
    Way("`diff --json`", Form.JSON, _diff, _come, refuses=_IN_CHANGES),
    Way("`Table.changes`", Form.ARROW, _changes, _come, refuses=_IN_CHANGES),
    Way("lake, delta-rs", Form.ARROW, _lake, refuses=_IN_FEED),
    Way("lake, polars", Form.ARROW, _polars, refuses=_IN_FEED),
    Way("feed, inserts", Form.ARROW, _feed("insert"), _come, refuses=_IN_FEED),
    Way("relay", Form.ARROW, _relayed, refuses=_FILES_LACK),
    Way("drill, Parquet", Form.ARROW, _drilled(lambda scene: str(scene.home / "drill"))),
    Way("drill, MariaDB", Form.MYSQL, _drilled(lambda scene: _uri(scene, "").rstrip("/")), refuses=_IN_MARIADB),
    Way("target, rows deleted", Form.MYSQL, _target, _left, DELETED, _IN_MARIADB),
    Way("lake, rows deleted", Form.ARROW, _lake, _left, DELETED, _IN_FEED),
    Way("feed, deletes", Form.ARROW, _feed("delete"), _gone, DELETED, _IN_FEED),
)
