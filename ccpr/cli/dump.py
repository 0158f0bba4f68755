"""`ccpr dump`: a point as a script of SQL that the clients of MariaDB and MySQL load."""

from pathlib import Path
from typing import Annotated

import typer

from ccpr.base.wording import seconds_text, size_text
from ccpr.cli.arguments import AsJson, At, Name
from ccpr.cli.output import counted, handle_errors, out, show_json
from ccpr.cli.restore_rows import RowProgress
from ccpr.cli.shown_times import at_option
from ccpr.cli.target_output import end_with_behind

_DIALECTS = ("mariadb", "mysql8", "matrixone")


def dump(
    name: Name,
    to: Annotated[Path, typer.Option("--out", help="The file to write; it appears when it is complete.")],
    at: At = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", metavar="TABLE", help="Only this table; may be repeated.")
    ] = None,
    database: Annotated[str | None, typer.Option(help="Which database, where the mirror has several.")] = None,
    dialect: Annotated[str, typer.Option(help=f"For which server: {', '.join(_DIALECTS)}.")] = "mariadb",
    as_json: AsJson = False,
) -> None:
    """Write the tables of a point as SQL: `mysql shop < shop.sql` loads them into a database that has none of them. A
    table that the server cannot have is left out and named at the end, and the exit code is 3.
    Views, sequences, functions and grants: `ccpr restore --with-definitions`."""
    from ccpr.cli.restore_command import database_of
    from ccpr.retention.pinning import pinned
    from ccpr.schema.dialects import Dialect
    from ccpr.service import estimates
    from ccpr.service.point_loading import PointSource
    from ccpr.service.script import write_script
    from ccpr.service.workspace import Workspace
    from ccpr.state.pins import Pins
    from ccpr.state.subscription import Subscription

    if dialect not in _DIALECTS:
        raise typer.BadParameter(f"one of {', '.join(_DIALECTS)}", param_hint="--dialect")
    with handle_errors(as_json=as_json), Workspace() as workspace:
        row = workspace.log.row(name)
        subscription = Subscription.from_row(row)
        mirror = workspace.mirror(name)
        point = mirror.point(at_option(at))
        chosen = database_of(point, database, None if subscription.of_account else subscription.database)
        source = PointSource(mirror, point, chosen, tuple(one.rpartition(".")[2] for one in table or ()))
        refs = [point.tables[table_id] for table_id in source.chosen()]
        size = sum(ref.bytes for ref in refs)
        shown = RowProgress(sum(ref.rows for ref in refs), quiet=as_json)
        shown.announce(size, estimates.expected_seconds(workspace.home, "dump", size))
        with pinned(Pins(workspace.log.engine, row.task_id), point, workspace.clock):
            done = write_script(source, to, Dialect(dialect), subscription.settings.reading, shown.callbacks)
        estimates.record(workspace.home, "dump", size, done.seconds)
    if as_json:
        show_json(done.to_json())
        end_with_behind(done.behind, as_json=True)
        return
    told = f"{counted(done.tables, 'table')}, {counted(done.rows, 'row')}, {size_text(done.bytes)}"
    out.print(f"point {done.lsn} is in {to}: {told}; took {seconds_text(done.seconds)}", markup=False)
    for one, lost in done.remarks.items():
        for text in lost:
            out.print(f"{one}: not as in the source: {text}", style="yellow", markup=False)
    end_with_behind(done.behind, as_json=False)
