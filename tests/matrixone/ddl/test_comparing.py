"""Definitions are compared without what releases of the server print differently."""

import pytest

from ccpr.matrixone.ddl.definition import CreateTable
from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.schema.ddl_diff import comparable

COLUMNS = "`id` int NOT NULL, `v` varchar(10){v} DEFAULT 'x', `t` text{t}, `e` enum('a','b'), PRIMARY KEY (`id`)"


def definition(v: str = "", t: str = "", options: str = "") -> CreateTable:
    return comparable(parse_create_table(f"CREATE TABLE `d`.`a` (\n{COLUMNS.format(v=v, t=t)}\n){options}"))


BEFORE = definition(options=' PROPERTIES("from_publication" = "true")')
PROPERTY = " PROPERTIES('from_publication' = 'true')"


@pytest.mark.parametrize(
    ("v", "t", "options"),
    [
        ("", "", " COLLATE=utf8mb4_bin"),
        (" COLLATE utf8mb4_bin", " COLLATE utf8mb4_bin", " COLLATE=utf8mb4_bin"),
        (" COLLATE utf8mb4_bin", " COLLATE utf8mb4_bin", ""),
        ("", " CHARACTER SET utf8mb4", " DEFAULT CHARSET=utf8mb4"),
        ("", "", " DEFAULT CHARSET=utf8mb4 COLLATE=UTF8MB4_BIN"),
    ],
)
def test_what_an_upgrade_adds_is_no_difference(v: str, t: str, options: str) -> None:
    assert definition(v, t, options + PROPERTY) == BEFORE


@pytest.mark.parametrize(
    ("v", "t", "options"),
    [
        (" COLLATE utf8mb4_general_ci", "", " COLLATE=utf8mb4_bin"),
        ("", "", " COLLATE=utf8mb4_general_ci"),
        ("", " COLLATE utf8mb4_bin", " COLLATE=utf8mb4_general_ci"),
        (" COLLATE binary", "", ""),
        ("", "", " CHARACTER SET=binary"),
    ],
)
def test_another_collation_is_a_difference(v: str, t: str, options: str) -> None:
    assert definition(v, t, options + PROPERTY) != BEFORE


def test_a_column_has_the_collation_of_its_table_unless_it_says_otherwise() -> None:
    of_table = definition(options=" COLLATE=utf8mb4_general_ci")
    assert [column.collation for column in of_table.columns] == ["", "utf8mb4_general_ci", "utf8mb4_general_ci", ""]
    assert definition(v=" COLLATE utf8mb4_general_ci", options=" COLLATE=utf8mb4_general_ci") == of_table
    mixed = definition(v=" COLLATE utf8mb4_bin", options=" COLLATE=utf8mb4_general_ci")
    assert [column.collation for column in mixed.columns] == ["", "", "utf8mb4_general_ci", ""]


def test_other_options_of_the_table_count() -> None:
    options = " COLLATE=utf8mb4_bin ENGINE=InnoDB"
    assert definition(options=options).options == (("ENGINE", "InnoDB"),)


def test_an_expression_as_default_counts_with_its_quotes_doubled_or_not() -> None:
    doubled, single = (
        comparable(parse_create_table(f"CREATE TABLE `a` (\n  `v` varchar(9) DEFAULT (concat({inner}))\n)"))
        for inner in ("''a'', ''b''", "'a', 'b'")
    )
    other = comparable(parse_create_table("CREATE TABLE `a` (\n  `v` varchar(9) DEFAULT (concat('a', 'c'))\n)"))
    assert doubled == single != other


def test_a_tinytext_counts_as_the_text_as_which_it_was_printed() -> None:
    short, text = (
        comparable(parse_create_table(f"CREATE TABLE `a` (\n  `v` {kind} DEFAULT NULL\n)"))
        for kind in ("tinytext COLLATE utf8mb4_bin", "text")
    )
    assert short == text
