"""CREATE TABLE text to a `CreateTable`: recursive descent over tokens, in one pass.

Understands what MatrixOne writes (docs/upstream.md 5.4; any name, comments that the server forgot to quote) and the
same statement as MySQL and MariaDB write it. Brackets are counted, without recursion, so depth costs nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from ccpr.matrixone.ddl.cursor import MAX_DIGITS, Cursor
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
from ccpr.matrixone.objects.types import MAX_PRECISION, decimal_digits
from ccpr.matrixone.schema import Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.matrixone.sql.lexer import Token, tokens

_MAX_REPAIRS = 1_000  # of comments: for each the rest may be searched for a quote
# Where a comment ends that the server did not quote: it puts each definition on a line of its own, the comment last.
_COMMENT_END = re.compile(r"'(?=,\n|\n\))")
_INDEX_WORDS = ("UNIQUE", "KEY", "INDEX", "FULLTEXT", "FULLTEXT2", "SPATIAL")
_ACTIONS = ("CASCADE", "RESTRICT")
_ATTRIBUTES = (
    "NOT",
    "NULL",
    "DEFAULT",
    "ON",
    "AUTO_INCREMENT",
    "GENERATED",
    "AS",
    "COLLATE",
    "CHARACTER",
    "INVISIBLE",
    "VISIBLE",
)
_ATTRIBUTES += ("PRIMARY", "UNIQUE", "CHECK", "COMMENT")


def parse_create_table(
    text: str,
    *,
    comment: str | None = None,
    members: Mapping[str, tuple[str, ...]] | None = None,
    subject: str = "CREATE TABLE text",
) -> CreateTable:
    """The statement as a value. Raises DdlUnreadable, which names the place.

    `comment` is the table's comment, `members` those of enum and set columns by name, where they are known from the
    catalog. The server does not quote them, so a text with quotes in it can be read for certain only with them.
    `subject` is what an error is about, e.g. ``table db.t``.
    """
    return _CreateTableParser(text, comment, members or {}, subject).statement()


def table_comment(text: str) -> str:
    """The table's comment in a CREATE TABLE text of MySQL or MariaDB, whatever else the text holds; empty if it has
    none."""
    depth, clause = 0, False
    for token in tokens(text):
        if clause and not token.is_sign("="):
            return token.value if token.kind == "text" else ""
        depth += token.is_sign("(") - token.is_sign(")")
        clause = clause or (depth == 0 and token.is_word("COMMENT"))
    return ""


def create_table_of(table: Table) -> CreateTable:
    """A table's definition, from its DDL text, with what the catalog knows better: names, members of enums and sets,
    how long the values of decimals are, what texts are by default.

    Raises DdlUnreadable, also if the text has other columns than the catalog.
    """
    subject = f"table {table.qualified_name}"
    if not table.ddl:
        raise DdlUnreadable("the upstream gave no CREATE TABLE text for it", subject=subject)
    members = {column.name: column.labels for column in table.user_columns if column.labels}
    created = parse_create_table(table.ddl, comment=table.comment, members=members, subject=subject)
    stored = table.user_columns
    if [column.name for column in created.columns] != [column.name for column in stored]:
        raise DdlUnreadable("its CREATE TABLE text has other columns than the catalog", subject=subject)
    columns = []
    for definition, column in zip(created.columns, stored, strict=True):
        declared = definition.type
        known = declared.sql_type
        if known is not None and known.oid != column.type.oid:
            message = f"column {column.name} is a {declared.name} in its CREATE TABLE text only"
            raise DdlUnreadable(message, subject=subject)
        kind = ColumnType(declared.name, members=column.labels) if column.labels else declared
        if column.digits > column.type.width and column.type.oid in MAX_PRECISION:
            kind = ColumnType(declared.name, (decimal_digits(column), column.type.scale))
        text = column.default_text if definition.default is not None else None
        columns.append(replace(definition, type=kind, default_text=text))
    return replace(created, database=table.database, name=table.name, columns=tuple(columns))


class _CreateTableParser(Cursor):
    """One statement, read once from its first word to its last."""

    def __init__(self, text: str, comment: str | None, members: Mapping[str, tuple[str, ...]], subject: str) -> None:
        super().__init__(text, subject)
        self._comment = comment
        self._members = members
        self._repairs = 0

    def statement(self) -> CreateTable:
        self.expect("CREATE")
        if not self.at("TABLE"):
            self.fail("an ordinary CREATE TABLE is expected")
        self.expect("TABLE")
        if self.take("IF"):
            self.expect("NOT")
            self.expect("EXISTS")
        database, name = self.qualified_name()
        parts = _ClauseParts()
        self.sign("(")
        while True:
            self._definition(parts)
            if not self.take_sign(","):
                break
        self.sign(")")
        if not parts.columns:
            self.fail("the statement has no columns")
        while not self.at_end():
            if self.take_sign(";") and self.at_end():
                break
            if not self.take_sign(","):  # MySQL allows commas between options
                self._clause(parts)
        keys = frozenset(parts.primary_key)  # they are NOT NULL, with or without these words
        columns = (replace(column, nullable=column.nullable and column.name not in keys) for column in parts.columns)
        return CreateTable(
            name=name,
            columns=tuple(columns),
            database=database,
            primary_key=parts.primary_key,
            indexes=tuple(parts.indexes),
            foreign_keys=tuple(parts.foreign_keys),
            checks=tuple(parts.checks),
            comment=parts.comment,
            partition_by=parts.partition_by,
            properties=parts.properties,
            cluster_by=parts.cluster_by,
            options=tuple(parts.options),
        )

    # Definitions

    def _definition(self, parts: "_ClauseParts") -> None:
        constraint = ""
        if self.take("CONSTRAINT") and not self.at("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            constraint = self.name()
        if self.take("PRIMARY"):
            self.expect("KEY")
            self._using()
            if parts.primary_key:
                self.fail("a second primary key")
            parts.primary_key = tuple(part.column for part in self.in_brackets(self._key_part))
            self._using()
        elif self.take("FOREIGN"):
            self.expect("KEY")
            parts.foreign_keys.append(self._foreign_key(constraint))
        elif self.take("CHECK"):
            parts.checks.append(CheckConstraint(constraint, self.bracketed_text()))
        elif self.at(*_INDEX_WORDS):
            parts.indexes.append(self._index(constraint))
        elif constraint:
            self.fail("a constraint of an unknown kind")
        else:
            self._column(parts)

    def _column(self, parts: "_ClauseParts") -> None:
        name = self.name()
        column = ColumnDefinition(name, self._type(self._members.get(name, ())))
        while not self.at_sign(",") and not self.at_sign(")"):
            if not self._column_constraint(name, parts):
                column = self._attribute(column)
        if column.default is not None and column.default.upper() == "NULL":
            column = replace(column, default=None)
        parts.columns.append(column)

    def _column_constraint(self, name: str, parts: "_ClauseParts") -> bool:
        """A key or check that is written with a column, and is the table's; False if there is none here."""
        if self.take("PRIMARY"):
            self.expect("KEY")
            if parts.primary_key:
                self.fail("a second primary key")
            parts.primary_key = (name,)
        elif self.take("UNIQUE"):
            self.take("KEY")
            parts.indexes.append(Index(IndexKind.UNIQUE, name, (KeyPart(name),)))
        elif self.take("CHECK"):
            parts.checks.append(CheckConstraint("", self.bracketed_text()))
        else:
            return False
        return True

    def _attribute(self, column: ColumnDefinition) -> ColumnDefinition:
        """The column with its next attribute."""
        if self.take("NOT"):
            self.expect("NULL")
            return replace(column, nullable=False)
        if self.take("NULL", "VISIBLE"):
            return column
        if self.take("DEFAULT"):
            return replace(column, default=self.slice(self._ends_expression))
        if self.take("ON"):
            self.expect("UPDATE")
            return replace(column, on_update=self.slice(self._ends_expression))
        if self.take("AUTO_INCREMENT"):
            return replace(column, auto_increment=True, nullable=False)
        if self.take("GENERATED"):
            self.expect("ALWAYS")
            return column
        if self.take("AS"):
            expression, stored = self.bracketed_text(), self.take("STORED", "PERSISTENT")
            if not stored:
                self.take("VIRTUAL")
            return replace(column, generated=Generated(expression, stored))
        if self.take("COMMENT"):
            return replace(column, comment=self._column_comment())
        if self.take("COLLATE"):
            return replace(column, collation=self.name())
        if self.take("CHARACTER"):
            self.expect("SET")
            return replace(column, charset=self.name())
        if self.take("INVISIBLE"):
            return replace(column, invisible=True)
        return self.fail(f"an unknown word in column {column.name}")

    def _type(self, known: tuple[str, ...]) -> ColumnType:
        """`known`: the members that the catalog has."""
        token = self.token()
        if token.kind != "word":
            self.fail("a type is expected")
        self.place += 1
        if known and token.value.lower() in ("enum", "set") and self._takes_unquoted(known):
            return ColumnType(token.value.lower(), members=known)
        parameters: list[int] = []
        members: list[str] = []
        if self.at_sign("("):
            for item in self.in_brackets(self.take_token):
                if item.kind == "text":
                    members.append(item.value)
                elif item.kind == "number" and item.value.isdecimal() and len(item.value) <= MAX_DIGITS:
                    parameters.append(int(item.value))
                else:
                    self.fail("a type has an unknown parameter", item)
        if members and (parameters or token.value.lower() not in ("enum", "set")):
            self.fail("a type has an unknown parameter", token)
        unsigned = False
        while self.at("UNSIGNED", "ZEROFILL", "SIGNED"):  # ZEROFILL only says how a number is shown
            unsigned = not self.take_token().is_word("SIGNED") or unsigned
        srid = self.number() if self.take("SRID") else None
        return ColumnType(token.value.lower(), tuple(parameters), tuple(members), unsigned, srid)

    def _takes_unquoted(self, members: tuple[str, ...]) -> bool:
        """Whether the members are here as the server writes them: joined, whatever quotes they hold. Goes on behind
        them."""
        raw = "('" + ",".join(members).replace(",", "','") + "')"
        found = not self.at_end() and self.text.startswith(raw, self.token().start)
        if found:
            self.go_on_at(self.token().start + len(raw))
        return found

    def _index(self, constraint: str) -> Index:
        word = self.take_token().value.upper()
        kind = (
            IndexKind.KEY if word in ("KEY", "INDEX") else next(kind for kind in IndexKind if kind.split()[0] == word)
        )
        if kind is not IndexKind.KEY:
            self.take("KEY", "INDEX")
        name = constraint if self.at_sign("(") or self.at("USING") else self.name()
        algorithm = self._using()
        parts = self.in_brackets(self._key_part)
        algorithm = algorithm or self._using()
        options = "" if self._ends_index(self.token()) else self.slice(self._ends_index)
        comment = self._column_comment() if self.take("COMMENT") else ""
        return Index(kind, name, parts, algorithm, options, comment)

    def _using(self) -> str:
        return self.take_token().value if self.take("USING") else ""

    def _key_part(self) -> KeyPart:
        name = self.name()
        length = None
        if self.take_sign("("):
            length = self.number()
            self.sign(")")
        descending = self.take("DESC")
        if not descending:
            self.take("ASC")
        return KeyPart(name, length, descending)

    def _foreign_key(self, constraint: str) -> ForeignKey:
        name = constraint if self.at_sign("(") else self.name()
        columns = self.in_brackets(self.name)
        self.expect("REFERENCES")
        database, table = self.qualified_name()
        referenced = self.in_brackets(self.name)
        actions = {"DELETE": "", "UPDATE": ""}
        while self.take("ON"):
            event = self.take_token()
            if not event.is_word(*actions):
                self.fail("DELETE or UPDATE is expected", event)
            actions[event.value.upper()] = self._action()
        return ForeignKey(name, columns, table, referenced, database, actions["DELETE"], actions["UPDATE"])

    def _action(self) -> str:
        first = self.take_token()
        if first.is_word("SET", "NO"):
            second = self.take_token()
            if second.is_word("NULL", "DEFAULT", "ACTION"):
                return f"{first.value} {second.value}".upper()
        if not first.is_word(*_ACTIONS):
            self.fail("an unknown action of a foreign key", first)
        return first.value.upper()

    # Clauses of the table

    def _clause(self, parts: "_ClauseParts") -> None:
        if self.take("COMMENT"):
            parts.comment = self._table_comment()
        elif self.take("PARTITION"):
            self.expect("BY")
            parts.partition_by = self.slice(lambda token: token.is_word("PROPERTIES", "CLUSTER") or token.is_sign(";"))
        elif self.take("PROPERTIES"):
            parts.properties = self.in_brackets(self._property)
        elif self.take("CLUSTER"):
            self.expect("BY")
            parts.cluster_by = self.in_brackets(self.name)
        else:
            parts.options.append(self._option())

    def _option(self) -> tuple[str, str]:
        words = []
        while self.token().kind == "word" and len(words) < 3:
            words.append(self.take_token().value.upper())
            if words[-1] not in ("DEFAULT", "CHARACTER", "DATA", "INDEX"):
                break
        if not words:
            self.fail("an unknown option of the table")
        self.take_sign("=")
        if self.at_sign("("):
            return " ".join(words), f"({self.bracketed_text()})"
        value = self.take_token()
        if value.kind == "sign":
            self.fail("an option of the table has no value", value)
        return " ".join(words), self.text[value.start : value.end]

    def _property(self) -> tuple[str, str]:
        key = self._literal()
        self.sign("=")
        return key, self._literal()

    def _literal(self) -> str:
        token = self.take_token()
        if token.kind != "text":
            self.fail("a text in quotes is expected", token)
        return token.value

    def _table_comment(self) -> str:
        """What the literal means, unless the catalog has another comment: then the server did not quote it."""
        self.take_sign("=")
        token = self.token()
        raw = f"'{self._comment}'"
        read = token.kind == "text" and self._comment in (None, token.value, self.text[token.start + 1 : token.end - 1])
        if not read and self.text.startswith(raw, token.start):
            self.go_on_at(token.start + len(raw))
            return self._comment or ""
        return self._literal()

    def _column_comment(self) -> str:
        """What the literal means; if what follows it cannot follow a comment, the server did not quote it, and it ends
        with its definition."""
        token = self.token()
        following = self.following()
        if token.kind == "text" and (
            following is None or following.value in (",", ")") or following.is_word(*_ATTRIBUTES)
        ):
            return self._literal()
        end = _COMMENT_END.search(self.text, token.start + 1)
        if token.kind not in ("text", "broken") or end is None or self._repairs >= _MAX_REPAIRS:
            self.fail("a comment has no end", token)
        self._repairs += 1
        self.go_on_at(end.end())
        return self.text[token.start + 1 : end.start()]

    # Where a text that is kept as it is ends, outside brackets

    def _ends_expression(self, token: Token) -> bool:
        if token.is_sign(","):
            return True
        following = self.following() or token
        previous = self.tokens[self.place - 1]
        return (
            (token.is_word("ON") and following.is_word("UPDATE"))
            or (token.is_word("COMMENT") and following.kind in ("text", "broken"))
            or (token.is_word("NOT") and following.is_word("NULL") and not previous.is_word("IS"))
            or (
                token.is_word("NULL")
                and not previous.is_word("IS", "NOT")
                and (previous.kind != "sign" or previous.value == ")")
            )
            or token.is_word("AUTO_INCREMENT", "INVISIBLE", "CHECK", "UNIQUE")
            or (token.is_word("PRIMARY") and following.is_word("KEY"))
        )

    def _ends_index(self, token: Token) -> bool:
        return token.is_sign(",") or token.is_sign(")") or token.is_word("COMMENT")


class _ClauseParts:
    """A statement's parts, as they are found."""

    def __init__(self) -> None:
        self.columns: list[ColumnDefinition] = []
        self.primary_key: tuple[str, ...] = ()
        self.indexes: list[Index] = []
        self.foreign_keys: list[ForeignKey] = []
        self.checks: list[CheckConstraint] = []
        self.comment = ""
        self.partition_by = ""
        self.properties: tuple[tuple[str, str], ...] = ()
        self.cluster_by: tuple[str, ...] = ()
        self.options: list[tuple[str, str]] = []
