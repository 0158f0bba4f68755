"""The DDL of a simulated upstream.

CREATE ACCOUNT [IF NOT EXISTS] a …             CREATE | DROP DATABASE [IF [NOT] EXISTS] d
CREATE TABLE [IF NOT EXISTS] t (…) …           CREATE TABLE t LIKE s | CLONE s | [AS] SELECT …
DROP TABLE [IF EXISTS] t, …                    TRUNCATE TABLE t            RENAME TABLE t TO u, …
ALTER TABLE t …, …                             CREATE [UNIQUE | FULLTEXT] INDEX k ON t (…)     DROP INDEX k ON t
CREATE [OR REPLACE] VIEW v [(…)] AS SELECT …   DROP VIEW [IF EXISTS] v
CREATE SEQUENCE s [START n] [INCREMENT n]      DROP SEQUENCE [IF EXISTS] s
CREATE PUBLICATION p DATABASE d | * [TABLE t, …] ACCOUNT ALL | a, … [COMMENT 'text']
DROP PUBLICATION [IF EXISTS] p
ALTER PUBLICATION p [ACCOUNT ALL | [ADD | DROP] a, …] [DATABASE d] [TABLE t, …] [COMMENT 'text']

It is read token by token, because the upstream prints defaults and comments as they were written. A statement is read
to its end before it does anything. Character sets, collations, engines and CHECK are read and have no effect; foreign
keys are printed by SHOW CREATE TABLE and not enforced.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.backing import Login, can_be_publication, internal
from ccpr.matrixone.server.tokens import Tokens
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.sql.ddl.acts import Act, Context, all_of, tolerated
from ccpr_emulator.sql.ddl.alter_table import AlterTable, rename_table
from ccpr_emulator.sql.ddl.create_table import create_table
from ccpr_emulator.sql.ddl.indexes import index
from ccpr_emulator.sql.ddl.table_options import skip_options
from ccpr_emulator.sql.ddl.views import create_view, view_or_sequence
from ccpr_emulator.sql.names import list_of, table_name

_CREATED = ("account", "database", "schema", "table", "publication", "index", "view", "sequence")


def kind_of(words: Sequence[str]) -> str | None:
    """The kind of a statement by its first three words, in lower case."""
    first, second, third = words
    if first in ("truncate", "rename") or (first, second) == ("alter", "table"):
        return first
    if first == "create" and second in ("unique", "fulltext") and third in ("index", "key"):
        return "create_index"
    if first == "create" and (second, third) == ("or", "replace"):
        return "create_view"
    if (first in ("create", "drop") and second in _CREATED) or (first, second) == ("alter", "publication"):
        return f"{first}_{second}".replace("schema", "database")
    return None


def parse(kind: str, tokens: Tokens, context: Context) -> Act:
    """Read the statement; what is returned does it. Raises StatementError, BadDefinition."""
    storage, account, database = context.storage, context.login.account, context.database
    first = tokens.next().lower()
    if kind.endswith("publication"):
        tokens.next()
        return publication(first, tokens, storage, context.login)
    match kind:
        case "create_view":
            return create_view(tokens, context)
        case "create_account" | "create_database" | "drop_database" | "drop_table" | "create_table":
            tokens.next()
            return _create_or_drop(kind, tokens, context)
        case "drop_view" | "drop_sequence" | "create_sequence":
            tokens.next()
            return view_or_sequence(kind, tokens, context)
        case "truncate":
            tokens.accept("table")
            return partial(storage.truncate, *table_name(tokens, database), account=account)
        case "rename":
            tokens.expect("table")
            return all_of(list_of(tokens, lambda: rename_table(tokens, storage, account, database)))
        case "alter":
            tokens.expect("table")
            return AlterTable(table_name(tokens, database), tokens, context).read()
        case "create_index" | "drop_index":
            return index(kind, tokens, context)
        case _:
            raise tokens.unknown()


def _create_or_drop(kind: str, tokens: Tokens, context: Context) -> Act:
    """An account, a database or a table."""
    storage, account, database = context.storage, context.login.account, context.database
    verb = kind.partition("_")[0]
    tolerant = tokens.accept("if", "not", "exists") if verb == "create" else tokens.accept("if", "exists")
    if kind == "create_table":
        return create_table(tokens, context, tolerant=tolerant)
    if kind == "drop_table":
        tables = list_of(tokens, lambda: table_name(tokens, database))
        if not tokens.accept("restrict"):
            tokens.accept("cascade")
        return all_of(
            partial(tolerated, tolerant, verb, storage.drop_table, *names, account=account) for names in tables
        )
    name = tokens.name().lower()
    if kind == "create_account":
        tokens.skip_rest()
        if not (context.login.is_sys and context.login.is_admin):
            raise internal("do not have privilege to execute the statement")
        return partial(tolerated, tolerant, verb, storage.create_account, name)
    if kind == "create_database":
        skip_options(tokens)
    act = storage.create_database if kind == "create_database" else storage.drop_database
    return partial(tolerated, tolerant, verb, act, name, account=account)


_ADMITTING_ALL = "only sys account and authorized normal accounts can publish to all accounts"


def publication(verb: str, tokens: Tokens, storage: Storage, login: Login) -> Act:
    """docs/upstream.md 3.2, 3.3. IF [NOT] EXISTS may be in all of them, and counts in DROP only."""
    tolerant = tokens.accept("if", "not", "exists") if verb == "create" else tokens.accept("if", "exists")
    if not login.is_admin:
        raise internal(f"only admin can {verb} publication")
    name, account = tokens.name().lower(), login.account
    if not can_be_publication(name) or len(name) > 64:
        raise StatementError(20301, f"invalid input: publication name {name}")
    if verb == "drop":
        return partial(tolerated, tolerant, verb, storage.drop_publication, name, account=account)
    given: dict[str, Any] = {}
    if verb == "alter" and tokens.accept("account"):
        given["accounts"] = _accounts(tokens, login, storage.publications.get((account, name)))
    if tokens.accept("database"):
        given["database"] = "*" if verb == "create" and tokens.accept("*") else tokens.name().lower()
    elif verb == "create":
        raise tokens.unknown()
    if tokens.accept("table"):
        given["tables"] = [table.lower() for table in list_of(tokens, tokens.name)]
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
    names = [name.lower() for name in list_of(tokens, tokens.name)]
    if "all" in names and not login.is_sys:
        raise internal(_ADMITTING_ALL)
    if not (added or dropped):
        return names
    if old is None or old.admits("*"):
        raise internal(
            "cannot add or drop accounts of a publication for all accounts" if old else "publication does not exist"
        )
    return sorted({*old.accounts, *names}) if added else [name for name in old.accounts if name not in names]
