"""The statements of each kind of change in a target, and those of a stored intent, made again from our own data
(`ccpr.targets.expected_tables`). The plan shows what these functions give, and the session runs it.

An intent lies in the target, where others may write. It says which change was begun, and the registry which tables it
is about; both are compared with our own definitions. A text that is run comes from those alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.schema.alterations import alter_table, drop_table, quoted, rename_tables, shadow_name, show_loaded
from ccpr.schema.choices import Dialect
from ccpr.schema.sync_mark import release
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.base import TableState, TargetTable
from ccpr.targets.errors import TargetRegistryEdited
from ccpr.targets.expected_tables import SWAPPING, ExpectedTables, named
from ccpr.targets.intents import ChangeOf, Intent, all_names
from ccpr.targets.ownership import name_of, names_of


@dataclass(frozen=True, slots=True)
class RederivedIntent:
    """An intent, and what our own data says of its tables: `task_id` is the subscription's, `database` the target's."""

    intent: Intent
    database: str
    dialect: Dialect
    task_id: str
    own: ExpectedTables
    registered: Mapping[int, tuple[TargetTable, TableState]]
    loading: Mapping[int, tuple[Location, TargetTable]]

    def statements(self) -> tuple[str, ...]:
        """Raises TargetRegistryEdited if the intent is not one that this subscription stores."""
        match self.intent.kind:
            case ChangeOf.ALTER:
                return self._alter()
            case ChangeOf.SHOW:
                return self._show()
            case ChangeOf.DROP:
                return self._drop()
            case ChangeOf.RELEASE:
                return self._release()

    def _alter(self) -> tuple[str, ...]:
        intent = self.intent
        self._only("gone", "loaded", "points", "optional")
        self._state(TableState.LIVE)
        before = [self._live(table.id) for table in intent.tables]
        for old, new in zip(before, intent.tables, strict=True):
            self.own.check_name(new, self.database)
            if replace(named(old, new.name), remarks=new.remarks) != new:  # not only its name changes
                self.own.check_definition(new, self.dialect)
        self._names(all_names(names_of(before), names_of(intent.tables)))
        try:
            return change_statements(before, intent.tables, self.dialect)
        except ValueError as error:
            raise self._edited(str(error)) from error

    def _show(self) -> tuple[str, ...]:
        intent = self.intent
        self._only("optional")
        self._state(TableState.LIVE)
        table = self._single()
        if intent.loaded != (table.id,) or [table_id for table_id, _ in intent.points] != [table.id]:
            raise self._edited("it does not say which load it ends")
        begun = self.loading.get(table.id)
        if begun is None or begun[0] != intent.points[0][1] or begun[1].source != table.source:
            raise self._edited("the load that it ends was not begun")
        self.own.check_name(table, self.database)
        wanted = self.own.expected(table, self.dialect)
        if not set(intent.gone) <= self.registered.keys():
            raise self._edited("it removes a table that is not registered")
        olds = {self._shadow("old", table_id): table_id for table_id in (table.id, *intent.gone)}
        replaced = [self._live(olds[name]) for name in intent.names if name in olds]
        if not {table_id for table_id in intent.gone if self._is_live(table_id)} <= {old.id for old in replaced}:
            raise self._edited("it removes a table that it does not replace")
        shadow = self._shadow("load", table.id)
        retired = [self._shadow("old", old.id) for old in replaced]
        self._names(all_names([shadow, name_of(table)], names_of(replaced), retired))
        # A table that it replaces may have been missing.
        there = {name for name in retired if drop_table(name) in intent.statements}
        outgoing = [(name_of(old), name[1]) for old, name in zip(replaced, retired, strict=True) if name in there]
        return show_loaded(parse_create_table(wanted.create), shadow[1], outgoing, self.dialect)

    def _drop(self) -> tuple[str, ...]:
        intent = self.intent
        self._only("tables", "points", "optional")
        if set(intent.loaded) != set(intent.gone):
            raise self._edited("it does not end the loads of what it drops")
        live = [self._live(table_id) for table_id in intent.gone if self._is_live(table_id)]
        shadows = [self._shadow("load", table_id) for table_id in intent.gone if table_id in self.loading]
        names = (*names_of(live), *shadows)
        self._names(names)
        return tuple(map(drop_table, names))

    def _release(self) -> tuple[str, ...]:
        intent = self.intent
        self._only("gone", "loaded", "points")
        self._state(TableState.RELEASED)
        table = self._single()
        if self._live(table.id) != table:
            raise self._edited("it is about another definition than the registry's")
        self._names((name_of(table),))
        own = self.own.expected(table, self.dialect)
        made = release(own.create, own.stripped or {}, own.disabled or {}, self.dialect)
        if intent.optional != tuple(made.optional):
            raise self._edited("other statements may fail than the ones that contain an expression")
        return made.statements

    def _live(self, table_id: int) -> TargetTable:
        if not self._is_live(table_id):
            raise self._edited(f"the registry has no live table with id {table_id}")
        table = self.registered[table_id][0]
        self.own.check_name(table, self.database)
        return table

    def _is_live(self, table_id: int) -> bool:
        return table_id in self.registered and self.registered[table_id][1] is TableState.LIVE

    def _single(self) -> TargetTable:
        if len(self.intent.tables) != 1:
            raise self._edited("it is about several tables")
        return self.intent.tables[0]

    def _shadow(self, purpose: Literal["load", "old"], table_id: int) -> tuple[str, str]:
        return self.database, shadow_name(purpose, self.task_id, table_id)

    def _only(self, *empty: str) -> None:
        for name in empty:
            if getattr(self.intent, name):
                raise self._edited(f"this kind of change has no {name!r}")

    def _state(self, state: TableState) -> None:
        if self.intent.state is not state:
            raise self._edited(f"this kind of change does not lead to {self.intent.state.value!r}")

    def _names(self, names: tuple[tuple[str, str], ...]) -> None:
        if self.intent.names != names:
            raise self._edited("it names other tables than the change is about")

    def _edited(self, message: str) -> TargetRegistryEdited:
        return TargetRegistryEdited(message, subject=self.intent.subject)


def change_statements(before: Sequence[TargetTable], after: Sequence[TargetTable], dialect: Dialect) -> tuple[str, ...]:
    """The statements that change tables in place. Either all of them only get new names, in one statement, or it is one
    table. Raises ValueError for other changes, and for one that needs a rebuild."""
    if [table.id for table in before] != [table.id for table in after]:
        raise ValueError("other tables before than after")
    if all(replace(named(old, new.name), remarks=new.remarks) == new for old, new in zip(before, after, strict=True)):
        return rename_statements(before, after)
    if len(before) != 1:
        raise ValueError("the definitions of several tables cannot change together")
    old, new = before[0], after[0]
    created = parse_create_table(old.create), parse_create_table(new.create)
    alteration = alter_table(old.source, new.source, *created, dialect)
    if alteration is None:
        raise ValueError("the table cannot be changed in place")
    return (*alteration.before_rows, *alteration.after_rows)


def rename_statements(before: Sequence[TargetTable], after: Sequence[TargetTable]) -> tuple[str, ...]:
    """The one statement that gives tables new names; none if there are none."""
    freed = {table.name for table in before}
    first, last = [], []
    for old, new in zip(before, after, strict=True):
        here, there = quoted((old.database, old.name)), quoted((old.database, new.name))
        if old.name == new.name:
            continue
        if new.name in freed:  # another table has it before the statement
            between = quoted((old.database, SWAPPING.format(old.id)))
            first.append((here, between))
            last.append((between, there))
        else:
            first.append((here, there))
    return (rename_tables([*first, *last]),) if first else ()
