"""What has to be done at a target so that its tables become those of a newer point. Pure functions of values.

The tables that the target has are compared by id with those of the point; the points between do not matter. Each table
is planned by itself. One that requires operator action, or that the target cannot have, stays at its point, and so does
a table that needs its name (docs/requirements.md B4 and N5). The order of the steps:

1. Tables are renamed, all in one statement, so that two can change places. A table that is going to be dropped and has
   a name that is needed is renamed, too.
2. Tables are altered in place: first statements that the old rows allow, then the rows, then statements that only the
   new rows allow.
3. Tables are built that are new or cannot be altered in place (TRUNCATE, a copying ALTER, another key): loaded into a
   shadow table and shown in one step.
4. Tables that do not exist upstream any more are dropped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ccpr.base.errors import Failure
from ccpr.matrixone.ddl.definition import CreateTable, format_create_table
from ccpr.matrixone.ddl.parser import create_table_of, parse_create_table
from ccpr.matrixone.schema import Kind, Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.schema.alterations import (
    Alteration,
    alter_table,
    drop_table,
    make_shadow,
    quoted,
    rename_tables,
    shadow_name,
    show_loaded,
)
from ccpr.schema.choices import Dialect
from ccpr.schema.ddl_diff import comparable
from ccpr.schema.policy import Decision, decide
from ccpr.schema.sync_mark import NotSyncable
from ccpr.schema.table_changes import CatalogChange, ChangeKind, diff_catalogs
from ccpr.schema.table_diff import ColumnAdded, ColumnNullabilityChanged, IndexAdded, diff_tables
from ccpr.schema.target_types import TargetUnfit
from ccpr.targets.base import Registered, TableState, TargetTable
from ccpr.targets.errors import DdlWaits, NameTaken, TargetChangeStuck, TargetDropsHeld, TargetTableDropped
from ccpr.targets.expected_tables import (
    RETIRED,
    TargetRules,
    check_types,
    columns_as_text,
    lacking_defaults,
    named,
    target_of,
    without_defaults,
)
from ccpr.targets.intent_statements import change_statements, rename_statements

S = TypeVar("S", bound="TableStep")


@dataclass(frozen=True, slots=True)
class TableStep:
    """What is done with one table.

    Attributes
    ----------
    table : as it is upstream at the point, or as it last was.
    statements : for people, exactly what is run, or what waits. Without the renames before all steps
        (`TargetPlan.renaming`), unless they wait, and without what loads rows.
    remarks : what differs in the target from the source.
    destructive : descriptions of what removes values that the target holds.
    failure : why nothing is done; the table stays at its point.
    before : the table in the target; None for a new one.
    wanted : the table as it is to be in the target; None for one that is dropped.
    """

    table: Table
    statements: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    destructive: tuple[str, ...] = ()
    failure: Failure | None = None
    before: TargetTable | None = None
    wanted: TargetTable | None = None

    @property
    def id(self) -> int:
        """The id under which the target has the table, or is to have it."""
        return self.before.id if self.before is not None else self.table.id


@dataclass(frozen=True, slots=True)
class Build(TableStep):
    """Loaded into a shadow table and shown in one step, which drops `replaces`."""

    replaces: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Alter(TableStep):
    """Changed in place. If `last` has statements, `between` is the definition until they have run; else it is
    `wanted`."""

    between: TargetTable | None = None
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Drop(TableStep):
    """Dropped upstream."""


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """The steps of tables whose definition changes, that are to be created or dropped, or that cannot be synced; in the
    order of table ids.

    Attributes
    ----------
    renaming : the statement that runs before all steps; empty if no name changes.
    """

    steps: tuple[TableStep, ...]
    renaming: tuple[str, ...] = ()

    @property
    def behind(self) -> dict[int, TableStep]:
        """The steps that are not taken, by `TableStep.id`."""
        return {step.id: step for step in self.steps if step.failure is not None}

    def of(self, kind: type[S]) -> list[S]:
        """The steps of one kind that are taken."""
        return [step for step in self.steps if isinstance(step, kind) and step.failure is None]


def plan_target(
    rules: TargetRules,
    registered: Mapping[int, Registered],
    tables: Iterable[Table],
    *,
    kept: Mapping[int, Failure] | None = None,
    is_done: Callable[[Table], bool] = lambda _: False,
) -> TargetPlan:
    """Compare what the target has with the tables of a point.

    Parameters
    ----------
    kept : tables that stay as they are, whatever has changed, by id; with the reason.
    is_done : whether the target has a table's definition completely. Then it is compared only if the catalog differs.
    """
    live = {table_id: entry.table for table_id, entry in registered.items() if entry.state is TableState.LIVE}
    unsynced = {
        entry.table.source.logical_id: entry
        for entry in registered.values()
        if entry.state in (TableState.DROPPED, TableState.RELEASED)
    }
    wanted = [table for table in tables if table.kind is Kind.TABLE]
    synced = [table for table in wanted if table.logical_id not in unsynced]
    steps = [_dropped(table, unsynced[table.logical_id]) for table in wanted if table.logical_id in unsynced]
    kept = kept or {}
    steps += [
        TableStep(live[table_id].source, failure=failure, before=live[table_id])
        for table_id, failure in kept.items()
        if table_id in live
    ]
    changes = diff_catalogs((entry.source for entry in live.values()), synced)
    changed = {change.table.id for change in changes}
    unfinished = [table for table in synced if table.id in live and table.id not in changed and not is_done(table)]
    for change in (*changes, *(CatalogChange(ChangeKind.ALTERED, table, table) for table in unfinished)):
        before = live.get(change.before.id) if change.before is not None else None
        if change.table.id not in kept and (before is None or before.id not in kept):
            steps.append(_step(rules, change, before))
    found = _without_conflicts(_with_drops_held(rules, [step for step in steps if step is not None], live), live)
    return _with_statements(rules, TargetPlan(tuple(sorted(found, key=lambda step: step.table.id))), live)


def renames(plan: TargetPlan, live: Mapping[int, TargetTable]) -> tuple[list[TargetTable], list[str]]:
    """The tables that are renamed first, with their new names, and the one statement for it. Both empty if there are
    none."""
    moves = _moves(plan)
    moved = [named(live[table_id], name) for table_id, name in moves.items()]
    return moved, list(rename_statements([live[table_id] for table_id in moves], moved))


def replaced(plan: TargetPlan, build: Build) -> tuple[int, ...]:
    """Ids of the tables that are dropped in the step that shows this one: its predecessor, and a table that was dropped
    upstream and had its name."""
    moved = _moves(plan)
    gone = [step for step in plan.of(Drop) if step.id not in moved]
    return (
        *build.replaces,
        *(step.id for step in gone if step.before and build.wanted and step.before.name == build.wanted.name),
    )


def stuck_failure(table: TargetTable, reason: str) -> Failure:
    """Of a table whose change of definition cannot be continued (`Destination.stuck`)."""
    return Failure.of(TargetChangeStuck(reason, subject=f"table {table.qualified_name}"))


def _moves(plan: TargetPlan) -> dict[int, str]:
    """The names that tables have after the statement that renames them, by id. One that is rebuilt gets its new name as
    well: so its old rows are visible by that name at once."""
    moved = {
        step.id: step.wanted.name
        for step in (*plan.of(Alter), *plan.of(Build))
        if step.before and step.wanted and step.before.name != step.wanted.name
    }
    taken = set(moved.values())
    return moved | {
        step.id: RETIRED.format(step.id) for step in plan.of(Drop) if step.before and step.before.name in taken
    }


def _with_statements(rules: TargetRules, plan: TargetPlan, live: Mapping[int, TargetTable]) -> TargetPlan:
    """The plan with the statements that are shown to people: every one that is run."""
    names = {table_id: table.name for table_id, table in live.items()} | _moves(plan)
    dropped_by_build = {table_id for build in plan.of(Build) for table_id in replaced(plan, build)}
    steps = []
    for step in plan.steps:
        match step:
            case Build() if step.failure is None:
                statements = _build_statements(
                    rules, step, [(table_id, names[table_id]) for table_id in replaced(plan, step) if table_id in names]
                )
            case Build():
                statements = (
                    *_rename_statements(step),
                    *_build_statements(
                        rules, step, [(step.id, step.wanted.name)] if step.before and step.wanted else []
                    ),
                )
            case Alter():
                statements = (*(() if step.failure is None else _rename_statements(step)), *step.first, *step.last)
            case Drop() if step.before and not (step.failure is None and step.id in dropped_by_build):
                statements = (drop_table((rules.database, step.before.name if step.failure else names[step.id])),)
            case _:
                statements = ()
        steps.append(replace(step, statements=statements))
    whole = TargetPlan(tuple(steps))
    return replace(whole, renaming=tuple(renames(whole, live)[1]))


def _rename_statements(step: TableStep) -> tuple[str, ...]:
    if step.before is None or step.wanted is None or step.before.name == step.wanted.name:
        return ()
    here, there = (quoted((table.database, table.name)) for table in (step.before, step.wanted))
    return (rename_tables([(here, there)]),)


def _build_statements(rules: TargetRules, step: Build, dropped: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    """`dropped`: ids and names of the tables that it replaces."""
    assert step.wanted is not None
    create, shadow = parse_create_table(step.wanted.create), shadow_name("load", rules.task_id, step.wanted.id)
    outgoing = [((rules.database, name), shadow_name("old", rules.task_id, table_id)) for table_id, name in dropped]
    return (make_shadow(create, shadow), *show_loaded(create, shadow, outgoing, rules.dialect))


# ---- one table


def _dropped(table: Table, entry: Registered) -> TableStep | None:
    """No step for a table that was released. One that was dropped in the target is reported (N5)."""
    if entry.state is TableState.RELEASED:
        return None
    error = TargetTableDropped("it was dropped or renamed in the target", subject=f"table {entry.table.qualified_name}")
    return TableStep(table, failure=Failure.of(error), before=entry.table)


def _step(rules: TargetRules, change: CatalogChange, before: TargetTable | None) -> TableStep | None:
    """None if nothing has to be done."""
    table = change.table
    try:
        if change.after is None:
            assert before is not None
            return _ruled(Drop(table, before=before), decide(rules.policy_of(change), change, ()))
        wanted = wanted_table(rules, table)
        if before is None:
            return _ruled(_build(table, wanted, None), decide(rules.policy_of(change), change, ()))
        if change.kind is not ChangeKind.REPLACED:
            wanted = _without_refused(wanted, before)
        if before.source == table:
            return _unfinished(rules, change, before, wanted)
        old, new = (comparable(create_table_of(source)) for source in (before.source, table))
        steps = diff_tables(before.source, table, old, new)
        decision = decide(rules.policy_of(change), change, steps)
        if change.kind is ChangeKind.REPLACED:
            return _ruled(_build(table, wanted, before), decision)
        return _ruled(_altered(table, wanted, before, rules.dialect) or _build(table, wanted, before), decision)
    except (DdlUnreadable, TargetUnfit, NotSyncable) as error:
        return TableStep(table, failure=Failure.of(error), before=before)


def wanted_table(rules: TargetRules, table: Table) -> TargetTable:
    """The table as the target is to have it. Raises DdlUnreadable, TargetUnfit, NotSyncable."""
    check_types(table)
    return target_of(table, rules.dialect, rules.database, as_text=columns_as_text(rules.as_text, table.name))


def _without_refused(wanted: TargetTable, before: TargetTable) -> TargetTable:
    """Without the defaults that the target refused when it got the table, and that are still the same."""
    earlier, now = (
        {column.name: column.default for column in create_table_of(table.source).columns} for table in (before, wanted)
    )
    return without_defaults(wanted, {name for name in lacking_defaults(before) if earlier.get(name) == now.get(name)})


def _unfinished(
    rules: TargetRules, change: CatalogChange, before: TargetTable, wanted: TargetTable
) -> TableStep | None:
    """The step for a table whose source is the same. An interrupted attempt may have left statements that had to wait
    for the rows."""
    if wanted.create == before.create:
        return None
    steps = diff_tables(
        before.source, wanted.source, parse_create_table(before.create), parse_create_table(wanted.create)
    )
    return _ruled(
        _altered(change.table, wanted, before, rules.dialect) or _build(change.table, wanted, before),
        decide(rules.policy_of(change), change, steps),
    )


def _build(table: Table, wanted: TargetTable, before: TargetTable | None) -> Build:
    replaces = () if before is None else (before.id,)
    return Build(table, remarks=wanted.remarks, before=before, wanted=wanted, replaces=replaces)


def _altered(table: Table, wanted: TargetTable, before: TargetTable, dialect: Dialect) -> Alter | None:
    """None if it has to be rebuilt (docs/requirements.md N4)."""
    old = named(before, wanted.name)  # it is renamed before all steps
    new = parse_create_table(wanted.create)
    alteration = alter_table(before.source, table, parse_create_table(old.create), new, dialect)
    if alteration is None:
        return None
    # Existing rows would get the default; in the source they have their former value, mostly NULL.
    if any(isinstance(change, ColumnAdded) and change.column.default is not None for change in alteration.changes):
        return None
    between = (
        replace(wanted, create=format_create_table(_between(new, alteration))) if alteration.after_rows else wanted
    )
    return Alter(
        table,
        remarks=wanted.remarks,
        before=before,
        wanted=wanted,
        between=between,
        first=change_statements([old], [between], dialect),
        last=change_statements([between], [wanted], dialect),
    )


def _between(new: CreateTable, alteration: Alteration) -> CreateTable:
    """The definition when the first statements of an alteration have run, and the last have not."""
    bound, unique = set(), set()
    for change in alteration.changes:
        match change:
            case ColumnAdded(column, _) if not column.nullable and column.default is None:
                bound.add(column.name)
            case ColumnNullabilityChanged() if change.after_rows:
                bound.add(change.name)
            case IndexAdded(index) if change.after_rows:
                unique.add(index)
    columns = tuple(replace(column, nullable=True) if column.name in bound else column for column in new.columns)
    return replace(new, columns=columns, indexes=tuple(index for index in new.indexes if index not in unique))


def _ruled(step: S, decision: Decision) -> S:
    """The step, not taken if the policy says that it waits."""
    if decision.applies:
        return replace(step, destructive=decision.destructive)
    error = DdlWaits(
        f"upstream: {'; '.join(decision.waiting)}; the DDL policy leaves it to an operator",
        subject=f"table {step.table.qualified_name}",
    )
    return replace(step, destructive=decision.destructive, failure=Failure.of(error))


def _with_drops_held(
    rules: TargetRules, steps: Sequence[TableStep], live: Mapping[int, TargetTable]
) -> list[TableStep]:
    """Without the drops of this plan if they are too many. A table whose name another one takes is replaced, not
    gone."""
    names = {step.wanted.name for step in steps if step.failure is None and step.wanted is not None}
    gone = {
        step.id
        for step in steps
        if isinstance(step, Drop)
        and step.failure is None
        and step.table.qualified_name not in rules.approved
        and (step.before is None or step.before.name not in names)
    }
    text = f"{len(gone)} of the target's {len(live)} tables are gone, this one among them"
    many = rules.max_drop.holds(len(gone), len(live))

    def is_held(step: TableStep) -> bool:
        before = rules.max_drop.tables is None and step.table.qualified_name in rules.held
        return step.id in gone and (many or before)

    errors = (TargetDropsHeld(text, subject=f"table {step.table.qualified_name}") for step in steps)
    return [
        replace(step, failure=Failure.of(error)) if is_held(step) else step
        for step, error in zip(steps, errors, strict=True)
    ]


def _without_conflicts(steps: Sequence[TableStep], live: Mapping[int, TargetTable]) -> list[TableStep]:
    """A table cannot get the name of one that is not changed; then it is not changed either. That may block another
    one, so this is repeated until nothing changes."""
    found = {(step.table.id, step.id): step for step in steps}
    while True:
        taken = {step.id for step in found.values() if step.failure is None}
        holders = {table.name: table for table_id, table in live.items() if table_id not in taken}
        blocked = [
            (key, holders[step.wanted.name])
            for key, step in found.items()
            if step.failure is None and step.wanted is not None and step.wanted.name in holders
        ]
        if not blocked:
            return list(found.values())
        for key, holder in blocked:
            step = found[key]
            error = NameTaken(
                f"its name in the target is that of {holder.source.qualified_name}, which stays",
                subject=f"table {step.table.qualified_name}",
            )
            found[key] = replace(step, failure=Failure.of(error))
