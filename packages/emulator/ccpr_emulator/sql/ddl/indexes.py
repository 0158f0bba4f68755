"""CREATE and DROP INDEX, and keys in the brackets of CREATE TABLE."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ccpr.matrixone.server.tokens import Tokens
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.sql.ddl.acts import Act, Context
from ccpr_emulator.sql.names import key_columns, skip_key_options, table_name


def index(kind: str, tokens: Tokens, context: Context) -> Act:
    storage, account = context.storage, context.login.account
    is_unique, is_fulltext = tokens.accept("unique"), tokens.accept("fulltext")
    if not tokens.accept("key"):
        tokens.expect("index")
    name = tokens.name()
    if tokens.accept("using"):
        tokens.name()
    tokens.expect("on")
    names = table_name(tokens, context.database)
    if kind == "drop_index":
        return partial(drop_index, storage, names, name, account)
    columns = key_columns(tokens)
    skip_key_options(tokens)
    return partial(add_index, storage, names, name, columns, account, is_unique, is_fulltext)


def add_index(
    storage: Storage,
    names: tuple[str, str],
    name: str,
    columns: Sequence[str],
    account: str,
    is_unique: bool,
    is_fulltext: bool,
) -> None:
    definition = storage.table(*names, account=account).definition
    columns = spelled(definition, columns)
    if is_fulltext:
        storage.redefine(
            *names, lambda old: replace(old, fulltext=(*old.fulltext, (name, tuple(columns)))), account=account
        )
    else:
        storage.create_index(*names, name, columns, unique=is_unique, account=account)


def drop_index(storage: Storage, names: tuple[str, str], name: str, account: str) -> None:
    definition = storage.table(*names, account=account).definition
    if any(known == name for known, _ in definition.fulltext):
        kept = tuple(one for one in definition.fulltext if one[0] != name)
        storage.redefine(*names, lambda old: replace(old, fulltext=kept), account=account)
    else:
        storage.drop_index(*names, name, account=account)


def spelled(definition: Definition, names: Sequence[str]) -> list[str]:
    """Names as the definition spells them."""
    known = {column.name.lower(): column.name for column in definition.user_columns}
    return [known.get(name.lower(), name) for name in names]


def key_element(tokens: Tokens, constraint: str) -> tuple[str, str, list[str]] | None:
    """(kind, name, columns) of UNIQUE, KEY, INDEX or FULLTEXT; None at something else, such as a column."""
    kind = "unique" if tokens.accept("unique") else "fulltext" if tokens.accept("fulltext") else ""
    begin = tokens.position
    has_word = tokens.accept("key") or tokens.accept("index")
    if not kind and not has_word:
        return None
    name = ""
    if not tokens.at("(", "using"):
        name = tokens.name()
    if tokens.accept("using"):
        tokens.name()
    if not tokens.at("("):
        tokens.position = begin
        raise tokens.unknown()
    columns = key_columns(tokens)
    skip_key_options(tokens)
    return kind or "index", name or constraint or columns[0], columns
