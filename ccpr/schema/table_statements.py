"""The statements that create, replace and drop tables in a target, and the names of the shadow tables that they use.
The plan and the run both call these functions, so what a plan shows is what is run."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Literal

from ccpr.matrixone.ddl.definition import CreateTable, format_create_table
from ccpr.matrixone.sql.quoting import quote_qualified
from ccpr.schema.alterations import alter_statements, rename_tables
from ccpr.schema.choices import Dialect

Name = tuple[str, str]  # database, table


def quoted(name: Name) -> str:
    return quote_qualified(name)


def shadow_name(purpose: Literal["load", "old"], task_id: str, table_id: int) -> str:
    """The name of the shadow table that is loaded (``load``), or of a replaced table until it is dropped (``old``). No
    other subscription's table has this name."""
    return f"ccpr_{purpose}_{sha256(task_id.encode()).hexdigest()[:12]}_{table_id}"


def make_shadow(create: CreateTable, shadow: str) -> str:
    """CREATE TABLE of the shadow table that rows are loaded into. Its indexes are made after the load."""
    return format_create_table(replace(create, name=shadow, indexes=()))


def show_loaded(
    create: CreateTable, shadow: str, outgoing: Sequence[tuple[Name, str]], dialect: Dialect
) -> tuple[str, ...]:
    """The statements that make the indexes, rename all tables in one step, and drop what was replaced.

    `outgoing` : the replaced tables, each with the name that it has until it is dropped.
    """
    database = create.database
    loaded = quoted((database, shadow))
    retired = [(quoted(name), quoted((name[0], old))) for name, old in outgoing]
    return (
        *alter_statements(loaded, [f"ADD {index}" for index in create.indexes], dialect),
        rename_tables([*retired, (loaded, quoted((database, create.name)))]),
        *(drop_table((name[0], old)) for name, old in outgoing),
    )


def drop_table(name: Name) -> str:
    return f"DROP TABLE IF EXISTS {quoted(name)}"
