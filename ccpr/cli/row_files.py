"""Rows as files: Parquet, CSV or lines of JSON, by the extension. A file appears when it is complete."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ccpr.mirror.errors import BadOption, StoreFailed

if TYPE_CHECKING:
    import pyarrow as pa

EXTENSIONS = (".parquet", ".csv", ".jsonl", ".ndjson")
_GROUP_BYTES = 64 << 20  # from which a row group of Parquet ends that has fewer rows than usual


class _Writer(Protocol):
    def write(self, rows: Any, /) -> None:
        """Some rows: of Parquet a row group, as a table; else a batch."""


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
        with _writer(temporary, file.suffix, schema, parsed) as writer:
            for some in row_groups(told(), schema, _GROUP_BYTES) if file.suffix == ".parquet" else told():
                writer.write(some)
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


def _writer(file: Path, suffix: str, schema: "pa.Schema", parsed: Sequence[str]) -> AbstractContextManager[_Writer]:
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(file, schema, compression="zstd")
    return _csv_writer(file, schema) if suffix == ".csv" else _json_writer(file, parsed)


@contextmanager
def _csv_writer(file: Path, schema: "pa.Schema") -> Iterator[_Writer]:
    """Of RFC 4180: null is nothing, an empty text is ""; bytes are hexadecimal, lists are JSON."""
    import pyarrow as pa
    from pyarrow import csv

    plain = pa.schema([field.with_type(_in_csv(field.type)) for field in schema])

    class Plain:
        def __init__(self, writer: Any) -> None:
            self._writer = writer

        def write(self, batch: "pa.RecordBatch") -> None:
            columns = [
                column if field.type == column.type else pa.array(map(_cell, column.to_pylist()), field.type)
                for column, field in zip(_with_times(batch).columns, plain, strict=True)
            ]
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=plain))

    with csv.CSVWriter(file, plain) as writer:
        yield Plain(writer)


def _in_csv(kind: "pa.DataType") -> "pa.DataType":
    """The type that Arrow's CSV is given; text where it has none."""
    import pyarrow as pa

    has = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)
    return kind if has or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind) else pa.string()


@contextmanager
def _json_writer(file: Path, parsed: Sequence[str]) -> Iterator[_Writer]:
    import json

    from ccpr.mirror.table_read import with_json

    with file.open("w", encoding="utf-8") as out:

        class Lines:
            def write(self, batch: "pa.RecordBatch") -> None:
                plain = [json_row(row) for row in python_rows(batch)]
                out.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in with_json(plain, parsed))

        yield Lines()


def python_rows(batch: "pa.RecordBatch") -> list[dict[str, Any]]:
    """The rows of a batch, for `json_row`."""
    return _with_times(batch).to_pylist()


def _with_times(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """A batch with each TIME, which is a duration in Arrow, as MatrixOne prints it."""
    import pyarrow as pa

    for place, field in enumerate(batch.schema):
        if pa.types.is_duration(field.type):
            batch = batch.set_column(place, field.name, _times(batch.column(place)))
    return batch


def _times(values: "pa.Array") -> "pa.Array":
    """-12:00:00, 838:59:59; six digits behind the point where they are not all zero."""
    from ccpr.matrixone.objects.time_text import time_text

    return time_text(values, digits=0)


def json_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row's values as JSON has them: decimals, dates and times as text, bytes as hexadecimal digits."""
    return {name: _in_json(value) for name, value in row.items()}


def _in_json(value: Any) -> Any:
    if isinstance(value, float) and value - value != 0:  # not a number, infinite: JSON has neither
        return str(value)
    if isinstance(value, list):
        return [_in_json(one) for one in value]
    return value if value is None or isinstance(value, str | bool | int | float | dict) else _cell(value)


def _cell(value: Any) -> str | None:
    import json

    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | dict):
        return json.dumps(value, default=str)
    if isinstance(value, timedelta):
        import pyarrow as pa

        return _times(pa.array([value], pa.duration("us")))[0].as_py()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
