"""Errors of the command line itself."""

from ccpr.base.errors import raised_at
from ccpr.matrixone.errors import Terminal


class CodeUnknown(Terminal):
    """There is no error with this code."""

    code = "CODE_UNKNOWN"
    about = "code"
    default_remedy = "`ccpr explain` lists all codes."


class WrongUsage(Terminal):
    """The text is not a valid command with its options. Nothing was done."""

    code = "USAGE"
    about = "command"
    default_remedy = "See `ccpr COMMAND --help`."


class NotConfirmed(Terminal):
    """The command would destroy something and was not confirmed, or had no terminal on which to ask. Nothing was done.
    The exit code is 4."""

    code = "NOT_CONFIRMED"
    about = "what would be lost"
    default_remedy = "To confirm, type it again with --yes."


class CannotServe(Terminal):
    """The emulator cannot listen on its port, or cannot use its certificate."""

    code = "EMULATOR_NOT_SERVED"
    about = "address"
    default_remedy = (
        "Choose another --port (0 takes a free one), and check the files of --tls-certificate and --tls-key."
    )


class Defect(Terminal):
    """A defect of this program, or of a library that it uses. What was committed is kept."""

    code = "DEFECT"
    about = "module and line"
    default_remedy = "Run it again with `ccpr --verbose`, and report the lines that it prints; they hold no password."

    @classmethod
    def of(cls, error: Exception) -> "Defect":
        return cls(f"{type(error).__name__}: {error}", subject=raised_at(error))
