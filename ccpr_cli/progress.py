"""The progress of long work on standard error, if that is a terminal."""

from threading import Lock
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from ccpr_cli.output import err
from replication.progress import Progress


def byte_bars(*more: TextColumn) -> Bars:
    """Bars that count bytes, with further columns, on standard error. Nothing is shown if that is not a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    return Bars(*columns, *more, console=err, transient=True, disable=not err.is_terminal)


class Display:
    """One line for the iteration and one for the targets, shown within a `with` block. `callbacks` also works before.

    Attributes
    ----------
    callbacks : what the work calls; handed in where it starts.
    """

    def __init__(self) -> None:
        self._bars = byte_bars(TextColumn("{task.fields[rows]}"))
        self._iteration = self._bars.add_task("", total=None, rows="", visible=False)
        self._targets = self._bars.add_task("", total=None, rows="", visible=False)
        self._rows, self._lock = 0, Lock()
        self.callbacks = Progress(
            on_step=lambda step: self._bars.update(self._iteration, description=step.title, visible=True),
            on_bytes=lambda size: self._bars.advance(self._iteration, size),
            on_target=self._on_target,
            on_rows=self._on_rows,
        )

    def expect(self, size: int) -> None:
        """The bytes that are going to be copied."""
        self._bars.update(self._iteration, total=size)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def _on_target(self, name: str) -> None:
        self._bars.update(self._iteration, visible=False)
        self._bars.update(self._targets, description=f"to target {name}", visible=True)

    def _on_rows(self, rows: int, size: int) -> None:
        with self._lock:  # several threads fill a target
            self._rows += rows
            self._bars.update(self._targets, advance=size, rows=f"{self._rows:,} rows")
