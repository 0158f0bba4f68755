"""The DDL of a simulated upstream.

CREATE ACCOUNT [IF NOT EXISTS] a …             CREATE | DROP DATABASE [IF [NOT] EXISTS] d
CREATE TABLE [IF NOT EXISTS] t (c type [NOT NULL] [PRIMARY KEY] [UNIQUE], …, PRIMARY KEY (…), [UNIQUE] KEY k (…))
    [COMMENT 'text'] [CLUSTER BY (…)]          CREATE TABLE t CLONE s
DROP TABLE [IF EXISTS] t, …                    TRUNCATE TABLE t            RENAME TABLE t TO u, …
ALTER TABLE t ADD COLUMN c type | DROP COLUMN c | MODIFY COLUMN c type | RENAME TO u | RENAME COLUMN c TO d
    | COMMENT 'text' | ADD [UNIQUE] INDEX k (…) | DROP INDEX k
CREATE [UNIQUE] INDEX k ON t (…)               DROP INDEX k ON t
CREATE PUBLICATION p DATABASE d | * [TABLE t, …] ACCOUNT ALL | a, … [COMMENT 'text']
DROP PUBLICATION [IF EXISTS] p
ALTER PUBLICATION p [ACCOUNT ALL | [ADD | DROP] a, …] [DATABASE d] [TABLE t, …] [COMMENT 'text']
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from emulator.engine.definitions import BadDefinition
from emulator.engine.storage import Storage
from wire.access import Login, can_be_publication
from wire.backing import internal
from wire.server import StatementError
from wire.statements import Tokens

Act = Callable[[], object]
T = TypeVar("T")
_ADMITTING_ALL = "only sys account and authorized normal accounts can publish to all accounts"
_TOLERATED = {"create": (1007, 1050, 20101), "drop": (1049, 1146, 20101)}


def kind_of(words: Sequence[str]) -> str | None:
    """The kind of a statement by its first three words, in lower case."""
    first, second, third = words
    if first in ("truncate", "rename") or (first, second) == ("alter", "table"):
        return first
    if first == "create" and second == "unique" and third == "index":
        return "create_index"
    known = ("account", "database", "schema", "table", "publication", "index")
    if (first in ("create", "drop") and second in known) or (first, second) == ("alter", "publication"):
        return f"{first}_{second}".replace("schema", "database")
    return None


def parse(kind: str, tokens: Tokens, storage: Storage, login: Login, database: str) -> Act:
    """Read the statement; what is returned does it. Raises StatementError, BadDefinition."""
    first = tokens.next().lower()
    account = login.account
    if kind.endswith("_publication"):
        tokens.next()
        return _publication(first, tokens, storage, login)
    match kind:
        case "create_account" | "create_database" | "drop_database" | "drop_table" | "create_table":
            tokens.next()
            return _create_or_drop(kind, tokens, storage, login, database)
        case "truncate":
            tokens.accept("table")
            return partial(storage.truncate, *table_name(tokens, database), account=account)
        case "rename":
            tokens.expect("table")
            return _all(_list(tokens, lambda: _rename(tokens, storage, account, database)))
        case "alter":
            tokens.expect("table")
            return _alter(table_name(tokens, database), tokens, storage, account)
        case "create_index" | "drop_index":
            is_unique = tokens.accept("unique")
            tokens.expect("index")
            name = tokens.name()
            tokens.expect("on")
            names = table_name(tokens, database)
            if kind == "drop_index":
                return partial(storage.drop_index, *names, name, account=account)
            tokens.expect("(")
            columns = names_in_brackets(tokens)
            return partial(storage.create_index, *names, name, columns, unique=is_unique, account=account)
        case _:
            raise tokens.unknown()


def _create_or_drop(kind: str, tokens: Tokens, storage: Storage, login: Login, database: str) -> Act:
    """An account, a database or a table."""
    verb, account = kind.partition("_")[0], login.account
    tolerant = tokens.accept("if", "not", "exists") if verb == "create" else tokens.accept("if", "exists")
    if kind == "create_table":
        return _create_table(tokens, storage, account, database, tolerant=tolerant)
    if kind == "drop_table":
        tables = _list(tokens, lambda: table_name(tokens, database))
        return _all(
            partial(_tolerated, tolerant, verb, storage.drop_table, *names, account=account) for names in tables
        )
    name = tokens.name().lower()
    if kind == "create_account":
        tokens.skip_rest()
        if not (login.is_sys and login.is_admin):
            raise internal("do not have privilege to execute the statement")
        return partial(_tolerated, tolerant, verb, storage.create_account, name)
    act = storage.create_database if kind == "create_database" else storage.drop_database
    return partial(_tolerated, tolerant, verb, act, name, account=account)


# ---- names


def table_name(tokens: Tokens, database: str, *, needs_database: bool = True) -> tuple[str, str]:
    """(database, table), in lower case as the upstream has them."""
    name = tokens.name().lower()
    if tokens.accept("."):
        return name, tokens.name().lower()
    if not database and needs_database:
        raise StatementError(1046, "No database selected", "3D000")
    return database.lower(), name


def names_in_brackets(tokens: Tokens) -> list[str]:
    """Names up to the closing bracket."""
    names = _list(tokens, tokens.name)
    tokens.expect(")")
    return names


def _list(tokens: Tokens, item: Callable[[], T]) -> list[T]:
    items = [item()]
    while tokens.accept(","):
        items.append(item())
    return items


def _all(acts: Any) -> Act:
    """One after the other."""
    whole = list(acts)

    def act() -> None:
        for one in whole:
            one()

    return act


def _tolerated(tolerant: bool, verb: str, act: Callable[..., Any], *names: Any, **options: Any) -> None:
    """With IF EXISTS or IF NOT EXISTS (`tolerant`) it is not an error that something is missing, or is there."""
    try:
        act(*names, **options)
    except StatementError as error:
        if not tolerant or error.number not in _TOLERATED[verb] or "publishing" in error.text:
            raise


# ---- tables


def _create_table(tokens: Tokens, storage: Storage, account: str, database: str, *, tolerant: bool) -> Act:
    names = table_name(tokens, database)
    if tokens.accept("clone"):
        source = table_name(tokens, database)
        if source[0] != names[0]:
            raise BadDefinition("a table is cloned within its database here")
        return partial(_tolerated, tolerant, "create", storage.clone_table, *source, names[1], account=account)
    tokens.expect("(")
    columns: dict[str, str] = {}
    keys: dict[str, Any] = {"primary_key": [], "indexes": {}, "unique": {}}
    while True:
        _element(tokens, columns, keys)
        if not tokens.accept(","):
            break
    tokens.expect(")")
    comment = ""
    if tokens.accept("comment"):
        tokens.accept("=")
        comment = tokens.text()
    cluster = names_in_brackets(tokens) if tokens.accept("cluster", "by", "(") else []
    spelled = {name.lower(): name for name in columns}

    def as_spelled(given: Sequence[str]) -> list[str]:
        return [spelled.get(name.lower(), name) for name in given]

    keys = {
        "primary_key": as_spelled(keys["primary_key"]),
        "cluster_by": as_spelled(cluster),
        **{kind: {name: as_spelled(given) for name, given in keys[kind].items()} for kind in ("indexes", "unique")},
    }
    return partial(
        _tolerated, tolerant, "create", storage.create_table, *names, columns, **keys, comment=comment, account=account
    )


def _element(tokens: Tokens, columns: dict[str, str], keys: dict[str, Any]) -> None:
    """A column or a key inside the brackets of CREATE TABLE."""
    if tokens.accept("primary", "key", "("):
        keys["primary_key"] = names_in_brackets(tokens)
        return
    is_unique = tokens.accept("unique", "key") or tokens.accept("unique", "index")
    if is_unique or tokens.accept("key") or tokens.accept("index"):
        name = tokens.name()
        tokens.expect("(")
        keys["unique" if is_unique else "indexes"][name] = names_in_brackets(tokens)
        return
    name = tokens.name()
    if name.lower() in (known.lower() for known in columns):
        raise StatementError(1060, f"Duplicate column name '{name}'", "42S21")
    columns[name] = _type_text(tokens)
    while True:
        if tokens.accept("not", "null"):
            columns[name] += " not null"
        elif tokens.accept("primary", "key"):
            keys["primary_key"] = [name]
        elif tokens.accept("unique"):
            tokens.accept("key")
            keys["unique"][name] = [name]
        elif not (tokens.accept("default", "null") or tokens.accept("null")):
            return


def _type_text(tokens: Tokens) -> str:
    """A column's type as it is written: a word, what is in brackets, `unsigned`."""
    begin = tokens.position
    tokens.name()
    if tokens.accept("("):
        while not tokens.accept(")"):
            tokens.next()
    tokens.accept("unsigned")
    return tokens.source(begin)


def _rename(tokens: Tokens, storage: Storage, account: str, database: str) -> Act:
    names = table_name(tokens, database)
    tokens.expect("to")
    return _renamed(storage, account, names, table_name(tokens, names[0]))


def _renamed(storage: Storage, account: str, names: tuple[str, str], new: tuple[str, str]) -> Act:
    if new[0] != names[0]:
        raise BadDefinition("a table is renamed within its database here")
    return partial(storage.rename_table, *names, new[1], account=account)


def _alter(names: tuple[str, str], tokens: Tokens, storage: Storage, account: str) -> Act:
    """One change a statement."""

    def column() -> str:
        given = tokens.name()
        definition = storage.table(*names, account=account).definition
        return next((known.name for known in definition.user_columns if known.name.lower() == given.lower()), given)

    if tokens.accept("add", "unique"):
        if not tokens.accept("key"):
            tokens.accept("index")
        name = tokens.name()
        tokens.expect("(")
        return partial(storage.create_index, *names, name, names_in_brackets(tokens), unique=True, account=account)
    if tokens.accept("add", "index") or tokens.accept("add", "key"):
        name = tokens.name()
        tokens.expect("(")
        return partial(storage.create_index, *names, name, names_in_brackets(tokens), account=account)
    if tokens.accept("add"):
        tokens.accept("column")
        return partial(storage.add_column, *names, tokens.name(), _column_text(tokens), account=account)
    if tokens.accept("modify"):
        tokens.accept("column")
        return partial(storage.modify_column, *names, column(), _column_text(tokens), account=account)
    if tokens.accept("drop", "index") or tokens.accept("drop", "key"):
        return partial(storage.drop_index, *names, tokens.name(), account=account)
    if tokens.accept("drop"):
        tokens.accept("column")
        return partial(storage.drop_column, *names, column(), account=account)
    if tokens.accept("rename", "column"):
        old = column()
        tokens.expect("to")
        return partial(storage.rename_column, *names, old, tokens.name(), account=account)
    if tokens.accept("rename"):
        tokens.accept("to")
        return _renamed(storage, account, names, table_name(tokens, names[0]))
    tokens.expect("comment")
    tokens.accept("=")
    return partial(storage.comment_table, *names, tokens.text(), account=account)


def _column_text(tokens: Tokens) -> str:
    text = _type_text(tokens)
    if tokens.accept("not", "null"):
        return f"{text} not null"
    if not tokens.accept("default", "null"):
        tokens.accept("null")
    return text


# ---- publications


def _publication(verb: str, tokens: Tokens, storage: Storage, login: Login) -> Act:
    """docs/upstream.md 3.2, 3.3. IF [NOT] EXISTS may be in all of them, and counts in DROP only."""
    tolerant = tokens.accept("if", "not", "exists") if verb == "create" else tokens.accept("if", "exists")
    if not login.is_admin:
        raise internal(f"only admin can {verb} publication")
    name, account = tokens.name().lower(), login.account
    if not can_be_publication(name) or len(name) > 64:
        raise StatementError(20301, f"invalid input: publication name {name}")
    if verb == "drop":
        return partial(_tolerated, tolerant, verb, storage.drop_publication, name, account=account)
    given: dict[str, Any] = {}
    if verb == "alter" and tokens.accept("account"):
        given["accounts"] = _accounts(tokens, login, storage.publications.get((account, name)))
    if tokens.accept("database"):
        given["database"] = "*" if verb == "create" and tokens.accept("*") else tokens.name().lower()
    elif verb == "create":
        raise tokens.unknown()
    if tokens.accept("table"):
        given["tables"] = [table.lower() for table in _list(tokens, tokens.name)]
    if verb == "create":
        tokens.expect("account")
        given["accounts"] = _accounts(tokens, login, None)
    if tokens.accept("comment"):
        given["comment"] = tokens.text()
    if verb == "alter":
        return partial(storage.alter_publication, name, **given, account=account)
    return partial(storage.create_publication, name, **given, account=account)


def _accounts(tokens: Tokens, login: Login, old: Any) -> list[str]:
    """ALL, or names; with ADD and DROP, the old list changed. To drop what is not on the list is not an error."""
    added, dropped = tokens.accept("add"), tokens.accept("drop")
    names = [name.lower() for name in _list(tokens, tokens.name)]
    if "all" in names and not login.is_sys:
        raise internal(_ADMITTING_ALL)
    if not (added or dropped):
        return names
    if old is None or old.admits("*"):
        raise internal(
            "cannot add or drop accounts of a publication for all accounts" if old else "publication does not exist"
        )
    return sorted({*old.accounts, *names}) if added else [name for name in old.accounts if name not in names]
