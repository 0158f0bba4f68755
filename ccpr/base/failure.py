"""An error that is stored instead of raised, as a value. Source: docs/requirements.md B4."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import text_of


@dataclass(frozen=True, slots=True)
class Failure:
    """Code, message, subject and remedy of a `CcprError`."""

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
