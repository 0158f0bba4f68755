"""The SQL of a simulated upstream: one session's statements, with its transaction and its variables.

| | |
|---|---|
| `ccpr_emulator.sql.literals`, `ccpr_emulator.sql.single` | INSERT of literals |
| `ccpr_emulator.sql.changes`, `ccpr_emulator.sql.defaults` | all that changes rows |
| `ccpr_emulator.sql.load` | LOAD DATA |
| `ccpr_emulator.sql.queries` | SELECT, by DuckDB |
| `ccpr_emulator.sql.ddl`, `ccpr_emulator.sql.show` | definitions, and what shows them |
| `ccpr_emulator.sql.branch_diff` | DATA BRANCH DIFF |
| `ccpr_emulator.sql.system` | information_schema and mo_catalog |

A statement is read to its end before it does anything. DDL commits an open transaction first, as MySQL does. Every
login of an account may do all of this in it; users, roles and grants are accepted and have no effect. What is not
supported is error 20105, which names it.
"""

import re
from collections.abc import Callable
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import FAKE_KEY
from ccpr.matrixone.server.answers import VAR_STRING, Answer, Done, LocalFile, ResultColumn, ResultSet, StatementError
from ccpr.matrixone.server.backing import SYSTEM_DATABASES, Login
from ccpr.matrixone.server.select_values import SERVER_VERSION, VARIABLES
from ccpr.matrixone.server.statements import Select
from ccpr.matrixone.server.tokens import Tokens
from ccpr.matrixone.server.upstream import Release
from ccpr.matrixone.sql.lexer import tokens as tokens_of
from ccpr_emulator.engine.definitions import BadDefinition
from ccpr_emulator.engine.entries import SEQUENCE, TABLE, VIEW
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.engine.transaction import Transaction
from ccpr_emulator.sql import branch_diff
from ccpr_emulator.sql import show as sql_show
from ccpr_emulator.sql.changes import Changed, Changes
from ccpr_emulator.sql.ddl import statement as sql_ddl
from ccpr_emulator.sql.dialect import parse, unsupported
from ccpr_emulator.sql.load import LoadStatement
from ccpr_emulator.sql.names import WrittenTable
from ccpr_emulator.sql.queries import Reader, Relation, result_set
from ccpr_emulator.sql.single import SingleInserts
from ccpr_emulator.sql.system import system_table
from ccpr_emulator.sql.text import plain_cells

if TYPE_CHECKING:
    from sqlglot import exp

UTF8 = 33
_AUTOCOMMIT = re.compile(
    r"\s*set\s+(?:session\s+|@@session\.|@@)?autocommit\s*(?:=|:=)\s*(0|1|on|off|true|false)\s*;?\s*", re.IGNORECASE
)
_ROWS = ("insert", "replace", "update", "delete", "load")
_TRANSACTIONS = ("begin", "commit", "rollback")
_ROWID = "__mo_rowid"
# Accepted, with no effect.
_IGNORED = (
    ("create", "user"), ("drop", "user"), ("alter", "user"), ("create", "role"), ("drop", "role"), ("alter", "role"),
    ("grant", ""), ("revoke", ""), ("flush", ""), ("analyze", ""), ("optimize", ""), ("lock", "tables"),
    ("unlock", "tables"),
)  # fmt: skip
_UNSUPPORTED = (
    ("create", "procedure"), ("create", "function"), ("create", "trigger"), ("create", "event"), ("create", "stage"),
    ("create", "temporary"), ("create", "external"), ("create", "source"), ("call", ""), ("xa", ""),
    ("drop", "procedure"), ("drop", "function"), ("drop", "trigger"), ("drop", "event"), ("restore", ""), ("do", ""),
    ("release", ""),
)  # fmt: skip


class SqlSession:
    """One session's statements on a storage, with its transaction. Used by one thread. Raises StatementError for an
    account that does not exist."""

    def __init__(self, storage: Storage, login: Login) -> None:
        if login.account not in storage.accounts:
            raise StatementError(20101, f"internal error: there is no tenant {login.account}")
        self.storage = storage
        self.login = login
        self._account = login.account
        self._transaction: Transaction | None = None
        self._statement: Transaction | None = None  # of a statement that is its own transaction
        self._autocommit = True
        self.database = ""
        self.number = 0
        self.release: Release = "4.1"
        self._variables: dict[str, exp.Expr] = {}
        self._settings: dict[str, str | int] = {}
        self._prepared: dict[str, str] = {}
        self._last = Changed()
        self._found_rows = 0
        self._sequence = 0
        self._asks_key = self._asks_place = False
        self.reader = Reader(self._find, self._replaced, lambda: self.database)
        self.changes = Changes(storage, self.reader, self._target, self._change)
        self._single = SingleInserts(self.changes)

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def close(self) -> None:
        if self._transaction is not None and self._transaction.open:
            self._transaction.rollback()
        self.storage.row_locks.free(self)
        self.reader.close()

    def knows(self, text: str) -> str | None:
        """The kind of a statement that is answered here and nowhere else, e.g. `insert`; None for all others: those
        that only `run` can answer, and those of every upstream."""
        if text[:6].lower() == "insert":
            return "insert"
        words = _first_words(text)
        first, second, _ = words
        if first in (*_ROWS, *_TRANSACTIONS):
            return first
        if (first, second) == ("start", "transaction"):
            return "begin"
        if first == "set":
            return "set" if _AUTOCOMMIT.fullmatch(text) or "@" in text.split("=")[0] else None
        return sql_ddl.kind_of(words) or sql_show.kind_of(words) or branch_diff.kind_of(words)

    def reads(self, database: str, statement: Select) -> bool:
        return (statement.database or database.lower()) != "mo_catalog"

    def run(self, text: str, database: str) -> Answer:
        """Answer any statement. Raises StatementError; a statement that cannot be read to its end does nothing."""
        self.database = database
        try:
            if self._transaction is None and self._autocommit and text[:6].lower() == "insert":
                changed = self._single.run(text, database)
                if changed is not None:
                    return self._done(changed)
            return self._run(text)
        except (BadDefinition, pa.ArrowException) as error:
            raise StatementError(20301, f"invalid input: {error}") from error
        except RecursionError as error:
            raise StatementError(
                1064, "You have an error in your SQL syntax: it is nested too deeply", "42000"
            ) from error

    def _run(self, text: str) -> Answer:
        words = _first_words(text)
        first, second, _ = words
        kind = self.knows(text)
        if kind in _TRANSACTIONS or (kind == "set" and _AUTOCOMMIT.fullmatch(text)):
            self._transact(kind or "", text)
            return self._done()
        if kind == "set":
            return self._set(text)
        if kind == "load":
            return self._load(text)
        if first in ("insert", "replace"):
            return self._done(self.changes.insert_text(text))
        if kind in ("update", "delete"):
            return self._done(self._change_rows(text))
        for known, answer in ((_IGNORED, None), (_UNSUPPORTED, text)):
            if (first, second) in known or (first, "") in known:
                if answer is not None:
                    raise unsupported(text)
                return self._done()
        if kind == branch_diff.KIND:
            return self._parsed(text, lambda tokens: branch_diff.parse(tokens, self))()
        if kind is not None and kind.startswith(("show_", "describe")):
            return self._parsed(text, lambda tokens: sql_show.parse(kind, tokens, self))()
        if kind is not None:
            act = self._parsed(text, lambda tokens: sql_ddl.parse(kind, tokens, self))
            if kind == "rename" and (self.in_transaction or not self._autocommit):
                raise StatementError(20101, "internal error: Only CREATE of DDL is supported in transactions")
            self._commit()
            act()
            return self._done()
        return self._query(first, text)

    def _parsed(self, text: str, read: Callable[[Tokens], Callable[[], Any]]) -> Callable[[], Any]:
        tokens = Tokens(text)
        act = read(tokens)
        tokens.accept(";")
        if not tokens.at_end():
            raise tokens.unknown()
        return act

    def _done(self, changed: Changed | None = None) -> Done:
        if changed is not None:
            self._last = Changed(changed.rows, changed.insert_id or self._last.insert_id)
        given = changed or Changed()
        return Done(given.rows, self._autocommit, self.in_transaction, given.insert_id)

    # ---- transactions

    def _transact(self, kind: str, text: str) -> None:
        found = _AUTOCOMMIT.fullmatch(text)
        if kind == "begin":
            self._commit()
            self._transaction = self.storage.begin(self._account)
        elif kind == "commit":
            self._commit()
        elif kind == "rollback":
            if " to " in f" {text.lower()} ":
                raise unsupported(text)
            transaction, self._transaction = self._transaction, None
            if transaction is not None and transaction.open:
                transaction.rollback()
            self.storage.row_locks.free(self)
        elif found is not None:
            self._autocommit = found[1].lower() in ("1", "on", "true")
            if self._autocommit:
                self._commit()

    def _commit(self) -> None:
        transaction, self._transaction = self._transaction, None
        try:
            if transaction is not None and transaction.open:
                transaction.commit()
        finally:
            self.storage.row_locks.free(self)

    def _change(self, act: Callable[[Transaction], Changed]) -> Changed:
        """In the open transaction, or in one of its own."""
        if self._statement is not None:
            return act(self._statement)
        if self._transaction is None and not self._autocommit:
            self._transaction = self.storage.begin(self._account)
        if self._transaction is not None:
            return act(self._transaction)
        with self.storage.begin(self._account) as transaction:
            self._statement = transaction
            try:
                return act(transaction)
            finally:
                self._statement = None

    def _reading(self) -> Transaction:
        if self._statement is not None:
            return self._statement
        if self._transaction is None and not self._autocommit:
            self._transaction = self.storage.begin(self._account)
        return self._transaction or self.storage.begin(self._account)

    # ---- changes

    def _target(self, database: str, table: str) -> WrittenTable:
        database = (database or self.database).lower()
        if not database:
            raise StatementError(1046, "No database selected", "3D000")
        entry = self.storage.find(database, table.lower(), account=self._account)
        if entry is not None and entry.kind in (VIEW, SEQUENCE):
            raise StatementError(20105, f"not supported: rows of a view or a sequence are not changed ({table})")
        return WrittenTable(database, table.lower(), self.storage.table(database, table.lower(), account=self._account))

    def _change_rows(self, text: str) -> Changed:
        from sqlglot import exp

        tree = parse(text)
        if isinstance(tree, exp.Update):
            return self.changes.update(tree)
        if isinstance(tree, exp.Delete):
            return self.changes.delete(tree)
        raise unsupported(text)

    def _load(self, text: str) -> Answer:
        found = LoadStatement.parse(text, self.database)
        target = self._target(*found.table)
        return LocalFile(found.file, lambda content: self._done(self.changes.load(target, found, content)))

    # ---- queries

    def _query(self, first: str, text: str) -> Answer:
        if first in ("prepare", "execute", "deallocate"):
            return self._prepared_statement(first, text)
        if first == "kill":
            raise StatementError(1094, f"Unknown thread id: {text.split()[-1].rstrip(';')}")
        if first == "explain":
            return self._explain(text)
        from sqlglot import exp

        # Hidden columns that a SELECT at a snapshot can name.
        self._asks_key, self._asks_place = (name in text.lower() for name in (FAKE_KEY, _ROWID))
        tree = parse(text)
        if not isinstance(tree, exp.Query | exp.Values) or not text.lstrip("( \t\r\n"):
            if isinstance(tree, exp.Column | exp.Alias | exp.Identifier | exp.Anonymous):
                raise Tokens(text).unknown()
            raise unsupported(text)
        if tree.args.get("into"):
            raise unsupported(text)
        if isinstance(tree, exp.Select) and not tree.expressions:
            raise Tokens(text).unknown()
        limits = (tree.args.get("limit"), tree.args.get("offset"))
        if any(limit is not None and isinstance(limit.expression, exp.Neg) for limit in limits):
            raise Tokens(text).unknown()
        for lock in tree.args.get("locks") or ():
            if not lock.args.get("update"):  # LOCK IN SHARE MODE
                raise Tokens(text).unknown()
            if self.in_transaction or not self._autocommit:
                rows = (str(tree.args.get(part)) for part in ("from_", "where"))
                self.storage.row_locks.take(self, (self._account, self.database, *rows))
        result = self.reader.read(tree, text)
        self._found_rows = result.rows.num_rows
        return result_set(result)

    def _explain(self, text: str) -> ResultSet:
        words = list(tokens_of(text))
        place = next(
            (n for n, t in enumerate(words) if n and not t.is_word("ANALYZE", "VERBOSE", "FORMAT", "EXTENDED")), 0
        )
        from sqlglot import exp

        tree = parse(text[words[place].start :]) if place else None
        if not isinstance(tree, exp.Query):
            lines = [f"{type(tree).__name__ if tree is not None else 'nothing'}: has no plan here"]
        else:
            lines = self.reader.explain(tree)
        return ResultSet((ResultColumn("QUERY PLAN", VAR_STRING, UTF8),), [(line,) for line in lines])

    def _prepared_statement(self, first: str, text: str) -> Answer:
        tokens = Tokens(text.replace("?", "")) if first != "prepare" else Tokens(text)
        tokens.next()
        if first == "deallocate":
            tokens.expect("prepare")
        name = tokens.name().lower()
        if first == "prepare":
            tokens.expect("from")
            self._prepared[name] = tokens.text()
            return self._done()
        if name not in self._prepared:
            raise StatementError(1243, f"Unknown prepared statement handler ({name})", "HY000")
        if first == "deallocate":
            del self._prepared[name]
            return self._done()
        given: list[str] = []
        if tokens.accept("using"):
            while not tokens.at_end() and not tokens.at(";"):
                given.append(tokens.next())
                tokens.accept(",")
        prepared = self._prepared[name]
        places = [token for token in tokens_of(prepared) if token.kind == "sign" and token.value == "?"]
        if len(places) != len(given):
            raise StatementError(1210, "Incorrect arguments to EXECUTE")
        for token, variable in reversed(list(zip(places, given, strict=True))):
            value = self._variables.get(variable.removeprefix("@").lower())
            shown = "NULL" if value is None else value.sql(dialect="mysql")
            prepared = prepared[: token.start] + shown + prepared[token.end :]
        return self._run(prepared)

    def _set(self, text: str) -> Answer:
        """Variables: @name, @@name."""
        from sqlglot import exp

        tree = parse(text)
        for item in tree.find_all(exp.SetItem):
            node = item.this
            if not isinstance(node, exp.EQ | exp.PropertyEQ):
                continue
            left, right = node.this, node.expression
            if isinstance(left, exp.Parameter):
                (array,) = self.reader.values([right])
                (value,) = plain_cells(array)
                number = (
                    pa.types.is_integer(array.type)
                    or pa.types.is_floating(array.type)
                    or pa.types.is_decimal(array.type)
                )
                literal = exp.Literal.number(value) if number and value is not None else exp.Literal.string(value or "")
                self._variables[left.name.lower()] = exp.Null() if value is None else literal
            else:
                self._settings[left.name.lower()] = right.name
        return self._done()

    def _find(self, database: str, table: str, how: str, which: str) -> Relation:
        storage = self.storage
        if database in SYSTEM_DATABASES:
            rows = system_table(storage, self._account, database, table)
            if rows is None:
                raise StatementError(1146, f"no such table {database}.{table}", "42S02")
            return Relation(tuple(rows.column_names), (None,) * rows.num_columns, rows)
        if how:
            return self._find_at(database, table, how, which)
        entry = storage.find(database, table, account=self._account)
        if entry is None:
            raise StatementError(1146, f"no such table {database}.{table}", "42S02")
        columns = entry.definition.user_columns
        names = tuple(column.name for column in columns)
        if entry.kind == VIEW:
            return Relation(names, columns, query=parse(entry.definition.query))
        if entry.kind == SEQUENCE:
            rows = storage.rows_at(database, table, storage.now, account=self._account)
            return Relation(names, columns, rows)
        rows, numbers, seen = self._reading().scan(database, table)
        return Relation(names, columns, rows, numbers, seen)

    def _find_at(self, database: str, table: str, how: str, which: str) -> Relation:
        storage = self.storage
        if how == "snapshot":
            taken = storage.snapshots.get((self._account, which.lower()))
            if taken is None:
                raise StatementError(20101, f"internal error: find 0 snapshot records by name({which}), expect only 1")
            at = storage.clock.time(taken.tick)
        elif which.isdecimal():
            at = Timestamp(int(which[:30]))
        else:
            raise StatementError(20105, "not supported: a table is read at {snapshot = '…'} or {mo_ts = …}")
        tables = storage.tables_at(at, account=self._account, kinds=(TABLE, SEQUENCE))
        found = [one for one in tables if (one[1].database, one[1].name) == (database, table)]
        if not found:
            raise StatementError(1146, f"no such table {database}.{table}", "42S02")
        entry, definition = found[0]
        columns = tuple(
            one for one in definition.columns if not one.hidden or (self._asks_key and one.name == FAKE_KEY)
        )
        with storage.lock:
            numbers = entry.stored.visible(storage.clock.tick(at))
            rows = entry.stored.values(numbers, columns)
        if self._asks_place:
            rows, columns = rows.append_column(_ROWID, pa.array(numbers)), (*columns, None)
        return Relation(tuple(rows.column_names), columns, rows)

    def _replaced(self, node: "exp.Expr") -> "exp.Expr | None":
        """Variables and functions that only the session knows, as literals."""
        from sqlglot import exp

        if isinstance(node, exp.Parameter):
            return self._variables.get(node.name.lower(), exp.Null()).copy()
        if isinstance(node, exp.SessionParameter):
            name = node.name.lower()
            known = {**VARIABLES, **self._settings, "autocommit": int(self._autocommit)}
            if name not in known:
                raise StatementError(20101, f"internal error: the system variable does not exist: {name}")
            return _literal(known[name])
        if not isinstance(node, exp.Func):
            return None
        name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
        if name in _TIMES:
            return _time(name)
        known_functions: dict[str, Callable[[], Any]] = {
            "version": lambda: SERVER_VERSION,
            "database": lambda: self.database or None,
            "schema": lambda: self.database or None,
            "current_schema": lambda: self.database or None,
            "user": lambda: f"{self.login.user}@127.0.0.1",
            "session_user": lambda: f"{self.login.user}@127.0.0.1",
            "system_user": lambda: f"{self.login.user}@127.0.0.1",
            "current_user": lambda: f"{self.login.user}@127.0.0.1",
            "current_role": lambda: self.login.role,
            "current_role_name": lambda: self.login.role,
            "current_user_name": lambda: self.login.user,
            "current_account_name": lambda: self.login.account,
            "current_account_id": lambda: self.storage.accounts[self.login.account],
            "connection_id": lambda: self.number,
            "last_insert_id": lambda: self._last.insert_id,
            "row_count": lambda: self._last.rows,
            "found_rows": lambda: self._found_rows,
        }
        if name in known_functions:
            return _literal(known_functions[name]())
        if name in ("nextval", "currval", "setval", "lastval"):
            return _literal(self._sequence_value(name, [one.name for one in node.expressions]))
        if name == "unix_timestamp" and not node.this and not node.expressions:
            return exp.Anonymous(this="unix_timestamp", expressions=[_time("now")])
        if name == "field" and len(node.expressions) > 1:
            first, *rest = node.expressions
            return exp.Anonymous(this="field2", expressions=[first, exp.Array(expressions=rest)])
        return None

    def _sequence_value(self, function: str, arguments: list[str]) -> int:
        if function == "lastval":
            return self._sequence
        database, _, name = arguments[0].lower().rpartition(".")
        entry = self.storage.find(database or self.database, name, account=self._account)
        if entry is None or entry.kind != SEQUENCE:
            raise StatementError(1146, f"no such sequence {arguments[0]}", "42S02")
        if function == "nextval":
            self._sequence = self.storage.next_value(entry)
        elif function == "setval":
            self._sequence = int(arguments[1])
            # With a third argument, whatever it is, MatrixOne takes `is_called` away.
            self.storage.set_value(entry, self._sequence, called=None if len(arguments) < 3 else False)
        else:
            self._sequence = entry.next_auto - entry.increment
        return self._sequence


_TIMES = {
    "now": "datetime", "current_timestamp": "datetime", "localtime": "datetime", "localtimestamp": "datetime",
    "sysdate": "datetime", "utc_timestamp": "datetime", "current_datetime": "datetime", "curdate": "date",
    "current_date": "date", "utc_date": "date", "curtime": "time", "current_time": "time", "utc_time": "time",
}  # fmt: skip


def _time(name: str) -> "exp.Expr":
    from datetime import UTC, datetime

    from sqlglot import exp

    kind = _TIMES[name]
    now = datetime.now(UTC)
    text = now.strftime({"datetime": "%Y-%m-%d %H:%M:%S", "date": "%Y-%m-%d", "time": "%H:%M:%S"}[kind])
    meant = {"datetime": "timestamp", "date": "date", "time": "interval"}[kind]
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(meant))


def _literal(value: Any) -> "exp.Expr":
    from sqlglot import exp

    if value is None:
        return exp.Null()
    return exp.Literal.number(value) if isinstance(value, int) else exp.Literal.string(str(value))


def _first_words(text: str) -> tuple[str, str, str]:
    """The first three tokens in lower case, as far as they are words without quotes; else empty."""
    words = takewhile(lambda token: token.kind == "word", islice(tokens_of(text), 3))
    first, second, third, *_ = (*(word.value.lower() for word in words), "", "", "")
    return first, second, third
