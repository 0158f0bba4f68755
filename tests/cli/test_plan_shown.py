"""What `ccpr plan` shows of a plan."""

import pytest

from ccpr.cli.plan_command import show_plan
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.pipeline.plan import IterationPlan, PlannedChange, PlannedTable

TABLES = (
    PlannedTable(1, "shop.orders", 3, 1, 1_500_000),
    PlannedTable(2, "shop.items", 1, 0, 500_000),
    PlannedTable(3, "shop.__mo_index_secondary_x", 1, 0, 700, "index", copied=False),
)
CHANGES = (
    PlannedChange(
        "rewritten", "shop.orders", None, destructive=False, diff="--- a\n+++ b\n@@ -1 +1 @@\n-  `a` int\n+  `b` int"
    ),
    PlannedChange("truncated", "shop.items", None, destructive=True),
    PlannedChange("created", "shop.__mo_index_secondary_x", None, destructive=False, index=True),
)


def shown(capsys: pytest.CaptureFixture[str], *, whole: bool, ddl: bool = False, tables: int = 0) -> list[str]:
    more = tuple(PlannedTable(10 + number, f"shop.t{number:03}", 1, 0, 10) for number in range(tables))
    plan = IterationPlan("id", "shop", 4, 0, "xr", Timestamp(10**18), 4, 2_000_000, TABLES + more, CHANGES, "", {}, ())
    show_plan(plan, whole=whole, ddl=ddl)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_index_tables_are_hidden_and_the_rest_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, whole=False)
    assert "and 1 index table (--all) … … …" in lines
    assert "total of 2 tables 4 1 2.0 MB" in lines
    assert "and of 1 index table (--all)" in lines
    assert not [line for line in lines if "__mo_index" in line]


def test_all_shows_them_and_that_they_are_not_copied(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, whole=True)
    assert "shop.__mo_index_secondary_x 1 0 (700 B, not copied)" in lines
    assert "created shop.__mo_index_secondary_x" in lines
    assert "total of 2 tables 4 1 2.0 MB" in lines


def test_the_total_is_of_all_tables_also_of_those_that_have_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, whole=False, tables=100)
    assert "and 62 more tables … … …" in lines
    assert "total of 102 tables 104 1 2.0 MB" in lines


def test_a_change_shows_its_lines_and_only_a_loss_of_rows_is_destructive(capsys: pytest.CaptureFixture[str]) -> None:
    assert not [line for line in shown(capsys, whole=False) if line.startswith("@@")], "without --ddl"
    lines = shown(capsys, whole=False, ddl=True)
    place = lines.index("rewritten shop.orders")
    assert lines[place + 1 : place + 4] == ["@@ -1 +1 @@", "- `a` int", "+ `b` int"]
    assert "truncated shop.items destructive: its rows are not in the next point" in lines
