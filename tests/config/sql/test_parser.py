"""Statements about subscriptions: what is written is what is meant, an error points at its place, and no password is
in it."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ccpr.config.errors import SqlSyntax
from ccpr.config.sql.statement_parser import READABLE, RESERVED, parse
from ccpr.config.sql.subscription_statements import (
    LAKE_FORMS,
    AlterSubscription,
    Assignment,
    CreateLake,
    CreateSubscription,
    DropLake,
    DropSubscription,
    PauseSubscription,
    ResumeSubscription,
    SelectSubscriptions,
    ShowLakes,
    ShowPublications,
    ShowStatus,
    ShowSubscriptions,
    Statement,
)
from ccpr.state.settings import SETTINGS
from tests.config.sql.statement_text import format_statement

URI = "mysql://acc#user:pw@host:6001"


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            f"CREATE SUBSCRIPTION sub1 DATABASE db1 FROM '{URI}' SYNC_INTERVAL = 60",
            CreateSubscription("sub1", "db1", None, URI, settings=(Assignment("sync_interval", 60),)),
        ),
        (
            f'create subscription `my-sub` database db1 table `a b` from "{URI}"'
            " publication p of acc sync_interval 5 ;",
            CreateSubscription("my-sub", "db1", "a b", URI, "p", "acc", (Assignment("sync_interval", 5),)),
        ),
        (
            f"CREATE SUBSCRIPTION s ACCOUNT acc1 FROM '{URI}' PUBLICATION p WITH (DATABASES = 'shop_*')",
            CreateSubscription("s", "*", None, URI, "p", "acc1", (Assignment("databases", "shop_*"),)),
        ),
        (
            f"CREATE DATABASE IF NOT EXISTS shop FROM '{URI}' sys PUBLICATION pub SYNC INTERVAL 5",
            CreateSubscription("shop", "shop", None, URI, "pub", "sys", (Assignment("sync_interval", 5),), True),
        ),
        (f"CREATE DATABASE d FROM '{URI}' PUBLICATION p", CreateSubscription("d", "d", None, URI, "p")),
        (f"CREATE TABLE d.t FROM '{URI}' a PUBLICATION p", CreateSubscription("t", "d", "t", URI, "p", "a")),
        ("SHOW SUBSCRIPTION `my-sub` STATUS", ShowStatus("my-sub")),
        (f"show publications from '{URI}';", ShowPublications(URI)),
        (f"CREATE SUBSCRIPTION account ACCOUNT FROM '{URI}'", CreateSubscription("account", "*", None, URI)),
        (
            f"CREATE SUBSCRIPTION s DATABASE d FROM '{URI}' "
            "WITH (RETAIN = 3, with_indexes = TRUE, max_mb_s 2.5, ALLOW_OVERLAP = TRUE) PUBLICATION p",
            CreateSubscription(
                "s",
                "d",
                None,
                URI,
                "p",
                None,
                (
                    Assignment("retain", 3),
                    Assignment("with_indexes", True),
                    Assignment("max_mb_s", 2.5),
                    Assignment("allow_overlap", True),
                ),
            ),
        ),
        (
            "ALTER SUBSCRIPTION s SET (SYNC_INTERVAL = 5, UPSTREAM = 'mysql://a#b:c@d', PUBLICATION = p2)",
            AlterSubscription("s", "mysql://a#b:c@d", "p2", (Assignment("sync_interval", 5),)),
        ),
        ("PAUSE SUBSCRIPTION s", PauseSubscription("s")),
        ("RESUME SUBSCRIPTION `s`", ResumeSubscription("s")),
        ("DROP SUBSCRIPTION s", DropSubscription("s")),
        ("DROP SUBSCRIPTION IF EXISTS s FORCE PURGE", DropSubscription("s", True, True, True)),
        ("SHOW SUBSCRIPTIONS", ShowSubscriptions()),
        ("CREATE LAKE lake OF s TO 's3://bucket/lake'", CreateLake("lake", "s", "s3://bucket/lake")),
        (
            "create lake lake of s to 'file:///x' with (format = 'delta', copy_on_write true, keep = 3)",
            CreateLake(
                "lake",
                "s",
                "file:///x",
                (Assignment("format", "delta"), Assignment("copy_on_write", True), Assignment("keep", 3)),
            ),
        ),
        ("DROP LAKE IF EXISTS `my-lake` OF s PURGE", DropLake("my-lake", "s", True, True)),
        ("SHOW LAKES OF s", ShowLakes("s")),
        ("SELECT * FROM mo_sync_configs", SelectSubscriptions("mo_sync_configs")),
        (
            "select State, iteration_lsn from mo_catalog.MO_CCPR_LOG where db_name = 'd''b' and state = 0",
            SelectSubscriptions("mo_ccpr_log", ("state", "iteration_lsn"), (("db_name", "d'b"), ("state", 0))),
        ),
    ],
)
def test_each_statement(text: str, statement: Statement) -> None:
    assert parse(text) == [statement]
    assert parse(f"/* before */ {text} -- behind\n# and more") == [statement]


def test_no_comment_is_executed() -> None:
    assert parse("PAUSE SUBSCRIPTION a /*!80000 b */ /*!; RESUME SUBSCRIPTION c */") == [PauseSubscription("a")]


@pytest.mark.parametrize(
    "rest", ["@a", "@@a", "1e3", "1.", "1x", "12345678901234567890", "<= 1", "!", "``", "`a\0b`", "'a", "/* a", "*/"]
)
def test_words_that_no_statement_has_are_errors_at_their_place(rest: str) -> None:
    with pytest.raises(SqlSyntax) as raised:
        parse(f"SELECT * FROM mo_ccpr_log WHERE state = 1 AND {rest}")
    assert raised.value.subject == "line 1, column 47"


def test_a_number_that_no_database_holds_is_an_error_at_its_place() -> None:
    (statement,) = parse(f"SELECT * FROM mo_ccpr_log WHERE state = {2**63 - 1}")
    assert statement == SelectSubscriptions("mo_ccpr_log", (), (("state", 2**63 - 1),))
    with pytest.raises(SqlSyntax, match="a number, or text"):
        parse(f"SELECT * FROM mo_ccpr_log WHERE state = {2**63}")


def test_a_script_is_several_statements() -> None:
    assert parse(";PAUSE SUBSCRIPTION a;;\n RESUME SUBSCRIPTION a;") == [
        PauseSubscription("a"),
        ResumeSubscription("a"),
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        (r"'a\\b\n\%'", "a\\b\n\\%"),
        ('"say ""a"""', 'say "a"'),
        (r"'\x'", "x"),
    ],
)
def test_strings_are_read_as_mysql_reads_them(written: str, meant: str) -> None:
    (statement,) = parse(f"SELECT * FROM mo_ccpr_log WHERE db_name = {written}")
    assert isinstance(statement, SelectSubscriptions)
    assert statement.where == (("db_name", meant),)


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        ("CREATE INDEX t", 1, 8, "SUBSCRIPTION"),
        ("CREATE TABLE t", 1, 15, "'.'"),
        ("CREATE DATABASE d", 1, 18, "FROM"),
        ("CREATE DATABASE d FROM 'x' SYNC INTERVAL 5", 1, 33, "PUBLICATION"),
        ("SHOW SUBSCRIPTION s", 1, 20, "STATUS"),
        ("CREATE SUBSCRIPTION s DATABASE FROM 'x'", 1, 32, "the database's name"),
        ("CREATE SUBSCRIPTION s ACCOUNT 'x'", 1, 31, "FROM, or the account's name"),
        ("CREATE SUBSCRIPTION s ACCOUNT a TABLE t FROM 'x'", 1, 33, "FROM"),
        ("CREATE SUBSCRIPTION s ACCOUNT a FROM 'x' PUBLICATION p OF a", 1, 56, "SYNC_INTERVAL, WITH or ';'"),
        (f"CREATE SUBSCRIPTION s DATABASE d\n  FROM '{URI}' SYNC_INTERVALL = 60", 2, 40, "SYNC_INTERVAL"),
        (f"CREATE SUBSCRIPTION s DATABASE d FROM '{URI}' SYNC_INTERVAL = 6O", 1, 87, "a whole number"),
        ("ALTER SUBSCRIPTION s SET (RETAIN = 'x')", 1, 36, "a whole number"),
        ("ALTER SUBSCRIPTION s SET (RETAIN = 1, retain = 2)", 1, 39, "each setting once"),
        ("ALTER SUBSCRIPTION s SET (COLOUR = 1)", 1, 27, "a setting"),
        ("ALTER SUBSCRIPTION s SET ()", 1, 27, "a setting"),
        ("DROP SUBSCRIPTION IF s", 1, 22, "EXISTS"),
        ("PAUSE SUBSCRIPTION s RESUME SUBSCRIPTION s", 1, 22, "';'"),
        ("SELECT colour FROM mo_sync_configs", 1, 8, "a column of mo_sync_configs"),
        ("SELECT watermark FROM mo_sync_configs", 1, 8, "a column of mo_sync_configs"),
        ("SELECT * FROM mo_users", 1, 15, "a table"),
        ("", 1, 1, "a statement"),
        ("PAUSE SUBSCRIPTION `s", 1, 20, "the subscription's name"),
        ("CREATE SUBSCRIPTION my-sub DATABASE d", 1, 23, "DATABASE or a name in `backquotes`"),
    ],
)
def test_an_error_points_at_the_character(text: str, line: int, column: int, expected: str) -> None:
    with pytest.raises(SqlSyntax) as raised:
        parse(text)
    message, shown, caret = raised.value.message.split("\n")
    assert expected in message
    assert f"(line {line}, column {column})" in message
    assert raised.value.subject == f"line {line}, column {column}"
    source = text.split("\n")[line - 1]
    rest = source[column - 1 : column + 3]
    if "://" not in source[: column - 1] and "'" not in rest and "`" not in rest:
        assert shown[caret.index("^") :].startswith(rest)


SECRET = "Zx9"


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE SUBSCRIPTION s DATABASE d FROM 'mysql://a#u:{SECRET}@h:1' NONSENSE",
        f"CREATE SUBSCRIPTION s DATABASE d FROM 'mysql://a#u:{SECRET}@h:1",
        f"CREATE SUBSCRIPTION s DATABASE d FROM mysql://a#u:{SECRET}@h:1",
        f"CREATE SUBSCRIPTION s DATABASE d FROM mysql://u:{SECRET}@h:1",
        f"CREATE SUBSCRIPTION s DATABASE d FROM `mysql://u:{SECRET}@h:1`",
        f"CREATE SUBSCRIPTION s DATABASE d FORM 'mysql://u:{SECRET}@h:1'",
        f"CREATE SUBSCRIPTION s DATABASE d FROM 'mysql://u:{SECRET}'{SECRET}@h:1'",
        f"CREATE SUBSCRIPTION s DATABASE d FROM 'mysql://u:a@b'{SECRET}'x@h:1'",
        f"CREATE SUBSCRIPTION s DATABASE d FROM 'mysql://u:a'{SECRET}'b@h:1'",
        f"CREATE SUBSCRIPTION s DATABASE d FROM 'mysql://u:a@b' {SECRET} c@h:1'",
        f"CREATE SUBSCRIPTION s DATABASE d FROM 'mysql://u:{SECRET}' !@h:1'",
        f"CREATE SUBSCRIPTION s DATABASE d -- FROM 'mysql://u:{SECRET}@h:1'\n TO",
        f"ALTER SUBSCRIPTION s SET (UPSTREAM 'mysql://u:{SECRET}@h:1' RETAIN)",
        f"ALTER SUBSCRIPTION s SET (UPSTREAM = mysql://u:{SECRET}@h:1, RETAIN = 1)",
        f"ALTER SUBSCRIPTION s SET (PASSWORD = '{SECRET}')",
        f"ALTER SUBSCRIPTION s SET (PASSWORD = '{SECRET}",
        f"ALTER SUBSCRIPTION s /* {SECRET} */ TO",
        f"ALTER SUBSCRIPTION s /* {SECRET}",
        f"ALTER SUBSCRIPTION s /*!80000 SET (PASSWORD = '{SECRET}') */ TO",
    ],
)
def test_no_part_of_a_password_is_in_an_error(text: str) -> None:
    with pytest.raises(SqlSyntax) as raised:
        parse(text)
    assert SECRET not in str(raised.value)


DOCUMENT, SETTINGS_PAGE = (
    (Path(__file__).resolve().parents[3] / "docs" / "reference" / f"{page}.md").read_text()
    for page in ("sql", "configuration")
)


def test_the_document_shows_what_is_read() -> None:
    shown = re.findall(r"^\* `((?:CREATE|ALTER|PAUSE|RESUME|DROP|SHOW|SELECT)[^`]*)`", DOCUMENT, re.MULTILINE)
    assert {type(statement) for text in shown for statement in parse(text)} == set(get_args(Statement))
    assert all(f"`{name.upper()}`" in DOCUMENT for name in LAKE_FORMS)
    assert "](configuration.md#settings-of-a-subscription)" in DOCUMENT
    assert all(f"\n* `{name}`: " in SETTINGS_PAGE for name in SETTINGS)
    listed = re.search(r"the words\s([A-Z \n]+), in backquotes", DOCUMENT)
    assert listed is not None
    assert set(listed[1].split()) == RESERVED
    with pytest.raises(SqlSyntax) as raised:
        parse("CREATE SUBSCRIPTION s DATABASE d FROM 'mysql://a#u:secret123@h:1' SYNC_INTERVALL = 60")
    assert raised.value.message in DOCUMENT


# ---- generated

words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
names = st.one_of(words, st.sampled_from(sorted(RESERVED)))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(0, 10**17)
values = {bool: st.booleans(), int: numbers, str: texts, float: st.integers(0, 10**9).map(lambda number: number / 1000)}


FORMS = {name: setting.kind.forms for name, setting in SETTINGS.items()}


@st.composite
def settings_of(
    draw: st.DrawFn, least: int = 0, forms: Mapping[str, tuple[type, ...]] = FORMS
) -> tuple[Assignment, ...]:
    """`forms`: by name the types by which a statement says the setting."""
    chosen = draw(st.lists(st.sampled_from(sorted(forms)), unique=True, min_size=least))
    return tuple(Assignment(name, draw(st.one_of(values[form] for form in forms[name]))) for name in chosen)


@st.composite
def creates(draw: st.DrawFn) -> CreateSubscription:
    publication = draw(st.none() | names)
    publisher = draw(st.none() | names) if publication is not None else None
    table = draw(st.none() | names)
    return CreateSubscription(draw(names), draw(names), table, draw(texts), publication, publisher, draw(settings_of()))


@st.composite
def selects(draw: st.DrawFn) -> SelectSubscriptions:
    source = draw(st.sampled_from(sorted(READABLE)))
    columns = st.sampled_from(READABLE[source])
    where = st.lists(st.tuples(columns, texts | numbers), max_size=3).map(tuple)
    return SelectSubscriptions(source, draw(st.lists(columns, max_size=4).map(tuple)), draw(where))


statements = st.one_of(
    creates(),
    st.builds(AlterSubscription, names, st.none() | texts, st.none() | names, settings_of(least=1)),
    st.builds(PauseSubscription, names),
    st.builds(ResumeSubscription, names),
    st.builds(DropSubscription, names, st.booleans(), st.booleans(), st.booleans()),
    st.builds(ShowSubscriptions),
    st.builds(ShowStatus, names),
    st.builds(ShowPublications, texts),
    selects(),
    st.builds(CreateLake, names, names, texts, settings_of(forms=LAKE_FORMS)),
    st.builds(DropLake, names, names, st.booleans(), st.booleans()),
    st.builds(ShowLakes, names),
)


@given(st.lists(statements, min_size=1, max_size=3))
def test_what_is_formatted_is_read_back(script: list[Statement]) -> None:
    assert parse(";\n".join(map(format_statement, script))) == script


SIGNS = "* ( ) , ; = . ' \" ` -- # /* */ \\ 1 1.5".split()  # noqa: SIM905 - shorter so
pieces = st.sampled_from([*sorted(RESERVED), "SUBSCRIPTIONS", "SYNC_INTERVAL", *SIGNS])


@settings(deadline=None)
@given(st.one_of(st.text(), st.lists(pieces | st.text(max_size=3)).map(" ".join)))
@example("9" * 5000)
@example("SHOW SUBSCRIPTIONS" + " " * 20_000 + "!")
@example("(" * 20_000)
def test_any_text_is_a_statement_or_a_syntax_error(text: str) -> None:
    with suppress(SqlSyntax):
        parse(text)


@given(
    password=st.text(st.sampled_from("ab'\"`@:/#;, \\-"), max_size=12),
    before=st.sampled_from(["", "FORM ", "'x' "]),
    behind=st.sampled_from(["", " NONSENSE", " SYNC_INTERVAL = x", "'"]),
)
def test_no_generated_password_is_in_an_error(password: str, before: str, behind: str) -> None:
    """With marks on both sides of whatever the password is made of."""
    text = f"CREATE SUBSCRIPTION s DATABASE d {before}FROM 'mysql://a#u:{SECRET}{password}{SECRET}@h:1'{behind}"
    shown = ""
    try:
        parse(text)
    except SqlSyntax as error:
        shown = str(error)
    assert SECRET not in shown
