"""How the last attempt at an iteration failed, read from `mo_ccpr_log.error_message`.

The column has the times and then the text of a `Failure`, which people also read by SQL (`CcprLog.fail` writes it):

    R:<failures in a row>:<first>:<last>:<text>     it is tried again
    N:<when>:<text>                                 it is not

The text is cut after 5000 characters, so it is parsed leniently: what cannot be recognized belongs to the message.
"""

import re
from dataclasses import dataclass

from ccpr.base.failure import Failure
from ccpr.state.log_rows import Failures

_TEXT = re.compile(r"(?P<code>[A-Z][A-Z0-9_]*): (?P<message>.*?) \[(?P<subject>.*)\] (?P<remedy>.*)", re.S)
_CODE = re.compile("[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class LastError:
    """A failure with its times, which are seconds since 1970.

    Attributes
    ----------
    again : whether it is tried again by itself.
    attempts : failures in a row; 1 if it is not tried again.
    """

    code: str
    message: str
    subject: str
    remedy: str
    again: bool
    attempts: int
    first: float
    last: float

    @classmethod
    def of(
        cls, failure: Failure, *, again: bool, attempts: int = 1, first: float = 0.0, last: float = 0.0
    ) -> "LastError":
        parts = (failure.code, failure.message, failure.subject, failure.remedy)
        return cls(*parts, again, attempts, first, last)

    @classmethod
    def parse(cls, error_message: str | None) -> "LastError | None":
        """None if the last iteration did not fail."""
        if not error_message:
            return None
        if repeated := Failures.of(error_message):
            failure, count = parse_failure(repeated.text), repeated.count
            return cls.of(failure, again=True, attempts=count, first=repeated.first, last=repeated.last)
        kind, _, rest = error_message.partition(":")
        when, _, text = rest.partition(":")
        if kind != "N" or not when.isdecimal():
            return cls.of(parse_failure(error_message), again=False)
        return cls.of(parse_failure(text), again=False, first=float(when), last=float(when))


def parse_failure(text: str) -> Failure:
    """The failure whose text (`str`) this is. Of a text that was cut, or that is not ours, all is the message."""
    if found := _TEXT.fullmatch(text):
        return Failure(found["code"], found["message"], found["subject"], found["remedy"])
    code, colon, rest = text.partition(": ")
    if colon and _CODE.fullmatch(code):
        return Failure(code, rest, "", "")
    return Failure("CCPR", text, "", "")
