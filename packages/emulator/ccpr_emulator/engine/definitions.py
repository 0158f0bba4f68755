"""A table's definition as in SQL: columns from type texts, hidden key columns, CREATE TABLE text.

Widths, scales and hidden columns are those of recorded catalogs (docs/format/object-file.md 3.1, 5.1; docs/upstream.md
5.4).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import CLUSTER_KEY_PREFIX, COMPOSITE_KEY, FAKE_KEY, Column, SqlType
from ccpr.matrixone.sql.lexer import tokens
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr_emulator.engine.partitioning import Partitioning

_TYPE = re.compile(
    r"""\s*(?P<name>[a-z0-9]+)
    (?:\s*\((?P<arguments>(?:[^')]|'(?:[^'\\]|\\.|'')*+')*+)\))?
    (?P<unsigned>\s+unsigned)?(?P<rest>.*)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "integer": 32, "bigint": 64}
_SIGNED = {8: types.INT8, 16: types.INT16, 32: types.INT32, 64: types.INT64}
_UNSIGNED = {8: types.UINT8, 16: types.UINT16, 32: types.UINT32, 64: types.UINT64}
_SCALED = {"time": types.TIME, "datetime": types.DATETIME, "timestamp": types.TIMESTAMP}
_SIZED = {
    "char": (types.CHAR, 1),
    "varchar": (types.VARCHAR, 65535),
    "binary": (types.BINARY, 1),
    "varbinary": (types.VARBINARY, 65535),
    "vecf32": (types.VECF32, 1),
    "vecf64": (types.VECF64, 1),
    "vecbf16": (types.VECBF16, 1),
    "vecf16": (types.VECF16, 1),
    "vecint8": (types.VECINT8, 1),
    "vecuint8": (types.VECUINT8, 1),
    "bit": (types.BIT, 1),
}
_PLAIN = {
    "bool": types.BOOL,
    "boolean": types.BOOL,
    "date": types.DATE,
    "text": types.TEXT,
    "blob": types.BLOB,
    "json": types.JSON,
    "uuid": types.UUID,
    "datalink": types.DATALINK,
    "geometry": types.GEOMETRY,
    "geometry32": types.GEOMETRY32,
    "enum": types.ENUM,
    "set": types.UINT64,
}
_PACKED = SqlType(types.VARCHAR, 65535, 0)
# Other names of types that the upstream accepts, and the names that it prints.
_ALIASES = {
    "tinytext": "text",
    "mediumtext": "text",
    "longtext": "text",
    "tinyblob": "blob",
    "mediumblob": "blob",
    "longblob": "blob",
    "boolean": "bool",
    "integer": "int",
    "numeric": "decimal",
    "real": "double",
}


class BadDefinition(ValueError):
    """A column type or a table's definition that the engine does not know."""


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index. `table` is the name of its hidden table."""

    name: str
    columns: tuple[str, ...]
    unique: bool
    table: str


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a column has besides its type: SQL texts as they were written; empty where there is none.

    `comment` is what was between the quotes: MatrixOne escapes it nowhere.
    """

    default: str = ""
    on_update: str = ""
    comment: str = ""
    generated: str = ""
    is_stored: bool = False
    auto_increment: bool = False


@dataclass(frozen=True, slots=True)
class Definition:
    """A table's names, columns and keys at a time.

    Attributes
    ----------
    columns : stored columns, the user's first; seqnums are permanent.
    type_texts : the type of each user column, as DDL prints it.
    primary_key, cluster_by : names of user columns; at most one of the two is not empty.
    create_sql : the text of `rel_createsql`.
    attributes : of user columns that have some.
    fulltext : (name, columns) of fulltext indexes, which are printed and have no hidden table.
    constraints : foreign keys as SHOW CREATE TABLE prints them; they are not enforced.
    query : of a view, else empty.
    partitioning : of a partitioned table.
    version : increases with every change in place.
    """

    database: str
    name: str
    columns: tuple[Column, ...]
    type_texts: Mapping[str, str]
    primary_key: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()
    comment: str = ""
    create_sql: str = ""
    attributes: Mapping[str, Attributes] = field(default_factory=dict)
    fulltext: tuple[tuple[str, tuple[str, ...]], ...] = ()
    constraints: tuple[str, ...] = ()
    query: str = ""
    version: int = 0
    partitioning: Partitioning | None = None

    def attributes_of(self, column: str) -> Attributes:
        return self.attributes.get(column, NO_ATTRIBUTES)

    @property
    def user_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if not column.hidden)

    @property
    def key(self) -> Column:
        """The column by which tombstones name a row: the primary key, `__mo_cpkey_col` or `__mo_fake_pk_col`."""
        names = (
            self.primary_key if len(self.primary_key) == 1 else (COMPOSITE_KEY,) if self.primary_key else (FAKE_KEY,)
        )
        return self.column(names[0])

    @property
    def sort_key(self) -> Column | None:
        """The column that merged objects are sorted by; None if there is neither a primary nor a cluster key."""
        if self.primary_key:
            return self.key
        if len(self.cluster_by) == 1:
            return self.column(self.cluster_by[0])
        return self.column(cluster_key(self.cluster_by)) if self.cluster_by else None

    def column(self, name: str) -> Column:
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            raise BadDefinition(f"table {self.name} has no column {name}")
        return found


NO_ATTRIBUTES = Attributes()


def cluster_key(names: Sequence[str]) -> str:
    return CLUSTER_KEY_PREFIX + "".join(f"{len(name):03}{name}" for name in names)


def parse_type(text: str) -> tuple[SqlType, tuple[str, ...], str]:
    """A type, its labels and the text after it, from SQL such as ``decimal(10,2)`` or ``enum('a','b') not null``."""
    found = _TYPE.fullmatch(text)
    if found is None:
        raise BadDefinition(f"not a column type: {text[:60]!r}")
    name, arguments = found["name"].lower(), found["arguments"] or ""
    if name in ("enum", "set"):
        labels = tuple(token.value for token in tokens(arguments) if token.kind == "text")
        if not labels:
            raise BadDefinition(f"{name} without members")
        return SqlType(_PLAIN[name]), labels, found["rest"]
    try:
        numbers = [int(part) for part in arguments.split(",")] if arguments.strip() else []
    except ValueError as error:
        raise BadDefinition(f"not a column type: {text[:60]!r}") from error
    return _type(name, numbers, bool(found["unsigned"])), (), found["rest"]


def _type(name: str, numbers: list[int], unsigned: bool) -> SqlType:
    if name in _INTEGERS:
        bits = _INTEGERS[name]
        return SqlType((_UNSIGNED if unsigned else _SIGNED)[bits], bits, -1)
    if name in ("float", "double"):
        width, scale = numbers if len(numbers) == 2 else (0, -1)
        return SqlType(types.FLOAT32 if name == "float" else types.FLOAT64, width, scale)
    if name in ("decimal", "numeric"):
        precision, scale = [*numbers, *(38, 0)[len(numbers) :]]
        if not 0 < precision <= 65 or not 0 <= scale <= precision:
            raise BadDefinition(f"decimal({precision},{scale})")
        oid = types.DECIMAL64 if precision <= 16 else types.DECIMAL128 if precision <= 38 else types.DECIMAL256
        return SqlType(oid, precision, scale)
    if name in _SCALED:
        scale = numbers[0] if numbers else 0
        return SqlType(_SCALED[name], scale, scale)
    if name in _SIZED:
        oid, default = _SIZED[name]
        return SqlType(oid, numbers[0] if numbers else default, -1 if oid == types.BIT else 0)
    if name == "year":
        return SqlType(types.YEAR, 4, 0)
    if name in _PLAIN:
        return SqlType(_PLAIN[name])
    raise BadDefinition(f"unknown column type {name}")


def define(
    database: str,
    name: str,
    columns: Mapping[str, str],
    *,
    primary_key: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    indexes: Sequence[Index] = (),
    comment: str = "",
    attributes: Mapping[str, Attributes] | None = None,
    fulltext: Sequence[tuple[str, tuple[str, ...]]] = (),
    constraints: Sequence[str] = (),
    create_sql: str = "",
) -> Definition:
    """A new table's definition: `columns` maps names to type texts, with ``not null`` after the type if it applies.

    Raises `BadDefinition`.
    """
    if not columns:
        raise BadDefinition("a table needs a column")
    if primary_key and cluster_by:
        raise BadDefinition("a table has a primary key or a cluster key, not both")
    stored: list[Column] = []
    texts: dict[str, str] = {}
    for column, text in columns.items():
        made, texts[column] = make_column(column, text, len(stored), not_null=column in primary_key)
        stored.append(made)
    unknown = [key for key in (*primary_key, *cluster_by) if key not in columns]
    if unknown:
        raise BadDefinition(f"column {unknown[0]} does not exist")
    if not primary_key:
        stored.append(Column(FAKE_KEY, len(stored), SqlType(types.UINT64), hidden=True, nullable=False))
    elif len(primary_key) > 1:
        stored.append(Column(COMPOSITE_KEY, len(stored), _PACKED, hidden=True, nullable=False))
    if len(cluster_by) > 1:
        stored.append(Column(cluster_key(cluster_by), len(stored), _PACKED, hidden=True))
    definition = Definition(
        database,
        name,
        tuple(stored),
        texts,
        tuple(primary_key),
        tuple(cluster_by),
        tuple(indexes),
        comment,
        attributes=dict(attributes or {}),
        fulltext=tuple(fulltext),
        constraints=tuple(constraints),
    )
    return replace(definition, create_sql=create_sql or create_table(definition))


def make_column(name: str, text: str, seqnum: int, *, not_null: bool = False) -> tuple[Column, str]:
    """A user column and its type as DDL prints it."""
    text = re.sub(r"^\s*(\w+)", lambda found: _ALIASES.get(found[1].lower(), found[1]), text)
    kind, labels, rest = parse_type(text)
    if rest.strip().lower() not in ("", "null", "not null"):
        raise BadDefinition(f"column {name}: {rest.strip()[:60]!r} is not known here")
    not_null = not_null or rest.strip().lower() == "not null"
    printed = text[: len(text) - len(rest)].strip()
    printed = printed if labels else re.sub(r"\s*,\s*", ",", printed.lower())
    return Column(name, seqnum, kind, labels=labels, nullable=not not_null), printed


def renamed_column(definition: Definition, column: str, name: str) -> Definition:
    """The definition with another name for a user column, wherever it is named."""
    partitioning = definition.partitioning
    if partitioning is not None and partitioning.column == column:
        partitioning = replace(partitioning, column=name)

    def changed(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name if known == column else known for known in names)

    return replace(
        definition,
        columns=tuple(replace(known, name=name) if known.name == column else known for known in definition.columns),
        type_texts={name if known == column else known: text for known, text in definition.type_texts.items()},
        primary_key=changed(definition.primary_key),
        indexes=tuple(replace(index, columns=changed(index.columns)) for index in definition.indexes),
        attributes={name if known == column else known: found for known, found in definition.attributes.items()},
        fulltext=tuple((index, changed(columns)) for index, columns in definition.fulltext),
        partitioning=partitioning,
    )


def create_table(definition: Definition, *, published: bool = False, constraints: bool = False) -> str:
    """CREATE TABLE as `get_ddl` prints it; `published` adds the clause that `get_ddl` adds for publications,
    `constraints` the foreign keys that SHOW CREATE TABLE adds."""
    lines = [f"  {_column_line(column, definition)}" for column in definition.user_columns]
    if definition.primary_key:
        lines.append(f"  PRIMARY KEY ({_names(definition.primary_key)})")
    lines += [
        f"  {'UNIQUE ' if index.unique else ''}KEY {in_backquotes(index.name)} ({_names(index.columns)})"
        for index in definition.indexes
    ]
    lines += [f" FULLTEXT {in_backquotes(name)}({_names(columns)})" for name, columns in definition.fulltext]
    if constraints:
        lines += [f"  {text}" for text in definition.constraints]
    tail = "\n)"
    if definition.comment:
        tail += " COMMENT='" + definition.comment.replace("'", "''") + "'"
    if published:
        tail += ' PROPERTIES("from_publication" = "true")'
    if definition.cluster_by:
        tail += f" CLUSTER BY ({', '.join(in_backquotes(name.lower()) for name in definition.cluster_by)})"
    name = f"{in_backquotes(definition.database)}.{in_backquotes(definition.name)}"
    return f"CREATE TABLE {name} (\n" + ",\n".join(lines) + tail


def _column_line(column: Column, definition: Definition) -> str:
    attributes = definition.attributes_of(column.name)
    words = [in_backquotes(column.name), definition.type_texts[column.name]]
    if attributes.auto_increment:
        words.append("NOT NULL AUTO_INCREMENT")
    elif attributes.generated:
        words.append(f"GENERATED ALWAYS AS ({attributes.generated}) {'STORED' if attributes.is_stored else 'VIRTUAL'}")
    else:
        if not column.nullable:
            words.append("NOT NULL")
        if attributes.default and attributes.default.lower() != "null":
            words.append(f"DEFAULT {attributes.default}")
        elif column.nullable:
            words.append("NULL DEFAULT NULL" if column.type.oid == types.TIMESTAMP else "DEFAULT NULL")
        if attributes.on_update:
            words.append(f"ON UPDATE {attributes.on_update}")
    if attributes.comment:
        words.append(f"COMMENT '{attributes.comment}'")
    return " ".join(words)


def _names(names: Sequence[str]) -> str:
    return ",".join(map(in_backquotes, names))
