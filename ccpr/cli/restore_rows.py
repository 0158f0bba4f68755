"""`ccpr restore` into a database of a MariaDB, MySQL or MatrixOne, row by row, and how far it has come."""

import time
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from ccpr.base.progress import Progress
from ccpr.base.wording import first_names, seconds_text, size_text
from ccpr.cli.login_options import read_target_login
from ccpr.cli.output import counted, err, out, show_json
from ccpr.cli.target_output import end_with_behind

if TYPE_CHECKING:
    from ccpr.cli.definitions_script import DefinitionsScript
    from ccpr.matrixone.schema import Reading
    from ccpr.service.point_loading import LoadedPoint, PointSource
    from ccpr.service.workspace import Workspace
    from ccpr.state.pins import Pins

_EVERY_SECONDS = 15.0


def has_database(into: str) -> bool:
    """Whether a database is named behind the address."""
    return "/" in into.rpartition("@")[2].partition("?")[0]


def restore_rows(
    workspace: "Workspace",
    source: "PointSource",
    into: str,
    password_file: Path | None,
    pins: "Pins | None",
    script: "DefinitionsScript | None",
    reading: "Reading",
    *,
    as_json: bool,
) -> None:
    """Load it, and show how long it will take and how far it is."""
    from ccpr.retention.pinning import pinned
    from ccpr.service import estimates
    from ccpr.service.point_loading import load_point

    address, password = read_target_login(into, password_file)
    refs = [source.point.tables[table_id] for table_id in source.chosen()]
    size, rows = sum(ref.bytes for ref in refs), sum(ref.rows for ref in refs)
    shown = RowProgress(rows, quiet=as_json)
    shown.announce(size, estimates.expected_seconds(workspace.home, "rows", size))
    with pinned(pins, source.point, workspace.clock):
        done = load_point(source, address, password, progress=shown.callbacks, reading=reading)
    estimates.record(workspace.home, "rows", size, done.seconds)
    if as_json:
        show_json(_json(done) | ({} if script is None else script.to_json()))
        end_with_behind(done.behind, as_json=True)
        return
    place = f"{address.endpoint.masked()}/{done.database}"
    out.print(f"point {done.lsn} is database {done.database} at {place}", markup=False)
    took = f"took {seconds_text(done.seconds)}"
    told = (
        f"{counted(done.tables, 'table')}, {counted(done.rows, 'row')}, {size_text(done.bytes)} of the mirror; {took}"
    )
    out.print(f"{told}; compared with what is there", markup=False)
    if done.there:
        out.print(f"{first_names(done.there)} were there, with the same rows", markup=False)
    for table, lost in done.left_out.items():
        for text in lost:
            out.print(f"{table}: not as in the source: {text}", style="yellow", markup=False)
    if script is not None:
        script.show()
    end_with_behind(done.behind, as_json=False)


def _json(done: "LoadedPoint") -> dict[str, Any]:
    return {
        "database": done.database,
        "lsn": done.lsn,
        "at": done.at,
        "tables": done.tables,
        "rows": done.rows,
        "bytes": done.bytes,
        "seconds": round(done.seconds, 3),
        "left_out": {table: list(lost) for table, lost in done.left_out.items()},
        "there": list(done.there),
        "behind": [one.to_json() for one in done.behind],
    }


def expected_text(size: int, seconds: float | None) -> str:
    """The bytes that will be read, and the time that this takes."""
    told = "how long it takes is not known yet" if seconds is None else f"takes some {seconds_text(seconds)}"
    return f"{size_text(size)} of the mirror: {told}{'' if seconds is None else ', by the last ones'}"


class RowProgress:
    """A line now and then: rows of how many, and how long it still takes. `callbacks` is for the work."""

    def __init__(self, rows: int, *, quiet: bool) -> None:
        self._total, self._quiet, self._lock = rows, quiet, Lock()
        self._rows, self._started = 0, time.monotonic()
        self._next = self._started + _EVERY_SECONDS
        self.callbacks = Progress(on_rows=lambda count, _: self.add(count))

    def begin(self, rows: int) -> None:
        """So many at most."""
        self._total, self._started = rows, time.monotonic()
        self._next = self._started + _EVERY_SECONDS

    def announce(self, size: int, seconds: float | None) -> None:
        """Before it begins."""
        if not self._quiet:
            err.print(f"at most {counted(self._total, 'row')}, {expected_text(size, seconds)}", style="dim")

    def add(self, rows: int) -> None:
        with self._lock:
            self._rows += rows
            now = time.monotonic()
            if self._quiet or now < self._next:
                return
            self._next = now + _EVERY_SECONDS
            left = (now - self._started) * max(0, self._total - self._rows) / max(1, self._rows)
            err.print(
                f"{self._rows:,} of at most {counted(self._total, 'row')}; some {seconds_text(left)} left", style="dim"
            )
