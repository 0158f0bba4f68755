import pytest

from ccpr.matrixone.client.database_definitions import view_of
from ccpr.matrixone.sql.errors import DdlUnreadable


@pytest.mark.parametrize(
    ("name", "text", "columns", "query"),
    [
        ("v1", "create view v1 as select id from t", (), "select id from t"),
        ("v 2", "create view `v 2`(b) as select id from v1 where 1=1", ("b",), "select id from v1 where 1=1"),
        ("v3", "create or replace view V3 as select 1 -- the end", (), "select 1"),
        ("v4", "prepare s1 from 'create view v4 as select ''a;b'' x from t'", (), "select 'a;b' x from t"),
        ("v5", "/* c */ create view v5 as select 1; create user u identified by 'secret'", (), "select 1"),
        ("v5", "create user u identified by 'secret'; create view shop.v5 as select 1;", (), "select 1"),
        ("v6", "create definer = dump sql security invoker view v6 as select 2", (), "select 2"),
        ("v6", "create view v6 as select 1 /*! ; drop table t */ from t", (), "select 1"),
        ("v7", "alter view if exists v7 as select 3", (), "select 3"),
        ("v8", "create view if not exists v8 as select '\\\\;'", (), "select '\\\\;'"),
    ],
)
def test_the_query_of_a_view_is_taken_from_what_a_client_sent(
    name: str, text: str, columns: tuple[str, ...], query: str
) -> None:
    found = view_of(name, text, "shop")
    assert (found.name, found.columns, found.query, found.default_database) == (name, columns, query, "shop")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "create view other as select 1",
        "create table v as select 1",
        "create view v as",
        "create view v as select 'a",
        "create view v as select 1 /* ",
        "create view v as select 1 \\! rm",
        "create view v as select 1 /* \\! rm */ from t",
        "create view v as select 1\ndelimiter x\nfrom t",
        "create view v as select 1 /* ; drop table t */ from t",
        "create view v as select '\0'",
    ],
)
def test_a_text_that_a_script_may_not_hold_is_refused(text: str) -> None:
    with pytest.raises(DdlUnreadable):
        view_of("v", text, "shop")
