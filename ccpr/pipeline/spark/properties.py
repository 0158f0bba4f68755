"""Spark's settings as a file of mode 600: the arguments of a process are seen by all users of the machine."""

import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_SUBMIT = "PYSPARK_SUBMIT_ARGS"  # Spark's own
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_IN_NAMES = {letter: f"\\{letter}" for letter in " :=#!"}


def properties_text(config: Mapping[str, str]) -> str:
    """The settings as Java reads them from a file, sorted by name."""
    return "".join(f"{_name(name)}={_value(value)}\n" for name, value in sorted(config.items()))


@contextmanager
def submitted_by_file(config: Mapping[str, str]) -> Iterator[None]:
    """A JVM that pyspark starts within the block has these settings, by a file that is there as long as the block. What
    PYSPARK_SUBMIT_ARGS and `spark-defaults.conf` say is kept."""
    before = os.environ.get(_SUBMIT)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="ccpr-spark-", suffix=".conf") as file:
        file.write(properties_text(config))
        file.flush()
        os.environ[_SUBMIT] = (
            f"--properties-file {shlex.quote(file.name)} --load-spark-defaults {before or 'pyspark-shell'}"
        )
        try:
            yield
        finally:
            if before is None:
                del os.environ[_SUBMIT]
            else:
                os.environ[_SUBMIT] = before


def _name(text: str) -> str:
    return text.translate(str.maketrans(_ESCAPES | _IN_NAMES))


def _value(text: str) -> str:
    escaped = text.translate(str.maketrans(_ESCAPES))
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
