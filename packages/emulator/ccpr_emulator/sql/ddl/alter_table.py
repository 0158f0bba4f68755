"""ALTER TABLE and RENAME TABLE."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.tokens import Tokens
from ccpr.matrixone.sql.quoting import in_backquotes
from ccpr_emulator.engine.definitions import BadDefinition, Definition, make_column
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.sql.ddl.acts import Act, Context, all_of
from ccpr_emulator.sql.ddl.columns import ColumnText, default_text, foreign_key, text_in_brackets
from ccpr_emulator.sql.ddl.indexes import add_index, drop_index, key_element, spelled
from ccpr_emulator.sql.ddl.table_options import alter_partitions, ignored_option, skip_options
from ccpr_emulator.sql.names import WrittenTable, key_columns, list_of, table_name
from ccpr_emulator.sql.text import array_of, coerced


def rename_table(tokens: Tokens, storage: Storage, account: str, database: str) -> Act:
    names = table_name(tokens, database)
    tokens.expect("to")
    return _renamed(storage, account, names, table_name(tokens, names[0]))


def _renamed(storage: Storage, account: str, names: tuple[str, str], new: tuple[str, str]) -> Act:
    if new[0] != names[0]:
        raise BadDefinition("a table is renamed within its database here")
    return partial(storage.rename_table, *names, new[1], account=account)


class AlterTable:
    """ALTER TABLE: its changes, one after the other."""

    def __init__(self, names: tuple[str, str], tokens: Tokens, context: Context) -> None:
        self.names, self.tokens, self.context = names, tokens, context
        self.storage, self.account = context.storage, context.login.account

    def read(self) -> Act:
        acts: list[Act] = []
        while True:
            acts += self._change()
            if not self.tokens.accept(","):
                return all_of(acts)

    def _change(self) -> list[Act]:
        tokens = self.tokens
        if (act := alter_partitions(tokens, self.storage, self.names, self.account)) is not None:
            return [act]
        if tokens.accept("add"):
            return self._add()
        if tokens.accept("drop"):
            return [self._drop()]
        if tokens.accept("modify") or tokens.accept("change"):
            return [self._modify(tokens.tokens[tokens.position - 1].value.lower())]
        if tokens.accept("rename"):
            return [self._rename()]
        if tokens.accept("alter"):
            return [self._alter_default()]
        if tokens.accept("comment"):
            tokens.accept("=")
            return [partial(self._on, self.storage.comment_table, tokens.text())]
        if tokens.accept("auto_increment"):
            tokens.accept("=")
            return [partial(self._set_auto_increment, tokens.number())]
        if (
            tokens.accept("convert", "to")
            or tokens.accept("default")
            or tokens.at("engine", "charset", "collate", "row_format", "character")
        ):
            if not ignored_option(tokens):
                raise tokens.unknown()
            skip_options(tokens)
            return []
        raise tokens.unknown()

    def _on(self, act: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        act(*self.names, *arguments, **options, account=self.account)

    @property
    def definition(self) -> Definition:
        return self.storage.table(*self.names, account=self.account).definition

    def _column(self, given: str) -> str:
        return spelled(self.definition, [given])[0]

    def _set_auto_increment(self, number: int) -> None:
        entry = self.storage.table(*self.names, account=self.account)
        entry.next_auto = max(entry.next_auto, number)

    def _add(self) -> list[Act]:
        tokens = self.tokens
        begin = tokens.position
        constraint = ""
        if tokens.accept("constraint"):
            constraint = "" if tokens.at("primary", "unique", "foreign", "check") else tokens.name()
        if tokens.accept("primary", "key"):
            columns = key_columns(tokens)
            return [partial(self._on, self.storage.alter_keys, columns)]
        if tokens.accept("foreign", "key"):
            text = foreign_key(tokens, constraint)
            return [
                partial(self._on, self.storage.redefine, lambda old: replace(old, constraints=(*old.constraints, text)))
            ]
        if tokens.accept("check"):
            text_in_brackets(tokens)
            return []
        found = key_element(tokens, constraint)
        if found is not None:
            kind, name, columns = found
            return [
                partial(
                    add_index,
                    self.storage,
                    self.names,
                    name,
                    columns,
                    self.account,
                    kind == "unique",
                    kind == "fulltext",
                )
            ]
        tokens.position = begin
        tokens.accept("column")
        if tokens.accept("("):
            acts = list_of(tokens, self._add_column)
            tokens.expect(")")
            return [act for one in acts for act in one]
        return self._add_column()

    def _add_column(self) -> list[Act]:
        tokens = self.tokens
        name = tokens.name()
        column = ColumnText(tokens, name)
        place = self._place()

        def act() -> None:
            target = WrittenTable(*self.names, self.storage.table(*self.names, account=self.account))
            at = place(target.definition)
            fill = self._fill(target, name, column)
            self.storage.add_column(
                *self.names, name, column.text, place=at, attributes=column.attributes, fill=fill, account=self.account
            )

        acts: list[Act] = [act]
        if column.is_primary:
            acts.append(partial(self._on, self.storage.alter_keys, [name]))
        if column.is_unique:
            acts.append(partial(add_index, self.storage, self.names, name, [name], self.account, True, False))
        new = (partial(_with_constraint, text) for text in column.constraints)
        return [*acts, *(partial(self._on, self.storage.redefine, one) for one in new)]

    def _fill(self, target: WrittenTable, name: str, column: ColumnText) -> Callable[[pa.Table], pa.Array] | None:
        """What the rows that are there have in a new column; None for nulls."""
        attributes = column.attributes
        changes = self.context.changes
        if attributes.auto_increment:
            return lambda rows: pa.array(range(1, rows.num_rows + 1), pa.int64())
        if not attributes.generated and (not attributes.default or attributes.default.lower() == "null"):
            return None
        made, _ = make_column(name, column.text, 0)

        def fill(rows: pa.Table) -> pa.Array:
            if attributes.generated:
                (values,) = changes.reader.values([changes.defaults.expression(attributes.generated)], rows)
                return coerced(made, values)
            return array_of(made, changes.defaults.cells(attributes.default, rows.num_rows))

        return fill

    def _place(self) -> Callable[[Definition], int | None]:
        """FIRST, AFTER column, or nothing."""
        tokens = self.tokens
        if tokens.accept("first"):
            return lambda definition: 0
        if tokens.accept("after"):
            name = tokens.name().lower()

            def after(definition: Definition) -> int:
                names = [column.name.lower() for column in definition.user_columns]
                if name not in names:
                    raise StatementError(20301, f"invalid input: column {name} does not exist")
                return names.index(name) + 1

            return after
        return lambda definition: None

    def _drop(self) -> Act:
        tokens = self.tokens
        if tokens.accept("primary", "key"):
            return partial(self._on, self.storage.alter_keys, [])
        if tokens.accept("index") or tokens.accept("key"):
            name = tokens.name()
            return lambda: drop_index(self.storage, self.names, name, self.account)
        if tokens.accept("foreign", "key") or tokens.accept("constraint") or tokens.accept("check"):
            name = tokens.name()
            return partial(self._on, self.storage.redefine, partial(_without_constraint, name))
        tokens.accept("column")
        name = tokens.name()
        return lambda: self._on(self.storage.drop_column, self._column(name))

    def _modify(self, verb: str) -> Act:
        tokens = self.tokens
        tokens.accept("column")
        old = tokens.name()
        new = tokens.name() if verb == "change" else None
        column = ColumnText(tokens, new or old)
        place = self._place()

        def act() -> None:
            spelled = self._column(old)
            definition = self.definition
            at = place(definition)
            if at is not None and [c.name for c in definition.user_columns].index(spelled) < at:
                at -= 1  # it leaves its own place first
            self._on(self.storage.modify_column, spelled, column.text, name=new, place=at, attributes=column.attributes)

        return act

    def _rename(self) -> Act:
        tokens = self.tokens
        if tokens.accept("column"):
            old = tokens.name()
            tokens.expect("to")
            new = tokens.name()
            return lambda: self._on(self.storage.rename_column, self._column(old), new)
        if not tokens.accept("to"):
            tokens.accept("as")
        return _renamed(self.storage, self.account, self.names, table_name(tokens, self.names[0]))

    def _alter_default(self) -> Act:
        tokens = self.tokens
        tokens.accept("column")
        name = tokens.name()
        if tokens.accept("drop"):
            tokens.expect("default")
            text = ""
        else:
            tokens.expect("set")
            tokens.expect("default")
            text = default_text(tokens)

        def act() -> None:
            column = self._column(name)
            attributes = replace(self.definition.attributes_of(column), default=text)
            self._on(self.storage.redefine, lambda old: replace(old, attributes={**old.attributes, column: attributes}))

        return act


def _with_constraint(text: str, definition: Definition) -> Definition:
    return replace(definition, constraints=(*definition.constraints, text))


def _without_constraint(name: str, definition: Definition) -> Definition:
    kept = tuple(text for text in definition.constraints if not text.startswith(f"CONSTRAINT {in_backquotes(name)} "))
    return replace(definition, constraints=kept)
