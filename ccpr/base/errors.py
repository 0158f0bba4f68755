"""An error as a value, a defect as an error, and a missing extra: what needs a package that only some need asks here
before it imports it (`pyproject.toml`, docs/dependencies.md). The other errors are in the errors.py of the lowest room
that raises or catches them."""

import json
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, Self

from ccpr.matrixone.errors import CcprError, Terminal, Transient
from ccpr.matrixone.schema import text_of


@dataclass(frozen=True, slots=True)
class Failure:
    """Code, message, subject and remedy of a `CcprError` that is stored instead of raised (docs/requirements.md B4)."""

    code: str
    message: str
    subject: str
    remedy: str

    @classmethod
    def of(cls, error: CcprError) -> "Failure":
        return cls(error.code, error.message, error.subject, error.remedy)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Failure":
        """Raises ValueError, KeyError or TypeError for what is not the JSON of a failure."""
        return cls(*(text_of(value[key]) for key in ("code", "message", "subject", "remedy")))

    def __str__(self) -> str:
        return f"{self.code}: {self.message} [{self.subject}] {self.remedy}"

    def to_text(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> "Failure":
        """Raises ValueError for what `to_text` would not have written."""
        try:
            return cls.from_json(json.loads(text))
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"not a stored failure: {text[:80]!r}") from error


class UnexpectedError(Transient):
    """A defect, of this program or of a library, in a repeated task of a service. Other tasks go on."""

    code = "UNEXPECTED"
    about = "module and line"
    default_remedy = "Report the lines that the service has logged, with the version and the lines before them."

    @classmethod
    def of(cls, error: Exception) -> Self:
        return cls(f"{type(error).__name__}: {error}"[:1000], subject=raised_at(error))


class ExtraMissing(Terminal):
    """This feature needs packages that an extra of this program brings: spark, dagster, dagster-spark, emulator,
    duckdb, lake, pandas, polars, or all of these."""

    code = "EXTRA_MISSING"
    about = "extra"
    default_remedy = "pip install 'matrixone-ccpr[all]'"


def let_interrupt_pass(error: BaseException | None) -> None:
    """Raises the interrupt that is behind an error, if there is one: where a library rolls back after an interrupt, an
    error in that takes its place."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            raise error
        error = error.__context__


def raised_at(error: Exception) -> str:
    """File and line."""
    last = traceback.extract_tb(error.__traceback__, limit=-1)[-1]
    return f"{last.filename}:{last.lineno}"


def require(extra: str, *packages: str, otherwise: str = "") -> None:
    """Raises ExtraMissing, which names the extra, unless all these packages of it can be imported. `otherwise` is a
    sentence about how to do without it."""
    if missing := absent(*packages):
        what = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        raise missing_extra(extra, what, otherwise)


def missing_extra(extra: str, what: str, otherwise: str = "") -> ExtraMissing:
    """The error that names the extra: `what` is missing."""
    remedy = f"pip install 'matrixone-ccpr[{extra}]'"
    return ExtraMissing(what, subject=f"extra {extra}", remedy=f"{remedy}. {otherwise}" if otherwise else remedy)


def absent(*packages: str) -> list[str]:
    """Those of some top-level packages that are not installed."""
    return [package for package in packages if find_spec(package) is None]
