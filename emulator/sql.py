"""The SQL of a living upstream: enough to fill and change it by hand and in tests. The Python API of `emulator.storage` is the main way.

    CREATE ACCOUNT a …                             CREATE | DROP DATABASE [IF [NOT] EXISTS] d
    CREATE TABLE [IF NOT EXISTS] t (c type [NOT NULL] [PRIMARY KEY] [UNIQUE], …, PRIMARY KEY (…), [UNIQUE] KEY k (…))
        [COMMENT 'text'] [CLUSTER BY (…)]          CREATE TABLE t CLONE s
    DROP TABLE [IF EXISTS] t    TRUNCATE TABLE t   RENAME TABLE t TO u
    ALTER TABLE t ADD COLUMN c type | DROP COLUMN c | RENAME TO u | RENAME COLUMN c TO d | COMMENT 'text'
    INSERT INTO t [(c, …)] VALUES (…), …           UPDATE t SET c = value, … [WHERE …]       DELETE FROM t [WHERE …]
    SELECT * | columns | count(*) FROM t [{mo_ts = …}] [WHERE …] [ORDER BY …] [LIMIT n]        SHOW TABLES
    BEGIN    COMMIT    ROLLBACK                    CREATE PUBLICATION p DATABASE d | * [TABLE t, …] ACCOUNT ALL | a, …
    DROP PUBLICATION [IF EXISTS] p

Conditions are comparisons with a literal, joined by AND. Every login of an account may do all of this in it. Literals are numbers, texts,
x'hex', NULL, TRUE and FALSE. DDL commits an open transaction first, as MySQL does.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute

from emulator.access import Login
from emulator.definitions import BadDefinition
from emulator.sql_text import array_of, cells, mysql_type
from emulator.statements import Condition, Literal_, Select, Tokens, conditions
from emulator.storage import Storage
from emulator.transaction import Transaction
from emulator.wire import BIGINT, VAR_STRING, Column, Result, StatementError
from matrixone.objects.timestamp import Timestamp
from matrixone.objects.types import is_set
from matrixone.schema import Column as TableColumn

pc: Any = pyarrow.compute  # its functions are made at import, where type checkers do not see them
UTF8, BINARY = 33, 63
_TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda field, value: field == value,
    "!=": lambda field, value: field != value,
    "<": lambda field, value: field < value,
    "<=": lambda field, value: field <= value,
    ">": lambda field, value: field > value,
    ">=": lambda field, value: field >= value,
}


class LivingSql:
    """One session's statements on a storage, with its transaction. Used by one thread."""

    def __init__(self, storage: Storage, login: Login) -> None:
        self._storage = storage
        self._account = login.account
        self._transaction: Transaction | None = None
        self.database = ""

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def close(self) -> None:
        if self._transaction is not None and self._transaction.open:
            self._transaction.rollback()

    def knows(self, text: str) -> str | None:
        """The kind of a statement that is answered here, e.g. `insert`; None for all others. SELECT has `select` instead."""
        words = text.split(None, 2)
        first, second = (word.lower().rstrip(";") for word in (*words, "", "")[:2])
        if first in ("insert", "update", "delete", "begin", "commit", "rollback", "truncate", "rename", "alter") or (
            first == "start" and second == "transaction"
        ):
            return first if first != "start" else "begin"
        if first in ("create", "drop") and second in ("account", "database", "table", "publication"):
            return f"{first}_{second}"
        return "show_tables" if (first, second) == ("show", "tables") else None

    def run(self, text: str, database: str) -> Result | None:
        """Answer a statement that `knows` knows. Raises StatementError."""
        self.database = database
        tokens = Tokens(text)
        kind = self.knows(text) or ""
        if kind.startswith(("create_", "drop_")) or kind in ("truncate", "rename", "alter"):
            self._commit()
        try:
            result = self._run(kind, tokens)
        except BadDefinition as error:
            raise StatementError(20301, f"invalid input: {error}") from error
        tokens.accept(";")
        if not tokens.at_end():
            raise tokens.unknown()
        return result

    def _run(self, kind: str, tokens: Tokens) -> Result | None:
        tokens.next()
        match kind:
            case "begin":
                self._commit()
                tokens.skip_rest()
                self._transaction = self._storage.begin(self._account)
            case "commit":
                self._commit()
            case "rollback":
                transaction, self._transaction = self._transaction, None
                if transaction is not None and transaction.open:
                    transaction.rollback()
            case "insert":
                self._insert(tokens)
            case "update":
                self._update(tokens)
            case "delete":
                tokens.expect("from")
                names = self._table_name(tokens)
                where = self._where(names, tokens)
                self._change(lambda transaction: transaction.delete(*names, where))
            case "show_tables":
                tokens.next()
                tables = self._storage.tables_at(self._storage.now, account=self._account)
                shown = sorted(definition.name for entry, definition in tables if entry.database.name == self.database)
                return Result((Column(f"Tables_in_{self.database}", VAR_STRING, UTF8),), [(name,) for name in shown])
            case _:
                self._define(kind, tokens)
        return None

    # ---- transactions

    def _commit(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None and transaction.open:
            transaction.commit()

    def _change(self, act: Callable[[Transaction], int]) -> None:
        """In the open transaction, or in one of its own."""
        if self._transaction is not None:
            act(self._transaction)
            return
        with self._storage.begin(self._account) as transaction:
            act(transaction)

    def _insert(self, tokens: Tokens) -> None:
        tokens.accept("into")
        names = self._table_name(tokens)
        columns = self._columns(names)
        chosen = [column.name for column in columns]
        if tokens.accept("("):
            chosen = _names(tokens)
        unknown = [name for name in chosen if name not in (column.name for column in columns)]
        if unknown:
            raise StatementError(20301, f"invalid input: column {unknown[0]} does not exist")
        tokens.expect("values")
        rows = [self._values(tokens, len(chosen))]
        while tokens.accept(","):
            rows.append(self._values(tokens, len(chosen)))
        given = {
            column.name: array_of(column, [row[chosen.index(column.name)] for row in rows]) for column in columns if column.name in chosen
        }
        self._change(lambda transaction: transaction.insert(*names, given))

    def _values(self, tokens: Tokens, count: int) -> list[Literal_ | bytes]:
        tokens.expect("(")
        values = [tokens.value()]
        while tokens.accept(","):
            values.append(tokens.value())
        tokens.expect(")")
        if len(values) != count:
            raise StatementError(1136, "Column count doesn't match value count", "21S01")
        return values

    def _update(self, tokens: Tokens) -> None:
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
        self._change(lambda transaction: transaction.update(*names, values, where))

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
            field = pc.field(column.name)
            if condition.test in ("is null", "is not null"):
                part = field.is_null() if condition.test == "is null" else field.is_valid()
            elif condition.test in ("in", "not in"):
                part = field.isin(array_of(column, list(condition.values)))
                part = part if condition.test == "in" else ~part & field.is_valid()
            elif condition.test in _TESTS and not is_set(column):
                part = _TESTS[condition.test](field, array_of(column, list(condition.values))[0])
            else:
                raise StatementError(1064, f"SQL syntax: the emulator does not know {condition.test} here", "42000")
            whole = part if whole is None else whole & part
        return whole

    # ---- reading

    def reads(self, database: str, statement: Select) -> bool:
        return (statement.database or database.lower()) != "mo_catalog"

    def select(self, database: str, statement: Select) -> Result:
        """Rows of a user table: as the transaction sees them, or at a time."""
        names = (statement.database or database.lower(), statement.table)
        if statement.mo_ts is not None or statement.snapshot is not None:
            at = Timestamp(statement.mo_ts or 0)
            if statement.snapshot is not None:
                taken = self._storage.snapshots.get((self._account, statement.snapshot.lower()))
                if taken is None:
                    raise StatementError(20101, f"internal error: find 0 snapshot records by name({statement.snapshot}), expect only 1")
                at = self._storage.clock.time(taken.tick)
            rows = self._storage.rows_at(*names, at, account=self._account)
            tables = self._storage.tables_at(at, account=self._account)
            columns = next(d.user_columns for _, d in tables if (d.database, d.name) == names)
            where = self._expression(columns, statement.conditions)
            rows = rows if where is None else rows.filter(where)
        else:
            columns = self._columns(names)
            transaction = self._transaction or self._storage.begin(self._account)
            rows = transaction.rows(*names, self._expression(columns, statement.conditions))
        by_name = {column.name.lower(): column for column in columns}
        if statement.order:
            order = [(self._column(by_name, name).name, "descending" if down else "ascending") for name, down in statement.order]
            rows = rows.sort_by(order)
        rows = rows if statement.limit is None else rows.slice(0, max(0, statement.limit))
        if statement.count:
            return Result((Column(statement.columns[0][1], BIGINT, BINARY),), ((rows.num_rows,),))
        wanted = [(self._column(by_name, name), shown) for name, shown in statement.columns] or [(c, c.name) for c in columns]
        described = tuple(Column(shown, mysql_type(column), UTF8) for column, shown in wanted)
        texts = [cells(column, pa.concat_arrays(rows.column(column.name).chunks or [pa.nulls(0)])) for column, _ in wanted]
        return Result(described, list(zip(*texts, strict=True)))

    # ---- names and definitions

    def _table_name(self, tokens: Tokens) -> tuple[str, str]:
        name = tokens.name().lower()
        if tokens.accept("."):
            return name, tokens.name().lower()
        if not self.database:
            raise StatementError(1046, "No database selected", "3D000")
        return self.database.lower(), name

    def _columns(self, names: tuple[str, str]) -> tuple[TableColumn, ...]:
        return self._storage.table(*names, account=self._account).definition.user_columns

    def _define(self, kind: str, tokens: Tokens) -> None:
        storage, account = self._storage, self._account
        match kind:
            case "create_account":
                tokens.next()
                name = tokens.name().lower()
                tokens.skip_rest()
                if account != "sys":
                    raise StatementError(20101, "internal error: do not have privilege to execute the statement")
                storage.create_account(name)
            case "create_database" | "drop_database":
                tokens.next()
                tolerant = tokens.accept("if", "not", "exists") or tokens.accept("if", "exists")
                name = tokens.name().lower()
                _tolerated(storage.create_database if kind == "create_database" else storage.drop_database, tolerant, name, account=account)
            case "create_table":
                self._create_table(tokens)
            case "drop_table":
                tokens.next()
                tolerant = tokens.accept("if", "exists")
                _tolerated(storage.drop_table, tolerant, *self._table_name(tokens), account=account)
            case "truncate":
                tokens.accept("table")
                storage.truncate(*self._table_name(tokens), account=account)
            case "rename":
                tokens.expect("table")
                names = self._table_name(tokens)
                tokens.expect("to")
                storage.rename_table(*names, self._table_name(tokens)[1], account=account)
            case "alter":
                tokens.expect("table")
                self._alter(self._table_name(tokens), tokens)
            case "create_publication":
                self._create_publication(tokens)
            case "drop_publication":
                tokens.next()
                tolerant = tokens.accept("if", "exists")
                _tolerated(storage.drop_publication, tolerant, tokens.name(), account=account)
            case _:
                raise tokens.unknown()

    def _create_table(self, tokens: Tokens) -> None:
        tokens.next()
        tolerant = tokens.accept("if", "not", "exists")
        names = self._table_name(tokens)
        if tokens.accept("clone"):
            source = self._table_name(tokens)
            self._storage.clone_table(*source, names[1], account=self._account)
            return
        tokens.expect("(")
        columns: dict[str, str] = {}
        keys: dict[str, Any] = {"primary_key": [], "indexes": {}, "unique": {}}
        while True:
            self._element(tokens, columns, keys)
            if not tokens.accept(","):
                break
        tokens.expect(")")
        comment = ""
        if tokens.accept("comment"):
            tokens.accept("=")
            comment = tokens.text()
        cluster = _names(tokens) if tokens.accept("cluster", "by", "(") else []
        create = self._storage.create_table
        _tolerated(create, tolerant, *names, columns, **keys, cluster_by=cluster, comment=comment, account=self._account)

    def _element(self, tokens: Tokens, columns: dict[str, str], keys: dict[str, Any]) -> None:
        """A column or a key inside the brackets of CREATE TABLE."""
        if tokens.accept("primary", "key", "("):
            keys["primary_key"] = _names(tokens)
            return
        is_unique = tokens.accept("unique", "key") or tokens.accept("unique", "index")
        if is_unique or tokens.accept("key") or tokens.accept("index"):
            name = tokens.name()
            tokens.expect("(")
            keys["unique" if is_unique else "indexes"][name] = _names(tokens)
            return
        name = tokens.name()
        columns[name] = _type_text(tokens)
        while True:
            if tokens.accept("not", "null"):
                columns[name] += " not null"
            elif tokens.accept("primary", "key"):
                keys["primary_key"] = [name]
            elif tokens.accept("unique"):
                keys["unique"][name] = [name]
            elif not (tokens.accept("default", "null") or tokens.accept("null")):
                return

    def _alter(self, names: tuple[str, str], tokens: Tokens) -> None:
        storage, account = self._storage, self._account
        if tokens.accept("add"):
            tokens.accept("column")
            column, text = tokens.name(), _type_text(tokens)
            if not tokens.accept("default", "null"):
                tokens.accept("null")
            storage.add_column(*names, column, text, account=account)
        elif tokens.accept("drop"):
            tokens.accept("column")
            storage.drop_column(*names, tokens.name(), account=account)
        elif tokens.accept("rename", "column"):
            column = tokens.name()
            tokens.expect("to")
            storage.rename_column(*names, column, tokens.name(), account=account)
        elif tokens.accept("rename"):
            tokens.accept("to")
            storage.rename_table(*names, self._table_name(tokens)[1], account=account)
        else:
            tokens.expect("comment")
            tokens.accept("=")
            storage.comment_table(*names, tokens.text(), account=account)

    def _create_publication(self, tokens: Tokens) -> None:
        tokens.next()
        name = tokens.name()
        tokens.expect("database")
        database = "*" if tokens.accept("*") else tokens.name().lower()
        tables = [table.lower() for table in _list(tokens)] if tokens.accept("table") else []
        tokens.expect("account")
        accounts = _list(tokens)
        if tokens.accept("comment"):
            tokens.text()
        self._storage.create_publication(name, database, tables=tables, accounts=accounts, account=self._account)


def _names(tokens: Tokens) -> list[str]:
    """Names up to the closing bracket."""
    names = _list(tokens)
    tokens.expect(")")
    return names


def _list(tokens: Tokens) -> list[str]:
    names = [tokens.name()]
    while tokens.accept(","):
        names.append(tokens.name())
    return names


def _type_text(tokens: Tokens) -> str:
    """A column's type as it is written: a word, what stands in brackets, `unsigned`."""
    begin = tokens.position
    tokens.name()
    if tokens.accept("("):
        while not tokens.accept(")"):
            tokens.next()
    tokens.accept("unsigned")
    return tokens.source(begin)


def _tolerated(act: Callable[..., Any], tolerant: bool, *names: Any, **options: Any) -> None:
    """IF EXISTS and IF NOT EXISTS."""
    try:
        act(*names, **options)
    except StatementError as error:
        if not tolerant or error.number not in (1007, 1049, 1050, 1146, 20101) or "publishing" in error.text:
            raise
