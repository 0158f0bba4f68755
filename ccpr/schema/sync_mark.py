"""A table that is being synced: what it must not have, and how it gets it back (docs/requirements.md D1 to D5).

The same rule holds for a full copy and for a single statement (D4): `for_sync` rewrites a CREATE TABLE, marks it, and
returns what it removed. That has two parts, both JSON objects, which are stored in the target's registry.

* *stripped*: what refers to things of the source's cluster (D2).
* *disabled*: what acts by itself (D3): generated values, checks, cascades.

`restore` gives the statement as it was. `release` gives the statements that make the synced table an ordinary one (D5).
The mark (D1) is the end of the table's comment. It is never MatrixOne's `from_publication`, which would make the table
read-only for us: that property is stripped, and is the only thing that is not brought back.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ccpr.matrixone.ddl.definition import (
    CheckConstraint,
    ColumnDefinition,
    CreateTable,
    ForeignKey,
    Generated,
    format_create_table,
)
from ccpr.matrixone.ddl.parser import parse_create_table, table_comment
from ccpr.matrixone.errors import Terminal
from ccpr.matrixone.schema import INDEX_TABLE_PREFIX, integer_of, text_of
from ccpr.matrixone.sql.quoting import quote_name, quote_string
from ccpr.schema.choices import Dialect

MARK = "[ccpr: is_being_synced]"
READ_ONLY_PROPERTY = "from_publication"
_OF_THE_SOURCE = frozenset({"DATA DIRECTORY", "INDEX DIRECTORY", "TABLESPACE", "ENCRYPTION", "CONNECTION"})
_NOT_ALTERABLE = frozenset({"DATA DIRECTORY", "INDEX DIRECTORY"})
_COMMENT_LENGTH = 2048  # of MySQL and MariaDB, in characters
# Otherwise a row whose key is 0 would get another key when its column becomes AUTO_INCREMENT again.
_KEEP_ZERO = "SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@sql_mode, ''), 'NO_AUTO_VALUE_ON_ZERO')"


class NotSyncable(Terminal):
    """A table of this kind is not created by SQL, or something about it is not known. Nothing was changed."""

    code = "TABLE_NOT_SYNCABLE"
    about = "table"
    default_remedy = "See the message. The target makes index tables itself."


class MarkEdited(Terminal):
    """Another user edited the mark of a synced table."""

    code = "SYNC_MARK_EDITED"
    about = "table"
    default_remedy = (
        "Put the mark back at the end of the table's comment. Or drop the table there, and rebuild it with `ccpr "
        "target rebuild NAME TARGET TABLE`."
    )


class NotRestorable(Terminal):
    """The stored state of a synced table does not match its statement."""

    code = "SYNC_STATE_UNFIT"
    about = "table"
    default_remedy = "Use the statement that was stored when the table was made, not one that was edited since."


class Mark(StrEnum):
    SET = "set"
    MISSING = "missing"
    FOREIGN = "foreign"  # another program's: a published MatrixOne table, or a value that we never write


@dataclass(frozen=True, slots=True)
class Synced:
    """A statement for the target, and what was removed from it.

    Attributes
    ----------
    create : CREATE TABLE text with the mark.
    stripped, disabled : JSON objects, for `restore` and `release`.
    """

    create: str
    stripped: Mapping[str, Any]
    disabled: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Release:
    """What makes a synced table an ordinary one.

    Attributes
    ----------
    statements : to be run in this order; the last one removes the mark.
    left_out : what no ALTER TABLE brings back, as text.
    optional : statements that contain an expression of the source and may be refused by the server, each as a whole.
        Their numbers in `statements`, with what is not brought back then.
    """

    statements: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    optional: Mapping[int, str] = field(default_factory=dict)


def for_sync(table: CreateTable | str) -> Synced:
    """The statement for the target. Raises DdlUnreadable; NotSyncable for an index table."""
    created = parse_create_table(table) if isinstance(table, str) else table
    if created.name.startswith(INDEX_TABLE_PREFIX):
        raise NotSyncable("an index table is made by its index", subject=f"table {created.name}")
    options, stripped = _cut(created.options, _OF_THE_SOURCE)
    options, counters = _cut(options, {"AUTO_INCREMENT"})
    properties, published = _cut(created.properties, {READ_ONLY_PROPERTY})
    columns = created.columns
    disabled = {
        "auto_increment": [column.name for column in columns if column.auto_increment],
        "on_update": {column.name: column.on_update for column in columns if column.on_update},
        "generated": {
            c.name: {"expression": c.generated.expression, "stored": c.generated.stored} for c in columns if c.generated
        },
        "checks": [[check.name, check.expression] for check in created.checks],
        "foreign_keys": [_foreign_key_json(key) for key in created.foreign_keys],
        "options": counters,
        "comment": created.comment,
    }
    rewritten = replace(
        created,
        columns=tuple(replace(column, auto_increment=False, on_update="", generated=None) for column in columns),
        checks=(),
        foreign_keys=(),
        options=options,
        properties=properties,
        comment=_marked(created.comment),
    )
    return Synced(
        format_create_table(rewritten), _filled({"options": stripped, "properties": published}), _filled(disabled)
    )


def restore(create: str, stripped: Mapping[str, Any], disabled: Mapping[str, Any]) -> str:
    """The statement that `for_sync` was given, in the form of `format_create_table`, without the mark and without
    `from_publication`. Raises DdlUnreadable and NotRestorable."""
    return format_create_table(_restored(parse_create_table(create), stripped, disabled))


def release(create: str, stripped: Mapping[str, Any], disabled: Mapping[str, Any], dialect: Dialect) -> Release:
    """The statements that end the sync of a table that was made by `create` (D5). Raises DdlUnreadable and
    NotRestorable."""
    synced = parse_create_table(create)
    table = _restored(synced, stripped, disabled)
    if dialect is Dialect.MATRIXONE:
        return _release_in_matrixone(table)
    alter = f"ALTER TABLE {table.quoted_name} "
    statements: list[str] = []
    optional: dict[int, str] = {}
    if dialect.speaks_mysql and any(column.auto_increment for column in table.columns):
        statements.append(_KEEP_ZERO)
    generated = [column for column in table.columns if column.generated and column.name not in table.primary_key]
    changed = [f"MODIFY COLUMN {column}" for column in table.columns if column.auto_increment or column.on_update]
    if changed:
        statements.append(alter + ", ".join(changed))
    for column in generated:
        # MariaDB has no NOT NULL for a generated column.
        wanted = replace(column, nullable=True) if dialect is Dialect.MARIADB else column
        optional[len(statements)] = f"column {column.name} {_expression(column)}"
        statements.append(alter + _regenerate(table, wanted))
    for constraint in (*table.checks, *table.foreign_keys):
        optional[len(statements)] = str(constraint)
        statements.append(f"{alter}ADD {constraint}")
    brought = [option for part in (stripped, disabled) for _, *option in part.get("options", ())]
    statements += [f"{alter}{name}={value}" for name, value in brought if name not in _NOT_ALTERABLE]
    statements.append(f"{alter}COMMENT={quote_string(table.comment)}")
    left_out = [f"{name}={value}" for name, value in brought if name in _NOT_ALTERABLE]
    left_out += [
        f"column {c.name} {_expression(c)} (it is in the primary key)"
        for c in table.columns
        if c.generated and c not in generated
    ]
    return Release(tuple(statements), tuple(left_out), optional)


def _release_in_matrixone(table: CreateTable) -> Release:
    """Only the mark goes. A column that becomes AUTO_INCREMENT afterwards may count from 1, over rows that are
    there."""
    acting = [
        f"column {column.name} {word}"
        for column in table.columns
        for word in (
            "AUTO_INCREMENT" if column.auto_increment else "",
            f"ON UPDATE {column.on_update}" if column.on_update else "",
            _expression(column),
        )
        if word
    ]
    shown = "the mark in SHOW CREATE TABLE: a MatrixOne goes on showing the comment with which a table was made"
    comment = f"ALTER TABLE {table.quoted_name} COMMENT={quote_string(table.comment)}"
    return Release((comment,), (*acting, *map(str, (*table.checks, *table.foreign_keys)), shown))


def mark_of(text: str, dialect: Dialect) -> Mark:
    """The mark in a CREATE TABLE text as the target shows it now. Raises DdlUnreadable."""
    if dialect is Dialect.MATRIXONE:
        properties = parse_create_table(text).properties
        if any(key == READ_ONLY_PROPERTY and value != "false" for key, value in properties):
            return Mark.FOREIGN
    # The comment alone is read: the mark is found even if the rest has partitions or a word that we do not know.
    return Mark.SET if table_comment(text).endswith(MARK) else Mark.MISSING


def check_mark(text: str, dialect: Dialect, subject: str) -> None:
    """Raises MarkEdited if a table that we sync does not have the mark as we set it (D5)."""
    mark = mark_of(text, dialect)
    if mark is not Mark.SET:
        raise MarkEdited(f"the mark of a synced table is {mark}", subject=subject)


def _marked(comment: str) -> str:
    return f"{comment[: _COMMENT_LENGTH - len(MARK) - 1]} {MARK}" if comment else MARK


def _filled(value: dict[str, Any]) -> dict[str, Any]:
    return {key: inner for key, inner in value.items() if inner}


def _cut(
    pairs: Sequence[tuple[str, str]], names: Collection[str]
) -> tuple[tuple[tuple[str, str], ...], list[list[Any]]]:
    """What stays, and what is removed: each with its place."""
    removed = [[place, *pair] for place, pair in enumerate(pairs) if pair[0] in names]
    return tuple(pair for pair in pairs if pair[0] not in names), removed


def _restored(synced: CreateTable, stripped: Mapping[str, Any], disabled: Mapping[str, Any]) -> CreateTable:
    try:
        generated = {
            text_of(name): Generated(text_of(value["expression"]), bool(value["stored"]))
            for name, value in disabled.get("generated", {}).items()
        }
        on_update = {text_of(name): text_of(value) for name, value in disabled.get("on_update", {}).items()}
        counting = {text_of(name) for name in disabled.get("auto_increment", ())}
        missing = {*generated, *on_update, *counting} - {column.name for column in synced.columns}
        if missing:
            raise NotRestorable(f"the table has no column {min(missing)!r:.80}", subject=f"table {synced.name}")
        return replace(
            synced,
            columns=tuple(
                replace(
                    column,
                    auto_increment=column.name in counting,
                    on_update=on_update.get(column.name, ""),
                    generated=generated.get(column.name),
                )
                for column in synced.columns
            ),
            checks=tuple(
                CheckConstraint(text_of(name), text_of(expression)) for name, expression in disabled.get("checks", ())
            ),
            foreign_keys=tuple(map(_foreign_key, disabled.get("foreign_keys", ()))),
            options=_put_back(_put_back(synced.options, disabled.get("options", ())), stripped.get("options", ())),
            comment=text_of(disabled.get("comment", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"the stored state differs from what was written: {error!r:.80}"
        raise NotRestorable(message, subject=f"table {synced.name}") from error


def _put_back(pairs: tuple[tuple[str, str], ...], removed: Sequence[Sequence[Any]]) -> tuple[tuple[str, str], ...]:
    whole = list(pairs)
    for place, name, value in removed:
        if not 0 <= integer_of(place) <= len(whole):
            raise ValueError(f"no place {place}")
        whole.insert(place, (text_of(name), text_of(value)))
    return tuple(whole)


def _foreign_key_json(key: ForeignKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "columns": list(key.columns),
        "table": key.table,
        "referenced": list(key.referenced),
        "database": key.database,
        "on_delete": key.on_delete,
        "on_update": key.on_update,
    }


def _foreign_key(value: Mapping[str, Any]) -> ForeignKey:
    name, table, database, on_delete, on_update = (
        text_of(value[key]) for key in ("name", "table", "database", "on_delete", "on_update")
    )
    columns, referenced = (tuple(map(text_of, value[key])) for key in ("columns", "referenced"))
    return ForeignKey(name, columns, table, referenced, database, on_delete, on_update)


def _expression(column: ColumnDefinition) -> str:
    return f"GENERATED ALWAYS AS ({column.generated.expression})" if column.generated else ""


def _regenerate(table: CreateTable, column: ColumnDefinition) -> str:
    """A column with stored values cannot become a generated one: it is dropped and added again, with the indexes that
    contain it. All in one ALTER, so that a server that refuses the expression leaves the column with its values.
    """
    order = [other.name for other in table.columns]
    place = order.index(column.name)
    over = [index for index in table.indexes if any(part.column == column.name for part in index.parts)]
    return ", ".join(
        (
            *(f"DROP INDEX {quote_name(index.name)}" for index in over),
            f"DROP COLUMN {quote_name(column.name)}",
            f"ADD COLUMN {column} {f'AFTER {quote_name(order[place - 1])}' if place else 'FIRST'}",
            *(f"ADD {index}" for index in over),
        )
    )
