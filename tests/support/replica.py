"""A recording replayed by the emulator, and a subscription to it driven through the command line, in this process."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.testing

from ccpr.cli.interrupts import BEHIND
from ccpr.cli.main import app
from ccpr_emulator.recorded_upstream import RecordedUpstream
from ccpr_emulator.serving.faults import Fault
from tests.support.expected import assert_rows_equal
from tests.support.recordings_location import scenarios

NAME = "replica"
# Of both releases, but for one whose iterations make no point while a transaction is open (test_long_transactions.py).
SCENARIOS = [pytest.param(path, id=name) for name, path in scenarios().items() if name != "4.2.0/long_transactions"]
OLDER = [path for name, path in scenarios().items() if name == path]
# Where a test reads each of its tables several times, the largest are of the long lane.
_LARGEST = ("many_tables", "wide_and_large", "4.2.0/dml", "4.2.0/many_tables")
SIZED_SCENARIOS = [
    pytest.param(*one.values, id=one.id, marks=[pytest.mark.long] if one.id in _LARGEST else []) for one in SCENARIOS
]
SIZED_OLDER = [one for one in SIZED_SCENARIOS if one.id == one.values[0]]


@dataclass(frozen=True)
class About:
    """What a recording is of."""

    folder: Path
    database: str
    table: str | None
    publisher: str
    snapshots: int

    @classmethod
    def read(cls, folder: Path) -> "About":
        value = json.loads((folder / "about.json").read_text())
        return cls(folder, value["database"], value["table"], value["publisher"], value["snapshots"])

    def expected(self, snapshot: int) -> dict[str, Path]:
        """The Parquet file of each table's true rows at a snapshot (1 is the first), by `db.table`."""
        files = (self.folder / f"snapshot-{snapshot:03}" / "expected").glob("*.parquet")
        return {file.name.removesuffix(".parquet"): file for file in files}


def usual_code(document: Any) -> int:
    """The exit code of a command that did what it was asked to. That of a run says whether tables lag."""
    targets = document["targets"] if isinstance(document, dict) and "objects_copied" in document else []
    return BEHIND if any(target["behind"] for target in targets) else 0


def command(*words: str, code: int | None = None) -> Any:
    """Run `ccpr … --json`. Returns the document that it prints. Fails if the exit code is another than
    `code` (None: `usual_code`)."""
    result = typer.testing.CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    document = json.loads(result.stdout)
    expected = usual_code(document) if code is None else code
    assert result.exit_code == expected, result.output
    return document


def source_uri(port: int) -> str:
    """Of an upstream on this machine, with the name of the password's variable."""
    return f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{port}"


class Replica:
    """A subscription to an emulator, and the commands that a user would type."""

    def __init__(self, about: About, emulator: RecordedUpstream, folder: Path) -> None:
        self.about, self.emulator, self.folder = about, emulator, folder

    def command(self, *words: str, code: int | None = None) -> Any:
        return command(*words, code=code)

    def subscribe(self, *options: str, code: int = 0, source: str | None = None, database: str | None = None) -> Any:
        source = source or source_uri(self.emulator.port)
        scope = [
            "--database",
            database or self.about.database,
            "--publisher",
            self.about.publisher,
            "--publication",
            f"pub_{self.about.folder.name}",
        ]
        if self.about.table and "--table" not in options:
            scope += ["--table", self.about.table]
        return self.command("subscribe", NAME, "--from", source, *scope, *options, code=code)

    def run(self, *options: str, code: int | None = None) -> Any:
        return self.command("run", NAME, *options, code=code)

    def export(self, table: str, at: int | None = None) -> pa.Table:
        file = self.folder / "export.parquet"
        self.command("export", NAME, table, "--out", str(file), *([] if at is None else ["--at", str(at)]))
        return pq.read_table(file)

    def export_all(self, at: int | None = None) -> dict[str, pa.Table]:
        """The rows of each table at a point, by one command; by one a table where the point cannot be pinned, since it
        is no longer kept, or the test has made it older."""
        folder, options = tempfile.mkdtemp(dir=self.folder), [] if at is None else ["--at", str(at)]
        result = typer.testing.CliRunner().invoke(app, ["export", NAME, "--out", folder, *options, "--json"])
        document = json.loads(result.stdout)
        if result.exit_code and document["error"]["code"] == "POINT_GONE":
            shown = self.command("tables", NAME, *options)["tables"]
            return {one["table"]: self.export(one["table"], at) for one in shown if one["kind"] == "table"}
        assert result.exit_code == 0, result.output
        return {one["table"]: pq.read_table(one["file"]) for one in document}

    @property
    def mirror(self) -> Path:
        return self.folder / "home" / "mirrors" / NAME

    def unspent_faults(self) -> list[Fault]:
        """Injected faults that have not struck as often as they should; none of them strikes from now on."""
        return self.emulator._upstream.faults.strike(lambda fault: True)

    def in_scope(self, snapshot: int) -> dict[str, Path]:
        """The expected rows of the tables that the subscription replicates."""
        expected = self.about.expected(snapshot)
        return {name: file for name, file in expected.items() if self.about.table in (None, name.partition(".")[2])}

    def assert_equal_to_source(self, snapshot: int, at: int | None = None) -> int:
        """Each table's replica equals the rows that were true at a recorded snapshot, and there are no others. Returns
        the number of tables.
        """
        expected = self.in_scope(snapshot)
        options = [] if at is None else ["--at", str(at)]
        shown = self.command("tables", NAME, *options)["tables"]
        assert {table["table"] for table in shown if table["kind"] == "table"} == set(expected)
        self.assert_exported(expected, at)
        return len(expected)

    def assert_exported(self, expected: dict[str, Path], at: int | None = None) -> None:
        """An export of all tables has the tables that are expected, each with the rows of its file."""
        exported = self.export_all(at)
        assert set(exported) == set(expected)
        for table, file in expected.items():
            assert_rows_equal(exported[table], pq.read_table(file))


@contextmanager
def replaying(folder: Path, home: Path, **options: Any) -> Iterator[Replica]:
    """An emulator that replays a recording, with a subscription to it. `home` is the parent of the state folder, which
    the caller's fixture names in CCPR_HOME."""
    with RecordedUpstream(folder, **options) as emulator:
        yield Replica(About.read(folder), emulator, home)
