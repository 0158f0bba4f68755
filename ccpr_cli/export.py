"""`ccpr export`: one table of a point as a Parquet file, without a JVM."""

from pathlib import Path
from typing import Annotated

import pyarrow.parquet as pq
import typer
from rich.text import Text

from ccpr_cli.arguments import AsJson, Name
from ccpr_cli.output import err, handle_errors, out, show_json, size_text
from ccpr_cli.show import at_option
from replication.errors import StoreFailed
from replication.mirror.table_read import plan_read, reading_of
from replication.service.workspace import Workspace
from replication.state.subscription import Subscription


def export(
    name: Name,
    table: Annotated[str, typer.Argument(metavar="DB.TABLE", help="The table.")],
    out_file: Annotated[Path, typer.Option("--out", help="The Parquet file to write; it appears when it is complete.")],
    at: Annotated[
        str | None, typer.Option(help="A point: its lsn, or a time (ISO, UTC); the newest one if not given.")
    ] = None,
    invalid_text: Annotated[
        str | None,
        typer.Option(
            help="How text is exported that is not UTF-8: escape, replace, binary or error; "
            "if not given, as the subscription says."
        ),
    ] = None,
    zero_dates: Annotated[
        str | None,
        typer.Option(help="What the date 0000-00-00 becomes: null, keep or error."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Export a table's rows at a point to a Parquet file."""
    with handle_errors(as_json=as_json), Workspace() as workspace:
        mirror = workspace.mirror(name)
        point = mirror.point(at_option(at))
        settings = Subscription.from_row(workspace.log.row(name)).settings
        reading = reading_of(invalid_text or settings.invalid_text, zero_dates or settings.zero_dates)
        read = plan_read(mirror, table, point.lsn, reading=reading)
        temporary = out_file.with_name(f".{out_file.name}.part")
        rows = 0
        try:
            with (
                pq.ParquetWriter(temporary, read.schema, compression="zstd") as writer,
                err.status(Text(f"exporting {table}")) as status,
            ):
                for batch in read.batches(mirror=mirror):
                    writer.write_batch(batch)
                    rows += batch.num_rows
                    status.update(Text(f"exporting {table}: {rows:,} rows"))
            temporary.replace(out_file)
        except OSError as error:
            text, remedy = (
                f"could not write the file: {error.strerror or error}",
                "Choose another --out, or free space.",
            )
            raise StoreFailed(text, subject=str(out_file), remedy=remedy) from error
        finally:
            temporary.unlink(missing_ok=True)
    size = out_file.stat().st_size
    if as_json:
        show_json(
            {
                "table": table,
                "lsn": point.lsn,
                "snapshot_ts": point.at.physical,
                "rows": rows,
                "file": str(out_file),
                "bytes": size,
            }
        )
    else:
        out.print(f"{rows:,} rows of {table} at lsn {point.lsn} in {out_file} ({size_text(size)})", markup=False)
