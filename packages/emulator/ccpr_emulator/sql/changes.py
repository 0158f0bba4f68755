"""INSERT, REPLACE, UPDATE, DELETE and LOAD DATA on a simulated upstream.

What a statement changes is found by a query over the numbers of the rows (`ccpr_emulator.sql.queries.ROW`), and done by
the engine's transaction. Values are converted to the columns' types as Arrow arrays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ccpr.matrixone.schema import Column
from ccpr.matrixone.server.answers import StatementError
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.live_keys import Key, keys_in, unique_columns
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.engine.stored_table import whole
from ccpr_emulator.engine.transaction import Transaction
from ccpr_emulator.sql import literals
from ccpr_emulator.sql.defaults import Defaults, now_text
from ccpr_emulator.sql.dialect import parse
from ccpr_emulator.sql.load import LoadStatement
from ccpr_emulator.sql.names import WrittenTable
from ccpr_emulator.sql.queries import ROW, Reader
from ccpr_emulator.sql.text import array_of, coerced, plain_cells

if TYPE_CHECKING:
    from sqlglot import exp

_NEW = "__mo_new_"


@dataclass(slots=True)
class Changed:
    """What a statement did: how many rows, and the first AUTO_INCREMENT number that it gave."""

    rows: int = 0
    insert_id: int = 0


@dataclass(eq=False)
class Changes:
    """The changes of one session. `target_of` finds a table by (database, table); `change` runs a function in the open
    transaction, or in one of its own."""

    storage: Storage
    reader: Reader
    target_of: Callable[[str, str], WrittenTable]
    change: Callable[[Callable[[Transaction], Changed]], Changed]

    def __post_init__(self) -> None:
        self.defaults = Defaults(self.storage, self.reader)

    # ---- insert

    def insert_text(self, text: str) -> Changed:
        """INSERT or REPLACE. Literals are read here, anything else by sqlglot."""
        head = literals.head_of(text)
        if head is not None:
            found = literals.rows_from(text, head.end)
            if found is not None:
                rows, place = found
                tail = "" if literals.is_end(text, place) else text[place:]
                target = self.target_of(head.database, head.table)
                verb = "ignore" if head.ignore else head.verb
                return self._insert_cells(target, head.columns, rows, verb, self._on_duplicate(tail) if tail else [])
        return self._insert_tree(parse(text), is_replace=text.lstrip()[:7].lower() == "replace")

    def _on_duplicate(self, tail: str) -> "list[exp.Expr]":
        if not tail.lstrip().lower().startswith("on"):  # as of INSERT … AS new
            raise StatementError(1064, "You have an error in your SQL syntax behind VALUES", "42000")
        tree = parse(f"INSERT INTO t VALUES (1) {tail}")
        conflict = tree.args.get("conflict")
        if conflict is None:
            raise StatementError(1064, "You have an error in your SQL syntax behind VALUES", "42000")
        return conflict.expressions

    def _insert_cells(
        self,
        target: WrittenTable,
        columns: Sequence[str] | None,
        rows: list[list[Any]],
        verb: str,
        updates: "list[exp.Expr]",
    ) -> Changed:
        chosen = self._chosen(target, columns)
        if any(len(row) != len(chosen) for row in rows):
            raise StatementError(1136, "Column count doesn't match value count", "21S01")
        given: dict[str, pa.Array] = {}
        for column, values in zip(chosen, zip(*rows, strict=True), strict=True):
            if literals.DEFAULT in values:
                if all(value is literals.DEFAULT for value in values):
                    continue
                default = self.defaults.cell(target, column)
                values = [default if value is literals.DEFAULT else value for value in values]
            given[column.name] = array_of(column, values)
        return self.insert(target, given, len(rows), verb, updates)

    def _chosen(self, target: WrittenTable, columns: Sequence[str] | None) -> list[Column]:
        if columns is None:
            found = target.definition.attributes_of
            return [column for column in target.definition.user_columns if not found(column.name).generated]
        chosen = [target.column(name) for name in columns]
        if len({column.name for column in chosen}) < len(chosen):
            raise StatementError(1110, "a column is named twice", "42000")
        return chosen

    def _insert_tree(self, tree: "exp.Expr", *, is_replace: bool) -> Changed:
        from sqlglot import exp

        if not isinstance(tree, exp.Insert):
            raise StatementError(1064, "You have an error in your SQL syntax", "42000")
        schema = tree.this
        table = schema.this if isinstance(schema, exp.Schema) else schema
        names = [node.name for node in schema.expressions] if isinstance(schema, exp.Schema) else None
        target = self.target_of(table.db, table.name)
        conflict = tree.args.get("conflict")
        verb = "replace" if is_replace else "ignore" if tree.args.get("ignore") else "insert"
        updates = conflict.expressions if conflict is not None else []
        source = tree.expression
        if source is None:
            return self.insert(target, {}, 1, verb, updates)
        if isinstance(source, exp.Values):
            rows = [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in source.expressions]
            rows = [[] if len(row) == 1 and row[0] is None else row for row in rows]
            cells = self._cells(rows)
            if not names and all(not row for row in cells):
                return self.insert(target, {}, len(cells), verb, updates)
            return self._insert_cells(target, names, cells, verb, updates)
        chosen = self._chosen(target, names)
        result = self.reader.read(source)
        if len(result.columns) != len(chosen):
            raise StatementError(1136, "Column count doesn't match value count", "21S01")
        given = {column.name: coerced(column, result.array(place)) for place, column in enumerate(chosen)}
        return self.insert(target, given, result.rows.num_rows, verb, updates)

    def _cells(self, rows: "list[list[exp.Expr]]") -> list[list[Any]]:
        """Expressions as Python values; those that are not literals by one query."""
        from sqlglot import exp

        asked: list[exp.Expr] = []
        places: list[tuple[int, int]] = []
        cells: list[list[Any]] = []
        for number, row in enumerate(rows):
            cells.append([])
            for node in row:
                value: Any = None
                if isinstance(node, exp.Literal):
                    value = node.this
                elif isinstance(node, exp.Var | exp.Column) and node.name.upper() == "DEFAULT":
                    value = literals.DEFAULT
                elif isinstance(node, exp.HexString):
                    value = bytes.fromhex(node.this.rjust(len(node.this) + len(node.this) % 2, "0"))
                elif isinstance(node, exp.BitString):
                    value = str(int(node.this, 2))
                elif not isinstance(node, exp.Null):
                    places.append((number, len(cells[-1])))
                    asked.append(node)
                cells[-1].append(value)
        if asked:
            for (row, place), array in zip(places, self.reader.values(asked), strict=True):
                cells[row][place] = plain_cells(array)[0]
        return cells

    def insert(
        self, target: WrittenTable, given: dict[str, pa.Array], count: int, verb: str, updates: "list[exp.Expr]"
    ) -> Changed:
        """Insert `count` rows with some columns given."""

        def act(transaction: Transaction) -> Changed:
            rows, insert_id = self.defaults.completed(target, given, count)
            if verb == "insert" and not updates:
                return Changed(transaction.insert(*target.names, rows), insert_id)
            affected = 0
            for group in _groups(target.definition, rows):
                affected += self._insert_group(transaction, target, group, verb, updates)
            return Changed(affected, insert_id)

        return self.change(act)

    def _insert_group(
        self, transaction: Transaction, target: WrittenTable, rows: pa.Table, verb: str, updates: "list[exp.Expr]"
    ) -> int:
        """Rows without two of the same key."""
        found = transaction.matches(*target.names, rows)
        positions = np.concatenate([part for part, _ in found]) if found else np.empty(0, np.int64)
        numbers = np.concatenate([part for _, part in found]) if found else np.empty(0, np.int64)
        new = np.setdiff1d(np.arange(rows.num_rows), positions)
        if verb == "replace":
            old = np.unique(numbers)
            transaction.remove(*target.names, old)
            return transaction.insert(*target.names, rows) + len(old)
        affected = transaction.insert(*target.names, rows.take(pa.array(new))) if len(new) else 0
        if verb == "ignore" or not updates or not len(positions):
            return affected
        positions, first = np.unique(positions, return_index=True)
        numbers = numbers[first]
        before = transaction.take(*target.names, numbers)
        both = before
        added = rows.take(pa.array(positions))
        for name in added.column_names:
            both = both.append_column(f"{_NEW}{name}", added.column(name))
        columns = [target.column(node.this.name) for node in updates]
        values = self.reader.values([_of_new(node.expression) for node in updates], both)
        after = self._changed(target, before, dict(zip(columns, values, strict=True)))
        return affected + 2 * transaction.replace(*target.names, numbers, after)

    def _changed(self, target: WrittenTable, before: pa.Table, values: "dict[Column, pa.Array]") -> pa.Table:
        """Rows with other values; ON UPDATE and generated columns follow."""
        arrays = {name: whole(before.column(name)) for name in before.column_names}
        for column, array in values.items():
            arrays[column.name] = coerced(column, array)
        given = {column.name for column in values}
        for column in target.definition.user_columns:
            attributes = target.definition.attributes_of(column.name)
            if attributes.on_update and column.name not in given:
                arrays[column.name] = array_of(column, [now_text()] * before.num_rows)
        return self.defaults.generated(target.definition, arrays)

    # ---- update and delete

    def update(self, tree: "exp.Update") -> Changed:
        """Also of several tables in a join: all expressions are evaluated before anything is changed."""
        from sqlglot import exp

        tables = _tables_of(tree.this)
        by_alias: dict[str, list[exp.Expr]] = {}
        for node in tree.expressions:
            by_alias.setdefault(self._alias_of(node.this, tables), []).append(node)
        plans = []
        for alias, assigned in by_alias.items():
            table = tables[alias]
            target = self.target_of(table.db, table.name)
            columns = [target.column(node.this.name) for node in assigned]
            plans.append((alias, target, columns, [node.expression for node in assigned]))

        def act(transaction: Transaction) -> Changed:
            found: list[tuple[WrittenTable, np.ndarray, dict[Column, pa.Array]]] = []
            for alias, target, columns, expressions in plans:
                asked = [
                    exp.Null() if isinstance(one, exp.Var | exp.Column) and one.name.upper() == "DEFAULT" else one
                    for one in expressions
                ]
                numbers, values = self._rows_of(tree, tables, alias, asked)
                for place, one in enumerate(expressions):
                    if one is not asked[place]:
                        values[place] = self.defaults.of_column(target, columns[place], len(numbers))
                found.append((target, numbers, dict(zip(columns, values, strict=True))))
            rows = 0
            for target, numbers, values in found:
                if len(numbers):
                    before = transaction.take(*target.names, numbers)
                    rows += transaction.replace(*target.names, numbers, self._changed(target, before, values))
            return Changed(rows)

        return self.change(act)

    def delete(self, tree: "exp.Delete") -> Changed:
        source = tree.this
        using = tree.args.get("using")
        if using:
            source = using[0]
            for other in using[1:]:
                from sqlglot import exp

                source.append("joins", exp.Join(this=other))
        tables = _tables_of(source)
        named = [table.name.lower() for table in tree.args.get("tables") or ([tree.this] if using else [])]
        aliases = named or [tree.this.alias_or_name.lower()]
        if len(aliases) == 1 and source.args.get("joins") and not tree.args.get("where"):
            raise StatementError(  # docs/upstream.md, "A MatrixOne as a target"
                20105,
                f"not supported: DELETE by a join without WHERE. A MatrixOne deletes every row of {aliases[0]} then, "
                "also those that the join does not find; with a WHERE it deletes the right ones",
            )
        for alias in aliases:
            if alias not in tables:
                raise StatementError(1109, f"Unknown table '{alias}' in MULTI DELETE", "42S02")

        def act(transaction: Transaction) -> Changed:
            found: list[tuple[WrittenTable, np.ndarray]] = []
            for alias in aliases:
                target = self.target_of(tables[alias].db, tables[alias].name)
                numbers, _ = self._rows_of(tree, tables, alias, [], source=source)
                found.append((target, numbers))
            return Changed(sum(transaction.remove(*target.names, numbers) for target, numbers in found))

        return self.change(act)

    def _alias_of(self, column: "exp.Expr", tables: "dict[str, exp.Table]") -> str:
        if column.args.get("table"):
            asked = column.args["table"].name.lower()
            if asked not in tables:
                raise StatementError(1109, f"Unknown table '{asked}'", "42S02")
            return asked
        for alias, table in tables.items():
            definition = self.target_of(table.db, table.name).definition
            if any(known.name.lower() == column.name.lower() for known in definition.user_columns):
                return alias
        raise StatementError(20301, f"invalid input: column {column.name} does not exist")

    def _rows_of(
        self,
        tree: "exp.Expr",
        tables: "dict[str, exp.Table]",
        alias: str,
        expressions: "Sequence[exp.Expr]",
        source: "exp.Expr | None" = None,
    ) -> tuple[np.ndarray, list[pa.Array]]:
        """The numbers of the rows that a statement names, each once, and the values of expressions in them."""
        from sqlglot import exp

        copied = (tree.this if source is None else source).copy()
        joins = copied.args.get("joins") or []
        copied.set("joins", None)
        row = exp.column(ROW, table=exp.to_identifier(tables[alias].alias_or_name, quoted=True), quoted=True)
        select = exp.Select(expressions=[row, *(exp.alias_(one.copy(), f"v{n}") for n, one in enumerate(expressions))])
        select = select.from_(copied, copy=False)
        select.set("joins", joins)
        for part in ("where", "order", "limit"):
            if tree.args.get(part):
                select.set(part, tree.args[part].copy())
        with_rows = [node for one, node in _tables_of(copied, joins).items() if one == alias]
        result = self.reader.read(select, with_rows=with_rows)
        numbers, first = np.unique(result.array(0).to_numpy(zero_copy_only=False), return_index=True)
        places = pa.array(first)
        return numbers.astype(np.int64), [result.array(n + 1).take(places) for n in range(len(expressions))]

    # ---- load

    def load(self, target: WrittenTable, statement: LoadStatement, content: bytes) -> Changed:
        """LOAD DATA: a file of fields."""
        given, count = statement.read(content, self._chosen(target, statement.columns))
        return self.insert(target, given, count, "ignore" if statement.ignore else "insert", []) if count else Changed()


def _groups(definition: Definition, rows: pa.Table) -> list[pa.Table]:
    """Rows in groups without two of the same key, in an order that has the effect of one row after the other."""
    keys: list[list[Key]] = [keys_in(rows, columns) for columns in unique_columns(definition).values()]
    if all(len(set(column) - {None}) == len(column) - column.count(None) for column in keys):
        return [rows]
    seen: dict[tuple[int, Key], int] = {}
    numbers = []
    for row in zip(*keys, strict=True):
        mine = [(place, key) for place, key in enumerate(row) if key is not None]
        group = max((seen.get(key, -1) + 1 for key in mine), default=0)
        seen.update(dict.fromkeys(mine, group))
        numbers.append(group)
    groups = np.array(numbers)
    return [rows.take(pa.array(np.flatnonzero(groups == group))) for group in range(groups.max() + 1)]


def _of_new(node: "exp.Expr") -> "exp.Expr":
    """An expression of ON DUPLICATE KEY UPDATE: VALUES(c) and new.c name the columns of the new row."""
    from sqlglot import exp

    def change(part: "exp.Expr") -> "exp.Expr":
        if isinstance(part, exp.Column) and part.table:
            name = f"{_NEW}{part.name}" if part.table.lower() in ("new", "excluded") else part.name
            return exp.column(name, quoted=True)
        if isinstance(part, exp.Anonymous) and part.name.upper() == "VALUES" and part.expressions:
            return exp.column(f"{_NEW}{part.expressions[0].name}", quoted=True)
        return part

    return node.copy().transform(change)


def _tables_of(source: "exp.Expr", joins: "Sequence[exp.Expr] | None" = None) -> "dict[str, exp.Table]":
    """The tables of UPDATE and DELETE by their aliases."""
    from sqlglot import exp

    found: dict[str, exp.Table] = {}
    for node in [source, *(join.this for join in (source.args.get("joins") or joins or []))]:
        if isinstance(node, exp.Table):
            found[node.alias_or_name.lower()] = node
    return found
