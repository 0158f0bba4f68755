"""The statements about subscriptions and lakes, from text to values (docs/requirements.md O2; grammar in
docs/reference/sql.md).

Recursive descent over `ccpr.config.sql.sql_tokens`. The settings and columns are those of `SETTINGS` and of
the tables, so that an unknown one is an error that points at its place. A value is a literal of a type that the setting
has; what it means, and whether it may be, is not looked at here.
"""

from collections.abc import Callable, Collection, Mapping

from ccpr.config.errors import SqlSyntax
from ccpr.config.sql.sql_tokens import scan, syntax_error
from ccpr.config.sql.subscription_statements import (
    LAKE_FORMS,
    AlterSubscription,
    Assignment,
    CreateLake,
    CreateSubscription,
    DropLake,
    DropSubscription,
    PauseSubscription,
    ResumeSubscription,
    SelectSubscriptions,
    ShowLakes,
    ShowPublications,
    ShowStatus,
    ShowSubscriptions,
    Statement,
    Value,
)
from ccpr.matrixone.client.endpoint import EVERYTHING
from ccpr.matrixone.sql.lexer import Kind, Token
from ccpr.state.migrations import VIEW, VIEW_COLUMNS
from ccpr.state.settings import SETTINGS
from ccpr.state.tables import mo_ccpr_log

_MOST = 2**63 - 1  # of a database's whole numbers
READABLE: dict[str, tuple[str, ...]] = {  # what SELECT answers from; `live_name` repeats a name
    VIEW: VIEW_COLUMNS,
    mo_ccpr_log.name: tuple(column.name for column in mo_ccpr_log.columns if column.name != "live_name"),
}
_FORMS = {name: setting.kind.forms for name, setting in SETTINGS.items()}
# Words that are not names without quotes: one that follows a name would be taken for a name.
RESERVED = frozenset(
    (
        "ALTER",
        "AND",
        "CREATE",
        "DATABASE",
        "DROP",
        "EXISTS",
        "FALSE",
        "FORCE",
        "FROM",
        "IF",
        "OF",
        "PAUSE",
        "PUBLICATION",
        "PURGE",
        "RESUME",
        "SELECT",
        "SET",
        "SHOW",
        "SUBSCRIPTION",
        "TABLE",
        "TRUE",
        "WHERE",
        "WITH",
    )
)


def parse(text: str) -> list[Statement]:
    """The statements of a script, separated by ';'. Raises SqlSyntax."""
    parser = _StatementParser(text)
    statements = []
    while not parser.at_end():
        if parser.sign(";"):
            continue
        statements.append(parser.statement())
        if not parser.at_end():
            parser.need(parser.sign(";"))
    if not statements:
        raise parser.error("a statement")
    return statements


class _StatementParser:
    """Reads forward only. What could have been at the present place is collected for the error."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [token for token in scan(text) if token.kind != "comment"]
        self._next = 0
        self._expected: list[str] = []

    # ---- tokens

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        token = self._token
        self._next += 1
        self._expected = []
        return token

    def at_end(self) -> bool:
        return self._token.kind == "end"

    def error(self, expected: str | None = None, at: Token | None = None) -> SqlSyntax:
        wanted = list(dict.fromkeys(self._expected)) if expected is None else [expected]
        token = at or self._token
        before = self._tokens[self._next - 1] if self._next else token
        if token.kind == "broken" and before.kind == "word" and before.end == token.start:  # my-sub
            wanted.append("a name in `backquotes`, if it has other characters than letters, digits, _ and $,")
        text = wanted[0] if len(wanted) == 1 else f"{', '.join(wanted[:-1])} or {wanted[-1]}"
        return syntax_error(self._text, token, text)

    def need(self, found: bool) -> None:
        if not found:
            raise self.error()

    def sign(self, sign: str) -> bool:
        return self._accept("sign", sign, f"'{sign}'")

    def word(self, word: str) -> bool:
        return self._accept("word", word, word)

    def _accept(self, kind: Kind, value: str, shown: str) -> bool:
        if self._token.kind == kind and self._token.value.upper() == value:
            self._advance()
            return True
        self._expected.append(shown)
        return False

    def words(self, *words: str) -> None:
        for word in words:
            self.need(self.word(word))

    def name(self, what: str) -> str:
        token = self._token
        plain = token.kind == "word" and token.value.upper() not in RESERVED
        if not plain and token.kind != "name":
            reserved = token.kind == "word"
            raise self.error(f"{what}{' (a reserved word needs `backquotes`)' if reserved else ''}")
        return self._advance().value

    def string(self, what: str) -> str:
        if self._token.kind != "text":
            raise self.error(f"{what} in quotes")
        return self._advance().value

    def one_of(self, known: Collection[str], what: str) -> tuple[str, Token]:
        """A name that is known; letter case does not count."""
        token = self._token
        found = token.value.lower() if token.kind in ("word", "name") else ""
        if found not in known:
            raise self.error(f"{what} ({', '.join(sorted(known))})")
        return found, self._advance()

    def list_of(self, item: Callable[[], None]) -> None:
        item()
        while self.sign(","):
            item()

    # ---- statements

    def statement(self) -> Statement:
        kinds: dict[str, Callable[[], Statement]] = {
            "CREATE": self._create,
            "ALTER": self._alter,
            "PAUSE": lambda: PauseSubscription(self._subscription()),
            "RESUME": lambda: ResumeSubscription(self._subscription()),
            "DROP": self._drop,
            "SHOW": self._show,
            "SELECT": self._select,
        }
        for word, rule in kinds.items():
            if self.word(word):
                return rule()
        raise self.error()

    def _subscription(self) -> str:
        self.words("SUBSCRIPTION")
        return self.name("the subscription's name")

    def _create(self) -> CreateSubscription | CreateLake:
        if self.word("LAKE"):
            return self._create_lake()
        if self.word("DATABASE") or self.word("TABLE"):
            return self._create_as_matrixone(is_table=self._tokens[self._next - 1].is_word("TABLE"))
        name = self._subscription()
        publication = publisher = table = None
        if self.word("ACCOUNT"):
            database = EVERYTHING
            publisher = None if self._token.is_word("FROM") else self.name("FROM, or the account's name")
        else:
            self.words("DATABASE")
            database = self.name("the database's name")
            table = self.name("the table's name") if self.word("TABLE") else None
        self.words("FROM")
        uri = self.string("the upstream's URI")
        settings = _Given(self)
        while True:
            if publication is None and self.word("PUBLICATION"):
                publication = self.name("the publication's name")
                if publisher is None and self.word("OF"):
                    publisher = self.name("the publisher's account")
            elif clause := self._clause(settings.values):
                settings.read((clause,))
            elif not settings.listed and self.word("WITH"):
                settings.read_list(SETTINGS)
            else:
                break
        return CreateSubscription(name, database, table, uri, publication, publisher, settings.settings())

    def _create_as_matrixone(self, *, is_table: bool) -> CreateSubscription:
        """`CREATE DATABASE d FROM 'uri' publisher PUBLICATION p`: a subscription with the name of the database, or of
        the table."""
        if if_not_exists := self.word("IF"):
            self.words("NOT", "EXISTS")
        database, table = self.name("the database's name"), None
        if is_table:
            self.need(self.sign("."))
            table = self.name("the table's name")
        self.words("FROM")
        uri = self.string("the upstream's URI")
        publisher = None if self._token.is_word("PUBLICATION") else self.name("PUBLICATION, or the publisher's account")
        self.words("PUBLICATION")
        publication, settings = self.name("the publication's name"), tuple[Assignment, ...]()
        if self.word("SYNC"):
            self.words("INTERVAL")
            settings = (Assignment("sync_interval", self._value((int,))),)
        names = (table or database, database, table)
        return CreateSubscription(*names, uri, publication, publisher, settings, if_not_exists)

    def _clause(self, given: Collection[str]) -> str | None:
        """The setting at whose clause it is."""
        for name, setting in SETTINGS.items():
            if setting.clause and name not in given:
                if self._token.is_word(name.upper()):
                    return name
                self._expected.append(name.upper())
        return None

    def _alter(self) -> AlterSubscription:
        name = self._subscription()
        self.words("SET")
        settings = _Given(self)
        settings.read_list((*SETTINGS, "upstream", "publication"))
        uri, publication = (settings.values.pop(key, None) for key in ("upstream", "publication"))
        return AlterSubscription(name, _text(uri), _text(publication), settings.settings())

    def _drop(self) -> DropSubscription | DropLake:
        if self.word("LAKE"):
            return self._drop_lake()
        self.words("SUBSCRIPTION")
        if_exists = self.word("IF")
        if if_exists:
            self.words("EXISTS")
        name = self.name("the subscription's name")
        purge = force = False
        while True:
            if not purge and self.word("PURGE"):
                purge = True
            elif not force and self.word("FORCE"):
                force = True
            else:
                return DropSubscription(name, if_exists, purge, force)

    def _show(self) -> Statement:
        if self.word("LAKES"):
            return ShowLakes(self._of_subscription())
        if self.word("SUBSCRIPTION"):
            name = self.name("the subscription's name")
            self.words("STATUS")
            return ShowStatus(name)
        if self.word("PUBLICATIONS"):
            self.words("FROM")
            return ShowPublications(self.string("the upstream's URI"))
        self.words("SUBSCRIPTIONS")
        return ShowSubscriptions()

    def _create_lake(self) -> CreateLake:
        name, subscription = self.name("the lake's name"), self._of_subscription()
        self.words("TO")
        uri, settings = self.string("the lake's place"), _Given(self, LAKE_FORMS)
        if self.word("WITH"):
            settings.read_list(LAKE_FORMS)
        return CreateLake(name, subscription, uri, settings.settings())

    def _drop_lake(self) -> DropLake:
        if_exists = self.word("IF")
        if if_exists:
            self.words("EXISTS")
        name, subscription = self.name("the lake's name"), self._of_subscription()
        return DropLake(name, subscription, if_exists, self.word("PURGE"))

    def _of_subscription(self) -> str:
        self.words("OF")
        return self.name("the subscription's name")

    def _select(self) -> SelectSubscriptions:
        columns: list[Token] = []
        if not self.sign("*"):
            self.list_of(lambda: columns.append(self._column()))
        self.words("FROM")
        self._qualifier()
        source, _ = self.one_of(READABLE, "a table")
        for token in columns:
            if token.value.lower() not in READABLE[source]:
                raise self.error(f"a column of {source} ({', '.join(READABLE[source])})", token)
        where: list[tuple[str, str | int]] = []
        if self.word("WHERE"):
            where.append(self._condition(source))
            while self.word("AND"):
                where.append(self._condition(source))
        return SelectSubscriptions(source, tuple(token.value.lower() for token in columns), tuple(where))

    def _column(self) -> Token:
        if self._token.kind not in ("word", "name") or self._token.value.upper() in RESERVED:
            raise self.error("'*' or a column")
        return self._advance()

    def _qualifier(self) -> None:
        following = self._tokens[self._next + 1 : self._next + 2]
        if following and following[0].is_sign("."):
            self.one_of(("mo_catalog",), "the database")
            self._advance()

    def _condition(self, source: str) -> tuple[str, str | int]:
        column, _ = self.one_of(READABLE[source], f"a column of {source}")
        self.need(self.sign("="))
        token = self._token
        if token.kind == "number" and token.value.isdecimal() and int(token.value) <= _MOST:
            return column, int(self._advance().value)
        return column, self.string("a number, or text")

    # ---- settings

    def setting(
        self, known: Collection[str], given: Collection[str], forms: Mapping[str, tuple[type, ...]]
    ) -> tuple[str, Value]:
        """`forms`: by name the types by which a statement says a setting."""
        token = self._token
        name, _ = self.one_of(known, "a setting")
        if name in given:
            raise self.error(f"each setting once, and {name} is there already", token)
        self.sign("=")
        if name == "publication":
            read = self.string if self._token.kind == "text" else self.name
            return name, read("the publication's name")
        if name == "upstream":
            return name, self.string("the upstream's URI")
        return name, self._value(forms[name])

    def _value(self, forms: tuple[type, ...]) -> Value:
        token = self._token
        if bool in forms:
            if self.word("TRUE"):
                return True
            if self.word("FALSE"):
                return False
        if (number := float if float in forms else int) in forms:
            if token.kind == "number" and token.value.isdecimal():
                return int(self._advance().value)
            if token.kind == "number" and number is float:
                return float(self._advance().value)
            self._expected.append("a number" if number is float else "a whole number")
        if str in forms:
            if token.kind == "text":
                return self._advance().value
            self._expected.append("text in quotes")
        raise self.error()


class _Given:
    """The settings of one statement, each once."""

    def __init__(self, parser: _StatementParser, forms: Mapping[str, tuple[type, ...]] = _FORMS) -> None:
        self._parser, self._forms = parser, forms
        self.values: dict[str, Value] = {}
        self.listed = False

    def read(self, known: Collection[str]) -> None:
        name, value = self._parser.setting(known, self.values, self._forms)
        self.values[name] = value

    def read_list(self, known: Collection[str]) -> None:
        parser = self._parser
        self.listed = True
        parser.need(parser.sign("("))
        parser.list_of(lambda: self.read(known))
        parser.need(parser.sign(")"))

    def settings(self) -> tuple[Assignment, ...]:
        return tuple(Assignment(name, value) for name, value in self.values.items())


def _text(value: Value | None) -> str | None:
    return None if value is None else str(value)
