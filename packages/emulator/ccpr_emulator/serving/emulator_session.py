"""One login on an upstream of a test: SQL on user tables, statements that inject faults, and where faults strike."""

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import cast

from ccpr.matrixone.server import internal
from ccpr.matrixone.server import mo_catalog as catalog
from ccpr.matrixone.server.answers import Answer, ResultSet, StatementError
from ccpr.matrixone.server.backing import Backing, Login, parse_login
from ccpr.matrixone.server.server_session import UpstreamSession
from ccpr.matrixone.server.show import texts
from ccpr.matrixone.server.statements import CreateSnapshot, DropSnapshot, Select, SelectValues, SetRole, Statement
from ccpr.matrixone.server.tokens import Tokens
from ccpr.matrixone.sql.lexer import tokens
from ccpr_emulator.errors import NeverAnswered
from ccpr_emulator.serving import faults
from ccpr_emulator.serving.cut_connection import CutByFault, CutRows
from ccpr_emulator.serving.emulated_upstream import LOG_CHARACTERS, EmulatedUpstream, EmulatorStatus, Logged
from ccpr_emulator.serving.faulty_backing import FaultyBacking, check_rows, is_empty, struck

_FOREVER = 3600.0  # seconds
_SNAPSHOTS = re.compile(r"\s*(create|drop)\s+snapshot\b", re.IGNORECASE)  # what is wrong in them is said by all
_WITHOUT_TIME = ("mo_pubs", "mo_account", "mo_snapshots")  # tables of mo_catalog that are those of now


class EmulatorSession(UpstreamSession):
    """See `ccpr.matrixone.server.server_session.UpstreamSession`."""

    upstream: EmulatedUpstream

    def __init__(self, upstream: EmulatedUpstream, login: Login, number: int) -> None:
        self.sql = upstream.sql(login) if upstream.sql is not None else None
        if self.sql is not None:
            self.sql.number = number
        super().__init__(upstream, login, number)

    def close(self) -> None:
        if self.sql is not None:
            self.sql.close()
        super().close()

    def count(self, kind: str, text: str) -> None:
        super().count(kind, text)
        login = f"{self.login.account}:{self.login.user}"
        self.upstream.log.append(Logged(self.number, login, kind, text[:LOG_CHARACTERS]))

    def split(self, text: bytes) -> Sequence[bytes]:
        """Several statements that came as one: only a simulated upstream answers them."""
        if self.sql is None or b";" not in text.rstrip(b"; \t\r\n"):
            return (text,)
        return [
            one.encode("utf-8", "surrogateescape") for one in statements_in(text.decode("utf-8", "surrogateescape"))
        ]

    # ---- what answers a statement

    def understood(self, text: str) -> tuple[str, Callable[[], Answer | None]]:
        if (ours := self._of_tests(text)) is not None:
            return ours
        if self.sql is None:
            return super().understood(text)
        if internal.command_of(text) is None and (kind := self.sql.knows(text)) is not None:
            return kind, partial(self._run_sql, text)
        try:
            return super().understood(text)
        except StatementError:
            if _SNAPSHOTS.match(text):
                raise
            is_select = text.lstrip("( \t\r\n")[:6].lower() == "select"
            return "select" if is_select else "other", partial(self._run_sql, text)

    def _of_tests(self, text: str) -> tuple[str, Callable[[], Answer | None]] | None:
        """``SET EMULATOR FAULT = 'text'`` and ``SHOW EMULATOR STATUS``."""
        if "emulator" not in text[:40].lower():
            return None
        words = Tokens(text)
        if words.accept("show", "emulator", "status"):
            kind, answer = "show_emulator_status", self._show_status
        elif words.accept("set", "emulator", "fault", "="):
            kind, answer = "set_fault", partial(self._set_fault, words.text())
        else:
            return None
        words.accept(";")
        if not words.at_end():
            raise words.unknown()
        return kind, answer

    def _show_status(self) -> ResultSet:
        return texts(
            ("name", "value"), [("recording", self.upstream.backing.name), *status_rows(self.upstream.status())]
        )

    def _set_fault(self, text: str) -> None:
        try:
            fault = faults.parse_fault(text)
        except ValueError as error:
            raise StatementError(20301, f"invalid input: {error}") from error
        if fault is None:
            self.upstream.faults.clear()
        else:
            self.upstream.inject(fault)

    def _run_sql(self, text: str) -> Answer:
        assert self.sql is not None
        check_rows(self.upstream.faults, self.upstream.backing, self.login.account, text)
        self.sql.release = self.upstream.release
        try:
            return self.sql.run(text, self.database)
        except NeverAnswered as error:
            self.upstream.faults.delay(_FOREVER)
            raise CutByFault("it never answers") from error

    def answer_command(self, command: str, words: list[str]) -> ResultSet:
        if self.upstream.release == "3.0":  # they came with 4.0.0-rc1
            raise StatementError(1064, "SQL parser error: You have an error in your SQL syntax", "42000")
        box = self.upstream.faults
        backing = cast(Backing, FaultyBacking(self.upstream.backing, box, command))
        answer = internal.answer(replace(self.upstream, backing=backing), self.login, self.number, command, words)
        return struck(answer, command, words, box)

    def answer(self, statement: Statement, text: str) -> Answer | None:
        if self.upstream.release == "3.0":
            _refuse_unknown_to_3_0(statement)
        if isinstance(statement, Select):
            if self.sql is not None and self.sql.reads(self.database, statement):
                return self._run_sql(text)
            if self._is_lost(statement):
                now = catalog.rows_of(self.upstream, self.login, replace(statement, mo_ts=None, snapshot=None))
                return catalog.chosen(replace(now, rows=()), statement)
        if self.sql is None:
            return super().answer(statement, text)
        self.in_transaction = self.sql.in_transaction
        try:
            return super().answer(statement, text)
        except StatementError:  # a value that is not known here
            if not isinstance(statement, SelectValues) or any(value.name == "mo_ctl" for value in statement.values):
                raise
            return self._run_sql(text)
        finally:
            if isinstance(statement, SetRole):
                self.sql.login = self.login

    def _is_lost(self, statement: Select) -> bool:
        """Whether the catalog has no rows at the time of a SELECT. Raises 20101 if it cannot be read."""
        database, ts = statement.database or self.database.lower(), statement.mo_ts
        if self.upstream.faults.lost_past is None or database != "mo_catalog" or statement.table in _WITHOUT_TIME:
            return False
        if statement.snapshot is not None:
            ts = self.upstream.backing.find_snapshot(self.login.account, statement.snapshot.lower()).ts
        return is_empty(self.upstream.faults, ts)

    # ---- faults by kind

    def executed(self, kind: str, answer: Callable[[], Answer | None]) -> Answer | None:
        failures = self._faults_before(kind, answer)
        result = answer()
        if self.upstream.ending is not None:
            self.upstream.ending(kind)
        for fault in failures:
            if isinstance(fault, faults.CutAnswer) and isinstance(result, ResultSet):
                return CutRows(result.columns, result.rows, 0, fault.after_bytes)
            self._fail(fault)
        return result

    def _faults_before(self, kind: str, answer: Callable[[], object]) -> list[faults.StatementFault]:
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
                    self._answer_later(fault.later, answer)
                if not isinstance(fault, faults.CutAnswer) and not fault.after_effect:
                    self._fail(fault)
                after.append(fault)
        if self.upstream.ending is not None:
            self.upstream.ending(kind)
        if self.upstream.starts != started:
            raise CutByFault("the server was started again meanwhile")
        return after

    def _answer_later(self, seconds: float, answer: Callable[[], object]) -> None:
        """What a client has given up, the server still does; unless it is stopped meanwhile."""
        started = self.upstream.starts

        def act() -> None:
            self.upstream.faults.delay(seconds)
            if self.upstream.ending is None and self.upstream.starts == started:
                with suppress(StatementError):
                    answer()

        threading.Thread(target=act, name=f"later-{self.number}", daemon=True).start()

    def _fail(self, fault: faults.StatementFault) -> None:
        if isinstance(fault, faults.FailStatement):
            raise StatementError(fault.number, fault.text)
        if isinstance(fault, faults.Crash):
            self.upstream.crash()
        raise CutByFault("cut as asked")


class EmulatorLogins:
    """See `ccpr.matrixone.server.connection.Engine`."""

    def __init__(self, upstream: EmulatedUpstream) -> None:
        self.upstream = upstream

    def open(self, user: str, connection_id: int) -> EmulatorSession:
        if self.upstream.faults.refuses_logins:
            raise StatementError(1040, "too many connections", "08004")
        if self.upstream.ending is not None:
            self.upstream.ending("login")
        for fault in self.upstream.faults.strike(lambda fault: isinstance(fault, faults.LoginFault)):
            if isinstance(fault, faults.FailLogin):
                raise StatementError(fault.number, fault.text)
            raise CutByFault("cut as asked")
        return EmulatorSession(self.upstream, parse_login(user), connection_id)


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


def status_rows(status: EmulatorStatus) -> list[tuple[str, str]]:
    """(name, value) pairs of SHOW EMULATOR STATUS."""
    rows = [
        ("errors", str(status.errors)),
        ("sessions_opened", str(status.sessions_opened)),
        ("sessions_open", str(status.sessions_open)),
        ("sessions_that_fetched", str(status.sessions_that_fetched)),
        ("objects_fetched", str(status.objects_fetched)),
        ("object_bytes", str(status.object_bytes)),
        ("snapshots_created", str(status.snapshots_created)),
        ("snapshots_live", str(len(status.snapshots))),
        ("snapshots", " ".join(status.snapshots)),
    ]
    return rows + [(f"statements.{kind}", str(count)) for kind, count in sorted(status.statements.items())]


def _refuse_unknown_to_3_0(statement: Statement) -> None:
    """Snapshots of publications and `rel_logical_id` came with 4.0.0-rc1."""
    if isinstance(statement, CreateSnapshot | DropSnapshot) and statement.publisher:
        raise StatementError(1064, "SQL parser error: You have an error in your SQL syntax", "42000")
    if isinstance(statement, Select) and any(column == "rel_logical_id" for column, _ in statement.columns):
        raise StatementError(20301, "invalid input: column rel_logical_id does not exist")
