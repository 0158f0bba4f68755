"""What cells of the catalog tell: of `mo_columns` `atttyp`, a column's type, and `att_default`, its DEFAULT; of
`mo_tables` `rel_createsql`, the text of the statement that created a table.

The type is 20 bytes, big endian: oid, charset (1 = binary), not-null and a spare byte, each widened to 16 bits; then
the size of a slot, width and scale as zig-zag numbers (0, -1, 1, -2, … are written 0, 1, 2, 3, …). Derived from
recordings of all types and checked against object files.

The DEFAULT is a protobuf message, `Default { Expr expr = 1 }`; `Expr { Literal lit = 2 }` where the server has computed
the value; `Literal { string sval = 11 }` for a text. Source: docs/upstream.md, "Checked on live clusters".

The statement is a user's text, often an old one: ALTERs that do not copy the table leave it as it was. So only what
they cannot change is taken from it, and what the catalog says otherwise counts (docs/upstream.md 5.9).
"""

import re
import struct
from dataclasses import replace
from itertools import pairwise

from ccpr.matrixone.client.errors import BadCatalog
from ccpr.matrixone.ddl.definition import ColumnType, CreateTable, format_create_table
from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.objects.types import BINARY_CHARSET, SLOT_SIZES
from ccpr.matrixone.protobuf import BYTES, NotProtobuf, ProtobufMessage, varint
from ccpr.matrixone.schema import COMPOSITE_KEY, FAKE_KEY, Column, SqlType, Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.matrixone.sql.lexer import tokens

_TYPE = struct.Struct(">HHHHIII")
_EXPRESSION, _LITERAL, _TEXT = 1, 2, 11


def decode_type(cell: bytes | None, what: str) -> SqlType:
    """A column's type from its `atttyp`. Raises BadCatalog."""
    if cell is None or len(cell) != _TYPE.size:
        raise BadCatalog(f"the type is not {_TYPE.size} bytes long", subject=what)
    oid, _charset, _not_null, _spare, _size, width, scale = _TYPE.unpack(cell)
    if not 0 < oid < 256:
        raise BadCatalog(f"the type's number is {oid}", subject=what)
    return SqlType(oid, _signed(width), _signed(scale))


def encode_type(type_: SqlType) -> bytes:
    """The `atttyp` of a type; of one that is not known the slots have no size."""
    numbers = (SLOT_SIZES.get(type_.oid, 0), type_.width, type_.scale)
    return _TYPE.pack(type_.oid, int(type_.oid in BINARY_CHARSET), 0, 0, *map(_zigzag, numbers))


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def default_text(cell: bytes | None) -> str | None:
    """The text that a text column's DEFAULT is, unquoted; None if it has none, or one that is not a text, or if the
    message cannot be read."""
    found = [cell or b""]
    try:
        for field in (_EXPRESSION, _LITERAL, _TEXT):
            found = [value for message in found for value in ProtobufMessage(message).all(field)[-1:]]
        return found[0].decode() if found else None
    except (NotProtobuf, UnicodeDecodeError):
        return None


def default_cell(text: str | None) -> bytes:
    """A message whose `default_text` is this text."""
    if text is None:
        return b""
    message = text.encode()
    for field in (_TEXT, _LITERAL, _EXPRESSION):
        message = bytes((field << 3 | BYTES,)) + varint(len(message)) + message
    return message


_TEMPORARY_NAME = re.compile(r"__mo_tmp_[0-9a-f]{32}_(.+)", re.DOTALL)
_PUBLISHED = (("from_publication", "true"),)  # as get_ddl writes it


def has_temporary_name(name: str, database: str) -> bool:
    """Whether it is a name that the server gives to temporary tables and their index tables:
    ``__mo_tmp_<session, 32 hexadecimal digits>_<database>_<name>``."""
    found = _TEMPORARY_NAME.fullmatch(name)
    return found is not None and found[1].startswith(f"{database}_") and len(found[1]) > len(database) + 1


def creates_ordinary_table(statement: str) -> bool:
    """Whether CREATE TABLE is in the text, and CREATE TEMPORARY TABLE is not. It may hold several statements, or
    PREPARE with the statement as a string."""
    follow = {second for first, second in pairwise(_words(statement)) if first == "CREATE"}
    return "TABLE" in follow and "TEMPORARY" not in follow


def _words(statement: str) -> list[str]:
    found: list[str] = []
    prepares = False
    for token in tokens(statement):
        if token.kind == "word":
            found.append(token.value.upper())
            prepares = prepares or found[-1] == "PREPARE"
        elif token.kind == "text" and prepares:
            found += [inner.value.upper() for inner in tokens(token.value) if inner.kind == "word"]
        else:
            found.append("")
    return found


def ddl_from_created(table: Table, statement: str) -> str:
    """A CREATE TABLE text in the form of get_ddl, from the statement that created the table; empty if it cannot be
    derived.

    Columns, their defaults and the primary key are in it, since every ALTER that changes those copies the table and
    writes the text again; or renames a column, and then the catalog has other names. Secondary indexes, checks and
    foreign keys may have changed since, so they are skipped.
    """
    try:
        created = create_table_of(replace(table, ddl=statement))
        if not _same_key(table, created):
            return ""
        columns = tuple(
            replace(
                definition,
                type=_type(column, definition.type),
                nullable=column.nullable and column.name not in created.primary_key,
            )
            for definition, column in zip(created.columns, table.user_columns, strict=True)
        )
        shown = CreateTable(
            name=table.name,
            database=table.database,
            columns=columns,
            primary_key=created.primary_key,
            comment=table.comment,
            properties=_PUBLISHED,
            cluster_by=created.cluster_by,
        )
        return format_create_table(shown)
    except DdlUnreadable:
        return ""


def _type(column: Column, declared: ColumnType) -> ColumnType:
    try:
        return ColumnType.of(column)
    except ValueError:
        return declared


def _same_key(table: Table, created: CreateTable) -> bool:
    """Whether the hidden columns are those of a table with this primary key."""
    hidden = {column.name for column in table.columns if column.hidden}
    return (FAKE_KEY in hidden, COMPOSITE_KEY in hidden) == (not created.primary_key, len(created.primary_key) > 1)
