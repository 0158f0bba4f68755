"""CREATE TABLE: with columns, LIKE, CLONE, AS SELECT."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.tokens import Tokens
from ccpr_emulator.engine.definitions import Attributes
from ccpr_emulator.engine.partitioning import Partitioning
from ccpr_emulator.sql.ddl.acts import Act, Context, tolerated
from ccpr_emulator.sql.ddl.columns import ColumnText, foreign_key, text_in_brackets, type_text
from ccpr_emulator.sql.ddl.indexes import key_element
from ccpr_emulator.sql.ddl.table_options import read_options
from ccpr_emulator.sql.dialect import parse as parse_query
from ccpr_emulator.sql.names import WrittenTable, key_columns, skip_key_options, table_name
from ccpr_emulator.sql.queries import Result
from ccpr_emulator.sql.text import coerced


@dataclass(slots=True)
class _Elements:
    """What is in the brackets of CREATE TABLE."""

    columns: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, Attributes] = field(default_factory=dict)
    primary_key: list[str] = field(default_factory=list)
    indexes: dict[str, list[str]] = field(default_factory=dict)
    unique: dict[str, list[str]] = field(default_factory=dict)
    fulltext: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)

    def spelled(self, names: Sequence[str]) -> list[str]:
        known = {name.lower(): name for name in self.columns}
        return [known.get(name.lower(), name) for name in names]


def create_table(tokens: Tokens, context: Context, *, tolerant: bool) -> Act:
    storage, account = context.storage, context.login.account
    names = table_name(tokens, context.database)
    if tokens.accept("clone"):
        source = table_name(tokens, context.database)
        return partial(tolerated, tolerant, "create", _clone, context, source, names)
    in_brackets = tokens.accept("(", "like")
    if in_brackets or tokens.accept("like"):
        source = table_name(tokens, context.database)
        if in_brackets:
            tokens.expect(")")
        return partial(tolerated, tolerant, "create", _create_like, context, names, source, tokens.sql)
    elements = _Elements()
    if tokens.accept("("):
        while True:
            _element(tokens, elements)
            if not tokens.accept(","):
                break
        tokens.expect(")")
    options = read_options(tokens)
    query = ""
    if tokens.accept("as") or tokens.at("select", "with", "("):
        query = tokens.sql[tokens.tokens[tokens.position].start :]
        tokens.skip_rest()
    elif not elements.columns:
        raise tokens.unknown()

    def create() -> None:
        result = _taken_from(context, query, elements) if query else None
        entry = storage.create_table(
            *names,
            elements.columns,
            primary_key=elements.spelled(elements.primary_key),
            cluster_by=elements.spelled(options.cluster_by),
            indexes={name: elements.spelled(given) for name, given in elements.indexes.items()},
            unique={name: elements.spelled(given) for name, given in elements.unique.items()},
            comment=options.comment,
            attributes=elements.attributes,
            fulltext=elements.fulltext,
            constraints=elements.constraints,
            create_sql=tokens.sql.strip().rstrip(";").strip(),
            partitioning=_spelled(options.partitioning, elements),
            account=account,
        )
        entry.next_auto = max(entry.next_auto, options.auto_increment)
        if result is not None:
            target = WrittenTable(*names, entry)
            given = {
                name: coerced(target.column(name), result.array(place))
                for place, (name, _) in enumerate(result.columns)
            }
            context.changes.insert(target, given, result.rows.num_rows, "insert", [])

    return partial(tolerated, tolerant, "create", create)


def _spelled(partitioning: Partitioning | None, elements: _Elements) -> Partitioning | None:
    return partitioning and replace(partitioning, column=elements.spelled([partitioning.column])[0])


def _taken_from(context: Context, query: str, elements: _Elements) -> Result:
    """The rows of CREATE TABLE … AS SELECT; its columns are added to those that are defined."""
    result = context.reader.read(parse_query(query), query)
    known = {name.lower() for name in elements.columns}
    for place, (name, column) in enumerate(result.columns):
        if name.lower() not in known:
            elements.columns[name] = type_text(column, result.rows.schema.field(place).type)
    return result


def _clone(context: Context, source: tuple[str, str], names: tuple[str, str]) -> None:
    storage, account = context.storage, context.login.account
    entry = storage.table(*source, account=account)
    if not entry.definition.indexes:
        storage.clone_table(*source, names[1], target=names[0], account=account)
        return
    made = storage.create_like(*names, entry.definition, account=account)
    made.next_auto = entry.next_auto
    rows = storage.rows_at(*source, storage.now, account=account)
    with storage.begin(account) as transaction:
        transaction.insert(*names, rows)


def _create_like(context: Context, names: tuple[str, str], source: tuple[str, str], sql: str) -> None:
    account = context.login.account
    definition = context.storage.table(*source, account=account).definition
    context.storage.create_like(*names, definition, create_sql=sql.strip().rstrip(";"), account=account)


def _element(tokens: Tokens, elements: _Elements) -> None:
    """A column or a key inside the brackets of CREATE TABLE."""
    begin = tokens.position
    constraint = ""
    if tokens.accept("constraint"):
        constraint = "" if tokens.at("primary", "unique", "foreign", "check") else tokens.name()
    if tokens.accept("primary", "key"):
        if tokens.accept("using"):
            tokens.name()
        elements.primary_key = key_columns(tokens)
        skip_key_options(tokens)
    elif tokens.accept("foreign", "key"):
        elements.constraints.append(foreign_key(tokens, constraint))
    elif tokens.accept("check"):
        text_in_brackets(tokens)
        if tokens.accept("not"):
            tokens.expect("enforced")
        else:
            tokens.accept("enforced")
    elif (found := key_element(tokens, constraint)) is not None:
        kind, name, columns = found
        if kind == "fulltext":
            elements.fulltext.append((name, tuple(columns)))
        else:
            given = elements.unique if kind == "unique" else elements.indexes
            while name in (*elements.unique, *elements.indexes):
                name += "_2"
            given[name] = columns
    elif tokens.position != begin:
        raise tokens.unknown()
    else:
        _column_element(tokens, elements)


def _column_element(tokens: Tokens, elements: _Elements) -> None:
    name = tokens.name()
    if name.lower() in (known.lower() for known in elements.columns):
        raise StatementError(1060, f"Duplicate column name '{name}'", "42S21")
    column = ColumnText(tokens, name)
    elements.columns[name] = column.text
    elements.constraints += column.constraints
    if column.attributes != Attributes():
        elements.attributes[name] = column.attributes
    if column.is_primary:
        elements.primary_key = [name]
    if column.is_unique:
        elements.unique[name] = [name]
