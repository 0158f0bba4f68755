"""CREATE TABLE text to a `CreateTable`: recursive descent over tokens, in one pass.

Understands what MatrixOne writes (upstream-interface.md 5.4; awkward names, comments that the server forgot to quote)
and the same statement as MySQL and MariaDB write it. Brackets are counted, never recursed into, so depth costs
nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from matrixone.ddl.cursor import MAX_DIGITS, Cursor
from matrixone.ddl.definition import (
    Check,
    ColumnDefinition,
    ColumnType,
    CreateTable,
    ForeignKey,
    Generated,
    Index,
    IndexKind,
    KeyPart,
)
from matrixone.ddl.lexer import DdlUnreadable, Token, tokens
from matrixone.schema import Table

_MAX_REPAIRS = 1_000  # of comments: each may cost looking for a quote in the rest
# Where a comment ends that was written without quoting it: the server puts each definition on a line of its own, the
# comment last.
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
    catalog: the server does not quote them, so a text with quotes in it can be read for certain only with them.
    `subject` is what an error is about, e.g. ``table db.t``.
    """
    return _Parser(text, comment, members or {}, subject).statement()


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
    """A table's definition, from its DDL text, with what the catalog knows better: names, members of enums and sets.

    Raises DdlUnreadable, also if the text speaks of other columns than the catalog.
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
            raise DdlUnreadable(
                f"column {column.name} is a {declared.name} in its CREATE TABLE text only", subject=subject
            )
        kind = ColumnType(declared.name, members=column.labels) if column.labels else declared
        columns.append(replace(definition, type=kind))
    return replace(created, database=table.database, name=table.name, columns=tuple(columns))


class _Parser(Cursor):
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
        body = _Body()
        self.sign("(")
        while True:
            self._definition(body)
            if not self.take_sign(","):
                break
        self.sign(")")
        if not body.columns:
            self.fail("the statement has no columns")
        options: list[tuple[str, str]] = []
        comment, partition_by, properties, cluster_by = "", "", (), ()
        while not self.at_end():
            if self.take("COMMENT"):
                comment = self._table_comment()
            elif self.take("PARTITION"):
                self.expect("BY")
                partition_by = self.slice(self._ends_partitions)
            elif self.take("PROPERTIES"):
                properties = self.in_brackets(self._property)
            elif self.take("CLUSTER"):
                self.expect("BY")
                cluster_by = self.in_brackets(self.name)
            elif self.take_sign(";") and self.at_end():
                break
            elif not self.take_sign(","):  # MySQL allows commas between options
                options.append(self._option())
        keys = frozenset(body.primary_key)  # of a primary key, whether NOT NULL is said or not
        return CreateTable(
            name=name,
            columns=tuple(
                replace(column, nullable=column.nullable and column.name not in keys) for column in body.columns
            ),
            database=database,
            primary_key=body.primary_key,
            indexes=tuple(body.indexes),
            foreign_keys=tuple(body.foreign_keys),
            checks=tuple(body.checks),
            comment=comment,
            partition_by=partition_by,
            properties=properties,
            cluster_by=cluster_by,
            options=tuple(options),
        )

    # Definitions

    def _definition(self, body: "_Body") -> None:
        constraint = ""
        if self.take("CONSTRAINT") and not self.at("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            constraint = self.name()
        if self.take("PRIMARY"):
            self.expect("KEY")
            self._using()
            if body.primary_key:
                self.fail("a second primary key")
            body.primary_key = tuple(part.column for part in self.in_brackets(self._key_part))
            self._using()
        elif self.take("FOREIGN"):
            self.expect("KEY")
            body.foreign_keys.append(self._foreign_key(constraint))
        elif self.take("CHECK"):
            body.checks.append(Check(constraint, self.bracketed_text()))
        elif self.at(*_INDEX_WORDS):
            body.indexes.append(self._index(constraint))
        elif constraint:
            self.fail("a constraint of an unknown kind")
        else:
            self._column(body)

    def _column(self, body: "_Body") -> None:
        name = self.name()
        kind = self._type(self._members.get(name, ()))
        nullable, default = True, None
        on_update = comment = charset = collation = ""
        auto_increment = invisible = False
        generated = None
        while not self.at_sign(",") and not self.at_sign(")"):
            if self.take("NOT"):
                self.expect("NULL")
                nullable = False
            elif self.take("NULL", "VISIBLE"):
                pass
            elif self.take("DEFAULT"):
                default = self.slice(self._ends_expression)
            elif self.take("ON"):
                self.expect("UPDATE")
                on_update = self.slice(self._ends_expression)
            elif self.take("AUTO_INCREMENT"):
                auto_increment, nullable = True, False
            elif self.take("GENERATED"):
                self.expect("ALWAYS")
            elif self.take("AS"):
                expression = self.bracketed_text()
                stored = self.at("STORED", "PERSISTENT")
                if stored or self.at("VIRTUAL"):
                    self.place += 1
                generated = Generated(expression, stored)
            elif self.take("COMMENT"):
                comment = self._column_comment()
            elif self.take("COLLATE"):
                collation = self.name()
            elif self.take("CHARACTER"):
                self.expect("SET")
                charset = self.name()
            elif self.take("INVISIBLE"):
                invisible = True
            elif self.take("PRIMARY"):
                self.expect("KEY")
                if body.primary_key:
                    self.fail("a second primary key")
                body.primary_key = (name,)
            elif self.take("UNIQUE"):
                self.take("KEY")
                body.indexes.append(Index(IndexKind.UNIQUE, name, (KeyPart(name),)))
            elif self.take("CHECK"):
                body.checks.append(Check("", self.bracketed_text()))
            else:
                self.fail(f"an unknown word in column {name}")
        if default is not None and default.upper() == "NULL":
            default = None
        body.columns.append(
            ColumnDefinition(
                name,
                kind,
                nullable,
                default,
                on_update,
                auto_increment,
                generated,
                comment,
                charset,
                collation,
                invisible,
            )
        )

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
        """Go on behind the members if they stand here as the server writes them: joined, whatever quotes they hold."""
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

    # Options of the table

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
        """As the literal reads, unless the catalog knows another one: then the server did not quote it."""
        self.take_sign("=")
        token = self.token()
        raw = f"'{self._comment}'"
        read = token.kind == "text" and self._comment in (None, token.value, self.text[token.start + 1 : token.end - 1])
        if not read and self.text.startswith(raw, token.start):
            self.go_on_at(token.start + len(raw))
            return self._comment or ""
        return self._literal()

    def _column_comment(self) -> str:
        """The literal; if what follows it makes no sense, the server did not quote it, and it goes to the end of its
        definition."""
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

    # Places at which a text that is kept as it is ends: outside brackets

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

    def _ends_partitions(self, token: Token) -> bool:
        return token.is_word("PROPERTIES", "CLUSTER") or token.is_sign(";")


class _Body:
    """What stands between the outer brackets, as it is found."""

    def __init__(self) -> None:
        self.columns: list[ColumnDefinition] = []
        self.primary_key: tuple[str, ...] = ()
        self.indexes: list[Index] = []
        self.foreign_keys: list[ForeignKey] = []
        self.checks: list[Check] = []
