"""Rows as files: Parquet, CSV or lines of JSON, by the extension; definitions as a script of SQL. A file of rows
appears when it is complete."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ccpr.cli.output import counted, err
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.errors import BadOption, StoreFailed

if TYPE_CHECKING:
    import pyarrow as pa

    from ccpr.matrixone.ddl.database_script import DatabaseScript
    from ccpr.mirror.mirror import Mirror
    from ccpr.mirror.points import Point

EXTENSIONS = (".parquet", ".csv", ".jsonl", ".ndjson")
MAX_NAME_BYTES = 255 - len(".") - len(".part")  # of a file, whose name has these while it is written
_ODD = re.compile(r"""[\x00-\x1f\x7f-\x9f%/\\:*?"<>|]|\ufffe|\uffff""")
_DEVICES = frozenset(
    ("con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10)))
)
_GROUP_BYTES = 64 << 20  # from which a row group of Parquet ends that has fewer rows than usual


def check_extension(file: Path) -> None:
    """Raises BadOption for one that says no format."""
    if file.suffix not in EXTENSIONS:
        raise BadOption(
            f"the extension {file.suffix!r} names no format" if file.suffix else "the file's name has no extension",
            subject=f"file {file}",
            remedy=f"Write one of {', '.join(EXTENSIONS)}.",
        )


def file_names(names: Iterable[str]) -> dict[str, str]:
    """What the files of these names are called, without an extension: as it is but for what some file system has not,
    which is percent-encoded. Decoded it is the name again, and no two differ by the case of their letters only."""
    from collections import Counter

    known = set(names)
    folded = Counter(map(_folded, known))
    return {name: _file_name(name, plain=folded[_folded(name)] == 1) for name in known}


def _folded(name: str) -> str:
    import unicodedata

    return unicodedata.normalize("NFKC", name.casefold())


def _file_name(name: str, *, plain: bool) -> str:
    """`plain`: no other one differs from it by its case, or by how its letters are composed."""
    odd = _ODD if plain else re.compile(r"[^a-z0-9_. -]")
    text = odd.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)
    if text.startswith(".") or text.partition(".")[0].lower() in _DEVICES:
        text = f"%{ord(text[0]):02X}{text[1:]}"
    return text


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
    from ccpr.mirror.table_read import row_groups

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


# ---- `--with-definitions`, `--all`: what a point has besides tables, as a script

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
