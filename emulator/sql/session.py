"""The SQL of a simulated upstream: enough to fill and change it by hand and in tests. The Python API of
`emulator.engine.storage` is the main way.

    INSERT INTO t [(c, …)] VALUES (…), …           UPDATE t SET c = value, … [WHERE …]       DELETE FROM t [WHERE …]
    SELECT * | columns | count(*) FROM t [{mo_ts = …}] [WHERE …] [ORDER BY …] [LIMIT n [OFFSET m]]
    BEGIN    COMMIT    ROLLBACK                    SET autocommit = 0 | 1

and the DDL and SHOW statements of `emulator.sql.ddl` and `emulator.sql.show`. Conditions are comparisons with a
literal, IN, BETWEEN, LIKE, IS NULL, joined by AND. Every login of an account may do all of this in it. Literals are
numbers, texts, x'hex', NULL, TRUE and FALSE. A statement is read to its end before it does anything. DDL commits an
open transaction first, as MySQL does.
"""

import re
from collections.abc import Callable
from itertools import islice, takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from emulator.engine.definitions import BadDefinition
from emulator.engine.storage import Storage
from emulator.engine.transaction import Transaction
from emulator.sql import ddl as sql_ddl
from emulator.sql import show as sql_show
from emulator.sql.text import array_of, cells, charset, mysql_type
from matrixone.objects import types
from matrixone.objects.timestamp import Timestamp
from matrixone.schema import Column as TableColumn
from matrixone.sql.lexer import tokens as tokens_of
from wire.access import Login
from wire.server import BIGINT, Done, ResultColumn, ResultSet, StatementError
from wire.statements import Condition, Literal_, Select, Tokens, conditions

BINARY = 63
_TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda field, value: field == value,
    "!=": lambda field, value: field != value,
    "<": lambda field, value: field < value,
    "<=": lambda field, value: field <= value,
    ">": lambda field, value: field > value,
    ">=": lambda field, value: field >= value,
}
_CHANGES = ("insert", "update", "delete")
_AUTOCOMMIT = re.compile(
    r"\s*set\s+(?:session\s+|@@session\.|@@)?autocommit\s*(?:=|:=)\s*(0|1|on|off|true|false)\s*;?\s*", re.IGNORECASE
)
# What a statement does once it has been read: rows, how many were changed, or nothing.
Act = Callable[[], ResultSet | int | None]


class SqlSession:
    """One session's statements on a storage, with its transaction. Used by one thread. Raises StatementError for an
    account that does not exist."""

    def __init__(self, storage: Storage, login: Login) -> None:
        if login.account not in storage.accounts:
            raise StatementError(20101, f"internal error: there is no tenant {login.account}")
        self._storage = storage
        self.login = login
        self._account = login.account
        self._transaction: Transaction | None = None
        self._autocommit = True
        self.database = ""

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def close(self) -> None:
        if self._transaction is not None and self._transaction.open:
            self._transaction.rollback()

    def knows(self, text: str) -> str | None:
        """The kind of a statement that is answered here, e.g. `insert`; None for all others. SELECT has `select`
        instead."""
        words = _first_words(text)
        first, second, _ = words
        if first in (*_CHANGES, "begin", "commit", "rollback") or (first, second) == ("start", "transaction"):
            return first if first != "start" else "begin"
        if first == "set":
            return "set" if _AUTOCOMMIT.fullmatch(text) else None
        return sql_ddl.kind_of(words) or sql_show.kind_of(words)

    def run(self, text: str, database: str) -> ResultSet | Done:
        """Answer a statement that `knows` knows. Raises StatementError; a statement that cannot be read to its end
        does nothing."""
        self.database = database
        tokens = Tokens(text)
        kind = self.knows(text) or ""
        try:
            act = self._parse(kind, tokens)
            tokens.accept(";")
            if not tokens.at_end():
                raise tokens.unknown()
            answer = act()
        except (BadDefinition, pa.ArrowException) as error:
            raise StatementError(20301, f"invalid input: {error}") from error
        if isinstance(answer, ResultSet):
            return answer
        return Done(answer or 0, self._autocommit, self.in_transaction)

    def _parse(self, kind: str, tokens: Tokens) -> Act:
        match kind:
            case "begin":
                tokens.skip_rest()
                return self._begin
            case "commit" | "rollback":
                tokens.next()
                tokens.accept("work")
                return self._commit if kind == "commit" else self._rollback
            case "set":
                found = _AUTOCOMMIT.fullmatch(tokens.sql)
                tokens.skip_rest()
                return lambda: self._set_autocommit(found is not None and found[1].lower() in ("1", "on", "true"))
            case "insert":
                return self._insert(tokens)
            case "update":
                return self._update(tokens)
            case "delete":
                tokens.next()
                tokens.expect("from")
                names = self._table_name(tokens)
                where = self._where(names, tokens)
                return lambda: self._change(lambda transaction: transaction.delete(*names, where))
            case _ if sql_show.is_kind(kind):
                return sql_show.parse(kind, tokens, self._storage, self._account, self.database)
            case _:
                act = sql_ddl.parse(kind, tokens, self._storage, self.login, self.database)

                def define() -> None:
                    self._commit()
                    act()

                return define

    # ---- transactions

    def _begin(self) -> None:
        self._commit()
        self._transaction = self._storage.begin(self._account)

    def _commit(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None and transaction.open:
            transaction.commit()

    def _rollback(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None and transaction.open:
            transaction.rollback()

    def _set_autocommit(self, wanted: bool) -> None:
        if wanted:
            self._commit()
        self._autocommit = wanted

    def _change(self, act: Callable[[Transaction], int]) -> int:
        """In the open transaction, or in one of its own."""
        if self._transaction is None and not self._autocommit:
            self._transaction = self._storage.begin(self._account)
        if self._transaction is not None:
            return act(self._transaction)
        with self._storage.begin(self._account) as transaction:
            return act(transaction)

    def _insert(self, tokens: Tokens) -> Act:
        tokens.next()
        tokens.accept("into")
        names = self._table_name(tokens)
        columns = self._columns(names)
        chosen = list(columns)
        if tokens.accept("("):
            by_name = {column.name.lower(): column for column in columns}
            chosen = [self._column(by_name, name) for name in sql_ddl.names_in_brackets(tokens)]
        if len(set(chosen)) < len(chosen):
            raise StatementError(1110, "a column is named twice", "42000")
        if not tokens.accept("values"):
            tokens.expect("value")
        rows = [self._values(tokens, len(chosen))]
        while tokens.accept(","):
            rows.append(self._values(tokens, len(chosen)))
        given = {column.name: array_of(column, [row[place] for row in rows]) for place, column in enumerate(chosen)}
        return lambda: self._change(lambda transaction: transaction.insert(*names, given))

    def _values(self, tokens: Tokens, count: int) -> list[Literal_ | bytes]:
        tokens.expect("(")
        values = [tokens.value()]
        while tokens.accept(","):
            values.append(tokens.value())
        tokens.expect(")")
        if len(values) != count:
            raise StatementError(1136, "Column count doesn't match value count", "21S01")
        return values

    def _update(self, tokens: Tokens) -> Act:
        tokens.next()
        names = self._table_name(tokens)
        columns = {column.name.lower(): column for column in self._columns(names)}
        tokens.expect("set")
        values: dict[str, Any] = {}
        while True:
            column = self._column(columns, tokens.name())
            tokens.expect("=")
            values[column.name] = array_of(column, [tokens.value()])[0].as_py()
            if not tokens.accept(","):
                break
        where = self._where(names, tokens)
        return lambda: self._change(lambda transaction: transaction.update(*names, values, where))

    def _column(self, columns: dict[str, TableColumn], name: str) -> TableColumn:
        if name.lower() not in columns:
            raise StatementError(20301, f"invalid input: column {name} does not exist")
        return columns[name.lower()]

    def _where(self, names: tuple[str, str], tokens: Tokens) -> Any:
        found = conditions(tokens) if tokens.accept("where") else ()
        return self._expression(self._columns(names), found)

    def _expression(self, columns: tuple[TableColumn, ...], found: tuple[Condition, ...]) -> Any:
        """The conditions over Arrow columns; None without any."""
        by_name = {column.name.lower(): column for column in columns}
        whole: Any = None
        for condition in found:
            column = self._column(by_name, condition.column)
            part = _test(condition, column)
            whole = part if whole is None else whole & part
        return whole

    # ---- reading

    def reads(self, database: str, statement: Select) -> bool:
        return (statement.database or database.lower()) != "mo_catalog"

    def select(self, database: str, statement: Select) -> ResultSet:
        """Rows of a user table: as the transaction sees them, or at a time."""
        self.database = database
        try:
            return self._select(database, statement)
        except pa.ArrowException as error:  # such as an order of vectors
            raise StatementError(20301, f"invalid input: {error}") from error

    def _select(self, database: str, statement: Select) -> ResultSet:
        if not statement.database and not database:
            raise StatementError(1046, "No database selected", "3D000")
        names = (statement.database or database.lower(), statement.table)
        if statement.mo_ts is not None or statement.snapshot is not None:
            at = Timestamp(statement.mo_ts or 0)
            if statement.snapshot is not None:
                taken = self._storage.snapshots.get((self._account, statement.snapshot.lower()))
                if taken is None:
                    raise StatementError(
                        20101, f"internal error: find 0 snapshot records by name({statement.snapshot}), expect only 1"
                    )
                at = self._storage.clock.time(taken.tick)
            rows = self._storage.rows_at(*names, at, account=self._account)
            tables = self._storage.tables_at(at, account=self._account)
            columns = next(d.user_columns for _, d in tables if (d.database, d.name) == names)
            where = self._expression(columns, statement.conditions)
            rows = rows if where is None else rows.filter(where)
        else:
            columns = self._columns(names)
            if self._transaction is None and not self._autocommit:
                self._transaction = self._storage.begin(self._account)
            transaction = self._transaction or self._storage.begin(self._account)
            rows = transaction.rows(*names, self._expression(columns, statement.conditions))
        by_name = {column.name.lower(): column for column in columns}
        if statement.order:
            shown_as = {shown.lower(): name for name, shown in statement.columns}
            order = [(shown_as.get(name, name), down) for name, down in statement.order]
            order = [(self._column(by_name, name).name, "descending" if down else "ascending") for name, down in order]
            rows = rows.sort_by(order)
        rows = rows.slice(statement.offset, statement.limit)
        if statement.count:
            return ResultSet((ResultColumn(statement.columns[0][1], BIGINT, BINARY),), ((rows.num_rows,),))
        wanted = [(self._column(by_name, name), shown) for name, shown in statement.columns] or [
            (c, c.name) for c in columns
        ]
        described = tuple(ResultColumn(shown, mysql_type(column), charset(column)) for column, shown in wanted)
        texts = [
            cells(column, pa.concat_arrays(rows.column(column.name).chunks or [pa.nulls(0)])) for column, _ in wanted
        ]
        return ResultSet(described, list(zip(*texts, strict=True)))

    def _table_name(self, tokens: Tokens) -> tuple[str, str]:
        return sql_ddl.table_name(tokens, self.database)

    def _columns(self, names: tuple[str, str]) -> tuple[TableColumn, ...]:
        return self._storage.table(*names, account=self._account).definition.user_columns


def _first_words(text: str) -> tuple[str, str, str]:
    """The first three tokens in lower case, as far as they are words without quotes; else empty."""
    words = takewhile(lambda token: token.kind == "word", islice(tokens_of(text), 3))
    first, second, third, *_ = (*(word.value.lower() for word in words), "", "", "")
    return first, second, third


def _test(condition: Condition, column: TableColumn) -> Any:
    """One condition over Arrow columns."""
    field = pc.field(column.name)
    if condition.test in ("is null", "is not null"):
        return field.is_null() if condition.test == "is null" else field.is_valid()
    if condition.test in ("in", "not in"):
        part = field.isin(array_of(column, [value for value in condition.values if value is not None]))
        if condition.test == "in":
            return part
        return ~part & field.is_valid() & pc.scalar(None not in condition.values)  # NOT IN with a null is never true
    if condition.test in ("like", "not like") and pa.types.is_string(types.arrow_type(column)):
        part = pc.match_like(field, str(condition.values[0]))
        return part if condition.test == "like" else ~part
    if condition.test in _TESTS and not types.is_set(column):
        return _TESTS[condition.test](field, array_of(column, list(condition.values))[0])
    raise StatementError(
        1064, f"SQL syntax: the emulator does not know {condition.test} for column {column.name}", "42000"
    )
