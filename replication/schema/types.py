"""Which type a MatrixOne type becomes in a target, without loss; and what is to be said of it.

What a target cannot hold goes to text or bytes. Sizes are of InnoDB with utf8mb4. Source: object-format.md 4; issue 7.
"""

from dataclasses import dataclass

from matrixone.ddl.definition import ColumnType
from matrixone.errors import Terminal
from replication.schema.dialects import Dialect

MAX_KEY_BYTES = 3072
MAX_ROW_BYTES = 65_535
_CHARACTER = 4  # bytes of utf8mb4 at most
_LONGEST_MEMBER, _MOST_SET_MEMBERS, _MOST_ENUM_MEMBERS = 255, 64, 65_535
LONG_IN_ROW = 20  # bytes that a long text or blob takes of a row's limit
LONG_IN_PAGE = 42  # and of a page, where up to 40 bytes of it may stand
_GEOMETRIES = (
    "geometry",
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
_DORIS_UNSIGNED = {"tinyint": "smallint", "smallint": "int", "int": "bigint", "bigint": "largeint"}
_DORIS_VARCHAR = 65_533  # bytes


class TargetUnfit(Terminal):
    """The target cannot have this table: a key too long, a name it does not take, a type that nobody knows. Nothing
    was made."""

    code = "TARGET_UNFIT"
    about = "table"
    default_remedy = "Change the table upstream if it has to be in this target; the mirror has it in any case, and the other tables go on."


@dataclass(frozen=True, slots=True)
class TargetType:
    """A column's type in the target.

    Attributes
    ----------
    charset, collation : of its own; empty where the table's count.
    row_bytes : what it takes of a row's limit; 0 where the target has none.
    key_bytes : what it takes in a key; None if it cannot stand in one.
    remark : what is different from the source; empty for nothing.
    """

    type: ColumnType
    charset: str = ""
    collation: str = ""
    row_bytes: int = 0
    key_bytes: int | None = None
    remark: str = ""


def target_type(kind: ColumnType, dialect: Dialect, subject: str, *, as_text: bool = False) -> TargetType:
    """The type of a column in a target; `as_text` asks for long text whatever it is. Raises TargetUnfit for a type
    that is not known."""
    if kind.sql_type is None and kind.name not in _GEOMETRIES:
        raise TargetUnfit(f"nobody knows the type {kind.name}", subject=subject)
    if dialect is Dialect.MATRIXONE:
        return TargetType(kind)
    if as_text:
        text = ColumnType("string" if dialect is Dialect.DORIS else "longtext")
        return TargetType(text, row_bytes=LONG_IN_ROW, remark=f"{kind} is kept as text, as was asked for")
    return _doris(kind) if dialect is Dialect.DORIS else _mysql(kind, dialect)


def long_type(kind: ColumnType) -> ColumnType:
    """What a varchar or varbinary of MySQL becomes where a row has no room for it."""
    return ColumnType("longtext" if kind.name == "varchar" else "longblob")


def _mysql(kind: ColumnType, dialect: Dialect) -> TargetType:
    first, second = (*kind.parameters, 0, 0)[:2]
    match kind.name:
        case "bool" | "boolean":
            return _plain(ColumnType("tinyint", (1,)))
        case "float" | "double" if kind.parameters:
            return _plain(ColumnType(kind.name), f"{kind} is {kind.name}: values come rounded")
        case "integer":
            return _plain(ColumnType("int", unsigned=kind.unsigned))
        case "bit" | "tinyint" | "smallint" | "int" | "bigint" | "float" | "double" | "date" | "datetime" | "year":
            return _plain(kind if kind.name != "year" else ColumnType("year"))
        case "time":
            return _plain(kind, "values beyond 838:59:59 do not fit: ask for the column as text if there are any")
        case "timestamp":
            return _plain(ColumnType("datetime", (6,)), "timestamp is kept as datetime(6) in UTC")
        case "decimal":
            if first <= 65 and second <= 30:
                return TargetType(kind, row_bytes=(first + 1) // 2 + 4, key_bytes=(first + 1) // 2 + 4)
            return _text(
                first + 3,
                f"{kind} is kept as text: the target has 65 digits, 30 of them behind the point",
                ascii_only=True,
            )
        case "char":
            return _text(first, f"{kind} is varchar({first}): trailing spaces stay")
        case "varchar":
            return _text(first)
        case "binary":
            return _bytes(first, f"{kind} is varbinary({first}): nothing is padded")
        case "varbinary":
            return _bytes(first)
        case "text" | "tinytext":
            return TargetType(ColumnType("longtext"), row_bytes=LONG_IN_ROW)
        case "blob":
            return TargetType(ColumnType("longblob"), row_bytes=LONG_IN_ROW)
        case "json":
            if dialect is Dialect.MARIADB:
                return TargetType(ColumnType("longtext"), row_bytes=LONG_IN_ROW, remark="json is kept as its text")
            return TargetType(
                kind, row_bytes=LONG_IN_ROW, remark="the target orders the keys of json objects its own way"
            )
        case "uuid":
            return TargetType(
                ColumnType("char", (36,)), "ascii", "ascii_bin", 36, 36, "uuid is kept as its 36 characters"
            )
        case "enum" | "set":
            return _members(kind)
        case "vecf32" | "vecf64":
            return TargetType(
                ColumnType("longtext"), row_bytes=LONG_IN_ROW, remark=f"{kind} is kept as text: [1, 2.5, …]"
            )
        case _:
            return TargetType(ColumnType("longtext"), row_bytes=LONG_IN_ROW, remark=f"{kind} is kept as its text")


def _plain(kind: ColumnType, remark: str = "") -> TargetType:
    size = _FIXED_BYTES[kind.name]
    return TargetType(kind, row_bytes=size, key_bytes=size, remark=remark)


def _text(length: int, remark: str = "", *, ascii_only: bool = False) -> TargetType:
    size = length * (1 if ascii_only else _CHARACTER)
    if size + 2 > MAX_ROW_BYTES:
        return TargetType(
            ColumnType("longtext"), row_bytes=LONG_IN_ROW, remark=remark or f"varchar({length}) is longtext"
        )
    charset, collation = ("ascii", "ascii_bin") if ascii_only else ("", "")
    return TargetType(ColumnType("varchar", (length,)), charset, collation, size + 2, size, remark)


def _bytes(length: int, remark: str = "") -> TargetType:
    if length + 2 > MAX_ROW_BYTES:
        return TargetType(
            ColumnType("longblob"), row_bytes=LONG_IN_ROW, remark=remark or f"varbinary({length}) is longblob"
        )
    return TargetType(ColumnType("varbinary", (length,)), row_bytes=length + 2, key_bytes=length, remark=remark)


def _members(kind: ColumnType) -> TargetType:
    """An enum or set as it is, unless the target would take its members for others: it cuts trailing spaces."""
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
    return _text(length, f"{kind.name} is kept as text: the target does not take its members")


def _doris(kind: ColumnType) -> TargetType:
    """Lengths of Doris count bytes; it has no unsigned integers, no times of day and no bytes."""
    first, second = (*kind.parameters, 0, 0)[:2]
    name = "int" if kind.name == "integer" else kind.name
    match name:
        case "bool" | "boolean":
            return TargetType(ColumnType("boolean"), key_bytes=1)
        case "bit":
            return TargetType(ColumnType("largeint"), key_bytes=16, remark=f"{kind} is a number")
        case "tinyint" | "smallint" | "int" | "bigint":
            wider = _DORIS_UNSIGNED[name] if kind.unsigned else name
            return TargetType(ColumnType(wider), key_bytes=16, remark=f"{kind} is {wider}" if kind.unsigned else "")
        case "float" | "double":
            return TargetType(ColumnType(name))
        case "date":
            return TargetType(kind, key_bytes=4)
        case "datetime":
            return TargetType(kind, key_bytes=8)
        case "timestamp":
            return TargetType(
                ColumnType("datetime", (6,)), key_bytes=8, remark="timestamp is kept as datetime(6) in UTC"
            )
        case "year":
            return TargetType(ColumnType("smallint"), key_bytes=2, remark="year is a number")
        case "decimal" if first <= 38:
            return TargetType(ColumnType("decimal", (first, second)), key_bytes=16)
        case "char" | "varchar" if 0 < first * _CHARACTER <= _DORIS_VARCHAR:
            size = first * _CHARACTER
            return TargetType(
                ColumnType("varchar", (size,)), key_bytes=size, remark="" if name == "varchar" else f"{kind} is varchar"
            )
        case "uuid":
            return TargetType(ColumnType("varchar", (36,)), key_bytes=36, remark="uuid is kept as its 36 characters")
        case "decimal" | "time":
            size = 80 if name == "decimal" else 24
            return TargetType(ColumnType("varchar", (size,)), key_bytes=size, remark=f"{kind} is kept as text")
        case "enum":
            size = max(1, max((len(member.encode()) for member in kind.members), default=1))
            return (
                TargetType(ColumnType("varchar", (size,)), key_bytes=size, remark="enum is kept as text")
                if size <= _DORIS_VARCHAR
                else _string(kind)
            )
        case "json":
            return TargetType(kind, remark="the target orders the keys of json objects its own way")
        case "vecf32" | "vecf64":
            return TargetType(ColumnType("array<float>" if name == "vecf32" else "array<double>"))
        case "binary" | "varbinary" | "blob":
            return TargetType(ColumnType("string"), remark=f"{kind} is kept as hexadecimal digits")
        case "text" | "tinytext" | "varchar":
            return TargetType(ColumnType("string"))
        case _:
            return _string(kind)


def _string(kind: ColumnType) -> TargetType:
    return TargetType(ColumnType("string"), remark=f"{kind.name} is kept as its text")
