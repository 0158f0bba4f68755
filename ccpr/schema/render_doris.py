"""A table as a Doris statement: unique key, merge on write.

This is text only: nothing is written to a Doris yet, and no server is available for tests. The requirements about
synced tables name Doris all the same (docs/requirements.md D1 to D5), and their tests need real statements of it.
"""

from dataclasses import replace

from ccpr.matrixone.ddl.definition import ColumnDefinition, CreateTable
from ccpr.matrixone.sql.quoting import quote_name, quote_names, quote_string
from ccpr.schema.dialects import Dialect
from ccpr.schema.render import RenderedTable, target_table


def doris_table(source: CreateTable, *, database: str | None = None) -> RenderedTable:
    """As `target_table`, with the key's columns first: Doris requires that. Raises TargetUnfit."""
    target = target_table(source, Dialect.DORIS, database=database)
    key = target.create.primary_key
    names = [column.name for column in target.create.columns]
    order = [names.index(name) for name in key] + [place for place, name in enumerate(names) if name not in key]
    if order == sorted(order):
        return target
    create = replace(target.create, columns=tuple(target.create.columns[place] for place in order))
    remark = "the columns of the key come first"
    return RenderedTable(create, tuple(target.types[place] for place in order), (*target.remarks, remark))


def create_table(table: CreateTable) -> str:
    """The CREATE TABLE statement. MatrixOne has no buckets: `for_sync` is given their number."""
    columns = ",\n".join(f"  {_column(column)}" for column in table.columns)
    comment = "\nCOMMENT " + quote_string(table.comment, '"') if table.comment else ""
    key = quote_names(table.primary_key, ", ")
    return (
        f"CREATE TABLE {table.quoted_name} (\n{columns}\n) ENGINE=OLAP\nUNIQUE KEY({key}){comment}\n"
        f'DISTRIBUTED BY HASH({key}) BUCKETS AUTO\nPROPERTIES (\n"enable_unique_key_merge_on_write" = "true"\n)'
    )


def _column(column: ColumnDefinition) -> str:
    default = f" DEFAULT {column.default}" if column.default is not None else ""
    comment = " COMMENT " + quote_string(column.comment, '"') if column.comment else ""
    return f"{quote_name(column.name)} {column.type} {'NULL' if column.nullable else 'NOT NULL'}{default}{comment}"
