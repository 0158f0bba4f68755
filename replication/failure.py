"""An error that was kept instead of raised: what a person needs of it, as a value that can be stored (requirement B4)."""

import json
from dataclasses import asdict, dataclass

from matrixone.errors import CcprError
from matrixone.schema import text_of


@dataclass(frozen=True, slots=True)
class Failure:
    """The parts of a `CcprError`."""

    code: str
    message: str
    subject: str
    remedy: str

    @classmethod
    def of(cls, error: CcprError) -> "Failure":
        return cls(error.code, error.message, error.subject, error.remedy)

    def __str__(self) -> str:
        return f"{self.code}: {self.message} [{self.subject}] {self.remedy}"

    def to_text(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> "Failure":
        """Raises ValueError for what `to_text` would not have written."""
        try:
            value = json.loads(text)
            return cls(*(text_of(value[key]) for key in ("code", "message", "subject", "remedy")))
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"not a stored failure: {text[:80]!r}") from error
