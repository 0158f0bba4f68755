"""Whether a table in the target database is ours and as we made it, asked before anything is done to it.

A table is ours if the registry has it and the server shows it with our mark. It is as we made it if the columns that we
made have the type, collation and key that the server reported then. What others added, an index or a column, is theirs
and does not count. Source: docs/requirements.md N5 and D5.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ccpr.matrixone.ddl.definition import format_create_table
from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.schema.alterations import Name, quoted
from ccpr.schema.choices import Dialect
from ccpr.schema.sync_mark import check_mark
from ccpr.targets.base import TargetTable
from ccpr.targets.errors import TargetTableAltered, TargetTableDropped, TargetTableForeign
from ccpr.targets.registry import ColumnFacts, Registry
from ccpr.targets.target_session import TargetSession


def name_of(table: TargetTable) -> Name:
    return table.database, table.name


def names_of(tables: Iterable[TargetTable]) -> list[Name]:
    return [name_of(table) for table in tables]


class Ownership:
    """The checks of one session. Each runs in a transaction of its own.

    Parameters
    ----------
    on_dropped : called with a table of ours that is not there any more, before that is raised.
    """

    def __init__(self, session: TargetSession, registry: Registry, on_dropped: Callable[[TargetTable], None]) -> None:
        self._session, self._registry, self._on_dropped = session, registry, on_dropped

    def check_ours(self, tables: Sequence[TargetTable], *, may_be_missing: bool = False) -> None:
        """Raises TargetTableDropped (unless `may_be_missing`), TargetTableAltered; MarkEdited."""
        with self._session.transaction():
            shown = [(table, self._shown(table)) for table in tables]
        for table, text in shown:
            subject = f"table {table.qualified_name}"
            if text is not None:
                check_mark(text, self._session.dialect, subject)
                self._check_columns(table, subject)
            elif not may_be_missing:
                self._on_dropped(table)
                raise TargetTableDropped("the table does not exist any more", subject=subject)

    def check_free(self, tables: Sequence[TargetTable], ours: Sequence[TargetTable]) -> None:
        """The names of `tables` are free, or those of `ours`. Raises TargetTableForeign if another table has one."""
        with self._session.transaction():
            for table in tables:
                if name_of(table) not in names_of(ours) and self._session.shown(quoted(name_of(table))) is not None:
                    raise TargetTableForeign(
                        "the target has a table of this name", subject=f"table {table.qualified_name}"
                    )

    def exists(self, table: TargetTable) -> bool:
        with self._session.transaction():
            return self._session.shown(quoted(name_of(table))) is not None

    def columns(self, table: TargetTable) -> ColumnFacts:
        """The table's columns as the server has them now. Within the caller's transaction."""
        query = (
            "SELECT column_name, column_type, collation_name, IF(column_key = 'PRI', 'in the key', NULL) "
            "FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
        )
        rows = self._session.rows(query, list(name_of(table)))
        return {name: [kind, collation, key] for name, kind, collation, key in rows}

    def _shown(self, table: TargetTable) -> str | None:
        """CREATE TABLE with the comment that the table has now: MatrixOne shows the one with which it was made."""
        text = self._session.shown(quoted(name_of(table)))
        if text is None or self._session.dialect is not Dialect.MATRIXONE:
            return text
        query = "SELECT table_comment FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        comments = [str(comment) for (comment,) in self._session.rows(query, list(name_of(table)))]
        return format_create_table(replace(parse_create_table(text), comment=comments[0] if comments else ""))

    def _check_columns(self, table: TargetTable, subject: str) -> None:
        """A column that was added there is not checked: if it has no default, the first row is refused."""
        with self._session.transaction() as connection:
            made, now = self._registry.columns_made(connection, table.id), self.columns(table)
        for name, facts in made.items():
            if now.get(name) != facts:
                is_now = f"it is now {_joined(now[name])}" if name in now else "it does not exist any more"
                raise TargetTableAltered(f"column {name} was {_joined(facts)}; {is_now}", subject=subject)
        added_to_key = [name for name, (_, _, key) in now.items() if key and name not in made]
        if made and added_to_key:
            raise TargetTableAltered(f"column {added_to_key[0]} was added to its key", subject=subject)


def _joined(facts: Sequence[str | None]) -> str:
    return " ".join(word for word in facts if word)
