"""What a command asks at a terminal: the password of a login, if it is given nowhere else, and the confirmation of what
cannot be undone, if not by `--yes`.

Each command that destroys something calls `confirm` before its first write, and none asks in another way.
"""

import os
import sys
from pathlib import Path

import typer

from ccpr.cli.defects import NotConfirmed
from ccpr.cli.output import err
from ccpr.matrixone.client.endpoint import Endpoint, parse_uri
from ccpr.matrixone.client.errors import BadUri
from ccpr.targets.address import Address, parse_target_uri


def confirm(question: str, *, subject: str, yes: bool, as_json: bool, harmless: bool = False) -> None:
    """Ask, unless `--yes` was given. Raises NotConfirmed if the answer is no, or if there is no terminal. `subject`:
    what would be lost, for the error. `as_json`: the output is for a program, so that nothing is asked, whatever
    standard input is. `harmless`: nothing would be lost, so that it is done without a terminal."""
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


def read_login(source: str, password_file: Path | None = None, *, seen: bool = True) -> tuple[Endpoint, str]:
    """The endpoint and the password: from the file, the environment (`env:NAME`), the URI itself, or a prompt. Raises
    BadUri.

    `seen`: the URI is on the command line, where other users of the machine can see it.
    """
    endpoint, password = parse_uri(source)
    return endpoint, _password(endpoint, password, password_file, seen=seen)


def read_target_login(source: str, password_file: Path | None = None) -> tuple[Address, str]:
    """The same for a target. Raises BadTargetUri, BadUri."""
    address, password = parse_target_uri(source)
    return address, _password(address.endpoint, password, password_file, seen=True)


def _password(endpoint: Endpoint, password: str | None, password_file: Path | None, *, seen: bool) -> str:
    if password_file is not None:
        try:
            return password_file.read_text().partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            raise BadUri(
                "the password file cannot be read", subject=str(password_file), remedy="Check its path and permissions."
            ) from error
    if password is not None and password.startswith("env:"):
        variable = password.removeprefix("env:")
        if variable not in os.environ:
            raise BadUri(
                "the environment variable of the password is not set",
                subject=f"env:{variable}",
                remedy=f"export {variable}=…",
            )
        return os.environ[variable]
    if password is not None:
        if seen:
            err.print(
                "warning: others can see a password on the command line; use env:NAME or --password-file",
                style="yellow",
            )
        return password
    if not sys.stdin.isatty():
        raise BadUri(
            "no password was given", subject=endpoint.masked(), remedy="Use env:NAME in the URI, or --password-file."
        )
    return typer.prompt(f"Password for {endpoint.login}", hide_input=True)
