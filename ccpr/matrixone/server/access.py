"""Who may do what: login names, commands for account sys only, the admin role, the accounts of a publication
(docs/upstream.md 1, 2 and 4.2)."""

import re
from dataclasses import dataclass

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.backing import Backing, internal


@dataclass(frozen=True, slots=True)
class Login:
    """An account, a user of it, and the current role."""

    account: str
    user: str
    role: str

    @property
    def is_sys(self) -> bool:
        return self.account == "sys"

    @property
    def is_admin(self) -> bool:
        return self.role == ("moadmin" if self.is_sys else "accountadmin")


def parse_login(text: str) -> Login:
    """Parse `user`, `account:user[:role]` or `account#user[#role]`. `%3A` is a colon; the text after a `?` is a label
    for the proxy. If there is a colon, it separates the parts and not `#`.

    Raises 1045 for an empty user or account and for too many parts. A login without a role has its account's admin
    role.
    """
    plain = text.partition("?")[0].replace("%3A", ":").replace("%3a", ":")
    parts = plain.split(":" if ":" in plain else "#")
    if len(parts) > 3 or not all(parts):
        raise StatementError(
            1045, f"Access denied for user '{text}': it should read user, account:user or account:user:role", "28000"
        )
    account = parts[0].lower() if len(parts) > 1 else "sys"
    role = parts[2].lower() if len(parts) == 3 else ("moadmin" if account == "sys" else "accountadmin")
    return Login(account, parts[min(1, len(parts) - 1)], role)


def require_sys(login: Login, command: str) -> None:
    if not login.is_sys:
        raise internal(
            f"tenant {login.account} user {login.user} is not allowed to execute publication internal command {command}"
        )


def require_admin(login: Login) -> None:
    if not login.is_admin:
        raise internal("do not have privilege to execute the statement")


def can_be_publication(name: str) -> bool:
    """Whether a publication can have this name: stored names are in lower case, without blanks and quotes
    (docs/upstream.md 3.2)."""
    return bool(name) and name == name.lower() and re.search(r"[\s'\"`;]", name) is None


def require_publication(backing: Backing, login: Login, publisher: str, publication: str) -> None:
    """Raises 20101 unless the publication exists and admits the login. Names are compared as they are: the caller
    converts them to lower case where the upstream does."""
    known = backing.publication(publisher, publication)
    if known is None:
        raise internal(f"publication {publisher}.{publication} does not exist")
    if not known.admits(login.account):
        message = f"account {login.account} does not have permission to access publication {publisher}.{publication}"
        raise internal(message)
