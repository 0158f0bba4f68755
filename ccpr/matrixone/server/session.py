"""One login on an upstream: finds the kind of a statement, and answers it."""

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from ccpr.matrixone.server import catalog, faults, internal, past
from ccpr.matrixone.server.access import Login, parse_login, require_admin, require_publication
from ccpr.matrixone.server.answers import (
    Answer,
    Cut,
    ResultSet,
    StatementError,
)
from ccpr.matrixone.server.backing import SYSTEM_DATABASES, Backing
from ccpr.matrixone.server.backing import internal as internal_error
from ccpr.matrixone.server.packets import CutByFault
from ccpr.matrixone.server.select_values import Asked, value_of
from ccpr.matrixone.server.show import show
from ccpr.matrixone.server.statements import (
    CreateSnapshot,
    DropSnapshot,
    Plain,
    Select,
    SelectValues,
    SetFault,
    SetRole,
    Show,
    Statement,
    Use,
    parse,
)
from ccpr.matrixone.server.upstream import Upstream, UserSql
from ccpr.matrixone.sql.lexer import tokens

_BAD_NAME = re.compile(r"[\s'\"`]")
_SNAPSHOTS = re.compile(r"\s*(create|drop)\s+snapshot\b", re.IGNORECASE)  # what is wrong in them is said here


class UpstreamSession:
    """See `ccpr.matrixone.server.connection.ServerSession`."""

    def __init__(self, upstream: Upstream, login: Login, number: int) -> None:
        self.upstream = upstream
        self.login = login
        self.number = number
        self.database = ""
        self.in_transaction = False
        self.sql = upstream.sql(login) if upstream.sql is not None else None
        if self.sql is not None:
            self.sql.number = number
        upstream.counters.session_opened()

    def close(self) -> None:
        if self.sql is not None:
            self.sql.close()
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
        """Several statements that came as one: only a simulated upstream answers them."""
        if self.sql is None or b";" not in text.rstrip(b"; \t\r\n"):
            return (text,)
        return [
            one.encode("utf-8", "surrogateescape") for one in statements_in(text.decode("utf-8", "surrogateescape"))
        ]

    def _query(self, text: str) -> Answer | None:
        command = internal.command_of(text)
        command = command if command is None or internal.is_known(self.upstream, command[0]) else None
        known = self.sql.knows(text) if self.sql is not None and command is None else None
        statement = None
        if command is None and known is None:
            try:
                statement = parse(text, self.upstream.name)
                self._refuse_testing(statement)
            except StatementError:
                if self.sql is None or _SNAPSHOTS.match(text):
                    self._count("unknown", text)
                    raise
                known = "select" if text.lstrip("( \t\r\n")[:6].lower() == "select" else "other"
        kind = command[0] if command is not None else known or _kind(statement)
        self._count(kind, text)

        def execute() -> Answer | None:
            if self.upstream.release == "3.0":
                _refuse_unknown_to_3_0(command, statement)
            if command is not None:
                return internal.answer(self.upstream, self.login, self.number, *command)
            if self.sql is not None and (known or self._is_for(self.sql, statement)):
                past.check_rows(self.upstream.faults, self.upstream.backing, self.login.account, text)
                return self.sql.run(text, self.database)
            return self._answer(statement)

        failures = self._faults_before(kind, execute)
        answer = execute()
        if self.upstream.ending is not None:
            self.upstream.ending(kind)
        for fault in failures:
            if isinstance(fault, faults.CutAnswer) and isinstance(answer, ResultSet):
                return replace(answer, cut=Cut(0, fault.after_bytes))
            self._fail(fault)
        return answer

    def _refuse_testing(self, statement: Statement) -> None:
        """Faults and counters are for tests."""
        testing = isinstance(statement, SetFault) or (isinstance(statement, Show) and statement.what.startswith("emul"))
        if testing and not self.upstream.for_tests:
            raise StatementError(1064, f"SQL syntax: the {self.upstream.name} does not know this statement", "42000")

    def _is_for(self, sql: UserSql, statement: Statement | None) -> bool:
        """Whether a statement that every upstream understands is one on user tables, or asks for a value that is not
        known here."""
        if isinstance(statement, Select):
            return sql.reads(self.database, statement)
        if isinstance(statement, SelectValues) and not any(value.name == "mo_ctl" for value in statement.values):
            try:
                self._answer(statement)
            except StatementError:
                return True
        return False

    def _count(self, kind: str, text: str) -> None:
        self.upstream.counters.statement(self.number, f"{self.login.account}:{self.login.user}", kind, text)

    def _faults_before(self, kind: str, execute: Callable[[], object]) -> list[faults.StatementFault]:
        """Delay the statement and raise the faults that strike before it is executed; returns those that strike
        after."""
        after: list[faults.StatementFault] = []
        started = self.upstream.starts
        self.upstream.faults.hold(kind)
        for fault in self.upstream.faults.strike(
            lambda fault: isinstance(fault, faults.StatementFault) and fault.kind in ("", kind)
        ):
            if isinstance(fault, faults.Delay):
                self.upstream.faults.delay(fault.seconds)
            elif isinstance(fault, faults.FailStatement | faults.CutStatement | faults.CutAnswer | faults.Crash):
                if isinstance(fault, faults.FailStatement | faults.CutStatement) and fault.later:
                    self._execute_later(fault.later, execute)
                if not isinstance(fault, faults.CutAnswer) and not fault.after_effect:
                    self._fail(fault)
                after.append(fault)
        if self.upstream.ending is not None:
            self.upstream.ending(kind)
        if self.upstream.starts != started:
            raise CutByFault("the server was started again meanwhile")
        return after

    def _execute_later(self, seconds: float, execute: Callable[[], object]) -> None:
        """What a client has given up, the server still does; unless it is stopped meanwhile."""
        started = self.upstream.starts

        def act() -> None:
            self.upstream.faults.delay(seconds)
            if self.upstream.ending is None and self.upstream.starts == started:
                with suppress(StatementError):
                    execute()

        threading.Thread(target=act, name=f"later-{self.number}", daemon=True).start()

    def _fail(self, fault: faults.StatementFault) -> None:
        if isinstance(fault, faults.FailStatement):
            raise StatementError(fault.number, fault.text)
        if isinstance(fault, faults.Crash):
            self.upstream.crash()
        raise CutByFault("cut as asked")

    def _set_fault(self, text: str) -> None:
        try:
            fault = faults.parse_fault(text)
        except ValueError as error:
            raise StatementError(20301, f"invalid input: {error}") from error
        if fault is None:
            self.upstream.faults.clear()
        else:
            self.upstream.inject(fault)

    def _answer(self, statement: Statement | None) -> ResultSet | None:
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
                self.login = self.login.with_role(statement.role)
                if self.sql is not None:
                    self.sql.login = self.login
            case Use():
                self.use(statement.database)
            case SetFault():
                self._set_fault(statement.text)
            case Plain():
                if statement.what != "set":
                    self.in_transaction = statement.what == "begin"
        return None

    def _may_change_snapshots(self, publisher: str, publication: str) -> tuple[str, Backing]:
        """The account that owns the snapshots of the statement, and what they show. Raises 20101 if the login may not
        change them."""
        if self.in_transaction or (self.sql is not None and self.sql.in_transaction):
            raise internal_error("a snapshot cannot be created or dropped in an open transaction")
        require_admin(self.login)
        if publisher:
            require_publication(self.upstream.backing, self.login, publisher, publication)
            return publisher, self.upstream.backing.published(publisher, publication)
        if not self.upstream.backing.owns_data(self.login.account):
            raise internal_error(
                f"account {self.login.account} has nothing in this recording: name its publisher and publication"
            )
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


class UpstreamEngine:
    """See `ccpr.matrixone.server.connection.Engine`."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream

    def open(self, user: str, connection_id: int) -> UpstreamSession:
        if self.upstream.faults.refuses_logins:
            raise StatementError(1040, "too many connections", "08004")
        if self.upstream.ending is not None:
            self.upstream.ending("login")
        for fault in self.upstream.faults.strike(lambda fault: isinstance(fault, faults.LoginFault)):
            if isinstance(fault, faults.FailLogin):
                raise StatementError(fault.number, fault.text)
            raise CutByFault("cut as asked")
        return UpstreamSession(self.upstream, parse_login(user), connection_id)


def statements_in(text: str) -> list[str]:
    """The statements between semicolons. A routine's body is not looked into: it is one statement."""
    found, start = [], 0
    words = list(tokens(text))
    if (
        words
        and words[0].is_word("CREATE")
        and any(one.is_word("PROCEDURE", "FUNCTION", "TRIGGER") for one in words[:5])
    ):
        return [text]
    for token in words:
        if token.is_sign(";"):
            found.append(text[start : token.start])
            start = token.end
    found.append(text[start:])
    return [one for one in found if any(True for _ in tokens(one))] or [text]


def _refuse_unknown_to_3_0(command: tuple[str, list[str]] | None, statement: Statement | None) -> None:
    """Internal commands, snapshots of publications and `rel_logical_id` came with 4.0.0-rc1."""
    if command is not None or (isinstance(statement, CreateSnapshot | DropSnapshot) and statement.publisher):
        raise StatementError(1064, "SQL parser error: You have an error in your SQL syntax", "42000")
    if isinstance(statement, Select) and any(column == "rel_logical_id" for column, _ in statement.columns):
        raise StatementError(20301, "invalid input: column rel_logical_id does not exist")


def _kind(statement: Statement | None) -> str:
    """The name under which a statement is counted, and by which faults name it."""
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
        case SetFault():
            return "set_fault"
        case Use():
            return "use"
        case Plain():
            return statement.what
        case _:
            return "unknown"
