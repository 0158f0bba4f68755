"""The confirmation of what cannot be undone: at a terminal, or by `--yes`.

Each command that destroys something calls `confirm` before its first write, and none asks in another way.
"""

import sys

import typer

from ccpr.cli.defects import NotConfirmed


def confirm(question: str, *, subject: str, yes: bool, as_json: bool, harmless: bool = False) -> None:
    """Ask, unless `--yes` was given. Raises NotConfirmed if the answer is no, or if there is no terminal.

    Parameters
    ----------
    subject : what would be lost, for the error.
    as_json : the output is for a program, so that nothing is asked, whatever standard input is.
    harmless : nothing would be lost, so that it is done without a terminal.
    """
    if yes:
        return
    if as_json or not is_interactive():
        if harmless:
            return
        raise NotConfirmed("there is no terminal to ask on, and --yes was not given", subject=subject)
    if not typer.confirm(question, err=True):
        raise NotConfirmed("the answer was no", subject=subject)


def is_interactive() -> bool:
    """Whether a question can be answered: standard input is there, open, and a terminal."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
