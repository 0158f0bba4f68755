"""Tables as hypothesis makes them, for tests of what reads, compares and rewrites them."""

from hypothesis import strategies as st

from ccpr.matrixone.ddl.definition import (
    CheckConstraint,
    ColumnDefinition,
    ColumnType,
    CreateTable,
    ForeignKey,
    Generated,
    Index,
    IndexKind,
    KeyPart,
)
from ccpr.matrixone.sql.quoting import quote_string

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
NAMES = st.one_of(
    st.sampled_from(
        [
            "select",
            "a b",
            "weird name é",
            "a`b",
            "it's",
            'q"q',
            "x@y",
            "key",
            "a\nb",
            "表",
            "from_publication",
            "COMMENT",
        ]
    ),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=8),
)
DEFAULTS = st.one_of(
    st.sampled_from(
        [
            "1",
            "-3.50",
            "CURRENT_TIMESTAMP()",
            "(uuid())",
            "now(6)",
            "b'101'",
            "('a' + 1) * 2",
            "1e3",
            "true",
            "x IS NOT NULL",
        ]
    ),
    TEXT.map(quote_string),
)
EXPRESSIONS = st.sampled_from(["`a` > 0", "length(`b`) < 10 and (`c` in ('x', ')'))", "1 = 1", "`x` + 1"])
TYPES = st.one_of(
    st.sampled_from(
        [
            *map(
                ColumnType,
                (
                    "bool",
                    "int",
                    "date",
                    "datetime",
                    "timestamp",
                    "text",
                    "blob",
                    "json",
                    "uuid",
                    "datalink",
                    "geometry",
                    "year",
                ),
            ),
            ColumnType("int", unsigned=True),
            ColumnType("bigint", unsigned=True),
            ColumnType("decimal", (10, 2)),
            ColumnType("decimal", (38, 10)),
            ColumnType("decimal", (70, 5)),
            ColumnType("varchar", (20,)),
            ColumnType("varbinary", (60,)),
            ColumnType("char", (3,)),
            ColumnType("bit", (10,)),
            ColumnType("time", (6,)),
            ColumnType("timestamp", (3,)),
            ColumnType("float", (10, 2)),
            ColumnType("vecf32", (3,)),
            ColumnType("point", srid=4326),
        ]
    ),
    st.builds(
        ColumnType,
        st.sampled_from(["enum", "set"]),
        members=st.lists(TEXT, min_size=1, max_size=3, unique=True).map(tuple),
    ),
)


@st.composite
def column_definitions(draw: st.DrawFn, name: str, *, key: bool = False) -> ColumnDefinition:
    kind, comment = draw(TYPES), draw(TEXT)
    nullable = False if key else draw(st.booleans())
    match draw(st.sampled_from(["plain", "plain", "default", "auto", "generated"])):
        case "auto":
            return ColumnDefinition(name, kind, False, auto_increment=True, comment=comment)
        case "generated" if not key:
            return ColumnDefinition(
                name, kind, nullable, generated=Generated(draw(EXPRESSIONS), draw(st.booleans())), comment=comment
            )
        case "default":
            on_update = draw(st.sampled_from(["", "CURRENT_TIMESTAMP()", "now(3)"]))
            collation = draw(st.sampled_from(["", "utf8mb4_bin"]))
            return ColumnDefinition(
                name, kind, nullable, draw(DEFAULTS), on_update, comment=comment, collation=collation
            )
    return ColumnDefinition(name, kind, nullable, comment=comment, invisible=draw(st.booleans()))


@st.composite
def indexes(draw: st.DrawFn, name: str, columns: list[str]) -> Index:
    kind = draw(st.sampled_from(IndexKind))
    chosen = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
    fulltext = kind in (IndexKind.FULLTEXT, IndexKind.FULLTEXT2)
    algorithm, options = draw(
        st.sampled_from([("", ""), ("", "WITH PARSER ngram"), ("", "ASYNC")])
        if fulltext
        else st.sampled_from(
            [("", ""), ("ivfflat", "lists = 3  op_type 'vector_l2_ops'"), ("hnsw", "m = 16  ef_construction = 8")]
        )
    )
    parts = tuple(KeyPart(column, draw(st.sampled_from([None, 7])), draw(st.booleans())) for column in chosen)
    return Index(kind, name, parts, algorithm, options, draw(TEXT))


@st.composite
def create_tables(draw: st.DrawFn, max_columns: int = 5) -> CreateTable:
    """Well-formed ones: what MatrixOne could write, and invisible columns besides."""
    names = draw(st.lists(NAMES, min_size=1, max_size=max_columns, unique_by=str.lower))
    key = tuple(draw(st.lists(st.sampled_from(names), max_size=2, unique=True)))
    columns = tuple(draw(column_definitions(name, key=name in key)) for name in names)
    index_names = draw(st.lists(NAMES, max_size=3, unique_by=str.lower))
    foreign = draw(
        st.lists(
            st.builds(
                ForeignKey,
                NAMES,
                st.just((names[0],)),
                NAMES,
                st.just(("id",)),
                st.sampled_from(["", "other db"]),
                st.sampled_from(["", "CASCADE", "SET NULL"]),
                st.sampled_from(["", "RESTRICT", "NO ACTION"]),
            ),
            max_size=1,
        )
    )
    return CreateTable(
        name=draw(NAMES),
        columns=columns,
        database=draw(st.one_of(st.just(""), NAMES)),
        primary_key=key,
        indexes=tuple(draw(indexes(name, names)) for name in index_names),
        foreign_keys=tuple(foreign),
        checks=tuple(
            draw(st.lists(st.builds(CheckConstraint, st.one_of(st.just(""), NAMES), EXPRESSIONS), max_size=2))
        ),
        comment=draw(TEXT),
        partition_by=draw(
            st.sampled_from(["", "hash(`a`) partitions 4", "range (a) (partition p0 values less than (10))"])
        ),
        properties=tuple(draw(st.lists(st.tuples(TEXT, TEXT), max_size=2))),
        cluster_by=tuple(draw(st.lists(st.sampled_from(names), max_size=2, unique=True))),
        options=draw(
            st.sampled_from([(), (("COLLATE", "utf8mb4_bin"),), (("ENGINE", "InnoDB"), ("DEFAULT CHARSET", "utf8mb4"))])
        ),
    )
