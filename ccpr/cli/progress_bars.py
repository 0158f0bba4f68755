"""The progress of long work on standard error: bars if that is a terminal, otherwise a line every quarter of a minute
of copying, for logs."""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Self, cast

from ccpr.base.clock import wall_clock
from ccpr.base.progress import CopyLog, Progress, size_text
from ccpr.base.wording import seconds_text
from ccpr.cli.output import counted, err
from ccpr.cli.shown_times import time_text

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID, TextColumn

    from ccpr.mirror.points import TableRef
    from ccpr.pipeline.spark.choice import CopierChoice


def byte_bars(*more: "TextColumn") -> "Bars":
    """Bars that count bytes, with further columns, on standard error. Nothing is shown if that is not a terminal."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    return Bars(*columns, *more, console=err, transient=True, disable=not err.is_terminal)


def _rows_bars() -> "Bars":
    from rich.progress import TextColumn

    return byte_bars(TextColumn("{task.fields[rows]}"))


class _NoBars:
    """Where standard error is not a terminal: rich's bars are not imported for it."""

    def add_task(self, description: str, **shown: object) -> "TaskID":
        return cast("TaskID", 0)

    def update(self, task: "TaskID", **shown: object) -> None: ...

    def advance(self, task: "TaskID", by: float) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


_EVERY_SECONDS = 15.0
_MUCH_BYTES, _LONG_SECONDS = 64 << 20, 5.0  # what is worth a line before it begins


class Display:
    """One line for the iteration and one for the targets, shown within a `with` block. `callbacks` also works before.
    `callbacks`: what the work calls; handed in where it starts. `choices`: which engine copied, and why; more than one
    where the first failed."""

    def __init__(self) -> None:
        self._bars = _rows_bars() if err.is_terminal else _NoBars()
        self._iteration = self._bars.add_task("", total=None, rows="", visible=False)
        self._targets = self._bars.add_task("", total=None, rows="", visible=False)
        self._rows, self._lock = 0, Lock()
        self.choices: list[CopierChoice] = []
        self._log: CopyLog | None = None
        self.callbacks = Progress(
            on_step=lambda step: self._bars.update(self._iteration, description=step.title, visible=True),
            on_copy=self._on_copy,
            on_bytes=self._on_bytes,
            on_target=self._on_target,
            on_rows=self._on_rows,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def _on_copy(self, size: int) -> None:
        self._bars.update(self._iteration, total=size)
        if not err.is_terminal:
            self._log = CopyLog(size, lambda text: err.print(f"{time_text(wall_clock())}  {text}"))

    def _on_bytes(self, size: int) -> None:
        self._bars.advance(self._iteration, size)
        if self._log is not None:
            self._log.add(size)

    def _on_target(self, name: str) -> None:
        self._bars.update(self._iteration, visible=False)
        self._bars.update(self._targets, description=f"to target {name}", visible=True)

    def _on_rows(self, rows: int, size: int) -> None:
        with self._lock:  # several threads fill a target
            self._rows += rows
            self._bars.update(self._targets, advance=size, rows=f"{self._rows:,} rows")


def expected_text(size: int, seconds: float | None) -> str:
    """The bytes that will be read, and the time that this takes."""
    told = "how long it takes is not known yet" if seconds is None else f"takes some {seconds_text(seconds)}"
    return f"{size_text(size)} of the mirror: {told}{'' if seconds is None else ', by the last ones'}"


@contextmanager
def measured(home: Path, kind: str, refs: "Collection[TableRef]", *, quiet: bool) -> "Iterator[RowProgress]":
    """For work in which all rows of these tables are read: how long it takes by the last ones of its kind is said
    before it begins, how far it is meanwhile, and its rate is remembered."""
    from ccpr.service import estimates

    size, began = sum(ref.bytes for ref in refs), time.monotonic()
    shown = RowProgress(sum(ref.rows for ref in refs), quiet=quiet)
    shown.announce(size, estimates.expected_seconds(home, kind, size))
    yield shown
    estimates.record(home, kind, size, time.monotonic() - began)


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
        """Before it begins, of what takes a while."""
        if not self._quiet and (size >= _MUCH_BYTES if seconds is None else seconds >= _LONG_SECONDS):
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
