"""LOAD DATA LOCAL: the statement, and the client's file of fields as Arrow arrays."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import Column
from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.tokens import Tokens
from ccpr_emulator.engine.stored_table import whole
from ccpr_emulator.sql.dialect import unsupported
from ccpr_emulator.sql.names import names_in_brackets, table_name
from ccpr_emulator.sql.text import from_texts

_NULL = "__mo_null"
_NULL_OR_QUOTED = re.compile(rb'"(?:[^"\\]|""|\\.)*"|\\N', re.DOTALL)


@dataclass(frozen=True, slots=True)
class LoadStatement:
    """
    Attributes
    ----------
    file : its name at the client.
    table : with its database.
    columns : those that the fields are of; None = all.
    skip : so many lines.
    """

    file: str
    table: tuple[str, str]
    columns: Sequence[str] | None
    field_end: str = "\t"
    quote: str = ""
    line_end: str = "\n"
    skip: int = 0
    ignore: bool = False

    @classmethod
    def parse(cls, text: str, database: str) -> "LoadStatement":
        """Raises StatementError."""
        tokens = Tokens(text)
        for word in ("load", "data", "local", "infile"):
            if not tokens.accept(word):
                raise unsupported(text) if word == "local" else tokens.unknown()
        file = tokens.text()
        given: dict[str, Any] = {"ignore": tokens.accept("ignore")}
        if tokens.accept("replace"):
            raise unsupported(text)
        tokens.expect("into")
        tokens.expect("table")
        table = table_name(tokens, database)
        if tokens.accept("character", "set"):
            tokens.next()
        if tokens.accept("fields") or tokens.accept("columns"):
            while True:
                if tokens.accept("terminated", "by"):
                    given["field_end"] = tokens.text()
                elif tokens.accept("optionally", "enclosed", "by") or tokens.accept("enclosed", "by"):
                    given["quote"] = tokens.text()
                elif tokens.accept("escaped", "by"):
                    tokens.text()
                else:
                    break
        if tokens.accept("lines"):
            tokens.expect("terminated")
            tokens.expect("by")
            given["line_end"] = tokens.text()
        if tokens.accept("ignore"):
            given["skip"] = tokens.number()
            if not tokens.accept("lines"):
                tokens.expect("rows")
        columns = names_in_brackets(tokens) if tokens.accept("(") else None
        tokens.accept(";")
        if not tokens.at_end():
            raise unsupported(text)
        return cls(file, table, columns, **given)

    def read(self, content: bytes, columns: Sequence[Column]) -> tuple[dict[str, pa.Array], int]:
        """The columns of a file by name, and how many rows it has. Raises StatementError."""
        if self.line_end not in ("\n", "\r\n"):
            content = content.replace(self.line_end.encode(), b"\n")
        if not content.strip():
            return {}, 0
        escapes, null = b"\\" in content.replace(b"\\N", b""), "\\N"
        if escapes and self.quote == '"':  # Arrow would take the backslash of \N for an escape
            content, null = _NULL_OR_QUOTED.sub(_null_without_escape, content), _NULL
        names = [str(number) for number in range(len(columns))]
        try:
            table = pa_csv.read_csv(
                io.BytesIO(content),
                read_options=pa_csv.ReadOptions(
                    column_names=names, skip_rows=self.skip, block_size=max(1 << 20, len(content))
                ),
                parse_options=pa_csv.ParseOptions(
                    delimiter=self.field_end,
                    quote_char=self.quote or False,
                    double_quote=bool(self.quote),
                    escape_char="\\" if escapes else False,
                    newlines_in_values=bool(self.quote),
                ),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowException as error:
            raise StatementError(20301, f"invalid input: the file: {error}") from error
        given = {}
        for column, texts in zip(columns, map(whole, table.columns), strict=True):
            is_binary = pa.types.is_binary(types.arrow_type(column))
            given[column.name] = texts.cast(pa.binary()) if is_binary else from_texts(column, texts)
        return given, table.num_rows


def _null_without_escape(found: re.Match[bytes]) -> bytes:
    return _NULL.encode() if found[0] == b"\\N" else found[0]
