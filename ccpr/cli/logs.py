"""The log on standard error: foreign names in it are shown with their control characters escaped."""

import logging
import sys
import time

from ccpr.matrixone.sql.quoting import printable


class _Formatter(logging.Formatter):
    converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        return printable(super().formatException(ei), keep="\n\t")  # type: ignore[arg-type]


class _LogHandler(logging.Handler):
    """Writes to what is standard error at the moment: a test's runner replaces it, and closes it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
        except Exception:  # noqa: BLE001 - as handlers do
            self.handleError(record)


def show_log(*, verbose: bool) -> None:
    """From now on: warnings, or everything."""
    logging.basicConfig(level=logging.DEBUG if verbose else logging.WARNING, handlers=[log_handler()])
    logging.getLogger("py4j").setLevel(logging.WARNING)


def log_handler() -> logging.Handler:
    """For the log of the standard library, on standard error."""
    handler = _LogHandler()
    handler.setFormatter(_Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%F %T"))
    return handler
