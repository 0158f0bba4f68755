"""`ccpr config export`: the state as a file for `ccpr config apply`."""

from pathlib import Path
from typing import Annotated

import typer

from ccpr.cli.arguments import AsJson
from ccpr.cli.configuration_file import write
from ccpr.cli.output import counted, handle_errors, out, show_json


def export_config(
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Where to write it; standard output if not given.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Instead of the state, the JSON schema of such files, for editors.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write subscriptions, targets, followers and Spark's settings as a file in which `ccpr config apply` would find
    nothing to do. Passwords are ${NAMES} of environment variables in it."""
    from ccpr.config.config_export import Exported, export_config
    from ccpr.config.model import schema_text
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        exported = Exported(schema_text(), ()) if schema else export_config(workspace)
        if file is not None:
            write(file, exported.text, force=force)
    if as_json:
        show_json(
            {"file": None if file is None else str(file), "variables": list(exported.variables), "text": exported.text}
        )
    elif file is None:
        typer.echo(exported.text, nl=False)
    else:
        out.print(f"wrote {file}; it names {counted(len(exported.variables), 'environment variable')}")
        for name in exported.variables:
            out.print(f"  export {name}=…")
