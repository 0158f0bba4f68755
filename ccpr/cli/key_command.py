"""`ccpr key`: keys of encrypted mirrors."""

import os
from pathlib import Path
from typing import Annotated

import typer

from ccpr.base.clock import utc_now
from ccpr.cli.arguments import AsJson
from ccpr.cli.output import answer, handle_errors, show_json, show_table
from ccpr.mirror.errors import StoreFailed

key = typer.Typer(help="Keys of encrypted mirrors: make one, show their numbers.", no_args_is_help=True)
Reference = Annotated[
    str, typer.Argument(metavar="file:PATH|env:NAME|command", help="Where the keys are, as for --encrypt.")
]


@key.command()
def new(
    file: Annotated[Path, typer.Argument(help="The file to write, for its owner alone. It must not exist.")],
    as_json: AsJson = False,
) -> None:
    """Make a key. Keep a copy where the mirror is not: what it encrypts cannot be read without it."""
    from ccpr.base.file_modes import opener
    from ccpr.mirror.encryption_keys import new_key, parse_keys

    with handle_errors(as_json=as_json):
        text = new_key()
        (made,) = parse_keys(text, "").keys
        try:
            with open(file, "x", opener=opener(shared=False)) as to:
                to.write(f"# key {made.id.hex()} of {utc_now():%Y-%m-%d}\n{text}\n")
                to.flush()
                os.fsync(to.fileno())
        except OSError as error:
            remedy = "Name a file that does not exist, in a folder that this user may write to."
            raise StoreFailed(
                f"the key cannot be written: {error.strerror}", subject=str(file), remedy=remedy
            ) from error
    answer(
        {"key": made.id.hex(), "file": str(file.absolute())},
        f"key {made.id.hex()} is in {file}; use it with --encrypt file:{file}",
        as_json=as_json,
    )


@key.command()
def show(reference: Reference, as_json: AsJson = False) -> None:
    """Show the numbers of the keys that are there, and not the keys. The first encrypts what is new."""
    from ccpr.mirror.encryption_keys import keyring

    with handle_errors(as_json=as_json):
        found = keyring(reference)
    numbers = [one.id.hex() for one in found.keys]
    if as_json:
        show_json({"keys": numbers})
        return
    cells = [(number, "encrypts and opens" if place == 0 else "opens") for place, number in enumerate(numbers)]
    show_table(("key", "use"), cells, empty="")
