"""CREATE TABLE text to a `CreateTable`: recursive descent over tokens, in one pass.

Understands what MatrixOne writes (upstream-interface.md 5.4; awkward names, comments that the server forgot to quote) and the same statement
as MySQL and MariaDB write it. Brackets are counted, never recursed into, so depth costs nothing.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Never, TypeVar

from matrixone.ddl import (
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
from matrixone.ddl_text import DdlUnreadable, Token, tokens
from matrixone.schema import Table

_MAX_DIGITS = 9
_MAX_REPAIRS = 100  # of comments: each costs reading the rest again
# Where a comment ends that was written without quoting it: the server puts each definition on a line of its own, the comment last.
_COMMENT_END = re.compile(r"'(?=,\n|\n\))")
_INDEX_WORDS = ("UNIQUE", "KEY", "INDEX", "FULLTEXT", "FULLTEXT2", "SPATIAL")
_ACTIONS = ("CASCADE", "RESTRICT")
_ATTRIBUTES = ("NOT", "NULL", "DEFAULT", "ON", "AUTO_INCREMENT", "GENERATED", "AS", "COLLATE", "CHARACTER", "INVISIBLE", "VISIBLE")
_ATTRIBUTES += ("PRIMARY", "UNIQUE", "CHECK", "COMMENT")
_Item = TypeVar("_Item")


def parse_create_table(text: str, *, comment: str | None = None, subject: str = "CREATE TABLE text") -> CreateTable:
    """The statement as a value. Raises DdlUnreadable, which names the place.

    `comment` is the table's comment where it is known from the catalog: the server does not quote it, so a text with quotes in it can be
    read for certain only with it. `subject` is what an error is about, e.g. ``table db.t``.
    """
    return _Parser(text, comment, subject).statement()


def create_table_of(table: Table) -> CreateTable:
    """A table's definition, from its DDL text, with what the catalog knows better: database, comment, members of enums and sets.

    Raises DdlUnreadable, also if the text speaks of other columns than the catalog.
    """
    subject = f"table {table.qualified_name}"
    if not table.ddl:
        raise DdlUnreadable("the upstream gave no CREATE TABLE text for it", subject=subject)
    created = parse_create_table(table.ddl, comment=table.comment, subject=subject)
    stored = table.user_columns
    if [column.name for column in created.columns] != [column.name for column in stored]:
        raise DdlUnreadable("its CREATE TABLE text has other columns than the catalog", subject=subject)
    columns = []
    for definition, column in zip(created.columns, stored, strict=True):
        declared = definition.type
        known = declared.sql_type
        if known is not None and known.oid != column.type.oid:
            raise DdlUnreadable(f"column {column.name} is a {declared.name} in its CREATE TABLE text only", subject=subject)
        kind = ColumnType(declared.name, members=column.labels) if column.labels else declared
        columns.append(replace(definition, type=kind))
    return replace(created, database=table.database, name=table.name, comment=table.comment, columns=tuple(columns))


class _Parser:
    """A list of tokens and a place in it."""

    def __init__(self, text: str, comment: str | None, subject: str) -> None:
        self._text = text
        self._tokens = list(tokens(text))
        self._next = 0
        self._comment = comment
        self._subject = subject
        self._repairs = 0

    def statement(self) -> CreateTable:
        self._expect("CREATE")
        if not self._at("TABLE"):
            self._fail("an ordinary CREATE TABLE is expected")
        self._expect("TABLE")
        if self._take("IF"):
            self._expect("NOT")
            self._expect("EXISTS")
        database, name = self._qualified_name()
        body = _Body()
        self._sign("(")
        while True:
            self._definition(body)
            if not self._take_sign(","):
                break
        self._sign(")")
        if not body.columns:
            self._fail("the statement has no columns")
        options: list[tuple[str, str]] = []
        comment, partition_by, properties, cluster_by = "", "", (), ()
        while not self._at_end():
            if self._take("COMMENT"):
                comment = self._table_comment()
            elif self._take("PARTITION"):
                self._expect("BY")
                partition_by = self._slice(self._ends_partitions)
            elif self._take("PROPERTIES"):
                properties = self._in_brackets(self._property)
            elif self._take("CLUSTER"):
                self._expect("BY")
                cluster_by = self._in_brackets(self._name)
            elif self._take_sign(";") and self._at_end():
                break
            elif not self._take_sign(","):  # MySQL allows commas between options
                options.append(self._option())
        keys = frozenset(body.primary_key)  # of a primary key, whether NOT NULL is said or not
        return CreateTable(
            name=name,
            columns=tuple(replace(column, nullable=column.nullable and column.name not in keys) for column in body.columns),
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
        if self._take("CONSTRAINT") and not self._at("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            constraint = self._name()
        if self._take("PRIMARY"):
            self._expect("KEY")
            self._using()
            if body.primary_key:
                self._fail("a second primary key")
            body.primary_key = tuple(part.column for part in self._in_brackets(self._key_part))
            self._using()
        elif self._take("FOREIGN"):
            self._expect("KEY")
            body.foreign_keys.append(self._foreign_key(constraint))
        elif self._take("CHECK"):
            body.checks.append(Check(constraint, self._bracketed_text()))
        elif self._at(*_INDEX_WORDS):
            body.indexes.append(self._index(constraint))
        elif constraint:
            self._fail("a constraint of an unknown kind")
        else:
            self._column(body)

    def _column(self, body: "_Body") -> None:
        name = self._name()
        kind = self._type()
        nullable, default = True, None
        on_update = comment = charset = collation = ""
        auto_increment = invisible = False
        generated = None
        while not self._at_sign(",") and not self._at_sign(")"):
            if self._take("NOT"):
                self._expect("NULL")
                nullable = False
            elif self._take("NULL", "VISIBLE"):
                pass
            elif self._take("DEFAULT"):
                default = self._slice(self._ends_expression)
            elif self._take("ON"):
                self._expect("UPDATE")
                on_update = self._slice(self._ends_expression)
            elif self._take("AUTO_INCREMENT"):
                auto_increment, nullable = True, False
            elif self._take("GENERATED"):
                self._expect("ALWAYS")
            elif self._take("AS"):
                expression = self._bracketed_text()
                stored = self._at("STORED", "PERSISTENT")
                if stored or self._at("VIRTUAL"):
                    self._next += 1
                generated = Generated(expression, stored)
            elif self._take("COMMENT"):
                comment = self._column_comment()
            elif self._take("COLLATE"):
                collation = self._name()
            elif self._take("CHARACTER"):
                self._expect("SET")
                charset = self._name()
            elif self._take("INVISIBLE"):
                invisible = True
            elif self._take("PRIMARY"):
                self._expect("KEY")
                if body.primary_key:
                    self._fail("a second primary key")
                body.primary_key = (name,)
            elif self._take("UNIQUE"):
                self._take("KEY")
                body.indexes.append(Index(IndexKind.UNIQUE, name, (KeyPart(name),)))
            elif self._take("CHECK"):
                body.checks.append(Check("", self._bracketed_text()))
            else:
                self._fail(f"an unknown word in column {name}")
        if default is not None and default.upper() == "NULL":
            default = None
        body.columns.append(
            ColumnDefinition(name, kind, nullable, default, on_update, auto_increment, generated, comment, charset, collation, invisible)
        )

    def _type(self) -> ColumnType:
        token = self._token()
        if token.kind != "word":
            self._fail("a type is expected")
        self._next += 1
        parameters: list[int] = []
        members: list[str] = []
        if self._at_sign("("):
            for item in self._in_brackets(self._take_token):
                if item.kind == "text":
                    members.append(item.value)
                elif item.kind == "number" and item.value.isdecimal() and len(item.value) <= _MAX_DIGITS:
                    parameters.append(int(item.value))
                else:
                    self._fail("a type has an unknown parameter", item)
        if members and (parameters or token.value.lower() not in ("enum", "set")):
            self._fail("a type has an unknown parameter", token)
        unsigned = self._take("UNSIGNED")
        srid = self._number() if self._take("SRID") else None
        return ColumnType(token.value.lower(), tuple(parameters), tuple(members), unsigned, srid)

    def _index(self, constraint: str) -> Index:
        word = self._take_token().value.upper()
        kind = IndexKind.KEY if word in ("KEY", "INDEX") else next(kind for kind in IndexKind if kind.split()[0] == word)
        if kind is not IndexKind.KEY:
            self._take("KEY", "INDEX")
        name = constraint if self._at_sign("(") or self._at("USING") else self._name()
        algorithm = self._using()
        parts = self._in_brackets(self._key_part)
        algorithm = algorithm or self._using()
        options = "" if self._ends_index(self._token()) else self._slice(self._ends_index)
        comment = self._column_comment() if self._take("COMMENT") else ""
        return Index(kind, name, parts, algorithm, options, comment)

    def _using(self) -> str:
        return self._take_token().value if self._take("USING") else ""

    def _key_part(self) -> KeyPart:
        name = self._name()
        length = None
        if self._take_sign("("):
            length = self._number()
            self._sign(")")
        descending = self._take("DESC")
        if not descending:
            self._take("ASC")
        return KeyPart(name, length, descending)

    def _foreign_key(self, constraint: str) -> ForeignKey:
        name = constraint if self._at_sign("(") else self._name()
        columns = self._in_brackets(self._name)
        self._expect("REFERENCES")
        database, table = self._qualified_name()
        referenced = self._in_brackets(self._name)
        actions = {"DELETE": "", "UPDATE": ""}
        while self._take("ON"):
            event = self._take_token()
            if not event.is_word(*actions):
                self._fail("DELETE or UPDATE is expected", event)
            actions[event.value.upper()] = self._action()
        return ForeignKey(name, columns, table, referenced, database, actions["DELETE"], actions["UPDATE"])

    def _action(self) -> str:
        first = self._take_token()
        if first.is_word("SET", "NO"):
            second = self._take_token()
            if second.is_word("NULL", "DEFAULT", "ACTION"):
                return f"{first.value} {second.value}".upper()
        if not first.is_word(*_ACTIONS):
            self._fail("an unknown action of a foreign key", first)
        return first.value.upper()

    # Options of the table

    def _option(self) -> tuple[str, str]:
        words = []
        while self._token().kind == "word" and len(words) < 3:
            words.append(self._take_token().value.upper())
            if words[-1] not in ("DEFAULT", "CHARACTER", "DATA", "INDEX"):
                break
        if not words:
            self._fail("an unknown option of the table")
        self._take_sign("=")
        if self._at_sign("("):
            return " ".join(words), f"({self._bracketed_text()})"
        value = self._take_token()
        if value.kind == "sign":
            self._fail("an option of the table has no value", value)
        return " ".join(words), self._text[value.start : value.end]

    def _property(self) -> tuple[str, str]:
        key = self._literal()
        self._sign("=")
        return key, self._literal()

    def _literal(self) -> str:
        token = self._take_token()
        if token.kind != "text":
            self._fail("a text in quotes is expected", token)
        return token.value

    def _table_comment(self) -> str:
        self._take_sign("=")
        start = self._token().start
        raw = f"'{self._comment}'"
        if self._comment is not None and self._text.startswith(raw, start):
            self._go_on_at(start + len(raw))
            return self._comment
        return self._literal()

    def _column_comment(self) -> str:
        """The literal; if what follows it makes no sense, the server did not quote it, and it goes to the end of its definition."""
        token = self._token()
        following = self._tokens[self._next + 1] if self._next + 1 < len(self._tokens) else None
        if token.kind == "text" and (following is None or following.value in (",", ")") or following.is_word(*_ATTRIBUTES)):
            return self._literal()
        end = _COMMENT_END.search(self._text, token.start + 1)
        if token.kind not in ("text", "broken") or end is None or self._repairs >= _MAX_REPAIRS:
            self._fail("a comment has no end", token)
        self._repairs += 1
        self._go_on_at(end.end())
        return self._text[token.start + 1 : end.start()]

    # Places at which a text that is kept as it is ends: outside brackets

    def _ends_expression(self, token: Token) -> bool:
        if token.is_sign(","):
            return True
        following = self._tokens[self._next + 1] if self._next + 1 < len(self._tokens) else token
        previous = self._tokens[self._next - 1]
        return (
            (token.is_word("ON") and following.is_word("UPDATE"))
            or (token.is_word("COMMENT") and following.kind in ("text", "broken"))
            or (token.is_word("NOT") and following.is_word("NULL") and not previous.is_word("IS"))
            or (token.is_word("NULL") and not previous.is_word("IS", "NOT") and (previous.kind != "sign" or previous.value == ")"))
            or token.is_word("AUTO_INCREMENT", "INVISIBLE", "CHECK", "UNIQUE")
            or (token.is_word("PRIMARY") and following.is_word("KEY"))
        )

    def _ends_index(self, token: Token) -> bool:
        return token.is_sign(",") or token.is_sign(")") or token.is_word("COMMENT")

    def _ends_partitions(self, token: Token) -> bool:
        return token.is_word("PROPERTIES", "CLUSTER") or token.is_sign(";")

    def _slice(self, ends: Callable[[Token], bool]) -> str:
        """The text up to where it ends, outside brackets; not empty."""
        first, depth = self._token(), 0
        while self._next < len(self._tokens):
            token = self._tokens[self._next]
            if depth == 0 and (token.is_sign(")") or (token is not first and ends(token))):
                break
            if token.kind == "broken":
                self._fail("a text or name has no end", token)
            depth += token.is_sign("(") - token.is_sign(")")
            self._next += 1
        last = self._tokens[self._next - 1]
        if depth or last.end <= first.start or first.is_sign(","):
            self._fail("an expression has no end", first)
        return self._text[first.start : last.end]

    def _bracketed_text(self) -> str:
        self._sign("(")
        text = self._slice(lambda _: False)
        self._sign(")")
        return text

    # Tokens

    def _token(self) -> Token:
        if self._at_end():
            raise DdlUnreadable("the CREATE TABLE text breaks off", subject=self._subject)
        return self._tokens[self._next]

    def _take_token(self) -> Token:
        token = self._token()
        if token.kind == "broken":
            self._fail("a text or name has no end", token)
        self._next += 1
        return token

    def _at_end(self) -> bool:
        return self._next >= len(self._tokens)

    def _at(self, *words: str) -> bool:
        return not self._at_end() and self._tokens[self._next].is_word(*words)

    def _take(self, *words: str) -> bool:
        found = self._at(*words)
        self._next += found
        return found

    def _at_sign(self, sign: str) -> bool:
        return self._token().is_sign(sign)

    def _take_sign(self, sign: str) -> bool:
        found = not self._at_end() and self._tokens[self._next].is_sign(sign)
        self._next += found
        return found

    def _expect(self, word: str) -> None:
        if not self._take(word):
            self._fail(f"{word} is expected")

    def _sign(self, sign: str) -> None:
        if not self._take_sign(sign):
            self._fail(f"'{sign}' is expected")

    def _name(self) -> str:
        token = self._take_token()
        if token.kind not in ("name", "word") or not token.value or "\0" in token.value:
            self._fail("a name is expected", token)
        return token.value

    def _qualified_name(self) -> tuple[str, str]:
        first = self._name()
        return (first, self._name()) if self._take_sign(".") else ("", first)

    def _number(self) -> int:
        token = self._take_token()
        if not (token.kind == "number" and token.value.isdecimal() and len(token.value) <= _MAX_DIGITS):
            self._fail("a number is expected", token)
        return int(token.value)

    def _in_brackets(self, item: Callable[[], _Item]) -> tuple[_Item, ...]:
        self._sign("(")
        items = [item()]
        while self._take_sign(","):
            items.append(item())
        self._sign(")")
        return tuple(items)

    def _go_on_at(self, place: int) -> None:
        self._tokens[self._next :] = tokens(self._text, place)

    def _fail(self, problem: str, token: Token | None = None) -> Never:
        if token is None and self._at_end():
            raise DdlUnreadable(f"the CREATE TABLE text breaks off: {problem}", subject=self._subject)
        token = token or self._tokens[self._next]
        line = self._text.count("\n", 0, token.start) + 1
        found = self._text[token.start : token.start + 40]
        raise DdlUnreadable(f"{problem}, at character {token.start} in line {line}: {found!r}", subject=self._subject)


class _Body:
    """What stands between the outer brackets, as it is found."""

    def __init__(self) -> None:
        self.columns: list[ColumnDefinition] = []
        self.primary_key: tuple[str, ...] = ()
        self.indexes: list[Index] = []
        self.foreign_keys: list[ForeignKey] = []
        self.checks: list[Check] = []
