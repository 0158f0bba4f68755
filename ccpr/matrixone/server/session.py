"""One login on an upstream: finds the kind of a statement, and answers it."""

import json
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from ccpr.matrixone.server import catalog, faults, internal, past
from ccpr.matrixone.server.access import Login, parse_login, require_admin, require_publication
from ccpr.matrixone.server.answers import (
    BIGINT,
    BLOB_TEXT,
    TIMESTAMP,
    VAR_STRING,
    VARCHAR,
    Answer,
    Cell,
    Cut,
    ResultColumn,
    ResultSet,
    StatementError,
)
from ccpr.matrixone.server.backing import SYSTEM_DATABASES, Backing
from ccpr.matrixone.server.backing import internal as internal_error
from ccpr.matrixone.server.like import Like
from ccpr.matrixone.server.packets import CutByFault
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
    Value,
    parse,
)
from ccpr.matrixone.server.upstream import Upstream, UserSql
from ccpr.matrixone.server.variables import SERVER_VERSION, VARIABLES
from ccpr.matrixone.sql.lexer import tokens

PUBLICATION_COLUMNS: Final = {
    "publication": VARCHAR,
    "database": VARCHAR,
    "tables": BLOB_TEXT,
    "sub_account": BLOB_TEXT,
    "subscribed_accounts": BLOB_TEXT,
    "create_time": TIMESTAMP,
    "update_time": TIMESTAMP,
    "comments": BLOB_TEXT,
}
_BAD_NAME = re.compile(r"[\s'\"`]")
_SNAPSHOTS = re.compile(r"\s*(create|drop)\s+snapshot\b", re.IGNORECASE)  # what is wrong in them is said here
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ZERO_DATE = "0000-00-00"


class UpstreamSession:
    """See `ccpr.matrixone.server.server.ServerSession`."""

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
                cells = [self._value(value) for value in statement.values]
                return ResultSet(tuple(column for column, _ in cells), (tuple(cell for _, cell in cells),))
            case Show():
                return self._show(statement)
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

    def _value(self, value: Value) -> tuple[ResultColumn, Cell]:
        if value.kind == "literal":
            cell = value.arguments[0]
        elif value.kind == "variable":
            if value.name not in VARIABLES:
                raise internal_error(f"the system variable does not exist: {value.name}")
            cell = self._variables()[value.name]
        elif value.name == "mo_ctl":
            cell = self._mo_ctl([str(argument) for argument in value.arguments])
        elif value.name == "cast":
            cell = self._cast(*map(str, value.arguments))
        elif value.name == "date" and len(value.arguments) == 1:
            cell = self._date(str(value.arguments[0]))
        else:
            calls: dict[str, Cell] = {
                "version": SERVER_VERSION,
                "database": self.database or None,
                "schema": self.database or None,
                "current_role": self.login.role,
                "current_role_name": self.login.role,
                "current_user_name": self.login.user,
                "current_user": f"{self.login.user}@127.0.0.1",
                "user": f"{self.login.user}@127.0.0.1",
                "connection_id": self.number,
                "current_account_name": self.login.account,
            }
            if value.arguments or value.name not in calls:
                raise StatementError(
                    1064,
                    f"SQL syntax: the {self.upstream.name} does not know the function {value.name} with these "
                    "arguments",
                    "42000",
                )
            cell = calls[value.name]
        kind, charset = (BIGINT, catalog.BINARY) if isinstance(cell, int) else (VAR_STRING, catalog.UTF8)
        return ResultColumn(value.shown_as, kind, charset), cell

    def _variables(self) -> dict[str, str | int]:
        return {**VARIABLES, "version_comment": f"{self.upstream.name} of MatrixOne"}

    def _cast(self, literal: str, kind: str) -> str | None:
        """CAST of a date; the zero date is null, since the server's default sql_mode has NO_ZERO_DATE."""
        if kind != "date" or not _DATE.fullmatch(literal):
            raise StatementError(20102, f"not supported: the {self.upstream.name} casts dates only, not to {kind}")
        return None if literal == _ZERO_DATE else self._date(literal)

    def _date(self, literal: str) -> str:
        """DATE(…), whatever the sql_mode; the zero date is one since 4.2.0."""
        if not _DATE.fullmatch(literal) or (
            literal.startswith("0000-") and (literal != _ZERO_DATE or self.upstream.release != "4.2")
        ):
            raise StatementError(1690, f"data out of range: data type date, '{literal}'")
        return literal

    def _mo_ctl(self, arguments: list[str]) -> str:
        """mo_ctl('dn', …), one JSON text (docs/upstream.md 5.6 and "Checked on live clusters"). Only for account sys
        with its admin role."""
        if not (self.login.is_sys and self.login.is_admin and self.upstream.may_flush):
            raise internal_error("do not have privilege to execute the statement")
        known = ("flush", "checkpoint", "diskcleaner")
        if len(arguments) != 3 or arguments[0].lower() != "dn" or arguments[1].lower() not in known:
            raise internal_error(
                f"invalid operation: the {self.upstream.name} knows only mo_ctl('dn', …) of flush, checkpoint and "
                "diskcleaner force_gc"
            )
        method, target, backing = arguments[1].lower(), arguments[2], self.upstream.backing
        if method == "checkpoint":
            backing.checkpoint()
        elif method == "diskcleaner":
            if target != "force_gc":
                raise internal_error(
                    f"invalid operation: the {self.upstream.name} knows no {target} of the disk cleaner"
                )
            backing.collect()
        elif target.isdecimal() and int(target[:20]) in backing.flushable():
            backing.flush({int(target)})
        else:
            backing.flush({self._table_id(target)})
        shown = {"diskcleaner": "DiskCleaner"}.get(method, method.capitalize())
        return json.dumps({"method": shown, "result": [{"ReturnStr": "OK"}]}, indent=2)

    def _table_id(self, target: str) -> int:
        """The id of `database.table` in the login's account, or of `database.table.<account id>` in any account."""
        backing, ids = self.upstream.backing, {}
        for account, number in backing.accounts().items():
            if backing.owns_data(account):
                for table in backing.catalog(account).tables:
                    name = f"{table.database.decode()}.{table.name.decode()}"
                    ids[f"{name}.{number}"] = table.id
                    if account == self.login.account:
                        ids[name] = table.id
        if target not in ids:
            raise internal_error(f"no such table {target}")
        return ids[target]

    def _show(self, statement: Show) -> ResultSet:
        match statement.what:
            case "emulator status":
                rows: list[tuple[Cell, ...]] = [
                    ("recording", self.upstream.backing.name),
                    *self.upstream.status().rows(),
                ]
                return _texts(("name", "value"), rows)
            case "publications":
                return self._show_publications(statement.like)
            case "publication coverage":
                return self._show_coverage(statement.name)
            case "create publication":
                return self._show_create_publication(statement.name)
            case "snapshots":
                return self._show_snapshots()
            case "databases":
                account = self.login.account
                owns = self.upstream.backing.owns_data(account)
                names = [row[0] for row in self.upstream.backing.catalog(account).databases.rows] if owns else []
                return _texts(("Database",), [(name,) for name in (*names, *SYSTEM_DATABASES)])
            case "warnings":
                return _texts(("Level", "Code", "Message"), [])
            case "variables" | "session variables" | "global variables":
                like = Like(statement.like if statement.like is not None else "%", ignore_case=True)
                known = [(name, str(value)) for name, value in self._variables().items() if like.matches(name)]
                return _texts(("Variable_name", "Value"), known)
            case _:
                raise StatementError(
                    1064, f"SQL syntax: the {self.upstream.name} does not serve SHOW {statement.what.upper()}", "42000"
                )

    def _show_publications(self, like: str | None) -> ResultSet:
        pattern = Like("%" if like is None else like)
        rows: list[tuple[Cell, ...]] = []
        found = self.upstream.backing.publications()
        # Newest first; with LIKE by name (docs/upstream.md 3.3).
        for publisher, publication in reversed(found) if like is None else sorted(found, key=lambda one: one[1].name):
            if publisher != self.login.account or not pattern.matches(publication.name):
                continue
            accounts = "*" if publication.admits("*") else ",".join(publication.accounts)
            tables = ",".join(publication.tables) or "*"
            offer = (publication.name, publication.database, tables, accounts)
            rows.append((*offer, "", catalog.CREATED, None, publication.comment))
        return ResultSet(tuple(ResultColumn(name, kind) for name, kind in PUBLICATION_COLUMNS.items()), rows)

    def _show_create_publication(self, name: str) -> ResultSet:
        publication = self.upstream.backing.publication(self.login.account, name)
        if publication is None:
            raise internal_error(f"publication '{name}' does not exist")
        tables = f" TABLE {','.join(publication.tables)}" if publication.tables else ""
        accounts = "ALL" if publication.admits("*") else ",".join(publication.accounts)
        text = f"CREATE PUBLICATION {name} DATABASE {publication.database}{tables} ACCOUNT {accounts}"
        return _texts(("Publication", "Create Publication"), [(name, text)])

    def _show_snapshots(self) -> ResultSet:
        """The account's snapshots, newest first, without those of the upstream's own replication (docs/upstream.md
        4.3)."""
        rows: list[tuple[Cell, ...]] = []
        for snapshot in reversed(self.upstream.backing.snapshots(self.login.account)):
            if not snapshot.name.startswith("ccpr_"):
                at = datetime.fromtimestamp(snapshot.ts // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
                time = f"{at}.{snapshot.ts % 1_000_000_000 // 1000:06}"
                rows.append(
                    (snapshot.name, time, snapshot.level, self.login.account, snapshot.database, snapshot.table)
                )
        return _texts(
            ("SNAPSHOT_NAME", "TIMESTAMP", "SNAPSHOT_LEVEL", "ACCOUNT_NAME", "DATABASE_NAME", "TABLE_NAME"), rows
        )

    def _show_coverage(self, name: str) -> ResultSet:
        """The publication is searched by name only, in all accounts (docs/upstream.md 3.3)."""
        backing = self.upstream.backing
        publisher, publication = next(
            ((p, found) for p, found in backing.publications((name,)) if found.name == name), ("", None)
        )
        if publication is None:
            raise internal_error(f"publication {name} does not exist")
        if not publication.admits(self.login.account):
            raise internal_error(f"account '{self.login.account}' is not allowed to access publication '{name}'")
        rows: list[tuple[Cell, ...]] = [(publication.database, table) for table in publication.tables if table]
        if publication.database == "*":
            rows = [("*", "*")]
        elif not publication.tables:
            database = publication.database.encode()
            tables = backing.published(publisher, name).catalog(publisher).tables
            rows = [
                (database, "*"),
                *((database, table.name) for table in tables if table.database == database and table.kind != b"v"),
            ]
        return ResultSet((ResultColumn("Database", VARCHAR), ResultColumn("Table", VARCHAR)), rows)


class Logins:
    """See `ccpr.matrixone.server.server.Engine`."""

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


def _texts(names: tuple[str, ...], rows: list[tuple[Cell, ...]] | list[tuple[str, str]]) -> ResultSet:
    return ResultSet(tuple(ResultColumn(name, VAR_STRING, catalog.UTF8) for name in names), rows)


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
            return f"select_{statement.table}"
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
