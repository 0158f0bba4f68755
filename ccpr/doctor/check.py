"""Checks whether replication can work, on this machine and upstream, before anything is copied (docs/requirements.md
B13).

Each check uses what a run would use, and nothing else. A file that is written as a test is deleted again. A check that
fails does not stop the others, except those that depend on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ccpr.matrixone.errors import CcprError


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"  # it depends on one that failed, or cannot be known


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its result. `side`: ``here`` or ``upstream``. `told`: what was found. `code`: of the error, if
    there is one; `ccpr explain` has more."""

    side: str
    what: str
    result: Verdict
    told: str
    remedy: str = ""
    code: str = ""


def checked(side: str, what: str, check: Callable[[], str]) -> Check:
    try:
        return Check(side, what, Verdict.OK, check())
    except CcprError as error:
        return failed(side, what, error)


def failed(side: str, what: str, error: CcprError) -> Check:
    return Check(side, what, Verdict.FAILED, f"{error.message} [{error.subject}]", error.remedy, error.code)
