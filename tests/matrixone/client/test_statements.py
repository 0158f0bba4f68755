import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.errors import BadWord


def test_sql_quotes_names_and_texts():
    assert upstream_sql.identifier("a`b") == "`a``b`"
    assert upstream_sql.string("it's \\") == "'it''s \\\\'"
    assert (
        upstream_sql.create_snapshot("XR_1", "My `db` é", "Sys", "Pub_1")
        == "CREATE SNAPSHOT IF NOT EXISTS `xr_1` FOR DATABASE `My ``db`` é` FROM `sys` PUBLICATION `pub_1`"
    )
    assert upstream_sql.drop_snapshot("XR_1", "SYS", "p") == "DROP SNAPSHOT IF EXISTS `xr_1` FROM `sys` PUBLICATION `p`"
    assert upstream_sql.select_tables(3, "o'b", 17, "t").endswith(
        "FROM mo_catalog.mo_tables {mo_ts = 17} WHERE account_id = 3 AND reldatabase = 'o''b' AND relname = 't'"
    )


def test_internal_commands_begin_with_their_prefix_and_end_without_a_semicolon():
    commands = {
        upstream_sql.snapshot_timestamp("S", "A", "P"): "__++__internal_get_snapshot_ts s a p",
        upstream_sql.snapshot_flushed("S", "A", "P"): "__++__internal_check_snapshot_flushed s a p",
        upstream_sql.databases("A", "P", "Db"): "__++__internal_get_databases - a p database Db -",
        upstream_sql.databases("A", "P", "two words"): "__++__internal_get_databases - a p database - -",
        upstream_sql.ddl("S", "A", "P", "Db", None): "__++__internal_get_ddl s a p database Db -",
        upstream_sql.ddl("S", "A", "P", "Db", "T"): "__++__internal_get_ddl s a p table Db T",
        upstream_sql.ddl("S", "A", "P", None, None): "__++__internal_get_ddl s a p account - -",
        upstream_sql.indexes(7, "A", "P", "S"): "__++__internal_get_mo_indexes 7 a p s",
        upstream_sql.object_list("S", None, "A", "P"): "__++__internal_object_list s - a p",
        upstream_sql.object_list("S", "R", "A", "P"): "__++__internal_object_list s r a p",
        upstream_sql.get_object("A", "P", "o", 1): "__++__internal_get_object a p o 1",
    }
    assert all(command == expected for command, expected in commands.items())


@pytest.mark.parametrize(
    "name", ["", "-", "two words", "tab\t", "quo'te", 'quo"te', "back`quote", "no\u00a0break", "line\n"]
)
def test_a_name_that_cannot_be_part_of_an_internal_command_is_refused(name: str):
    for build in (
        lambda: upstream_sql.snapshot_timestamp(name, "a", "p"),
        lambda: upstream_sql.snapshot_flushed("s", name, "p"),
        lambda: upstream_sql.object_list("s", name, "a", "p"),
        lambda: upstream_sql.create_snapshot("s", "db", "a", name),
        lambda: upstream_sql.ddl("s", "a", "p", name, None),
        lambda: upstream_sql.get_object("a", "p", name, 1),
    ):
        with pytest.raises(BadWord) as raised:
            build()
        assert raised.value.remedy


@given(st.text(min_size=1))
def test_a_quoted_name_ends_only_at_its_end(name: str):
    quoted = upstream_sql.identifier(name)
    assert quoted[0] == quoted[-1] == "`"
    assert quoted[1:-1].replace("``", "") == name.replace("`", "")
    literal = upstream_sql.string(name)
    assert literal[1:-1].replace("\\\\", "").replace("''", "") == name.replace("\\", "").replace("'", "")
