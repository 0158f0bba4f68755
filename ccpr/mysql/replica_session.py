"""One login of a MySQL client: which statement it is, and what answers it. Not one changes a table: a replica is
changed upstream alone."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from ccpr.config.errors import SqlSyntax
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import Table
from ccpr.matrixone.server.answers import Answer, Done, FramedRows, ResultSet, StatementError
from ccpr.matrixone.server.connection import SERVER_VERSION
from ccpr.matrixone.server.prepared import Parameter
from ccpr.matrixone.sql.lexer import Token
from ccpr.mirror.points import FIRST_INSTANT, Point, TableRef
from ccpr.mirror.sql import PointTable
from ccpr.mysql import admin_statements
from ccpr.mysql.catalog_queries import CatalogQuery, catalog_query
from ccpr.mysql.catalog_tables import INFORMATION_SCHEMA, MO_CATALOG, catalog_table
from ccpr.mysql.login_limits import ConditionedRows, condition_sql
from ccpr.mysql.query_runner import QueryLimits, QueryRunner, ReadTables, exact_reading, told
from ccpr.mysql.replicas import Database, Replicas, ServedReplica
from ccpr.mysql.select_rules import translated_once
from ccpr.mysql.select_scope import ReadTable
from ccpr.mysql.show_answers import MODES_REFUSED, SETTABLE, VARIABLES, show, texts
from ccpr.mysql.sql_metrics import StatementCounts
from ccpr.mysql.statement_text import (
    StatementText,
    moment_of,
    parameters_in,
    refused,
    tokens_of,
    understood,
)
from ccpr.mysql.value_kinds import kinds_of
from ccpr.state.logins import LoginRole, ReadLimits

_T = TypeVar("_T")
MOST_VARIABLES = 100
MOST_KEPT = 200  # tables of a session whose manifests stay read
_DUAL: Final = "dual"  # a table with a row, and no column that a statement could name
_ONE_ROW: Final = pa.table({_DUAL: [0]})
_READ_ONLY: Final = (
    "this is a replica of MatrixOne, kept by ccpr: it answers SELECT, SHOW and statements about subscriptions. "
    "Change the tables upstream"
)
_CHANGING: Final = "ALTER CREATE DELETE DROP GRANT INSERT LOAD LOCK RENAME REPLACE RESTORE REVOKE TRUNCATE UPDATE"
_UNANSWERED: Final = (
    "ANALYZE CALL CHECK CHECKSUM COMMIT DEALLOCATE DECLARE DO EXECUTE EXPLAIN FLUSH HANDLER HELP OPTIMIZE PREPARE "
    "PURGE RELEASE REPAIR RESET ROLLBACK SAVEPOINT TABLE UNLOCK USE VALUES XA"
)
_log = logging.getLogger(__name__)


class OtherSessions(Protocol):
    """The other logins of the server."""

    def interrupt(self, number: int, asker: "ReplicaSession", why: StatementError) -> None:
        """Raises StatementError 1094, 1095."""
        ...

    def closed(self, session: "ReplicaSession") -> None: ...


class ReplicaSession:
    """See `ccpr.matrixone.server.connection.ServerSession`."""

    def __init__(
        self,
        replicas: Replicas,
        sessions: OtherSessions,
        limits: QueryLimits,
        counts: StatementCounts,
        user: str,
        number: int,
        address: str,
    ) -> None:
        self.user, self.number, self.address, self.database = user, number, address, ""
        self._replicas, self._sessions, self._limits, self._counts = replicas, sessions, limits, counts
        self._runner = QueryRunner(limits)
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, int, str, ReadLimits], tuple[PointTable | ConditionedRows, ReadTable]] = {}
        self._in_transaction, self._autocommit = False, True
        self._transaction = ExitStack()  # its points
        self._points: dict[str, Point] = {}  # of the transaction, by task
        self._chosen: tuple[ServedReplica, Point] | None = None  # SET ccpr_point
        self._chosen_until = ExitStack()
        self._pipes_refused = False  # they are no OR in a sql_mode that a client has set
        self._warnings = list[tuple[str, int, str]]()  # of the last statement: level, code, message
        self._variables = dict[str, Parameter]()  # by @name in lower case
        self._most_rows: int | None = None
        self._seconds: float | None = None

    @property
    def is_operator(self) -> bool:
        return self._replicas.login(self.user).role is LoginRole.OPERATOR

    def close(self) -> None:
        self._runner.close()
        self._transaction.close()
        self._chosen_until.close()
        self._sessions.closed(self)

    def reset(self) -> None:
        self._end()
        self._choose("default")
        self._variables.clear()
        self._autocommit, self._pipes_refused, self._most_rows, self._seconds = True, False, None, None

    def interrupt(self, why: StatementError) -> bool:
        return self._runner.interrupt(why)

    # ---- the protocol

    def use(self, database: str) -> None:
        if database.lower() in (INFORMATION_SCHEMA, MO_CATALOG):
            self.database = database.lower()
            return
        self.database = self._told(lambda: self.known(database).shown)

    def split(self, text: bytes) -> Sequence[bytes]:
        return (text,)

    def query(self, text: bytes) -> Answer | None:
        return self._counted(text, (), binary=False)

    def prepare(self, text: bytes) -> int:
        return self._told(lambda: parameters_in(_decoded(text)))

    def execute(self, text: bytes, parameters: Sequence[Parameter]) -> Answer | None:
        return self._counted(text, parameters, binary=True)

    def _counted(self, text: bytes, parameters: Sequence[Parameter], *, binary: bool) -> Answer | None:
        answer = partial(self._answer, parameters=parameters, binary=binary)
        return self._counts.counted(lambda: self._told(lambda: answer(_decoded(text))))

    def _told(self, ask: Callable[[], _T]) -> _T:
        try:
            return ask()
        except SqlSyntax as error:
            raise self._noted(StatementError(1064, f"{error.code}: {error.message}", "42000")) from error
        except CcprError as error:
            raise self._noted(told(error)) from error
        except StatementError as error:
            raise self._noted(error) from error

    def _noted(self, error: StatementError) -> StatementError:
        """For SHOW WARNINGS."""
        self._warnings = [("Error", error.number, error.text)]
        return error

    # ---- statements

    def _answer(self, text: str, parameters: Sequence[Parameter], *, binary: bool) -> Answer | None:
        tokens = tokens_of(text)
        words = [token.value.upper() if token.kind == "word" else token.value for token in tokens[:4]]
        first, second = (*words, "", "")[:2]
        if not tokens:
            raise StatementError(1065, "Query was empty", "42000")
        if (first, second) == ("SHOW", "WARNINGS"):
            return texts("Level,Code,Message", self._warnings)
        self._warnings = []
        if first in ("SELECT", "WITH", "("):
            if self._pipes_refused and any(token.is_sign("|") for token in tokens):
                raise refused("|| in sql_mode PIPES_AS_CONCAT", "write CONCAT, or OR")
            return self._select(understood(text, parameters, self._variables), binary=binary)
        if parameters:
            raise refused(f"a prepared {first:.20}")
        if _is_of_subscriptions(first, second, tokens):
            return self._subscriptions(text)
        match first:
            case "SHOW" | "DESCRIBE" | "DESC":
                return self._show(text)
            case "SET":
                return self._set(tokens)
            case "USE" if len(tokens) == 2:
                self.use(tokens[1].value)
            case "BEGIN" | "START":
                self._begin(words)
            case "COMMIT" | "ROLLBACK" if len(tokens) <= 2:
                self._end()
            case "KILL":
                self._kill(tokens)
            case _ if first in _CHANGING.split():
                raise StatementError(1290, f"{first} is not possible here: {_READ_ONLY}")
            case _ if first in _UNANSWERED.split():
                raise refused(first)
            case _:
                raise StatementError(1064, f"SQL syntax: no statement begins with {first:.40}", "42000")
        return self._done()

    def _done(self, warnings: int = 0) -> Done:
        return Done(in_transaction=self._in_transaction, autocommit=self._autocommit, warnings=warnings)

    def _subscriptions(self, text: str) -> ResultSet | Done:
        found = admin_statements.answered(self._replicas, self.user, self.address, text)
        if found.columns is not None:
            return texts(found.columns, found.rows)
        self._warnings = [("Note", 1105, one) for one in found.warnings]
        return self._done(len(self._warnings))

    def _begin(self, words: Sequence[str]) -> None:
        self._end()
        self._in_transaction = True
        if "CONSISTENT" in words:
            for database in self.databases().values():
                self._point_in_transaction(database.replica)

    def _end(self) -> None:
        self._transaction.close()
        self._points.clear()
        self._in_transaction = False

    def _kill(self, tokens: Sequence[Token]) -> None:
        number = tokens[-1].value
        if len(tokens) > 3 or not number.isdecimal():
            raise refused("this KILL")
        self._sessions.interrupt(int(number), self, StatementError(1317, "Query execution was interrupted", "70100"))

    # ---- SET

    def _set(self, tokens: Sequence[Token]) -> Done:
        if any(token.is_word("TRANSACTION") for token in tokens[1:3]):
            return self._done()  # a reader sees one point, whatever the level
        parts = _parts(tokens[1:])
        of_user = [part for part in parts if part and part[0].kind == "variable" and part[0].value[:2] != "@@"]
        for name, value in [_assigned(part) for part in parts if part not in of_user]:
            self._set_one(name, value)
        for part in of_user:
            self._variables[part[0].value.lower()] = _value_of(part)
        if len(self._variables) > MOST_VARIABLES:
            self._variables.clear()
            raise refused(f"more than {MOST_VARIABLES} variables of the user (@name)", "all are NULL now")
        return self._done()

    def _set_one(self, name: str, value: str) -> None:
        plain = value.lower()
        if name == "ccpr_point":
            self._choose(value)
        elif name == "sql_select_limit":
            number = None if plain in ("default", str(2**64 - 1)) else _number(name, value)
            self._most_rows = None if number is None or number >= 2**63 else number  # no answer has as many
        elif name == "max_execution_time":
            milliseconds = 0 if plain == "default" else _number(name, value)
            self._seconds = min(milliseconds / 1000, self._limits.seconds) if milliseconds else None
        elif name not in SETTABLE:
            raise StatementError(1193, f"Unknown system variable '{name:.60}'", "HY000")
        elif name == "sql_mode" and (bad := MODES_REFUSED & set(plain.replace(" ", "").split(","))):
            raise refused(f"sql_mode {', '.join(sorted(bad)).upper()}", "statements would mean something else")
        elif (values := SETTABLE[name]) is not None and plain not in (*values, "default"):
            raise refused(f"SET {name} = {value:.40}", f"it is {' or '.join(sorted(filter(None, values)))} here")
        elif name == "sql_mode":
            appended = self._pipes_refused and plain.startswith(",")
            self._pipes_refused = appended or "pipes_as_concat" in plain
        elif name == "autocommit":
            self._autocommit = plain in ("1", "on", "true", "default")

    def _choose(self, value: str) -> None:
        self._chosen_until.close()
        self._chosen = None
        if value.lower() in ("default", "null", ""):
            return
        replica = self.known(self.database).replica
        at: int | datetime | str = value
        if value.isdecimal():
            at = int(value)
        elif value[:1].isdigit():
            at = moment_of(value)
        self._chosen = replica, self._chosen_until.enter_context(self._replicas.reading(replica, at))

    # ---- what there is

    def databases(self) -> Mapping[str, Database]:
        return self._replicas.databases(self.user)

    def known(self, name: str) -> Database:
        if not name:
            raise StatementError(1046, "No database selected", "3D000")
        databases = self.databases()
        if name.lower() not in databases:  # it may be new
            self._replicas.look_again()
            databases = self.databases()
        found = databases.get(name.lower())
        if found is None:
            same = [one.shown for one in databases.values() if one.name.lower() == name.lower()]
            hint = f"; there are {' and '.join(f'`{one}`' for one in same)}" if same else ""
            raise StatementError(1049, f"Unknown database '{name:.100}'{hint}", "42000")
        return found

    def refs(self, database: Database) -> Sequence[TableRef]:
        with ExitStack() as held:
            return database.tables(self._point(database.replica, held))

    def _show(self, text: str) -> ResultSet:
        return show(self, text)

    # ---- points

    def _point(self, replica: ServedReplica, held: ExitStack) -> Point:
        """What a statement reads of a subscription."""
        if self._chosen is not None:
            if self._chosen[0].task_id != replica.task_id:
                text = f"ccpr_point is of subscription {self._chosen[0].name}: SET ccpr_point = DEFAULT ends it"
                raise refused(f"a table of subscription {replica.name}", text)
            return self._chosen[1]
        if self._in_transaction:
            return self._point_in_transaction(replica)
        return held.enter_context(self._replicas.reading(replica, None))

    def _point_in_transaction(self, replica: ServedReplica) -> Point:
        if replica.task_id not in self._points:
            self._points[replica.task_id] = self._transaction.enter_context(self._replicas.reading(replica, None))
        return self._points[replica.task_id]

    # ---- SELECT

    def _select(self, text: StatementText, *, binary: bool) -> FramedRows:
        catalog = catalog_query(text, self.database, self._constant)
        if catalog is not None:
            return self._of_catalog(catalog, binary=binary)
        held = ExitStack()
        reader = _StatementTables(self, text, held)
        try:
            found = translated_once(self._replicas.translations, text, reader, self._constant)
        except BaseException:
            held.close()
            raise
        most, seconds = self._most_rows, self._seconds
        return self._runner.rows_of(
            found.sql, lambda _: found.columns, reader.used, held, binary=binary, most=most, seconds=seconds
        )

    def _of_catalog(self, query: CatalogQuery, *, binary: bool) -> FramedRows:
        tables = ReadTables()
        with ExitStack() as held:  # points are read while the tables are made
            for name in query.tables:
                found = self.catalog_table(INFORMATION_SCHEMA, name, held)
                if found is None:
                    raise StatementError(1109, f"Unknown table '{name:.100}' in {INFORMATION_SCHEMA}", "42S02")
                tables[name] = found[0]
        most, seconds = self._most_rows, self._seconds
        return self._runner.rows_of(
            query.sql, query.columns, tables, ExitStack(), binary=binary, most=most, seconds=seconds
        )

    def read_table(self, database: Database, name: str, point: Point) -> tuple[PointTable | ConditionedRows, ReadTable]:
        """Raises StatementError 1146."""
        refs = [ref for ref in database.tables(point) if ref.name.lower() == name.lower()]
        if not refs:
            raise StatementError(1146, f"Table '{database.shown}.{name:.100}' doesn't exist", "42S02")
        if len(refs) > 1:
            raise refused(f"table {name:.100}", "there are two whose names differ in letter case only")
        ref, replica = refs[0], database.replica
        key = replica.task_id, point.lsn, ref.qualified_name, database.limits
        if key not in self._kept:
            table, shown = database.stored(ref), database.definition(ref)
            kinds = {one.name: kinds_of(table)[one.name] for one in shown.user_columns}
            rows = PointTable(replica.mirror, ref.qualified_name, point.lsn, exact_reading(table))
            if conditions := database.limits.conditions(ref.database, ref.name):
                rows = self._conditioned(rows, table, database.newest(ref), conditions, list(kinds))
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[key] = rows, ReadTable(f"t{ref.table_id}_{point.lsn}", kinds)
        return self._kept[key]

    def _conditioned(
        self, rows: PointTable, table: Table, newest: Table, conditions: Sequence[str], columns: Sequence[str]
    ) -> ConditionedRows:
        """Raises StatementError 1142 where a condition cannot be applied: it tells nothing of it."""
        try:
            source = condition_sql(self.user, table, newest, conditions)
        except (CcprError, StatementError) as error:
            _log.warning(
                "%s may not read %s, since a condition of it cannot be applied: %s", self.user, table.name, error
            )
            text = f"SELECT command denied to user '{self.user}'@'%' for table '{table.name}'"
            raise StatementError(1142, text, "42000") from error
        return ConditionedRows(rows, table, source, columns, self._limits.engines.of_conditions)

    def catalog_table(self, database: str, name: str, held: ExitStack) -> tuple[pa.Table, ReadTable] | None:
        found = catalog_table(
            self._replicas.workspace,
            list(self.databases().values()),
            self._replicas.login(self.user),
            lambda one: self._point(one.replica, held),
            database,
            name,
        )
        return None if found is None else (found[0], ReadTable(f"{database.lower()}_{name.lower()}", found[1]))

    def _constant(self, name: str) -> str | int | None:
        if name.startswith("@@"):
            variable = name.removeprefix("@@").rpartition(".")[2]
            if variable == "autocommit":
                return int(self._autocommit)
            if variable not in VARIABLES:
                raise StatementError(1193, f"Unknown system variable '{variable:.60}'", "HY000")
            return VARIABLES[variable]
        now = self._replicas.workspace.now()
        match name:
            case "database()" | "schema()":
                return self.database or None
            case "version()":
                return SERVER_VERSION
            case "user()" | "current_user()" | "session_user()" | "system_user()":
                return f"{self.user}@%"
            case "connection_id()":
                return self.number
            case "last_insert_id()":
                return 0  # nothing is inserted here
            case "now()" | "current_timestamp()" | "curdate()" | "current_date()":
                return f"{now:%Y-%m-%d}" if "date" in name else f"{now:%Y-%m-%d %H:%M:%S}"
        raise refused(f"the function {name.upper():.40}")


class _StatementTables:
    """The tables of one statement (`ccpr.mysql.select_scope.Tables`). All of them are of one subscription, and so of
    one point, but for those with a point of their own."""

    def __init__(self, session: ReplicaSession, text: StatementText, held: ExitStack) -> None:
        self._session, self._text, self._held = session, text, held
        self._replica: ServedReplica | None = None
        self._point: Point | None = None
        self.used: ReadTables = {}

    def table(self, database: str, name: str, point: int | None) -> ReadTable:
        if not database and name.lower() == _DUAL and point is None:
            self.used[_DUAL] = _ONE_ROW
            return ReadTable(_DUAL, {})
        database = database or self._session.database
        if database.lower() in (INFORMATION_SCHEMA, MO_CATALOG):
            found = self._session.catalog_table(database, name, self._held)
            if found is None or point is not None:
                raise StatementError(1109, f"Unknown table '{name:.100}' in {database}", "42S02")
            self.used[found[1].name] = found[0]
            return found[1]
        known = self._session.known(database)
        if self._replica is not None and self._replica.task_id != known.replica.task_id:
            raise refused(
                f"tables of subscriptions {self._replica.name} and {known.replica.name} in one statement",
                "they have no point in common",
            )
        self._replica = known.replica
        rows, table = self._session.read_table(known, name, self._at(known.replica, point))
        self.used[table.name] = rows
        return table

    def _at(self, replica: ServedReplica, number: int | None) -> Point:
        if number is not None:
            at = self._text.points[number]
            if isinstance(at, int) and at < FIRST_INSTANT:
                raise refused("{MO_TS = …}", "it takes nanoseconds since 1970")
            return self._held.enter_context(self._session._replicas.reading(replica, at))
        if self._point is None:
            self._point = self._session._point(replica, self._held)
        return self._point


def _is_of_subscriptions(first: str, second: str, tokens: Sequence[Token]) -> bool:
    """Whether it is one of `ccpr sql`: of MatrixOne's own, which name an upstream, too."""
    if (second in ("DATABASE", "TABLE") and first == "CREATE") or second == "PUBLICATIONS":
        return any(one.is_word("FROM") and other.kind == "text" for one, other in pairwise(tokens))
    return second in ("SUBSCRIPTION", "SUBSCRIPTIONS", "LAKE", "LAKES")


def _parts(tokens: Sequence[Token]) -> Sequence[Sequence[Token]]:
    """What stands between the commas that are in no parentheses."""
    parts, depth = [list[Token]()], 0
    for token in tokens:
        depth += token.is_sign("(") - token.is_sign(")")
        if token.is_sign(",") and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _assigned(part: Sequence[Token]) -> tuple[str, str]:
    """The variable's name and its value. Raises StatementError 1227, StatementRefused."""
    words = [token for token in part if not token.is_word("SESSION", "LOCAL")]
    if words and words[0].is_word("NAMES") and len(words) in (2, 4):
        return "names", words[1].value
    if words and words[0].is_word("GLOBAL"):
        raise StatementError(1227, "Access denied; SET GLOBAL is not possible here", "42000")
    if len(words) >= 2 and words[1].is_sign(":"):
        del words[1]
    name, values = words[0].value.lower() if words else "", words[2:]
    if name.startswith("@@"):
        name = name.removeprefix("@@").removeprefix("session.").removeprefix("local.")
    if name == "sql_mode" and any(token.is_word("CONCAT") for token in values):  # CONCAT(@@sql_mode, ',…')
        values = [token for token in values if token.kind == "text"]
    is_signed = len(values) == 2 and values[0].value in ("-", "+")
    if len(words) < 3 or not words[1].is_sign("=") or not (len(values) == 1 or is_signed):
        raise refused("SET of something else than a value that is written out")
    return name, "".join(token.value for token in values)


def _value_of(part: Sequence[Token]) -> str | int | None:
    """What `@name = value` or `@name := value` gives."""
    values = [token for token in part[1:] if not token.is_sign(":")]
    is_negative = len(values) == 3 and values[1].is_sign("-")
    if len(values) == 2 + is_negative and values[0].is_sign("="):
        value = values[-1]
        if value.kind == "number" and value.value.isdecimal() and len(value.value) < 19:
            return -int(value.value) if is_negative else int(value.value)
        if value.kind == "text" and not is_negative:
            return value.value
        if value.is_word("NULL") and not is_negative:
            return None
    raise refused("SET @name = …", "it is a whole number, a text that is written out, or NULL")


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise StatementError(1300, "the statement is not UTF-8", "HY000") from error


def _number(name: str, value: str) -> int:
    if not value.isdecimal() or len(value) > 19:
        raise StatementError(1231, f"Variable '{name}' can't be set to the value of '{value:.40}'", "42000")
    return int(value)
