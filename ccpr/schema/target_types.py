"""Which type a MatrixOne type becomes in a target, without loss, and what differs from the source.

What a target cannot hold becomes text or bytes. Sizes are those of InnoDB with utf8mb4. MatrixOne's types:
docs/format/object-file.md 4.
"""

from dataclasses import dataclass

from ccpr.matrixone.ddl.definition import ColumnType
from ccpr.matrixone.errors import Terminal
from ccpr.schema.choices import Dialect

MAX_KEY_BYTES = 3072
MAX_ROW_BYTES = 65_535
MAX_COLUMNS = 1017
MAX_KEYS = 64  # with the primary key
_CHARACTER = 4  # bytes of utf8mb4 at most
_LONGEST_MEMBER, _MOST_SET_MEMBERS, _MOST_ENUM_MEMBERS = 255, 64, 65_535
LONG_TYPES = ("longtext", "longblob", "json")  # of columns that are stored outside of the row
LONG_IN_ROW = 20  # bytes that a long text or blob takes of a row's limit
LONG_IN_PAGE = 42  # and of a page, where up to 40 bytes of it are stored
_GEOMETRIES = (
    "geometry",
    "geometry32",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
)
_FIXED_BYTES = {
    **{"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "float": 4, "double": 8, "bit": 8},
    **{"date": 3, "time": 6, "datetime": 8, "year": 1, "enum": 2, "set": 8},
}
_NUMBERS = frozenset(
    {"bool", "boolean", "bit", "tinyint", "smallint", "int", "integer", "bigint", "float", "double", "decimal"}
)
_STRINGS = frozenset({"char", "varchar", "binary", "varbinary", "text", "tinytext", "blob"})


class TargetUnfit(Terminal):
    """The target cannot have this table: a key is too long, a name is not accepted, or a type is not known."""

    code = "TARGET_UNFIT"
    about = "table"
    default_remedy = "Change the table upstream if it must be in this target. The mirror has it."


@dataclass(frozen=True, slots=True)
class TargetType:
    """A column's type in the target.

    Attributes
    ----------
    charset, collation : the column's own; empty if those of the table apply.
    row_bytes : what it takes of a row's limit; 0 if the target has no limit.
    key_bytes : what it takes in a key; None if it cannot be in a key.
    remark : what differs from the source; empty if nothing does.
    """

    type: ColumnType
    charset: str = ""
    collation: str = ""
    row_bytes: int = 0
    key_bytes: int | None = None
    remark: str = ""


def target_type(kind: ColumnType, dialect: Dialect, subject: str, *, as_text: bool = False) -> TargetType:
    """The type of a column in a target; with `as_text` long text, whatever the type is. Raises TargetUnfit for a type
    that is not known."""
    if kind.sql_type is None and kind.name not in _GEOMETRIES:
        raise TargetUnfit(f"the type {kind.name} is not known", subject=subject)
    if as_text:
        return TargetType(ColumnType("longtext"), row_bytes=LONG_IN_ROW, remark=f"{kind} is kept as text, as requested")
    return _matrixone(kind) if dialect is Dialect.MATRIXONE else _mysql(kind, dialect)


def long_type(kind: ColumnType) -> ColumnType:
    """What a varchar or varbinary of MySQL becomes where a row has no room for it."""
    return ColumnType("longtext" if kind.name == "varchar" else "longblob")


def _mysql(kind: ColumnType, dialect: Dialect) -> TargetType:
    match kind.name:
        case name if name in _NUMBERS:
            return _number(kind)
        case name if name in _STRINGS:
            return _string(kind)
        case "date" | "datetime":
            return _plain(kind)
        case "year":
            return _plain(ColumnType("year"))
        case "time":
            return _plain(kind, "values beyond 838:59:59 do not fit: keep the column as text if there are any")
        case "timestamp":
            return _plain(ColumnType("datetime", (6,)), "timestamp is kept as datetime(6) in UTC")
        case "json" if dialect is Dialect.MARIADB:
            return _long("longtext", "json is kept as its text")
        case "json":
            return _long("json", "the target orders the keys of json objects in its own way")
        case "uuid":
            remark = "uuid is kept as its 36 characters"
            return TargetType(ColumnType("char", (36,)), "ascii", "ascii_bin", 36, 36, remark)
        case "enum" | "set":
            return _members(kind)
        case name if name.startswith("vec"):
            return _long("longtext", f"{kind} is kept as text: [1, 2.5, …]")
        case _:
            return _long("longtext", f"{kind} is kept as its text")


def _number(kind: ColumnType) -> TargetType:
    digits, scale = (*kind.parameters, 0, 0)[:2]
    match kind.name:
        case "bool" | "boolean":
            return _plain(ColumnType("tinyint", (1,)))
        case "float" | "double" if kind.parameters:
            return _plain(ColumnType(kind.name), f"{kind} is {kind.name}: its values are already rounded")
        case "integer":
            return _plain(ColumnType("int", unsigned=kind.unsigned))
        case "decimal" if digits <= 65 and scale <= 30:
            return TargetType(kind, row_bytes=(digits + 1) // 2 + 4, key_bytes=(digits + 1) // 2 + 4)
        case "decimal":
            remark = f"{kind} is kept as text: the target has 65 digits, 30 of them after the decimal point"
            return _text(digits + 3, remark, ascii_only=True)
        case _:
            return _plain(kind)


def _string(kind: ColumnType) -> TargetType:
    length = (*kind.parameters, 0)[0]
    match kind.name:
        case "char":
            return _text(length, f"{kind} is varchar({length}): trailing spaces stay")
        case "varchar":
            return _text(length)
        case "binary":
            return _bytes(length, f"{kind} is varbinary({length}): values are not padded")
        case "varbinary":
            return _bytes(length)
        case _:
            return _long("longblob" if kind.name == "blob" else "longtext")


def _plain(kind: ColumnType, remark: str = "") -> TargetType:
    size = _FIXED_BYTES[kind.name]
    return TargetType(kind, row_bytes=size, key_bytes=size, remark=remark)


def _long(name: str, remark: str = "") -> TargetType:
    return TargetType(ColumnType(name), row_bytes=LONG_IN_ROW, remark=remark)


def _text(length: int, remark: str = "", *, ascii_only: bool = False) -> TargetType:
    size = length * (1 if ascii_only else _CHARACTER)
    if size + 2 > MAX_ROW_BYTES:
        return _long("longtext", remark or f"varchar({length}) is longtext")
    charset, collation = ("ascii", "ascii_bin") if ascii_only else ("", "")
    return TargetType(ColumnType("varchar", (length,)), charset, collation, size + 2, size, remark)


def _bytes(length: int, remark: str = "") -> TargetType:
    if length + 2 > MAX_ROW_BYTES:
        return _long("longblob", remark or f"varbinary({length}) is longblob")
    return TargetType(ColumnType("varbinary", (length,)), row_bytes=length + 2, key_bytes=length, remark=remark)


def _members(kind: ColumnType) -> TargetType:
    """An enum or set as it is, unless the target would change its members: it removes trailing spaces."""
    longest = max(map(len, kind.members), default=0)
    is_set = kind.name == "set"
    fits = (
        0 < len(kind.members) <= (_MOST_SET_MEMBERS if is_set else _MOST_ENUM_MEMBERS)
        and longest <= _LONGEST_MEMBER
        and len(set(kind.members)) == len(kind.members)
        and not any(member.endswith(" ") or member == "" or (is_set and "," in member) for member in kind.members)
    )
    if fits:
        return _plain(kind)
    length = sum(map(len, kind.members)) + len(kind.members) if is_set else longest
    return _text(length, f"{kind.name} is kept as text: the target does not accept its members")


def _matrixone(kind: ColumnType) -> TargetType:
    """The source's own type, but for those whose values cannot be loaded as they are. A key of the source is one of the
    target."""
    match kind.name:
        case "float" | "double" if kind.parameters:
            return TargetType(
                ColumnType(kind.name), key_bytes=0, remark=f"{kind} is {kind.name}: its values are already rounded"
            )
        case "binary":
            length = kind.parameters[:1] or (1,)
            return TargetType(
                ColumnType("varbinary", length), key_bytes=0, remark=f"{kind} is varbinary: values are not padded"
            )
        case name if name == "datalink" or name in _GEOMETRIES:
            return TargetType(ColumnType("longtext"), remark=f"{kind} is kept as its text")
        case _:
            return TargetType(kind, key_bytes=0)
