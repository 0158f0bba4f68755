"""Whether a text says the same of a table as the one that is known."""

from dataclasses import replace

import pytest

from ccpr.matrixone.schema import Column, Kind, SqlType, Table
from ccpr.schema import ddl_diff
from ccpr.schema.ddl_diff import same_definition, with_known_text

HEAD = "CREATE TABLE `d`.`a` (\n  `id` int NOT NULL,\n  `v` varchar(10){column} DEFAULT NULL,\n  PRIMARY KEY (`id`)\n)"
OLD = HEAD.format(column="") + ' COMMENT=\'c\' PROPERTIES("from_publication" = "true")'
UPGRADED = HEAD.format(column="") + " COLLATE=utf8mb4_bin COMMENT='c' PROPERTIES('from_publication' = 'true')"
COPIED = (
    HEAD.format(column=" COLLATE utf8mb4_bin")
    + " COLLATE=utf8mb4_bin COMMENT='c' PROPERTIES('from_publication' = 'true')"
)
ALTERED = UPGRADED.replace("varchar(10)", "varchar(10) COLLATE utf8mb4_general_ci")


def table(ddl: str, **changed) -> Table:
    columns = (Column("id", 0, SqlType(22, 32, -1), nullable=False), Column("v", 1, SqlType(61, 10, 0)))
    return replace(Table(7, 7, "d", "a", Kind.TABLE, columns, ddl, "c"), **changed)


@pytest.mark.parametrize("text", [UPGRADED, COPIED])
def test_the_text_of_before_an_upgrade_stays(text: str) -> None:
    assert with_known_text(table(OLD), table(text)) == table(OLD)


@pytest.mark.parametrize("text", [ALTERED, UPGRADED.replace("'c'", "'d'"), "CREATE TABLE `a` (what 'is' this"])
def test_a_text_that_says_something_else_is_taken(text: str) -> None:
    assert with_known_text(table(OLD), table(text)) == table(text)


def test_a_text_that_says_the_same_of_a_table_that_was_altered_is_taken() -> None:
    renamed = table(UPGRADED.replace("`a`", "`b`"), name="b")
    commented = table(UPGRADED, comment="d")
    wider = table(UPGRADED, columns=table(OLD).columns[:1])
    for after in (renamed, commented, wider):
        assert with_known_text(table(OLD), after) == after


def test_a_table_that_was_truncated_over_an_upgrade_has_the_same_definition() -> None:
    assert same_definition(table(OLD), table(COPIED, id=8))
    assert not same_definition(table(OLD), table(ALTERED, id=8))


def test_what_an_upgrade_adds_to_most_tables_is_seen_without_reading_their_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ddl_diff, "create_table_of", None)
    assert same_definition(table(OLD), table(UPGRADED))
