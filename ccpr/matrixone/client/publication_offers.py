"""Publications: who publishes what to whom, and whether this login may use it. Nothing here changes the upstream.

Source: docs/upstream.md 1 and 3; docs/requirements.md N4, N5 and O2.
"""

import logging
from dataclasses import dataclass

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.endpoint import AUTO, EVERYTHING, LOGICAL, SYS_ACCOUNT, Publication
from ccpr.matrixone.client.errors import (
    AccountMissing,
    BadAnswer,
    DatabaseMissing,
    NotCovered,
    NotPermitted,
    PublicationAmbiguous,
    PublicationMissing,
    StatementFailed,
    StatementUnknown,
    TableMissing,
    UnsupportedTable,
)
from ccpr.matrixone.client.upstream_session import Answer, Session, integer, text
from ccpr.matrixone.objects.timestamp import Timestamp

_EVERYBODY, _ALL = "all", "ALL"  # as stored, as written in statements
_ADMIN_ROLES = {SYS_ACCOUNT: "moadmin"}
ADMIN_ROLE = "accountadmin"
_ORDINARY_TABLE = "r"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Offer:
    """A row of `mo_pubs`: what is published to whom.

    Attributes
    ----------
    publication : see `Publication`.
    database : the database, or `*` for the whole account.
    tables : the table names joined by commas, as stored, or `*` for all of them.
    accounts : the names of the accounts that may use it, joined by commas, or `all`.
    """

    publication: Publication
    database: str
    tables: str
    accounts: str

    def admits(self, account: str) -> bool:
        return self.accounts.lower() == _EVERYBODY or account.lower() in (
            name.strip().lower() for name in self.accounts.split(",")
        )

    @property
    def lists_tables(self) -> bool:
        """Whether it publishes single tables, perhaps none any more, and not a whole database."""
        return self.tables != EVERYTHING

    def names(self, database: str) -> bool:
        """Whether anything of the database is published."""
        return self.database == EVERYTHING or self.database.lower() == database.lower()

    def covers(self, database: str, table: str | None) -> bool:
        """Whether the whole database (table None) or the table is published. Names may contain commas; letter case does
        not matter."""
        if not self.names(database):
            return False
        return self.tables == EVERYTHING or (table is not None and f",{table},".lower() in f",{self.tables},".lower())


def account_id(session: Session, name: str) -> int:
    """The number of an account. Raises AccountMissing; NotPermitted for a login that is not of account sys."""
    rows = list(_read_as_sys(session, upstream_sql.select_account(name)).select("account_id"))
    if not rows:
        raise AccountMissing(f"there is no account {name}", subject=f"account {name}")
    return integer(rows[0][0], f"account_id of {name}")


def find_publications(session: Session, database: str) -> list[Offer]:
    """All publications that name the database or publish a whole account, in order of name; for any accounts (see
    `Offer.admits`).

    Raises NotPermitted for a login that is not of account sys: only that account can read the table.
    """
    offers = _offers(_read_as_sys(session, upstream_sql.select_publications(database)))
    return sorted(offers, key=lambda offer: (offer.publication.publisher, offer.publication.name))


def all_offers(session: Session) -> list[Offer]:
    """All publications. Raises NotPermitted for a login that is not of account sys."""
    return _offers(_read_as_sys(session, upstream_sql.select_publications()))


def choose_publication(
    session: Session,
    database: str,
    table: str | None,
    name: str | None = None,
    publisher: str | None = None,
    *,
    mode: str = AUTO,
) -> Publication:
    """The publication to use for the database (table None) or table: the one named, or the narrowest that admits the
    login and covers it, if all such are of one account. In logical mode none, as the login is of the account that has
    the database: so it is if LOGICAL is asked for, or if no publication is named and the login is not of account sys
    (decision logical-mode).

    A name without a publisher is searched in all accounts; if none has it, account sys is assumed. Whether it covers
    the database is not checked here but by `check_admission`. Raises NotPermitted for a login that is not of account
    sys, PublicationMissing (no publication), PublicationAmbiguous (several), DatabaseMissing, AccountMissing; each with
    the statements to run upstream.
    """
    account = session.endpoint.account
    is_sys = account.lower() == SYS_ACCOUNT
    if mode == LOGICAL or (mode == AUTO and name is None and not is_sys):
        own = _own(session, publisher)
        if own is not None:
            return own
    if not is_sys:
        raise _no_sys_login(session, database, table, name, publisher)
    if name is not None and publisher is not None:
        return Publication(name, publisher, account_id(session, publisher))
    offers = [
        offer
        for offer in find_publications(session, database)
        if name in (None, offer.publication.name)
        or (name is not None and name.lower() == offer.publication.name.lower())
        if publisher is None or publisher.lower() == offer.publication.publisher.lower()
    ]
    fitting = [offer for offer in offers if offer.admits(account) and offer.covers(database, table)]
    if len({offer.publication.publisher.lower() for offer in fitting}) > 1:  # other accounts' databases of that name
        raise _several(fitting, database, table)
    fitting.sort(key=_width)  # any of them will do; the one that says least beside what is wanted stays longest
    if fitting or len(offers) == 1:  # `check_admission` refuses one that does not fit, and says what to alter
        return (fitting or offers)[0].publication
    if name is not None:
        return Publication(name, SYS_ACCOUNT, account_id(session, SYS_ACCOUNT))
    raise _none(session, database, table, publisher)


def _own(session: Session, publisher: str | None) -> Publication | None:
    """None for a login of another account than sys where the server does not say which. Raises NotPermitted for a login
    that is not of the account that is named as the publisher."""
    try:
        rows = session.read(upstream_sql.OWN_ACCOUNT).rows
    except (StatementUnknown, StatementFailed):
        if session.endpoint.account.lower() == SYS_ACCOUNT:
            raise
        return None
    if len(rows) != 1 or len(rows[0]) != len(("name", "id")):
        raise BadAnswer(f"it has {len(rows)} rows", subject="account of the login")
    account = text(rows[0][0], "account of the login")
    if publisher is not None and publisher.lower() != account.lower():
        raise NotPermitted(
            f"in logical mode tables are read by a login of their own account, and this one is of {account}",
            subject=f"login {session.endpoint.login}",
            remedy=f"Log in as administrator of {publisher}: mysql://{publisher}#<administrator>:<password>@"
            f"{session.endpoint.address}; or with account sys in physical mode.",
        )
    return Publication("", account, integer(rows[0][1], "id of the login's account"))


def _width(offer: Offer) -> tuple[bool, bool, str]:
    """Orders offers: those of tables before those of a database, and these before those of an account."""
    return offer.database == EVERYTHING, not offer.lists_tables, offer.publication.name


def read_offer(session: Session, publication: Publication, at: Timestamp) -> Offer | None:
    """What the publication offered at a time; None if the server does not have such a table, or nothing goes through
    one. Raises PublicationMissing."""
    if publication.is_own:
        return None
    try:
        answer = session.read(upstream_sql.select_publication(publication.publisher, publication.name, at.physical))
    except (StatementUnknown, TableMissing) as error:
        _log.debug("the coverage of the publication is not known: %s", error)
        return None
    offers = _offers(answer)
    if not offers:
        message = f"account {publication.publisher} had no publication {publication.name} at {at}"
        raise PublicationMissing(message, subject=_name(publication))
    return offers[0]


def not_covered(session: Session, offer: Offer, database: str, table: str | None) -> NotCovered:
    """The error that the database (None) or table is not part of an offer, with the statement to run."""
    return _not_covered(offer, database, table, _audience(session, offer.publication))


def check_admission(
    session: Session, publication: Publication, database: str, table: str | None, *, listed: bool = False
) -> None:
    """Check that the login may replicate this database (table None) or table through the publication, before anything
    is written anywhere. With `listed` a publication of single tables is enough for the database: they are replicated.

    All statements only read. One that the server cannot answer is no reason to stop: the later statements report their
    own errors. Raises PublicationMissing, NotCovered, NotPermitted, DatabaseMissing, TableMissing, UnsupportedTable.
    """
    seen = publication.is_own or session.endpoint.account.lower() == SYS_ACCOUNT  # others do not see the databases
    if seen and database != EVERYTHING:
        _check_database(session, publication, database)  # first: no advice about the publication of what is not there
    if not publication.is_own:
        _check_offer(session, publication, database, table, listed=listed)
        _check_internal_commands(session, publication, database)
    _check_role(session)
    if table is not None:
        _check_table(session, publication, database, table)


def _no_sys_login(
    session: Session, database: str, table: str | None, name: str | None, publisher: str | None
) -> NotPermitted:
    """Only account sys may run internal commands (docs/upstream.md 1). The login's account is assumed to be the
    publisher."""
    endpoint = session.endpoint
    owner, publication = publisher or endpoint.account, name or _new_name(database)
    run = upstream_sql.create_publication(publication, database, table, _everybody_or_sys(owner))
    if name is not None:
        run = f"{upstream_sql.admit_account(name, SYS_ACCOUNT)} (unless it admits {SYS_ACCOUNT} already)"
    source = f"FROM 'mysql://{SYS_ACCOUNT}#root:<password>@{endpoint.address}'"
    offer = f"PUBLICATION {upstream_sql.identifier(publication)} OF {upstream_sql.identifier(owner)}"
    return NotPermitted(
        f"account {endpoint.account} may not take objects from the upstream: only logins of account sys with the role "
        "moadmin may",
        subject=f"login {endpoint.login}",
        remedy=f"{_run_as(owner, run)} Then log in as root or dump of account sys, the users who have the role moadmin "
        f"(it cannot be granted): {source} {offer}; on the command line --publication {publication} "
        f"--publisher {owner}.",
    )


def _everybody_or_sys(owner: str) -> str:
    """Which accounts a publication of this account must admit for a login of account sys (see `_audience`)."""
    return _ALL if owner.lower() == SYS_ACCOUNT else SYS_ACCOUNT


def _several(offers: list[Offer], database: str, table: str | None) -> PublicationAmbiguous:
    named = upstream_sql.identifier
    ways = [f"PUBLICATION {named(o.publication.name)} OF {named(o.publication.publisher)}" for o in offers]
    first = offers[0].publication
    return PublicationAmbiguous(
        f"{len(offers)} publications cover it",
        subject=_scope(database, table),
        remedy=f"Say which: {', or '.join(ways[:10])}; on the command line --publication {first.name} "
        f"--publisher {first.publisher}.",
    )


def _none(
    session: Session, database: str, table: str | None, publisher: str | None
) -> PublicationMissing | DatabaseMissing:
    """Raises AccountMissing."""
    owners = None if database == EVERYTHING else _owners(session, database)
    if owners == []:
        return DatabaseMissing(f"no account has a database {database}", subject=f"database {database}")
    if publisher is not None:
        account_id(session, publisher)
        if owners and publisher.lower() not in map(str.lower, owners):
            return DatabaseMissing(f"account {publisher} has no database {database}", subject=f"database {database}")
        owners = [publisher]
    runs = [
        _run_as(owner, upstream_sql.create_publication(_new_name(database), database, table, _everybody_or_sys(owner)))
        for owner in owners or ["<the databases' account>" if database == EVERYTHING else "<the database's account>"]
    ]
    return PublicationMissing(
        "no publication covers it", subject=_scope(database, table), remedy=" Or: ".join(runs[:10])
    )


def _owners(session: Session, database: str) -> list[str] | None:
    """The names of the accounts that have such a database; None if that cannot be looked up."""
    owners = _probe(session, upstream_sql.select_owners(database))
    accounts = _probe(session, upstream_sql.ALL_ACCOUNTS)
    if owners is None or accounts is None:
        return None
    names = {
        integer(number, "account_id"): text(name, "account_name")
        for number, name in accounts.select("account_id", "account_name")
    }
    numbers = {integer(number, "account_id") for (number,) in owners.select("account_id")}
    return sorted(names[number] for number in numbers if number in names)


def _new_name(database: str) -> str:
    return "pub_all" if database == EVERYTHING else f"pub_{database}"


def _scope(database: str, table: str | None) -> str:
    if database == EVERYTHING:
        return "all databases of the account"
    return f"database {database}" if table is None else f"table {database}.{table}"


def _run_as(account: str, statement: str) -> str:
    return f"As admin of account {account}: {statement};"


def _offers(answer: Answer) -> list[Offer]:
    offers = []
    for number, account, name, database, tables, accounts in answer.select(*upstream_sql.PUBLICATION_COLUMNS):
        publication = Publication(text(name, "pub_name"), text(account, "account_name"), integer(number, "account_id"))
        offers.append(
            Offer(
                publication, text(database, "database_name"), text(tables, "table_list"), text(accounts, "account_list")
            )
        )
    return offers


def _read_as_sys(session: Session, statement: str) -> Answer:
    try:
        return session.read(statement)
    except (TableMissing, DatabaseMissing, StatementFailed) as error:
        if session.endpoint.account.lower() == SYS_ACCOUNT:
            raise
        message = f"{NotPermitted.meaning}: only account sys can look this up ({error.number}: {error.text})"
        raise NotPermitted(message, subject=error.subject, number=error.number, text=error.text) from error


def _probe(session: Session, statement: str) -> Answer | None:
    """The answer; None if the server does not know the statement or its tables, or does not permit them to this
    login."""
    try:
        return session.read(statement)
    except (StatementUnknown, StatementFailed, TableMissing, DatabaseMissing, NotPermitted) as error:
        _log.debug("not answered, and left unchecked: %s", error)
        return None


def _check_offer(session: Session, publication: Publication, database: str, table: str | None, *, listed: bool) -> None:
    answer = _probe(session, upstream_sql.select_publication(publication.publisher, publication.name))
    if answer is None:
        _check_coverage(session, publication, database, table, listed=listed)
        return
    try:
        offers = _offers(answer)
    except BadAnswer as error:
        _log.debug("mo_pubs reads differently here: %s", error)
        return
    subject = _name(publication)
    account = session.endpoint.account
    audience = _audience(session, publication)
    if not offers:
        raise PublicationMissing(
            f"account {publication.publisher} has no publication {publication.name}",
            subject=subject,
            remedy=_as_admin(publication, upstream_sql.create_publication(publication.name, database, table, audience)),
        )
    offer = offers[0]
    if not offer.admits(account):
        change = upstream_sql.admit_account(publication.name, None if audience == _ALL else account)
        raise NotPermitted(
            f"the publication is not for account {account}",
            subject=subject,
            remedy=_as_admin(publication, change),
        )
    if not (offer.covers(database, table) or (listed and table is None and offer.tables and offer.names(database))):
        raise _not_covered(offer, database, table, audience)


def _audience(session: Session, publication: Publication) -> str:
    """The accounts that a new publication must name. An account cannot name itself, only ALL (docs/upstream.md 1)."""
    account = session.endpoint.account
    return _ALL if publication.publisher.lower() == account.lower() else account


def _check_coverage(
    session: Session, publication: Publication, database: str, table: str | None, *, listed: bool
) -> None:
    """Checked by the only statement that every admitted account may run. It finds the publication by its name only
    (docs/upstream.md 3.3)."""
    try:
        answer = session.read(upstream_sql.show_coverage(publication.name))
        covered = [(text(one, "Database"), text(other, "Table")) for one, other in answer.select("Database", "Table")]
    except (StatementUnknown, StatementFailed, BadAnswer) as error:
        _log.debug("the publication's coverage is not known: %s", error)
        return
    wanted = {(EVERYTHING, EVERYTHING), (database.lower(), EVERYTHING)}
    if table is not None:
        wanted.add((database.lower(), table.lower()))
    elif listed and any(one.lower() == database.lower() for one, _ in covered):
        return
    if not any((one.lower(), other.lower()) in wanted for one, other in covered):
        tables = ",".join(other for _, other in covered)
        offer = Offer(publication, covered[0][0] if covered else "", tables, "")
        raise _not_covered(offer, database, table, _audience(session, publication))


def _not_covered(offer: Offer, database: str, table: str | None, audience: str) -> NotCovered:
    publication = offer.publication
    covered = f"{offer.database} ({offer.tables:.200})" if offer.database else "nothing"
    if table is not None and offer.database.lower() == database.lower():
        change = upstream_sql.publish_tables(
            publication.name, database, [*filter(None, offer.tables.split(",")), table]
        )
    else:
        name = f"{publication.name}_{'all' if database == EVERYTHING else database}"
        change = upstream_sql.create_publication(name, database, table, audience)
    remedy = _as_admin(publication, change)
    if table is None and offer.tables and offer.names(database):
        remedy += (
            f" Or replicate only its tables: --publication {publication.name} --publisher {publication.publisher}."
        )
    return NotCovered(
        f"the publication covers {covered}, not {_scope(database, table)}", subject=_name(publication), remedy=remedy
    )


def _name(publication: Publication) -> str:
    return f"publication {publication.publisher}.{publication.name}"


def _as_admin(publication: Publication, statement: str) -> str:
    return f"As admin of account {publication.publisher}: {statement}."


def _check_internal_commands(session: Session, publication: Publication, database: str) -> None:
    try:
        session.read(upstream_sql.databases(publication.publisher, publication.name, database))
    except (StatementUnknown, StatementFailed) as error:
        _log.debug("it is not known whether internal commands are permitted: %s", error)


def _check_role(session: Session) -> None:
    """CREATE SNAPSHOT needs the account's administrator role as the current role (docs/upstream.md 4.2)."""
    answer = _probe(session, upstream_sql.CURRENT_ROLE)
    if answer is None or len(answer.rows) != 1 or len(answer.rows[0]) != 1:
        return
    account, role = session.endpoint.account.lower(), text(answer.rows[0][0], "current role").lower()
    wanted = _ADMIN_ROLES.get(account, ADMIN_ROLE)
    if role and role != wanted:
        # MatrixOne grants these roles only to the account's administrators.
        user, who = "<administrator>", f"administrator of {account}"
        if account == SYS_ACCOUNT:
            user, who = "root", "root or dump of account sys"
        raise NotPermitted(
            f"the login's role is {role}, and snapshots need {wanted}",
            subject=f"login {session.endpoint.login}",
            remedy=f"Log in as {who}: mysql://{account}#{user}#{wanted}:<password>@{session.endpoint.address}.",
        )


def _check_database(session: Session, publication: Publication, database: str) -> None:
    answer = _probe(session, upstream_sql.select_databases(publication.publisher_id, database))
    if answer is not None and not answer.rows:
        message = f"account {publication.publisher} has no database {database}"
        raise DatabaseMissing(message, subject=f"database {database}")


def _check_table(session: Session, publication: Publication, database: str, table: str) -> None:
    answer = _probe(session, upstream_sql.select_tables(publication.publisher_id, database, table=table))
    if answer is None:
        return
    if not answer.rows:
        raise TableMissing(f"database {database} has no table {table}", subject=f"table {database}.{table}")
    if "relkind" in answer.columns:
        kind = text(next(iter(answer.select("relkind")))[0], "relkind")
        if kind != _ORDINARY_TABLE:
            raise UnsupportedTable(f"it is not an ordinary table (relkind {kind})", subject=f"table {database}.{table}")
