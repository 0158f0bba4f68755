"""A CREATE TABLE statement as a value, and back to text.

The text is what MatrixOne gives (`get_ddl`, SHOW CREATE TABLE): docs/upstream.md 5.4. `format_create_table` writes the
same form, so a text of the server's comes out as it went in, but for: space between tokens, string literals (only
quote, backslash, newline, return and the zero byte are escaped) and a missing DEFAULT NULL. Expressions (defaults,
checks, generated columns, partitions, index options) are kept as the text that they are. Reading is in
`ccpr.matrixone.ddl.parser`.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import Column, SqlType
from ccpr.matrixone.sql.lexer import Token, tokens
from ccpr.matrixone.sql.quoting import quote_name, quote_names, quote_qualified, quote_string

_OIDS = {
    "bool": types.BOOL,
    "boolean": types.BOOL,
    "bit": types.BIT,
    "tinyint": types.INT8,
    "smallint": types.INT16,
    "int": types.INT32,
    "integer": types.INT32,
    "bigint": types.INT64,
    "float": types.FLOAT32,
    "double": types.FLOAT64,
    "date": types.DATE,
    "time": types.TIME,
    "datetime": types.DATETIME,
    "timestamp": types.TIMESTAMP,
    "year": types.YEAR,
    "char": types.CHAR,
    "varchar": types.VARCHAR,
    "json": types.JSON,
    "uuid": types.UUID,
    "binary": types.BINARY,
    "varbinary": types.VARBINARY,
    "enum": types.ENUM,
    "set": types.UINT64,
    "geometry": types.GEOMETRY,
    "blob": types.BLOB,
    "text": types.TEXT,
    "tinytext": types.TEXT,
    "datalink": types.DATALINK,
    "vecf32": types.VECF32,
    "vecf64": types.VECF64,
    "vecbf16": types.VECBF16,
    "vecf16": types.VECF16,
    "vecint8": types.VECINT8,
    "vecuint8": types.VECUINT8,
    "geometry32": types.GEOMETRY32,
}
_NAMES = {oid: name for name, oid in reversed(_OIDS.items())}  # the first name counts
_UNSIGNED = {types.INT8: types.UINT8, types.INT16: types.UINT16, types.INT32: types.UINT32, types.INT64: types.UINT64}
_SIGNED = {unsigned: signed for signed, unsigned in _UNSIGNED.items()}
_BITS = {types.INT8: 8, types.INT16: 16, types.INT32: 32, types.INT64: 64}
_DECIMALS = (types.DECIMAL64, types.DECIMAL128, types.DECIMAL256)
_SIZED = types.VECTOR_TYPES | {types.BIT, types.CHAR, types.VARCHAR, types.BINARY, types.VARBINARY}
_TIMES = frozenset((types.TIME, types.DATETIME, types.TIMESTAMP))


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type as it is declared.

    Attributes
    ----------
    name : in lower case, e.g. ``decimal``; also one that MatrixOne does not have, in the text of another server.
    parameters : length, or precision and scale, or fraction digits.
    members : of an enum or set, in order.
    """

    name: str
    parameters: tuple[int, ...] = ()
    members: tuple[str, ...] = ()
    unsigned: bool = False
    srid: int | None = None

    @property
    def sql_type(self) -> SqlType | None:
        """The type as the catalog has it (docs/format/object-file.md 3.1); None for one that is not MatrixOne's."""
        first, second = (*self.parameters, 0, 0)[:2]
        if self.name == "decimal":
            oid = types.DECIMAL64 if first <= 16 else types.DECIMAL128 if first <= 38 else types.DECIMAL256
            return SqlType(oid, first, second)
        oid = _OIDS.get(self.name)
        if oid is None:
            return None
        if oid in _BITS:
            return SqlType(_UNSIGNED[oid] if self.unsigned else oid, _BITS[oid], -1)
        if oid in (types.FLOAT32, types.FLOAT64):
            return SqlType(oid, first, second if len(self.parameters) == 2 else -1)
        if oid == types.BIT:
            return SqlType(oid, first, -1)
        if oid in _TIMES:
            return SqlType(oid, first, first)
        return SqlType(oid, 4 if oid == types.YEAR else first if oid in _SIZED else 0, 0)

    @classmethod
    def of(cls, column: Column) -> "ColumnType":
        """The type of a column of the catalog. Raises ValueError for one that has no SQL name (TS, rowid)."""
        oid, width, scale = column.type.oid, column.type.width, column.type.scale
        if column.labels:
            return cls("enum" if oid == types.ENUM else "set", members=column.labels)
        if oid in _DECIMALS:
            return cls("decimal", (width, scale))
        if oid in _SIGNED:
            return cls(_NAMES[_SIGNED[oid]], unsigned=True)
        if oid not in _NAMES:
            raise ValueError(f"type {oid} has no SQL name")
        if oid in (types.FLOAT32, types.FLOAT64):
            return cls(_NAMES[oid], (width, scale) if width > 0 and scale >= 0 else ())
        return cls(_NAMES[oid], (width,) if oid in _SIZED or (oid in _TIMES and width > 0) else ())

    def __str__(self) -> str:
        inner = ",".join(map(quote_string, self.members)) if self.members else ",".join(map(str, self.parameters))
        unsigned = " unsigned" if self.unsigned else ""
        srid = "" if self.srid is None else f" srid {self.srid}"
        return f"{self.name}{f'({inner})' if inner else ''}{unsigned}{srid}"


@dataclass(frozen=True, slots=True)
class Generated:
    """GENERATED ALWAYS AS (expression)."""

    expression: str
    stored: bool = False


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """One column.

    Attributes
    ----------
    default : the expression's text; None if there is none or NULL.
    default_text : the text that it means, where the catalog has said so; it does not count when columns are compared.
    on_update : the expression's text; empty if there is none.
    charset, collation : as declared; empty if the table's count.
    invisible : not part of `SELECT *`; MySQL 8 and MariaDB only.
    """

    name: str
    type: ColumnType
    nullable: bool = True
    default: str | None = None
    on_update: str = ""
    auto_increment: bool = False
    generated: Generated | None = None
    comment: str = ""
    charset: str = ""
    collation: str = ""
    invisible: bool = False
    default_text: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        words = [quote_name(self.name), str(self.type)]
        if self.charset:
            words.append(f"CHARACTER SET {self.charset}")
        if self.collation:
            words.append(f"COLLATE {self.collation}")
        if not self.nullable:
            words.append("NOT NULL")
        if self.generated:
            words.append(
                f"GENERATED ALWAYS AS ({self.generated.expression}) {'STORED' if self.generated.stored else 'VIRTUAL'}"
            )
        elif self.auto_increment:
            words.append("AUTO_INCREMENT")
        else:
            if self.default is not None:
                words.append(f"DEFAULT {self.default}")
            elif self.nullable:
                words.append("NULL DEFAULT NULL" if self.type.name == "timestamp" else "DEFAULT NULL")
            if self.on_update:
                words.append(f"ON UPDATE {self.on_update}")
        if self.invisible:
            words.append("INVISIBLE")
        if self.comment:
            words.append(f"COMMENT {quote_string(self.comment)}")
        return " ".join(words)


class IndexKind(StrEnum):
    UNIQUE = "UNIQUE KEY"
    KEY = "KEY"
    FULLTEXT = "FULLTEXT"
    FULLTEXT2 = "FULLTEXT2"
    SPATIAL = "SPATIAL KEY"


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A column of an index; `length` is the number of leading characters that count, None for all."""

    column: str
    length: int | None = None
    descending: bool = False

    def __str__(self) -> str:
        length = "" if self.length is None else f"({self.length})"
        return f"{quote_name(self.column)}{length}{' DESC' if self.descending else ''}"


@dataclass(frozen=True, slots=True)
class Index:
    """A unique, ordinary, full-text, spatial or vector index.

    Attributes
    ----------
    algorithm : what USING names, e.g. ``ivfflat``, ``hnsw``; empty for none.
    options : the text after the columns, without the comment, e.g. ``lists = 3 op_type 'vector_l2_ops'``.
    """

    kind: IndexKind
    name: str
    parts: tuple[KeyPart, ...]
    algorithm: str = ""
    options: str = ""
    comment: str = ""

    def __str__(self) -> str:
        parts = f"({','.join(map(str, self.parts))})"
        name = quote_name(self.name) if self.name else ""
        if self.kind in (IndexKind.FULLTEXT, IndexKind.FULLTEXT2):
            text = f"{self.kind} {name}{parts}"
        else:
            text = " ".join(filter(None, (self.kind, name, f"USING {self.algorithm}" if self.algorithm else "", parts)))
        return (
            text
            + (f" {self.options}" if self.options else "")
            + (f" COMMENT {quote_string(self.comment)}" if self.comment else "")
        )


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """`database` is empty where it is the table's own; actions are words such as ``SET NULL``, empty where there is
    none."""

    name: str
    columns: tuple[str, ...]
    table: str
    referenced: tuple[str, ...]
    database: str = ""
    on_delete: str = ""
    on_update: str = ""

    def __str__(self) -> str:
        constraint = f"CONSTRAINT {quote_name(self.name)} " if self.name else ""
        on_delete = f" ON DELETE {self.on_delete}" if self.on_delete else ""
        on_update = f" ON UPDATE {self.on_update}" if self.on_update else ""
        target = f"{_qualified(self.database, self.table)} ({quote_names(self.referenced)})"
        return f"{constraint}FOREIGN KEY ({quote_names(self.columns)}) REFERENCES {target}{on_delete}{on_update}"


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """CHECK (expression); the name may be empty."""

    name: str
    expression: str

    def __str__(self) -> str:
        return f"{f'CONSTRAINT {quote_name(self.name)} ' if self.name else ''}CHECK ({self.expression})"


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A CREATE TABLE statement.

    Attributes
    ----------
    database : empty where the statement names none.
    primary_key : names of its columns, in order; empty for a table without.
    partition_by : the text after PARTITION BY, partitions included; empty for none.
    properties : key and value of the PROPERTIES clause, in order.
    cluster_by : names of its columns.
    options : other table options, e.g. ``("COLLATE", "utf8mb4_bin")``: the name in capitals, the value as the text it
        is.
    """

    name: str
    columns: tuple[ColumnDefinition, ...]
    database: str = ""
    primary_key: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    checks: tuple[CheckConstraint, ...] = ()
    comment: str = ""
    partition_by: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    cluster_by: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    @property
    def quoted_name(self) -> str:
        return _qualified(self.database, self.name)

    def column(self, name: str) -> ColumnDefinition:
        """Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


def format_create_table(table: CreateTable) -> str:
    """The statement, without a semicolon, in the form in which MatrixOne writes it. Raises DdlUnreadable for an
    impossible name."""
    lines = [f"  {column}" for column in table.columns]
    if table.primary_key:
        lines.append(f"  PRIMARY KEY ({quote_names(table.primary_key)})")
    full_text = (IndexKind.FULLTEXT, IndexKind.FULLTEXT2)  # which the server indents by one blank only
    lines += [f"{'' if index.kind in full_text else ' '} {index}" for index in table.indexes]
    lines += [f"  {constraint}" for constraint in (*table.foreign_keys, *table.checks)]
    clauses = [f"{name}={value}" for name, value in table.options]
    if table.comment:
        clauses.append(f"COMMENT={quote_string(table.comment)}")
    if table.partition_by:
        clauses.append(f"partition by {table.partition_by}")
    if table.properties:
        pairs = ", ".join(" = ".join(quote_string(text, '"') for text in pair) for pair in table.properties)
        clauses.append(f"PROPERTIES({pairs})")
    if table.cluster_by:
        clauses.append(f"CLUSTER BY ({quote_names(table.cluster_by, ', ')})")
    body = ",\n".join(lines)
    return " ".join([f"CREATE TABLE {table.quoted_name} (\n{body}\n)", *clauses])


def _qualified(database: str, name: str) -> str:
    return quote_qualified((database, name)) if database else quote_name(name)


def enum_members(ddl: str) -> dict[str, tuple[str, ...]]:
    """Column name -> members in order, for every enum and set column of a CREATE TABLE statement.

    Members may hold commas, brackets and quotes. What cannot be read is skipped; it is not an error.
    """
    found: dict[str, tuple[str, ...]] = {}
    depth, current = 0, []
    for token in tokens(ddl):
        depth += token.is_sign("(") - token.is_sign(")")
        if (depth == 1 and (token.is_sign("(") or token.is_sign(","))) or depth == 0:
            found.update(_members(current))
            current = []
            if token.is_sign(")"):  # what follows are options of the table
                break
        else:
            current.append(token)
    return found


def _members(definition: list[Token]) -> dict[str, tuple[str, ...]]:
    match definition:
        case [Token("name" | "word", name), Token("word", kind), Token("sign", "("), *rest] if kind.lower() in (
            "enum",
            "set",
        ):
            members = []
            for token in rest:
                if token.kind == "text":
                    members.append(token.value)
                elif not token.is_sign(","):
                    break
            return {name: tuple(members)}
    return {}
