"""The log on standard error: foreign names in it are shown with their control characters escaped. The modules of this
project log by the standard library, and the steps of an iteration by structlog, which is imported with them."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

from matrixone.sql.quoting import printable


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n\t")  # a traceback has lines


_level = logging.WARNING


def show_log(*, verbose: bool) -> None:
    """From now on: warnings, or everything."""
    global _level  # of the program
    _level = logging.DEBUG if verbose else logging.WARNING
    logging.basicConfig(level=_level, handlers=[log_handler()])
    logging.getLogger("py4j").setLevel(logging.WARNING)


def show_events() -> None:
    """The same for structlog."""
    import structlog

    structlog.configure(
        processors=[*structlog.get_config()["processors"][:-1], printable_values, structlog.dev.ConsoleRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(_level),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # of now: another may stand there later
    )


def log_handler() -> logging.Handler:
    """For the log of the standard library, on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(levelname)s %(name)s: %(message)s"))
    return handler


def printable_values(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog."""
    return {
        key: printable(value, keep="\n" if key in ("exception", "event") else "") if isinstance(value, str) else value
        for key, value in event.items()
    }
