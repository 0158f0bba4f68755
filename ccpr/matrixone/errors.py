"""The root of every error that this project raises on purpose.

An error has a *code* (stable, for scripts), a *subject* (the table, object, statement or file it is about) and a
*remedy* (what to do next). The class decides whether trying again can help: `Transient` (try again, also what no rule
knows), `Terminal` (only a change by an operator helps; `Refused`: another server says so, and is asked once more),
`Unknown` (the outcome is not known: look it up before anything is repeated). Source: docs/architecture.md, "What bad
input gets"; decision ends-are-confirmed.

`ccpr explain CODE` and docs/reference/errors.md show the docstring of each class with a code as its meaning.
"""

from functools import partial
from typing import ClassVar


class CcprError(Exception):
    """Root of all errors. Subclasses set `code`, `about` and a default `remedy`, and have a docstring.

    Attributes
    ----------
    message : what happened, in one sentence, without a password in it.
    subject : what it happened to, e.g. ``object 018f…_00000`` or ``table db.t``.
    remedy : what to do next; never empty.
    """

    code: ClassVar[str] = "CCPR"
    about: ClassVar[str] = "subscription"  # what kind of thing the subject is
    default_remedy: ClassVar[str] = (
        "Run the command again with --verbose and read the log; if it stays, report it with this text."
    )

    def __init__(self, message: str, *, subject: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.remedy = remedy or self.default_remedy

    def __str__(self) -> str:
        return f"{self.code}: {self.message} [{self.subject}] {self.remedy}"

    def __reduce__(self):  # errors are pickled between processes (Spark workers, Dagster steps) with all their fields
        return partial(type(self), subject=self.subject, remedy=self.remedy), (self.message,)


class Transient(CcprError):
    """Trying again may help, without operator action."""

    what_follows: ClassVar[str] = "tried again by itself"


class Terminal(CcprError):
    """Trying again gives the same answer until an operator changes something."""

    what_follows: ClassVar[str] = "requires operator action"


class Refused(Terminal):
    """Terminal if it is true: another server says it, and a server that restarts or is upgraded may say what is not
    so. Where the same server said otherwise before, it counts once it is confirmed (decision ends-are-confirmed)."""

    what_follows: ClassVar[str] = "counts once it is confirmed; then requires operator action"


class Unknown(CcprError):
    """The outcome of the action is not known: look it up, do not repeat it blindly."""

    what_follows: ClassVar[str] = "looked up before anything is repeated"
