"""State that an earlier version has written (tests/fixtures/README.md), where today's code goes on from it, and the
names that are stored in it."""

import json
import re
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql

from ccpr.matrixone.sql.quoting import quote_name
from ccpr.service.workspace import Workspace
from ccpr.targets.address import parse_target_uri
from ccpr_emulator.recorded_upstream import RecordedUpstream
from tests.support.expected import assert_rows_equal
from tests.support.mariadb import MariaDb, uri_from
from tests.support.replica import About, Replica, command, source_uri
from tests.targets.target_database import Place

Found = defaultdict[str, set[str]]
NOTHING: Mapping[Path, bytes] = {}


class Old(Replica):
    """A subscription of an old state, to a recording."""

    def __init__(self, name: str, recording: Path, emulator: RecordedUpstream, folder: Path) -> None:
        super().__init__(About.read(recording), emulator, folder)
        self.name = name

    def run(self, *options: str, code: int | None = None) -> Any:
        return self.command("run", self.name, *options, code=code)

    def export(self, table: str, at: int | None = None) -> Any:
        return export(self.name, table, self.folder, at)

    def assert_equal(self, lsn: int, snapshot: int, *, but: Collection[str] = ()) -> None:
        """A point shows the rows that were true at a recorded snapshot; `but`: tables that are not looked at."""
        for table, file in self.in_scope(snapshot).items():
            if table not in but:
                assert_rows_equal(self.export(table, lsn), pq.read_table(file))


@dataclass(frozen=True)
class OldState:
    """
    Attributes
    ----------
    written : the fixture's folder, with a state folder `home` and dumps of targets.
    recordings : of the subscriptions that have one, by name: their object files are not in the fixture.
    """

    written: Path
    recordings: Mapping[str, Path]

    @property
    def catalog(self) -> Path:
        return self.written / "home" / "catalog.db"

    def bring(self, home: Path) -> Path:
        """The state folder with its object files, where the caller's fixture names it in CCPR_HOME."""
        folder = home / "home"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.written / "home", folder)
        (folder / "key").chmod(0o600)
        for name, recording in self.recordings.items():
            mirror = folder / "mirrors" / name
            (mirror / "objects").mkdir()
            for listed in (*mirror.glob("ledger/*.arrow"), *mirror.glob("work/*/copied.arrow")):
                for object_name in pa.ipc.open_file(listed).read_all().column("name").to_pylist():
                    shutil.copyfile(recording / "objects" / object_name, mirror / "objects" / object_name)
        return folder

    @contextmanager
    def going_on(self, name: str, home: Path, **options: Any) -> Iterator[Old]:
        """An upstream that has the snapshots which the state knows, and the subscription pointed to it."""
        with RecordedUpstream(self.recordings[name], **options) as emulator:
            with closing(Workspace()) as workspace:
                row = workspace.log.row(name)
            context = json.loads(row.context or "{}")
            known = {
                ref["lsn"]: ref["name"] for ref in (context[role] for role in ("open", "current", "previous")) if ref
            }
            connection = pymysql.connect(
                host="127.0.0.1", port=emulator.port, user="sys#dump", password="111", autocommit=True
            )
            with closing(connection), connection.cursor() as cursor:
                for lsn in range(max(known, default=-1) + 1):
                    named = known.get(lsn, f"other_{lsn}")
                    of = f"{row.subscription_account_name} PUBLICATION {row.publication_name}"
                    cursor.execute(f"CREATE SNAPSHOT {named} FOR DATABASE {row.db_name} FROM {of}")
            old = Old(name, self.recordings[name], emulator, home.parent)
            old.command("alter", name, "--from", source_uri(emulator.port))
            yield old

    @contextmanager
    def targets(self, server: MariaDb) -> Iterator[dict[str, Place]]:
        """The databases of the old targets, with their rows, by the names of their dumps."""
        names = json.loads((self.written / "databases.json").read_text())
        found = {}
        with ExitStack() as cleared:
            for what, name in names.items():
                server.create_database(name)
                address, _ = parse_target_uri(f"mysql://{server.user}:x@{server.host}:{server.port}/{name}")
                found[what] = Place(server, name, address)
                cleared.callback(_drop, server, name)
                _load_dump(server, name, (self.written / f"{what}.sql").read_text())
            yield found

    def tables_in_dump(self, what: str) -> dict[str, str]:
        """Our tables in a target, each with its columns."""
        dump = (self.written / f"{what}.sql").read_text()
        created = re.findall(r"CREATE TABLE `(ccpr_\w+)` \(\n(.*?)\n\) ENGINE", dump, re.DOTALL)
        return {name: " ".join(re.findall(r"^  `(\w+)`", columns, re.MULTILINE)) for name, columns in created}


def _load_dump(server: MariaDb, database: str, text: str) -> None:
    with closing(server.connect(database)) as connection, connection.cursor() as cursor:
        for statement in text.partition("\n")[2].split(";\n"):  # the first line is for mariadb's own client
            if statement.strip():
                cursor.execute(statement)


def _drop(server: MariaDb, database: str) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {quote_name(database)}")


def point_target_to(name: str, target: str, place: Place) -> None:
    """The target of a subscription at its present address; the password is in TARGET_PASSWORD."""
    to = uri_from(place.uri, "TARGET_PASSWORD")
    command("target", "alter", name, target, "--to", to)


def target_rows_of(place: Place, table: str) -> int:
    ((count,),) = place.query(f"SELECT count(*) FROM {quote_name(table)}")
    return count


def export(name: str, table: str, folder: Path, at: int | None = None) -> pa.Table:
    """What `ccpr export` gives of a table, by way of a file in a folder."""
    file = folder / "export.parquet"
    command("export", name, table, "--out", str(file), *([] if at is None else ["--at", str(at)]))
    return pq.read_table(file)


# ---- stored names


def tables_in(catalog: Path) -> dict[str, str]:
    """Tables and views, each with its columns."""
    with closing(sqlite3.connect(catalog)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        return {name: " ".join(row[1] for row in database.execute(f"PRAGMA table_info({name})")) for name in names}


def files_in(mirrors: Path) -> set[str]:
    """The paths of files in the folders of mirrors, without objects."""
    folders = [folder for folder in mirrors.iterdir() if folder.is_dir()]
    paths = ((folder, path) for folder in folders for path in folder.rglob("*.*") if path.is_file())
    return {path.relative_to(folder).as_posix() for folder, path in paths}


def assert_named_by(patterns: tuple[str, ...], names: set[str]) -> None:
    """Each name is of one of the patterns, and none of these is of no name."""
    assert {pattern for pattern in patterns for name in names if re.fullmatch(pattern, name)} == set(patterns)
    assert [name for name in names if not any(re.fullmatch(pattern, name) for pattern in patterns)] == []


def add(found: Found, what: str, keys: Any) -> None:
    found[what].add(" ".join(keys))


def add_table(found: Found, table: dict[str, Any]) -> None:
    add(found, "table", table)
    for column in table["columns"]:
        add(found, "table: columns", column)


def keys_in_mirror(folder: Path, found: Found, but: Mapping[Path, bytes] = NOTHING) -> None:
    """JSON keys, and columns of Arrow files; not of those that are as in `but`."""
    for path in filter(Path.is_file, folder.rglob("*")):
        if path.suffix not in (".arrow", ".json") or but.get(path) == path.read_bytes():
            continue
        room = path.relative_to(folder).parts[0]
        what = f"work/{path.name}" if room == "work" else room
        if path.suffix == ".arrow":
            schema = pa.ipc.open_file(path).schema
            add(found, what, schema.names)
            if room == "manifests":
                add(found, "manifests: metadata", (key.decode() for key in schema.metadata))
                about = json.loads(schema.metadata[b"ccpr"])
                add(found, "manifests: ccpr", about)
                add_table(found, about["table"])
            continue
        value = json.loads(path.read_text())
        add(found, what, value)
        for ref in value.get("snapshots", []):
            add(found, f"{what}: snapshots", ref)
        if room == "definitions":
            _add_definitions(found, value)
            continue
        for part in ("tables", "behind"):
            for entry in filter(None, value.get(part, {}).values()):
                add(found, f"points: {part}", entry)


def _add_definitions(found: Found, value: dict[str, Any]) -> None:
    for one in value.get("databases", []):
        add(found, "definitions: databases", one)
    for one in value.get("databases", [value]):
        for part in ("views", "sequences", "functions", "grants", "unreadable"):
            for entry in one[part]:
                add(found, f"definitions: {part}", entry)


def keys_in_catalog(catalog: Path, found: Found, names: Collection[str] | None = None, since: int = 0) -> None:
    """JSON keys in its columns, of these subscriptions (None: all); of tables at this point and after it."""
    with closing(sqlite3.connect(catalog)) as database:
        tasks = set()
        log = "SELECT task_id, subscription_name, context, sync_config FROM mo_ccpr_log"
        for task, name, context, config in database.execute(log):
            if names is not None and name not in names:
                continue
            tasks.add(task)
            value = json.loads(context)
            add(found, "context", value)
            add(found, "sync_config", json.loads(config))
            if value.get("capabilities") is not None:
                add(found, "context: capabilities", value["capabilities"])
            for ref in filter(None, (value[role] for role in ("open", "current", "previous"))):
                add(found, "context: snapshots", ref)
        for task, lsn, text in database.execute("SELECT task_id, lsn, table_schema FROM ccpr_table_points"):
            if task in tasks and lsn >= since:
                add_table(found, json.loads(text))
        for task, behind, failure in database.execute("SELECT task_id, behind, failure FROM ccpr_targets"):
            if task not in tasks:
                continue
            for entry in json.loads(behind):
                add(found, "ccpr_targets: behind", entry)
                add(found, "failure", entry["failure"])
            if failure is not None:
                add(found, "failure", json.loads(failure))


def keys_in_target(place: Place, found: Found) -> None:
    """JSON keys in the columns of our tables."""
    for (text,) in place.query("SELECT source FROM ccpr_registry"):
        add_table(found, json.loads(text))
    for (text,) in place.query("SELECT table_info FROM ccpr_checkpoints WHERE table_info IS NOT NULL"):
        add(found, "ccpr_checkpoints: table_info", json.loads(text))
    for (text,) in place.query("SELECT definition FROM ccpr_loads"):
        _add_target_table(found, json.loads(text))
    for (text,) in place.query("SELECT `change` FROM ccpr_intents"):
        change = json.loads(text)
        add(found, "ccpr_intents: change", change)
        for table in change["tables"]:
            _add_target_table(found, table)


def _add_target_table(found: Found, table: dict[str, Any]) -> None:
    add(found, "target table", table)
    add_table(found, table["source"])
