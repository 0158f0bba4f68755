"""CREATE, ALTER and DROP PUBLICATION."""

from functools import partial
from typing import Any

from ccpr.matrixone.server.access import Login, can_be_publication
from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.backing import internal
from ccpr.matrixone.server.tokens import Tokens
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.sql.ddl.acts import Act, tolerated
from ccpr_emulator.sql.names import list_of

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
