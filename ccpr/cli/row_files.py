"""Rows as files: Parquet, CSV or lines of JSON, by the extension. A file appears when it is complete."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccpr.mirror.errors import BadOption, StoreFailed

if TYPE_CHECKING:
    import pyarrow as pa

EXTENSIONS = (".parquet", ".csv", ".jsonl", ".ndjson")
_GROUP_BYTES = 64 << 20  # from which a row group of Parquet ends that has fewer rows than usual


def check_extension(file: Path) -> None:
    """Raises BadOption for one that says no format."""
    if file.suffix not in EXTENSIONS:
        raise BadOption(
            f"the extension {file.suffix!r} names no format" if file.suffix else "the file's name has no extension",
            subject=f"file {file}",
            remedy=f"Write one of {', '.join(EXTENSIONS)}.",
        )


def write_rows(
    file: Path,
    schema: "pa.Schema",
    batches: "Iterable[pa.RecordBatch]",
    on_rows: Callable[[int], None] = lambda rows: None,
    *,
    parsed: Sequence[str] = (),
) -> int:
    """`parsed` are columns whose texts are JSON, and are written to lines of JSON as what they say. Returns how many
    rows were written. Raises StoreFailed, BadOption and what the batches raise."""
    check_extension(file)
    from ccpr.mirror.row_groups import row_groups

    temporary, rows = file.with_name(f".{file.name}.part"), 0

    def told() -> "Iterator[pa.RecordBatch]":
        nonlocal rows
        for batch in batches:
            yield batch
            rows += batch.num_rows
            on_rows(rows)

    try:
        with _writer(temporary, file.suffix, schema, parsed) as write:
            for some in row_groups(told(), schema, _GROUP_BYTES) if file.suffix == ".parquet" else told():
                write(some)
        temporary.replace(file)
    except OSError as error:
        text = f"could not write the file: {error.strerror or error}"
        raise StoreFailed(
            text,
            subject=str(file),
            remedy="Check that the folder is there, can be written and has space, or choose another --out.",
        ) from error
    finally:
        with suppress(OSError):  # what cannot be removed is what could not be made, which is said above
            temporary.unlink()
    return rows


@contextmanager
def _writer(file: Path, suffix: str, schema: "pa.Schema", parsed: Sequence[str]) -> Iterator[Callable[[Any], object]]:
    """Writes some rows: of Parquet a row group, as a table; else a batch."""
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            yield writer.write
        return
    from ccpr.values.cells import csv_head, csv_lines, json_lines

    with file.open("wb") as out:
        if suffix == ".csv":
            out.write(csv_head(schema.names))
        yield lambda rows: out.write(csv_lines(rows) if suffix == ".csv" else json_lines(rows, parsed))
