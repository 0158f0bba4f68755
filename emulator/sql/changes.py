"""INSERT, REPLACE, UPDATE, DELETE and LOAD DATA on a simulated upstream.

What a statement changes is found by a query over the numbers of the rows (`emulator.sql.queries.ROW`), and done by the
engine's transaction. Values are converted to the columns' types as Arrow arrays.
"""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from emulator.engine.definitions import Definition
from emulator.engine.entries import TableEntry
from emulator.engine.live_keys import Key, keys_in, unique_columns
from emulator.engine.storage import Storage
from emulator.engine.transaction import Transaction
from emulator.sql import literals
from emulator.sql.dialect import parse
from emulator.sql.queries import ROW, Reader
from emulator.sql.text import array_of, coerced, from_texts
from matrixone.objects import types
from matrixone.schema import Column
from wire.answers import StatementError

if TYPE_CHECKING:
    from sqlglot import exp

_NEW = "__mo_new_"
_NULL = "__mo_null"
_NULL_OR_QUOTED = re.compile(rb'"(?:[^"\\]|""|\\.)*"|\\N', re.DOTALL)
_NOW_WORDS = ("now", "current_timestamp", "localtime", "localtimestamp", "sysdate")


@dataclass(slots=True)
class Changed:
    """What a statement did: how many rows, and the first AUTO_INCREMENT number that it gave."""

    rows: int = 0
    insert_id: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """A table that is written to."""

    database: str
    table: str
    entry: TableEntry

    @property
    def names(self) -> tuple[str, str]:
        return self.database, self.table

    @property
    def definition(self) -> Definition:
        return self.entry.definition

    def column(self, name: str) -> Column:
        lower = name.lower()
        for column in self.definition.user_columns:
            if column.name.lower() == lower:
                return column
        raise StatementError(20301, f"invalid input: column {name} does not exist")


@dataclass(eq=False)
class Changes:
    """The changes of one session. `target_of` finds a table by (database, table); `change` runs a function in the open
    transaction, or in one of its own."""

    storage: Storage
    reader: Reader
    target_of: Callable[[str, str], Target]
    change: Callable[[Callable[[Transaction], Changed]], Changed]
    _expressions: dict[str, "exp.Expr"] = field(default_factory=dict)

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
        target: Target,
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
                default = self._default_cell(target, column)
                values = [default if value is literals.DEFAULT else value for value in values]
            given[column.name] = array_of(column, values)
        return self.insert(target, given, len(rows), verb, updates)

    def _chosen(self, target: Target, columns: Sequence[str] | None) -> list[Column]:
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
                cells[row][place] = _python_value(array)
        return cells

    def insert(
        self, target: Target, given: dict[str, pa.Array], count: int, verb: str, updates: "list[exp.Expr]"
    ) -> Changed:
        """Insert `count` rows of which some columns are given."""

        def act(transaction: Transaction) -> Changed:
            rows, insert_id = self.completed(target, given, count)
            if verb == "insert" and not updates:
                return Changed(transaction.insert(*target.names, rows), insert_id)
            affected = 0
            for group in _groups(target.definition, rows):
                affected += self._insert_group(transaction, target, group, verb, updates)
            return Changed(affected, insert_id)

        return self.change(act)

    def completed(self, target: Target, given: dict[str, pa.Array], count: int) -> tuple[pa.Table, int]:
        """All user columns: with defaults, AUTO_INCREMENT numbers and generated columns; and the first of the
        numbers."""
        arrays: dict[str, pa.Array] = {}
        insert_id = 0
        definition = target.definition
        for column in definition.user_columns:
            attributes = definition.attributes_of(column.name)
            array = given.get(column.name)
            if attributes.auto_increment:
                array, insert_id = self._numbered(target.entry, column, array, count)
            elif attributes.generated:
                continue
            elif array is None:
                array = self.default(target, column, count)
            arrays[column.name] = array
        return self._generated(definition, arrays), insert_id

    def _numbered(self, entry: TableEntry, column: Column, array: pa.Array | None, count: int) -> tuple[pa.Array, int]:
        kind = types.arrow_type(column)
        values = pa.nulls(count, pa.int64()) if array is None else array.cast(pa.int64())
        missing = pc.fill_null(pc.or_kleene(pc.is_null(values), pc.equal(values, 0)), True).to_numpy(
            zero_copy_only=False
        )
        with self.storage.lock:
            highest = pc.max(values).as_py()
            if highest is not None:
                entry.next_auto = max(entry.next_auto, highest + 1)
            asked = int(missing.sum())
            first, entry.next_auto = entry.next_auto, entry.next_auto + asked
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False).copy()
        numbers[missing] = first + np.arange(asked)
        return pa.array(numbers, pa.int64()).cast(kind), first if asked else 0

    def default(self, target: Target, column: Column, count: int) -> pa.Array:
        """The default of a column, `count` times. Raises 1364 if it has none and must have a value."""
        text = target.definition.attributes_of(column.name).default
        if not text or text.lower() == "null":
            if not column.nullable and count:
                raise StatementError(1364, f"Field '{column.name}' doesn't have a default value", "HY000")
            return pa.nulls(count, types.arrow_type(column))
        if count > 1 and not _varies(text):
            return pa.repeat(array_of(column, self.default_cells(text, 1))[0], count)
        return array_of(column, self.default_cells(text, count))

    def default_cells(self, text: str, count: int) -> list[Any]:
        """What a default's text means, for so many rows."""
        if is_now(text):
            return [now_text()] * count
        if not _varies(text):
            return [self._value(text)] * count if count else []
        return [self._value(text) for _ in range(count)]

    def _value(self, text: str) -> Any:
        (array,) = self.reader.values([self.expression(text)])
        return _python_value(array)

    def _default_cell(self, target: Target, column: Column) -> Any:
        text = target.definition.attributes_of(column.name).default
        return self.default_cells(text, 1)[0] if text else None

    def expression(self, text: str) -> "exp.Expr":
        """An expression's text as a tree."""
        if text not in self._expressions:
            tree = parse(f"SELECT {text}")
            if len(tree.expressions) != 1:
                raise StatementError(1064, "You have an error in your SQL syntax: one expression is expected", "42000")
            self._expressions[text] = tree.expressions[0].unalias()
        return self._expressions[text].copy()

    def _generated(self, definition: Definition, arrays: dict[str, pa.Array]) -> pa.Table:
        made = {
            column: attributes.generated for column, attributes in definition.attributes.items() if attributes.generated
        }
        for column in definition.user_columns:
            if column.name in made:
                (values,) = self.reader.values([self.expression(made[column.name])], pa.table(arrays))
                arrays[column.name] = coerced(column, values)
        return pa.table({column.name: arrays[column.name] for column in definition.user_columns})

    def _insert_group(
        self, transaction: Transaction, target: Target, rows: pa.Table, verb: str, updates: "list[exp.Expr]"
    ) -> int:
        """Rows of which no two have the same key."""
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

    def _changed(self, target: Target, before: pa.Table, values: "dict[Column, pa.Array]") -> pa.Table:
        """Rows with other values; ON UPDATE and generated columns follow."""
        arrays = {name: before.column(name).combine_chunks() for name in before.column_names}
        arrays = {name: a.chunk(0) if isinstance(a, pa.ChunkedArray) else a for name, a in arrays.items()}
        for column, array in values.items():
            arrays[column.name] = coerced(column, array)
        given = {column.name for column in values}
        for column in target.definition.user_columns:
            attributes = target.definition.attributes_of(column.name)
            if attributes.on_update and column.name not in given:
                arrays[column.name] = array_of(column, [now_text()] * before.num_rows)
        return self._generated(target.definition, arrays)

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
            found: list[tuple[Target, np.ndarray, dict[Column, pa.Array]]] = []
            for alias, target, columns, expressions in plans:
                asked = [
                    exp.Null() if isinstance(one, exp.Var | exp.Column) and one.name.upper() == "DEFAULT" else one
                    for one in expressions
                ]
                numbers, values = self._rows_of(tree, tables, alias, asked)
                for place, one in enumerate(expressions):
                    if one is not asked[place]:
                        values[place] = self.default(target, columns[place], len(numbers))
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
            found: list[tuple[Target, np.ndarray]] = []
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

    def load(self, target: Target, columns: Sequence[str] | None, options: "LoadOptions", content: bytes) -> Changed:
        """LOAD DATA: a file of fields."""
        chosen = self._chosen(target, columns)
        if options.line_end not in ("\n", "\r\n"):
            content = content.replace(options.line_end.encode(), b"\n")
        if not content.strip():
            return Changed()
        escapes, null = b"\\" in content.replace(b"\\N", b""), "\\N"
        if escapes and options.quote == '"':  # Arrow would take the backslash of \N for an escape
            content, null = _NULL_OR_QUOTED.sub(_null_without_escape, content), _NULL
        names = [str(number) for number in range(len(chosen))]
        try:
            table = pa_csv.read_csv(
                io.BytesIO(content),
                read_options=pa_csv.ReadOptions(column_names=names, skip_rows=options.skip),
                parse_options=pa_csv.ParseOptions(
                    delimiter=options.field_end,
                    quote_char=options.quote or False,
                    double_quote=bool(options.quote),
                    escape_char="\\" if escapes else False,
                    newlines_in_values=bool(options.quote),
                ),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowException as error:
            raise StatementError(20301, f"invalid input: the file: {error}") from error
        given = {}
        for column, name in zip(chosen, names, strict=True):
            texts = table.column(name).combine_chunks()
            texts = texts.chunk(0) if isinstance(texts, pa.ChunkedArray) else texts
            is_binary = pa.types.is_binary(types.arrow_type(column))
            given[column.name] = texts.cast(pa.binary()) if is_binary else from_texts(column, texts)
        return self.insert(target, given, table.num_rows, "ignore" if options.ignore else "insert", [])


def _null_without_escape(found: re.Match[bytes]) -> bytes:
    return _NULL.encode() if found[0] == b"\\N" else found[0]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Of LOAD DATA."""

    field_end: str = "\t"
    quote: str = ""
    line_end: str = "\n"
    skip: int = 0
    ignore: bool = False


def is_now(text: str) -> bool:
    """Whether a default is the time of the statement."""
    return text.lower().split("(")[0].strip() in _NOW_WORDS


def _varies(text: str) -> bool:
    """Whether each row has a default of its own."""
    return "(" in text and not is_now(text)


def now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _python_value(array: pa.Array) -> Any:
    """The only value, as INSERT reads it."""
    from emulator.sql.text import plain_cells

    return plain_cells(array)[0]


def _groups(definition: Definition, rows: pa.Table) -> list[pa.Table]:
    """Rows in groups of which each has a key once, in an order that has the effect of one row after the other."""
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
