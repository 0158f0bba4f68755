"""A column behind its name: the type, the default, what it references. Texts stay as they were written."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import Column
from ccpr.matrixone.server.tokens import Tokens
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr_emulator.engine.definitions import Attributes
from ccpr_emulator.sql.names import key_columns

_REFERENCE_ACTIONS = ("restrict", "cascade", "no action", "set null", "set default")


class ColumnText:
    """A column behind its name: the type, what it may be, its attributes."""

    def __init__(self, tokens: Tokens, name: str) -> None:
        self.tokens, self.name = tokens, name
        self.text = read_type(tokens)
        self.is_primary = self.is_unique = False
        self.attributes = Attributes()
        self.constraints: list[str] = []
        while self._attribute():
            pass

    def _attribute(self) -> bool:
        tokens = self.tokens
        if tokens.accept("not", "null"):
            self.text += "" if self.text.endswith(" not null") else " not null"
        elif tokens.accept("default"):
            self._set(default=default_text(tokens))
        elif tokens.accept("primary", "key"):
            self.is_primary = True
        elif tokens.accept("unique"):
            tokens.accept("key")
            self.is_unique = True
        elif tokens.accept("auto_increment"):
            self._set(auto_increment=True)
            self.text += "" if self.text.endswith(" not null") else " not null"
        elif tokens.accept("comment"):
            self._set(comment=_raw_text(tokens))
        elif tokens.accept("on", "update"):
            self._set(on_update=default_text(tokens))
        elif tokens.accept("generated", "always", "as") or tokens.accept("as"):
            expression = text_in_brackets(tokens)
            stored = tokens.accept("stored") or tokens.accept("persistent")
            if not stored:
                tokens.accept("virtual")
            self._set(generated=expression, is_stored=stored)
        elif tokens.accept("character", "set") or tokens.accept("charset") or tokens.accept("collate"):
            tokens.next()
        elif tokens.accept("check"):
            text_in_brackets(tokens)
        elif tokens.accept("references"):
            tokens.position -= 1
            self.constraints.append(_references(tokens, self.name))
        elif tokens.accept("constraint"):
            if not tokens.at("check"):
                tokens.name()
        else:
            return tokens.accept("null") or tokens.accept("key") or tokens.accept("visible") or tokens.accept("signed")
        return True

    def _set(self, **given: Any) -> None:
        self.attributes = replace(self.attributes, **given)


def _references(tokens: Tokens, column: str) -> str:
    begin = tokens.position
    tokens.expect("references")
    tokens.name()
    while tokens.accept("."):
        tokens.name()
    key_columns(tokens)
    rest = tokens.source(begin)
    return foreign_key(Tokens(f"({in_backquotes(column)}) {rest}"), "")


def foreign_key(tokens: Tokens, constraint: str) -> str:
    """As SHOW CREATE TABLE prints it."""
    name = constraint or ("" if tokens.at("(") else tokens.name())
    columns = key_columns(tokens)
    tokens.expect("references")
    parent = tokens.name()
    if tokens.accept("."):
        parent = tokens.name()
    theirs = key_columns(tokens)
    actions = {"delete": "restrict", "update": "restrict"}
    while tokens.accept("on"):
        event = tokens.next().lower()
        action = next((known for known in _REFERENCE_ACTIONS if tokens.accept(*known.split())), None)
        if event not in actions or action is None:
            raise tokens.unknown()
        actions[event] = action
    mine, other = (",".join(map(in_backquotes, names)) for names in (columns, theirs))
    name = name or f"{parent}_{columns[0]}_fk"
    return (
        f"CONSTRAINT {in_backquotes(name)} FOREIGN KEY ({mine}) REFERENCES {in_backquotes(parent)} ({other}) "
        f"ON DELETE {actions['delete'].upper()} ON UPDATE {actions['update'].upper()}"
    )


def text_in_brackets(tokens: Tokens) -> str:
    """What is in brackets, as written."""
    tokens.expect("(")
    begin, depth = tokens.position, 1
    while depth:
        depth += tokens.at("(") - tokens.at(")")
        tokens.next()
    return tokens.sql[tokens.tokens[begin].start : tokens.tokens[tokens.position - 1].start].strip()


def _raw_text(tokens: Tokens) -> str:
    """A text as it was written between its quotes."""
    begin = tokens.position
    tokens.text()
    return tokens.source(begin)[1:-1]


def default_text(tokens: Tokens) -> str:
    """A default as it was written; CURRENT_TIMESTAMP gets its brackets."""
    begin = tokens.position
    if tokens.accept("("):
        tokens.position = begin
        return f"({text_in_brackets(tokens)})"
    tokens.accept("-")
    word = tokens.kind == "word"
    first = tokens.next()
    if tokens.kind == "text" and first.lower() in ("x", "b", "date", "timestamp", "time"):
        tokens.next()
    elif word and tokens.at("("):
        text_in_brackets(tokens)
    elif word and first.lower() in ("current_timestamp", "localtime", "localtimestamp"):
        return f"{first}()"
    return tokens.source(begin)


def read_type(tokens: Tokens) -> str:
    """A column's type as it is written: a word, what is in brackets, `unsigned`."""
    begin = tokens.position
    first = tokens.name().lower()
    if first == "double" and tokens.accept("precision"):
        return "double"
    if tokens.accept("("):
        while not tokens.accept(")"):
            tokens.next()
    tokens.accept("unsigned")
    text = tokens.source(begin)
    tokens.accept("zerofill")
    tokens.accept("binary")
    words = {"int2": "smallint", "int4": "int", "int8": "bigint", "mediumint": "int", "dec": "decimal"}
    if first in words:
        text = words[first] + text[len(first) :]
    if text.lower().startswith(("tinyint(", "smallint(", "int(", "integer(", "bigint(", "mediumint(")):
        text = text.partition("(")[0] + text.partition(")")[2]
    return text


def type_text(column: Column | None, kind: pa.DataType) -> str:
    """The type of a column that a query gives, as DDL writes it."""
    if column is not None:
        return printed_type(column)
    if pa.types.is_decimal(kind):
        return f"decimal({min(kind.precision, 38)},{kind.scale})"
    if pa.types.is_integer(kind):
        return "bigint" if kind.bit_width > 32 else "int"
    for test, text in (
        (pa.types.is_boolean, "bool"),
        (pa.types.is_floating, "double"),
        (pa.types.is_date, "date"),
        (pa.types.is_timestamp, "datetime(6)"),
        (pa.types.is_interval, "time(6)"),
        (pa.types.is_binary, "blob"),
    ):
        if test(kind):
            return text
    return "varchar(65535)"


_PRINTED = {
    types.BOOL: "bool", types.INT8: "tinyint", types.INT16: "smallint", types.INT32: "int", types.INT64: "bigint",
    types.UINT8: "tinyint unsigned", types.UINT16: "smallint unsigned", types.UINT32: "int unsigned",
    types.UINT64: "bigint unsigned", types.FLOAT32: "float", types.FLOAT64: "double", types.DATE: "date",
    types.YEAR: "year", types.JSON: "json", types.UUID: "uuid", types.BLOB: "blob", types.TEXT: "text",
    types.DATALINK: "datalink", types.GEOMETRY: "geometry", types.GEOMETRY32: "geometry32",
}  # fmt: skip


_PRINTED_WIDTH = {
    types.CHAR: "char", types.VARCHAR: "varchar", types.BINARY: "binary", types.VARBINARY: "varbinary",
    types.BIT: "bit", types.VECF32: "vecf32", types.VECF64: "vecf64", types.VECBF16: "vecbf16", types.VECF16: "vecf16",
    types.VECINT8: "vecint8", types.VECUINT8: "vecuint8",
}  # fmt: skip


_PRINTED_SCALE = {types.TIME: "time", types.DATETIME: "datetime", types.TIMESTAMP: "timestamp"}


def printed_type(column: Column) -> str:
    """A column's type as DDL writes it."""
    oid = column.type.oid
    if column.labels:
        labels = ",".join("'" + label.replace("'", "''") + "'" for label in column.labels)
        return f"{'set' if types.is_set(column) else 'enum'}({labels})"
    if oid in types.MAX_PRECISION:
        return f"decimal({column.type.width},{column.type.scale})"
    if oid in _PRINTED_SCALE:
        return _PRINTED_SCALE[oid] + (f"({column.type.scale})" if column.type.scale else "")
    return _PRINTED.get(oid) or f"{_PRINTED_WIDTH[oid]}({column.type.width})"
