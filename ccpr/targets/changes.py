"""The statements of each kind of change in a target, made from its tables before and after. The plan shows what these
functions give, the session runs it, and after a kill they give it again (`ccpr.targets.intents`)."""

from collections.abc import Sequence
from dataclasses import replace

from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.schema.alterations import alter_table, rename_tables
from ccpr.schema.dialects import Dialect
from ccpr.schema.table_statements import quoted
from ccpr.targets.base import TargetTable
from ccpr.targets.expected_tables import SWAPPING, named


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
