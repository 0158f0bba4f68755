"""`ccpr restore --with-definitions`: what a point has besides tables, as a script."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ccpr.cli.output import counted, err
from ccpr.matrixone.sql.quoting import printable

if TYPE_CHECKING:
    from ccpr.matrixone.ddl.database_script import DatabaseScript
    from ccpr.mirror.mirror import Mirror
    from ccpr.mirror.points import Point

_STANDARD_OUTPUT = "-"


@dataclass(frozen=True, slots=True)
class DefinitionsScript:
    """A script and where it is written: `file`, or `-` for standard output."""

    script: "DatabaseScript"
    file: str

    @classmethod
    def of_point(cls, mirror: "Mirror", point: "Point", database: str, name: str, file: str) -> "DefinitionsScript":
        """Of what the point has of `database`; `name` is what the restored one is called."""
        from ccpr.matrixone.ddl.database_script import script_of

        found = next((one for one in mirror.definitions(point) if one.database == database), None)
        title = f"Database {name} as of point {point.lsn} ({point.at}): what it had besides tables."
        return cls(script_of(found, name, title), file)

    def write(self, *, as_json: bool) -> None:
        if self.file != _STANDARD_OUTPUT:
            try:
                Path(self.file).write_text(self.script.text, "utf-8")
            except OSError as error:
                raise typer.BadParameter(str(error), param_hint="--with-definitions") from error
        elif not as_json:  # else it is in the document
            typer.echo(self.script.text, nl=False)

    def to_json(self) -> dict[str, Any]:
        place = {"text": self.script.text} if self.file == _STANDARD_OUTPUT else {"file": self.file}
        left_out = [asdict(one) for one in self.script.left_out]
        return {"script": {"definitions": self.script.statements, "left_out": left_out, **place}}

    def show(self) -> None:
        """What was written. On standard error, as the script may be on the other."""
        where = "standard output" if self.file == _STANDARD_OUTPUT else self.file
        err.print(f"script: {counted(self.script.statements, 'definition')} written to {where}; read it, then run it")
        for one in self.script.left_out:
            err.print(printable(f"not in it: {one.shown()}: {one.reason}"), style="yellow")
