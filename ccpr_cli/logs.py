"""The log on standard error: foreign names in it are shown with their control characters escaped."""

import logging
from collections.abc import MutableMapping
from typing import Any

from matrixone.sql.quoting import printable


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n\t")  # a traceback has lines


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
