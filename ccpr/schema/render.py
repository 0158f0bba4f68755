"""A table of MatrixOne in another server: its definition, which `ccpr.schema.alterations` changes. It is meant for a
session with a strict sql_mode without NO_BACKSLASH_ESCAPES and ANSI_QUOTES, and with time_zone '+00:00'.

MySQL 8 and MariaDB differ by their collation only. A target that is a MatrixOne has the source's types and defaults,
and its key column for tables without a key is seen. A definition made here still has what acts by itself, as
AUTO_INCREMENT does: `ccpr.schema.sync_mark.for_sync` removes that, marks the table, and gives the text.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ccpr.matrixone.ddl.definition import ColumnDefinition, ColumnType, CreateTable, Index, IndexKind
from ccpr.matrixone.schema import FAKE_KEY
from ccpr.schema.choices import Dialect
from ccpr.schema.column_defaults import default_of, now_of
from ccpr.schema.sync_mark import READ_ONLY_PROPERTY
from ccpr.schema.target_types import (
    LONG_IN_PAGE,
    LONG_IN_ROW,
    LONG_TYPES,
    MAX_COLUMNS,
    MAX_KEY_BYTES,
    MAX_KEYS,
    MAX_ROW_BYTES,
    TargetType,
    TargetUnfit,
    long_type,
    target_type,
)

# Both compare by the byte, and trailing spaces count.
COLLATIONS = {Dialect.MYSQL8: "utf8mb4_0900_bin", Dialect.MARIADB: "utf8mb4_nopad_bin"}
HIDDEN_KEY = {
    Dialect.MYSQL8: FAKE_KEY,
    Dialect.MARIADB: FAKE_KEY,
    Dialect.MATRIXONE: "__ccpr_key",
}
_MAX_NAME, _MAX_COMMENT, _MAX_TABLE_COMMENT = 64, 1024, 2048  # characters
_KNOWN_OPTIONS = frozenset({"ENGINE", "CHARSET", "CHARACTER SET", "DEFAULT CHARSET", "COLLATE"})  # the target's own
TRIED_LATER = "its values come from the source; the target's own expression is tried when the table is released"
_MAX_FILE_NAME = 251  # bytes of a table's name as the server writes it in the names of its files
_KEY_PARTS = {Dialect.MYSQL8: 16, Dialect.MARIADB: 32}
_INNODB_COLUMNS = frozenset({"db_row_id", "db_trx_id", "db_roll_ptr", "fts_doc_id"})
_ROW_ROOM = MAX_ROW_BYTES - 2048  # the rest for lengths and null flags
_PAGE_ROOM = 8126 - 126  # of half a page of 16 kB; the rest for headers


@dataclass(frozen=True, slots=True)
class RenderedTable:
    """A table as the target is to have it.

    Attributes
    ----------
    create : the definition; `format_create_table` or `for_sync` gives the text.
    types : of its columns, in the order of `create`.
    remarks : what differs from the source, one sentence each, for the plan.
    """

    create: CreateTable
    types: tuple[TargetType, ...]
    remarks: tuple[str, ...] = ()


def target_table(
    source: CreateTable, dialect: Dialect, *, database: str | None = None, as_text: Collection[str] = ()
) -> RenderedTable:
    """A table's definition for a target, in `database` (None: the source's). `as_text` names columns to be kept as
    long text.

    Raises TargetUnfit: a key beyond 3072 bytes or over a type that cannot be in a key, a name that the target does not
    accept.
    """
    subject = f"table {source.database}.{source.name}"
    remarks: list[str] = []
    _check_name(source.name, dialect, subject)
    if dialect.speaks_mysql and (_file_name_bytes(source.name) > _MAX_FILE_NAME or source.name.startswith("#mysql50#")):
        raise TargetUnfit(f"the target does not accept the name {source.name!r:.80}", subject=subject)
    if dialect is Dialect.MATRIXONE and source.name != source.name.lower():
        raise TargetUnfit("the target keeps names of tables in lower case, and this one has capitals", subject=subject)
    keyed = _with_key(source, dialect, remarks, subject)
    if database is not None:
        keyed = replace(keyed, database=database)
    types: list[TargetType] = []
    for column in keyed.columns:
        _check_name(column.name, dialect, subject)
        staged_key = dialect is Dialect.MATRIXONE and column.name == FAKE_KEY  # changes are staged without a key
        if staged_key or (dialect.speaks_mysql and column.name.lower() in _INNODB_COLUMNS):
            raise TargetUnfit(f"the target does not accept a column of the name {column.name}", subject=subject)
        types.append(
            target_type(column.type, dialect, f"column {column.name} of {subject}", as_text=column.name in as_text)
        )
    if dialect.speaks_mysql:
        types = _fitted(keyed, types, remarks, subject)
    by_name = {column.name: kind for column, kind in zip(keyed.columns, types, strict=True)}
    _check_key(keyed.primary_key, by_name, dialect, subject)
    remarks += [f"column {name}: {kind.remark}" for name, kind in by_name.items() if kind.remark]
    create = _converted(keyed, by_name, dialect, remarks)
    if source.partition_by:
        remarks.append("the partitions of the source are not those of the target")
    if source.cluster_by:
        remarks.append("CLUSTER BY is skipped")
    return RenderedTable(create, tuple(types), tuple(remarks))


def _with_key(source: CreateTable, dialect: Dialect, remarks: list[str], subject: str) -> CreateTable:
    """The source's definition; a hidden key column is added if it has no key. Raises TargetUnfit."""
    if source.primary_key:
        return source
    hidden, invisible = HIDDEN_KEY[dialect], dialect.speaks_mysql
    if any(column.name.lower() == hidden.lower() for column in source.columns):
        raise TargetUnfit(f"it has no key, and a column named {hidden}", subject=subject)
    # Counts by itself once the table is released; until then an invisible column needs a default.
    kind = ColumnType("bigint", unsigned=True)
    key = ColumnDefinition(hidden, kind, False, "0" if invisible else None, auto_increment=True, invisible=invisible)
    remarks.append(
        f"the table has no key: {'the invisible' if invisible else 'an additional'} column {hidden} is its key"
    )
    return replace(source, columns=(*source.columns, key), primary_key=(hidden,))


def _converted(
    source: CreateTable, types: Mapping[str, TargetType], dialect: Dialect, remarks: list[str]
) -> CreateTable:
    """The definition with the target's types, indexes and options."""
    indexes = tuple(_indexes(source, types, dialect, remarks))
    leading = {source.primary_key[0], *(index.parts[0].column for index in indexes)}
    return CreateTable(
        name=source.name,
        columns=tuple(_column(column, types[column.name], dialect, leading, remarks) for column in source.columns),
        database=source.database,
        primary_key=source.primary_key,
        indexes=indexes,
        foreign_keys=source.foreign_keys,
        checks=source.checks,
        comment=_table_comment(source, dialect, remarks),
        options=_options(source, dialect, remarks),
    )


def _table_comment(source: CreateTable, dialect: Dialect, remarks: list[str]) -> str:
    if not dialect.speaks_mysql or len(source.comment) <= _MAX_TABLE_COMMENT:
        return source.comment
    remarks.append(f"the table's comment is cut after {_MAX_TABLE_COMMENT} characters")
    return source.comment[:_MAX_TABLE_COMMENT]


def _options(source: CreateTable, dialect: Dialect, remarks: list[str]) -> tuple[tuple[str, str], ...]:
    """The target's own, and where the source goes on counting."""
    own: list[tuple[str, str]] = []
    if dialect.speaks_mysql:
        own += [("ENGINE", "InnoDB"), ("DEFAULT CHARSET", "utf8mb4"), ("COLLATE", COLLATIONS[dialect])]
    for name, value in source.options:
        if dialect.speaks_mysql and name == "AUTO_INCREMENT" and value.isdecimal():
            own.append((name, value))
        elif name not in _KNOWN_OPTIONS:
            remarks.append(f"{name}={value} is skipped")
    remarks += [f"the property {name} is skipped" for name, _ in source.properties if name != READ_ONLY_PROPERTY]
    return tuple(own)


def _check_name(name: str, dialect: Dialect, subject: str) -> None:
    if dialect is Dialect.MATRIXONE:
        return
    if len(name) > _MAX_NAME or name.endswith(" ") or any(letter > "\uffff" or letter == "\0" for letter in name):
        raise TargetUnfit(f"the target does not accept the name {name!r:.80}", subject=subject)


def _file_name_bytes(name: str) -> int:
    """Of a table: letters and digits of ASCII are themselves, those of some other alphabets three bytes, and all others
    five."""
    sizes = (1 if letter == "_" or (letter < "\x80" and letter.isalnum()) else _letter_bytes(letter) for letter in name)
    return sum(sizes)


def _letter_bytes(letter: str) -> int:
    return 3 if letter.isalpha() and ("\u00c0" <= letter <= "\u0587" or "\u1e00" <= letter <= "\u1fff") else 5


def _fitted(source: CreateTable, types: Sequence[TargetType], remarks: list[str], subject: str) -> list[TargetType]:
    """Types that a row has room for: the longest texts and bytes outside of keys are moved out of the row first. Raises
    TargetUnfit."""
    columns, key = source.columns, set(source.primary_key)
    if len(columns) > MAX_COLUMNS:
        raise TargetUnfit(f"it has {len(columns)} columns; the target takes {MAX_COLUMNS}", subject=subject)
    indexed = key.union(part.column for index in source.indexes for part in index.parts)
    fitted = list(types)
    room = _ROW_ROOM - sum(kind.row_bytes for kind in types)
    inline = [_page_bytes(kind, column.name in key) for kind, column in zip(types, columns, strict=True)]
    page_room = _PAGE_ROOM - len(columns) // 8 - sum(inline)
    order = sorted(range(len(fitted)), key=lambda place: (columns[place].name in indexed, -fitted[place].row_bytes))
    for place in order:
        kind = fitted[place]
        if kind.type.name not in ("varchar", "varbinary") or columns[place].name in key:
            continue
        gained = inline[place] - LONG_IN_PAGE
        if room < 0 or (page_room < 0 and gained > 0):
            longer = long_type(kind.type)
            remarks.append(f"column {columns[place].name}: {kind.type} is {longer}, since a row has no room for it")
            fitted[place] = replace(kind, type=longer, charset="", collation="", row_bytes=LONG_IN_ROW, key_bytes=None)
            room += kind.row_bytes - LONG_IN_ROW
            page_room += gained
    if room < 0 or page_room < 0:
        raise TargetUnfit(f"its {len(columns)} columns do not fit into a row of the target", subject=subject)
    return fitted


def _page_bytes(kind: TargetType, in_key: bool) -> int:
    """What a value takes of a page of InnoDB at most: one that may be longer than 255 bytes can be stored elsewhere,
    unless it is in a key."""
    if kind.type.name in LONG_TYPES:
        return LONG_IN_PAGE
    return LONG_IN_PAGE if kind.row_bytes > 257 and not in_key else kind.row_bytes


def _check_key(key: Sequence[str], types: Mapping[str, TargetType], dialect: Dialect, subject: str) -> None:
    """Raises TargetUnfit."""
    total = 0
    for name in key:
        if name not in types:
            raise TargetUnfit(f"its key names {name!r:.80}, which is not a column", subject=subject)
        size = types[name].key_bytes
        if size is None:
            message = f"column {name} of its key is {types[name].type} in the target, which no key can hold"
            raise TargetUnfit(message, subject=subject)
        total += size
    if dialect.speaks_mysql and total > MAX_KEY_BYTES:
        raise TargetUnfit(f"its key has {total} bytes; the target takes {MAX_KEY_BYTES}", subject=subject)
    if len(key) > (most := _KEY_PARTS.get(dialect, len(key))):
        raise TargetUnfit(f"its key has {len(key)} columns; the target takes {most}", subject=subject)


def _indexes(
    source: CreateTable, types: Mapping[str, TargetType], dialect: Dialect, remarks: list[str]
) -> Iterator[Index]:
    """The indexes that the target can have, without the source's options."""
    names = set[str]()
    for index in source.indexes:
        name = index.name or index.parts[0].column
        problem = _index_problem(index, name, types, dialect)
        if dialect.speaks_mysql and not problem:
            if name.lower() in names:
                problem = "another one has its name but for the case of letters"
            elif len(names) + 1 >= MAX_KEYS:
                problem = f"the target takes {MAX_KEYS} with the primary key"
        if problem:
            remarks.append(f"index {name} is skipped: {problem}")
        else:
            names.add(name.lower())
            ordinary = index.kind is not IndexKind.FULLTEXT and index.algorithm.lower() in ("btree", "hash")
            algorithm = index.algorithm if ordinary else ""
            if index.options:
                remarks.append(f"index {name} is made without its options: {index.options}")
            if len(index.comment) > _MAX_COMMENT:
                remarks.append(f"index {name}: its comment is cut after {_MAX_COMMENT} characters")
            parts = index.parts
            if dialect.speaks_mysql:
                parts = tuple(replace(part, length=_part_length(part.length, types[part.column])) for part in parts)
            yield replace(
                index,
                name=name,
                parts=parts,
                algorithm=algorithm,
                options="",
                comment=index.comment[:_MAX_COMMENT],
            )


def _index_problem(index: Index, name: str, types: Mapping[str, TargetType], dialect: Dialect) -> str:
    """Why the target cannot have the index; empty if it can."""
    if dialect is Dialect.MATRIXONE and (index.kind not in (IndexKind.KEY, IndexKind.UNIQUE) or index.algorithm):
        return f"make the {index.algorithm or index.kind.lower()} index in the target yourself"
    if len(name) > _MAX_NAME or name.endswith(" ") or name.upper() == "PRIMARY":
        return "the target does not accept its name"
    if index.kind in (IndexKind.SPATIAL, IndexKind.FULLTEXT2) or index.algorithm.lower() not in ("", "btree", "hash"):
        return f"the target has no {index.algorithm or index.kind.lower()} index"
    kinds = [types[part.column] for part in index.parts if part.column in types]
    if len(kinds) != len(index.parts):
        return "it names a column that does not exist"
    if index.kind is IndexKind.FULLTEXT:
        text = all(kind.type.name in ("varchar", "longtext") and not kind.charset for kind in kinds)
        return "" if text else "a full-text index of the target is for texts only"
    if len(index.parts) > (most := _KEY_PARTS.get(dialect, len(index.parts))):
        return f"it has {len(index.parts)} columns; the target takes {most}"
    sizes = [_part_bytes(part.length, kind) for part, kind in zip(index.parts, kinds, strict=True)]
    if None in sizes:
        return "the target needs a length for a long column"
    total = sum(size for size in sizes if size is not None)
    if dialect.speaks_mysql and total > MAX_KEY_BYTES:
        return f"it has {total} bytes; the target takes {MAX_KEY_BYTES}"
    return ""


def _part_length(length: int | None, kind: TargetType) -> int | None:
    """The prefix length, if it is a prefix: the target refuses one as long as the column, or one of a number."""
    if kind.type.name in LONG_TYPES:
        return length
    whole = kind.type.parameters[0] if kind.type.name in ("varchar", "varbinary", "char") else 0
    return length if length is not None and length < whole else None


def _part_bytes(length: int | None, kind: TargetType) -> int | None:
    if length is None:
        return kind.key_bytes
    characters = 4 if kind.type.name in ("varchar", "longtext") and not kind.charset else 1
    return length * characters if kind.key_bytes is None else min(length * characters, kind.key_bytes)


def _column(
    column: ColumnDefinition, kind: TargetType, dialect: Dialect, leading: set[str], remarks: list[str]
) -> ColumnDefinition:
    default = default_of(column, kind, dialect)
    if column.generated:
        remarks.append(f"column {column.name}: {TRIED_LATER}")
    if default is None and column.default is not None:
        remarks.append(f"column {column.name}: the default {column.default} is skipped")
    counts = column.auto_increment and column.name in leading
    if column.auto_increment and not counts:
        remarks.append(f"column {column.name}: AUTO_INCREMENT is skipped, since no key begins with the column")
    comment = column.comment[:_MAX_COMMENT]
    if comment != column.comment:
        remarks.append(f"column {column.name}: its comment is cut after {_MAX_COMMENT} characters")
    in_utc = column.type.name == "timestamp"  # a target's ON UPDATE is in its session's time zone
    on_update = now_of(column.on_update, kind) if column.on_update and not in_utc else ""
    if dialect is Dialect.MATRIXONE and kind.type == column.type:
        on_update = column.on_update
    if column.on_update and not on_update:
        remarks.append(f"column {column.name}: ON UPDATE {column.on_update} is skipped")
    return ColumnDefinition(
        name=column.name,
        type=kind.type,
        nullable=column.nullable,
        default=default,
        on_update=on_update,
        auto_increment=counts,
        generated=column.generated,
        comment=comment,
        charset=kind.charset,
        collation=kind.collation,
        invisible=column.invisible,
    )
