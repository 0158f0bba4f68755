from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.errors import (
    AccountMissing,
    BadWord,
    ConnectionLost,
    DatabaseMissing,
    NotCovered,
    NotPermitted,
    PublicationAmbiguous,
    PublicationMissing,
    StatementUnknown,
    TableMissing,
    UnsupportedTable,
)
from ccpr.matrixone.client.publication_offers import (
    Offer,
    Publication,
    account_id,
    check_admission,
    choose_publication,
    find_publications,
)
from ccpr.matrixone.client.upstream_session import Answer
from ccpr.matrixone.client.upstream_snapshots import create_snapshot
from ccpr_emulator.serving.faults import CutStatement, FailStatement

UNKNOWN = {"number": 1064, "text": "SQL parser error: You have an error in your SQL syntax", "times": 0}
PROBES = ("select_mo_pubs", "get_databases", "select_mo_database", "select_mo_tables", "show_publication_coverage")

pytestmark = [pytest.mark.integration, pytest.mark.recordings]


def _unknown(upstream: Any, *kinds: str) -> None:
    for kind in kinds:
        upstream.emulator.inject(FailStatement(kind, **UNKNOWN))


@pytest.mark.parametrize("scenario", ["dml", "other_account"])
def test_the_publishers_number_is_looked_up(play: Callable[..., Any], scenario: str):
    upstream = play(scenario)
    assert account_id(upstream.connect(), upstream.publication.publisher.upper()) == upstream.publication.publisher_id


def test_an_account_that_is_not_there_is_an_error(play: Callable[..., Any]):
    with pytest.raises(AccountMissing):
        account_id(play("dml").connect(), "nobody")


def test_a_login_of_another_account_cannot_look_accounts_up(play: Callable[..., Any]):
    upstream = play("other_account")
    with pytest.raises(NotPermitted):
        account_id(upstream.connect(account="acc1"), "acc1")


@pytest.mark.parametrize("scenario", ["dml", "other_account", "table_level"])
def test_publications_of_a_database_are_found(play: Callable[..., Any], scenario: str):
    upstream = play(scenario)
    (offer,) = find_publications(upstream.connect(), upstream.database)
    assert offer.publication == upstream.publication
    assert offer.admits("sys")
    assert offer.covers(upstream.database, "only_me")
    assert offer.covers(upstream.database, None) == (scenario != "table_level")
    assert find_publications(upstream.connect(), "nowhere") == []


@pytest.mark.parametrize("scenario", ["dml", "other_account", "partitioned"])
def test_a_published_database_is_admitted_without_a_trace(play: Callable[..., Any], scenario: str):
    upstream = play(scenario)
    check_admission(upstream.connect(), upstream.publication, upstream.database, None)
    assert upstream.sent("create_snapshot") == 0


def test_a_published_table_is_admitted_and_its_neighbour_is_not(play: Callable[..., Any]):
    upstream = play("table_level")
    session = upstream.connect()
    check_admission(session, upstream.publication, upstream.database, "only_me")
    with pytest.raises(NotCovered) as raised:
        check_admission(session, upstream.publication, upstream.database, "not_me")
    assert "ALTER PUBLICATION `pub_table_level` DATABASE `gd_tbl` TABLE `only_me`, `not_me`." in raised.value.remedy
    with pytest.raises(NotCovered) as raised:
        check_admission(session, upstream.publication, upstream.database, None)
    assert "CREATE PUBLICATION `pub_table_level_gd_tbl` DATABASE `gd_tbl` ACCOUNT ALL." in raised.value.remedy


def test_a_database_that_is_not_published_is_refused_with_the_statement_to_run(play: Callable[..., Any]):
    upstream = play("other_account")
    _unknown(upstream, "select_mo_database")  # whether there is such a database
    with pytest.raises(NotCovered) as raised:
        check_admission(upstream.connect(), upstream.publication, "elsewhere", None)
    assert (
        "As admin of account acc1: CREATE PUBLICATION `pub_other_account_elsewhere` DATABASE `elsewhere` ACCOUNT sys."
        in str(raised.value)
    )


def test_a_database_is_looked_up_before_anything_is_said_about_publications(play: Callable[..., Any]):
    upstream = play("other_account")
    with pytest.raises(DatabaseMissing):
        check_admission(upstream.connect(), upstream.publication, "elsewhere", None)
    with pytest.raises(DatabaseMissing):
        choose_publication(upstream.connect(), "elsewhere", None, publisher="acc1")


def test_a_publication_that_does_not_exist_is_refused_with_the_statement_to_run(play: Callable[..., Any]):
    upstream = play("other_account", strict_publication=True)
    missing = replace(upstream.publication, name="Other")
    with pytest.raises(PublicationMissing) as raised:
        check_admission(upstream.connect(), missing, upstream.database, "p")
    assert "CREATE PUBLICATION `Other` DATABASE `gd_acc` TABLE `p` ACCOUNT sys." in raised.value.remedy


def test_the_gate_of_the_internal_commands_finds_a_missing_publication_too(play: Callable[..., Any]):
    upstream = play("other_account", strict_publication=True)
    _unknown(upstream, "select_mo_pubs", "show_publication_coverage")
    with pytest.raises(PublicationMissing):
        check_admission(upstream.connect(), replace(upstream.publication, name="other"), upstream.database, None)


def test_a_login_of_another_account_may_not_run_internal_commands(play: Callable[..., Any]):
    upstream = play("dml")
    with pytest.raises(NotPermitted) as raised:
        check_admission(upstream.connect(account="acc2"), upstream.publication, upstream.database, None)
    assert "sys" in raised.value.remedy


def test_an_account_that_is_not_on_the_list_is_refused_with_the_statement_to_run(play: Callable[..., Any]):
    upstream = play("other_account")
    with pytest.raises(NotPermitted) as raised:
        check_admission(upstream.connect(account="acc3"), upstream.publication, upstream.database, None)
    assert raised.value.remedy


def test_a_role_that_is_not_the_admin_role_may_not_take_snapshots(play: Callable[..., Any]):
    upstream = play("dml")
    with pytest.raises(NotPermitted) as raised:
        create_snapshot(upstream.connect(role="reader"), "xr_1", upstream.publication, upstream.database)
    assert "moadmin" in raised.value.remedy


@pytest.mark.parametrize("silent", PROBES)
def test_a_statement_that_the_server_does_not_know_is_not_an_error(play: Callable[..., Any], silent: str):
    upstream = play("dml")
    _unknown(upstream, silent)
    check_admission(upstream.connect(), upstream.publication, upstream.database, "acc")


def test_a_server_that_knows_none_of_the_questions_is_not_refused(play: Callable[..., Any]):
    upstream = play("dml")
    _unknown(upstream, *PROBES)
    check_admission(upstream.connect(), upstream.publication, upstream.database, None)


def test_coverage_answers_where_the_publications_cannot_be_read(play: Callable[..., Any]):
    upstream = play("table_level")
    _unknown(upstream, "select_mo_pubs")
    session = upstream.connect()
    check_admission(session, upstream.publication, upstream.database, "only_me")
    for table in ("not_me", None):
        with pytest.raises(NotCovered):
            check_admission(session, upstream.publication, upstream.database, table)


def test_a_published_database_without_the_table_is_distinguished_from_an_unpublished_one(play: Callable[..., Any]):
    upstream = play("dml")
    with pytest.raises(TableMissing):
        check_admission(upstream.connect(), upstream.publication, upstream.database, "nothing")


def test_a_database_that_was_dropped_under_its_publication_is_missing(play: Callable[..., Any]):
    upstream = play("dml")
    _unknown(upstream, "select_mo_pubs", "show_publication_coverage")
    with pytest.raises(DatabaseMissing):
        check_admission(upstream.connect(), upstream.publication, "nowhere", None)


def test_a_view_cannot_be_subscribed_to(play: Callable[..., Any]):
    upstream = play("ddl")
    session = upstream.connect()
    for number in range(5):  # the view comes with the fifth snapshot
        create_snapshot(session, f"xr_{number}", upstream.publication, upstream.database)
    with pytest.raises(UnsupportedTable):
        check_admission(session, upstream.publication, upstream.database, "v1")


def test_a_lost_connection_is_not_an_answer(play: Callable[..., Any]):
    upstream = play("dml")
    upstream.emulator.inject(CutStatement("select_mo_pubs", times=0))
    with pytest.raises(ConnectionLost):
        check_admission(upstream.connect(), upstream.publication, upstream.database, None)


def test_a_name_that_cannot_be_passed_is_refused_before_it_is_sent(play: Callable[..., Any]):
    upstream = play("dml")
    with pytest.raises(BadWord):
        create_snapshot(upstream.connect(), "two words", upstream.publication, upstream.database)
    assert upstream.sent("create_snapshot") == 0


class Speaking:
    """A session whose role is known, to which every other question is unknown."""

    def __init__(self, account: str, role: bytes | None) -> None:
        self.endpoint = Endpoint("host", 6001, account, "dump")
        self._role = role

    def read(self, sql: str) -> Answer:
        if sql != upstream_sql.CURRENT_ROLE:
            raise StatementUnknown("unknown", subject=sql)
        return Answer(("current_role_name()",), (253,), [(self._role,)])


@pytest.mark.parametrize(
    ("account", "role"),
    [("sys", b"moadmin"), ("sys", b"MOADMIN"), ("acc1", b"accountadmin"), ("sys", b""), ("sys", None)],
)
def test_the_admin_role_and_an_unknown_one_are_let_through(account: str, role: bytes | None):
    session: Any = Speaking(account, role)
    check_admission(session, Publication("p", "sys", 0), "d", "t")


@pytest.mark.parametrize(
    ("account", "role", "wanted"), [("sys", b"public", "moadmin"), ("acc1", b"moadmin", "accountadmin")]
)
def test_another_role_is_refused_before_the_first_snapshot(account: str, role: bytes, wanted: str):
    session: Any = Speaking(account, role)
    with pytest.raises(NotPermitted) as raised:
        check_admission(session, Publication("p", "sys", 0), "d", None)
    assert f"mysql://{account}#" in raised.value.remedy
    assert f"#{wanted}:<password>@host:6001." in raised.value.remedy


@pytest.mark.parametrize(
    ("database", "tables", "asked", "covered"),
    [
        ("d", "*", ("d", None), True),
        ("d", "*", ("D", "t"), True),
        ("*", "*", ("d", None), True),
        ("d", "t,u", ("d", "u"), True),
        ("d", "t,u", ("d", "t,u"), True),
        ("d", "tt", ("d", "t"), False),
        ("d", "t,u", ("d", None), False),
        ("d", "*", ("e", None), False),
        ("*", "*", ("*", None), True),
        ("d", "*", ("*", None), False),
    ],
)
def test_an_offer_covers_what_it_names(database: str, tables: str, asked: tuple[str, str | None], covered: bool):
    assert Offer(Publication("p", "a", 1), database, tables, "all").covers(*asked) == covered


@pytest.mark.parametrize(
    ("accounts", "admitted"),
    [("all", True), ("ALL", True), ("sys", True), ("a, SYS", True), ("a,b", False), ("", False)],
)
def test_an_offer_admits_whom_it_names(accounts: str, admitted: bool):
    assert Offer(Publication("p", "a", 1), "d", "*", accounts).admits("sys") == admitted


@pytest.mark.parametrize("scenario", ["dml", "other_account"])
def test_the_only_publication_that_fits_is_chosen(play: Callable[..., Any], scenario: str):
    upstream = play(scenario, strict_publication=True)
    session, wanted = upstream.connect(), upstream.publication
    for name, publisher in (
        (None, None),
        (wanted.name, None),
        (wanted.name.upper(), None),
        (None, wanted.publisher),
        (wanted.name, wanted.publisher),
    ):
        chosen = choose_publication(session, upstream.database, None, name, publisher)
        assert (chosen.name.lower(), chosen.publisher, chosen.publisher_id) == (
            wanted.name,
            wanted.publisher,
            wanted.publisher_id,
        )


def test_one_that_does_not_cover_it_is_refused_with_what_to_alter(play: Callable[..., Any]):
    upstream = play("table_level", strict_publication=True)
    session = upstream.connect()
    chosen = choose_publication(session, upstream.database, "not_me")
    with pytest.raises(NotCovered) as raised:
        check_admission(session, chosen, upstream.database, "not_me")
    assert "ALTER PUBLICATION `pub_table_level`" in raised.value.remedy


def test_a_database_that_no_account_has_is_an_error(play: Callable[..., Any]):
    with pytest.raises(DatabaseMissing):
        choose_publication(play("dml").connect(), "nowhere", None)


def test_the_error_for_a_login_of_another_account_names_what_to_run(play: Callable[..., Any]):
    upstream = play("other_account", strict_publication=True)
    with pytest.raises(NotPermitted) as raised:
        choose_publication(upstream.connect(account="acc1"), upstream.database, "t")
    remedy = raised.value.remedy
    assert (
        f"As admin of account acc1: CREATE PUBLICATION `pub_{upstream.database}` DATABASE `{upstream.database}` "
        "TABLE `t` ACCOUNT sys;" in remedy
    )
    assert "mysql://sys#root:<password>@127.0.0.1:" in remedy


class Catalogs:
    """A sys session that knows publications and who has the database."""

    endpoint = Endpoint("host", 6001, "sys", "root")

    def __init__(self, *offers: tuple[int, bytes, bytes], owners: tuple[int, ...] = ()) -> None:
        self._offers, self._owners = offers, owners

    def read(self, sql: str) -> Answer:
        if "mo_pubs" in sql:
            rows = [(b"%d" % number, account, name, b"d", b"*", b"all") for number, account, name in self._offers]
            return Answer(upstream_sql.PUBLICATION_COLUMNS, (253,) * 6, rows)
        if "mo_database" in sql:
            return Answer(("account_id",), (8,), [(b"%d" % number,) for number in self._owners])
        return Answer(("account_id", "account_name"), (8, 253), [(b"0", b"sys"), (b"7", b"acc")])


def test_a_second_publication_of_the_same_account_is_no_obstacle():
    session: Any = Catalogs((7, b"acc", b"q"), (7, b"acc", b"p"))
    assert choose_publication(session, "d", None).name == "p"
    assert choose_publication(session, "d", None, "q").name == "q"


def test_several_publications_are_listed():
    session: Any = Catalogs((0, b"sys", b"p"), (7, b"acc", b"q"))
    with pytest.raises(PublicationAmbiguous) as raised:
        choose_publication(session, "d", None)
    assert "PUBLICATION `q` OF `acc`, or PUBLICATION `p` OF `sys`" in raised.value.remedy
    assert choose_publication(session, "d", None, publisher="acc").name == "q"
    assert choose_publication(session, "d", None, "P").publisher == "sys"


@pytest.mark.parametrize(
    ("owners", "wanted"),
    [
        ((0,), "As admin of account sys: CREATE PUBLICATION `pub_d` DATABASE `d` ACCOUNT ALL;"),
        ((7,), "As admin of account acc: CREATE PUBLICATION `pub_d` DATABASE `d` ACCOUNT sys;"),
        ((0, 7), "Or: As admin of account sys: CREATE PUBLICATION"),
    ],
)
def test_the_error_for_no_publication_names_the_statement_of_the_account_that_has_the_database(
    owners: tuple[int, ...], wanted: str
):
    session: Any = Catalogs(owners=owners)
    with pytest.raises(PublicationMissing) as raised:
        choose_publication(session, "d", None)
    assert wanted in raised.value.remedy
