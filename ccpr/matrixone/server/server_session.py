"""One login on an upstream: finds the kind of a statement, and answers it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ccpr.matrixone.server import internal
from ccpr.matrixone.server import mo_catalog as catalog
from ccpr.matrixone.server.answers import Answer, ResultSet, StatementError
from ccpr.matrixone.server.backing import SYSTEM_DATABASES, Backing, Login, require_admin, require_publication
from ccpr.matrixone.server.backing import internal as internal_error
from ccpr.matrixone.server.select_values import Asked, value_of
from ccpr.matrixone.server.show import show
from ccpr.matrixone.server.statements import (
    CreateSnapshot,
    DropSnapshot,
    Plain,
    Select,
    SelectValues,
    SetRole,
    Show,
    Statement,
    Use,
    parse,
)
from ccpr.matrixone.server.upstream import Upstream

_BAD_NAME = re.compile(r"[\s'\"`]")


class UpstreamSession:
    """See `ccpr.matrixone.server.connection.ServerSession`."""

    def __init__(self, upstream: Upstream, login: Login, number: int) -> None:
        self.upstream = upstream
        self.login = login
        self.number = number
        self.database = ""
        self.in_transaction = False
        upstream.counters.session_opened()

    def close(self) -> None:
        self.upstream.counters.session_closed()

    def use(self, database: str) -> None:
        known = database.lower() in SYSTEM_DATABASES or self._has_database(database)
        if not known:
            raise StatementError(1049, f"Unknown database {database}", "42000")
        self.database = database

    def _has_database(self, name: str) -> bool:
        catalog = self.upstream.backing.catalog_at(None if self.login.is_sys else self.login.account, None)
        if catalog is not None and name in catalog.missing:
            raise internal_error(catalog.missing[name])
        return catalog is not None and catalog.has_database(name)

    def query(self, text: bytes) -> Answer | None:
        """Answers one statement. Raises `StatementError`, counted as an error."""
        try:
            return self._query(text.decode("utf-8", "surrogateescape"))
        except StatementError:
            self.upstream.counters.error()
            raise

    def split(self, text: bytes) -> Sequence[bytes]:
        """One: several statements that come as one are a syntax error."""
        return (text,)

    def _query(self, text: str) -> Answer | None:
        try:
            kind, answer = self.understood(text)
        except StatementError:
            self.count("unknown", text)
            raise
        self.count(kind, text)
        return self.executed(kind, answer)

    def understood(self, text: str) -> tuple[str, Callable[[], Answer | None]]:
        """The kind under which a statement is counted, and what answers it. Raises StatementError 1064."""
        command = internal.command_of(text)
        if command is not None and internal.is_known(self.upstream, command[0]):
            return command[0], partial(self.answer_command, *command)
        statement = parse(text, self.upstream.name)
        return _kind(statement), partial(self.answer, statement, text)

    def executed(self, kind: str, answer: Callable[[], Answer | None]) -> Answer | None:
        """The answer to a statement of this kind."""
        return answer()

    def count(self, kind: str, text: str) -> None:
        """A statement has arrived."""
        self.upstream.counters.statement(kind)

    def answer_command(self, command: str, words: list[str]) -> ResultSet:
        return internal.answer(self.upstream, self.login, self.number, command, words)

    def answer(self, statement: Statement, text: str) -> Answer | None:
        """The answer to a statement, which stands in `text`."""
        match statement:
            case CreateSnapshot():
                self._create_snapshot(statement)
            case DropSnapshot():
                owner, backing = self._may_change_snapshots(statement.publisher, statement.publication)
                backing.drop_snapshot(owner, statement.name, if_exists=statement.if_exists)
            case Select():
                return catalog.select(self.upstream, self.login, self.database, statement)
            case SelectValues():
                asked = Asked(self.upstream, self.login, self.database, self.number)
                cells = [value_of(asked, value) for value in statement.values]
                return ResultSet(tuple(column for column, _ in cells), (tuple(cell for _, cell in cells),))
            case Show():
                return show(self.upstream, self.login, statement)
            case SetRole():
                self.login = replace(self.login, role=statement.role)
            case Use():
                self.use(statement.database)
            case Plain():
                if statement.what != "set":
                    self.in_transaction = statement.what == "begin"
        return None

    def _may_change_snapshots(self, publisher: str, publication: str) -> tuple[str, Backing]:
        """The account that owns the snapshots of the statement, and what they show. Raises 20101 if the login may not
        change them."""
        if self.in_transaction:
            raise internal_error("a snapshot cannot be created or dropped in an open transaction")
        require_admin(self.login)
        if publisher:
            require_publication(self.upstream.backing, self.login, publisher, publication)
            return publisher, self.upstream.backing.published(publisher, publication)
        if not self.upstream.backing.owns_data(self.login.account):
            message = f"account {self.login.account} has nothing in this recording: name its publisher and publication"
            raise internal_error(message)
        return self.login.account, self.upstream.backing

    def _create_snapshot(self, statement: CreateSnapshot) -> None:
        if _BAD_NAME.search(statement.name) or len(statement.name) > 64:
            raise StatementError(20301, f"invalid input: snapshot name {statement.name}")
        owner, backing = self._may_change_snapshots(statement.publisher, statement.publication)
        if statement.database in SYSTEM_DATABASES:
            raise internal_error(f"can not create snapshot for system database {statement.database}")
        whose = statement.account or self.login.account
        if not self.login.is_sys and (statement.level == "cluster" or whose != self.login.account):
            raise internal_error("do not have privilege to execute the statement")
        if whose not in self.upstream.backing.accounts() and statement.account:
            raise internal_error(f"account {whose} does not exist")
        backing.create_snapshot(
            owner,
            statement.name,
            statement.level,
            statement.database,
            statement.table,
            caller=whose,
            if_not_exists=statement.if_not_exists,
        )


def _kind(statement: Statement) -> str:
    """The name under which a statement is counted."""
    match statement:
        case CreateSnapshot():
            return "create_snapshot"
        case DropSnapshot():
            return "drop_snapshot"
        case Select():
            return f"{'checksum' if statement.checksum else 'select'}_{statement.table}"
        case SelectValues():
            return "mo_ctl" if any(value.name == "mo_ctl" for value in statement.values) else "select"
        case Show():
            return f"show_{statement.what.replace(' ', '_')}"
        case SetRole():
            return "set_role"
        case Use():
            return "use"
        case Plain():
            return statement.what
