"""Arguments and options that several commands have."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, errors too.")]
Name = Annotated[str, typer.Argument(help="The subscription.")]
