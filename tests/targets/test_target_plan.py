"""What has to be done at a target, as values: which tables wait for which, and how names change places."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.base.errors import Failure
from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.schema import Column, Kind, SqlType, Table
from ccpr.schema.alterations import shadow_name
from ccpr.schema.choices import DdlPolicy, Dialect, MaxDrop
from ccpr.schema.render import target_table
from ccpr.schema.sync_mark import for_sync
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.base import Registered, TableState, TargetTable
from ccpr.targets.expected_tables import TargetRules
from ccpr.targets.target_plan import Alter, Build, Drop, TargetPlan, plan_target, renames, replaced

FULL = TargetRules(Dialect.MARIADB, "t", DdlPolicy.FULL)
ADDITIVE = replace(FULL, policy=DdlPolicy.ADDITIVE)
INT = SqlType(22, 32, -1)


def table(
    table_id: int, name: str, columns: Mapping[str, int] | None = None, *, logical_id: int = 0, unique: bool = False
) -> Table:
    """`columns`: names with their sequence numbers; the first is the key."""
    columns = columns or {"k": 0, "v": 1}
    key = next(iter(columns))
    lines = [f"`{column}` int {'NOT NULL' if column == key else 'DEFAULT NULL'}" for column in columns]
    lines += [f"PRIMARY KEY (`{key}`)"] + (["UNIQUE KEY `u` (`v`)"] if unique else [])
    stored = tuple(Column(column, seqnum, INT, nullable=column != key) for column, seqnum in columns.items())
    ddl = f"CREATE TABLE `d`.`{name}` (\n" + ",\n".join(lines) + "\n)"
    return Table(table_id, logical_id or table_id, "d", name, Kind.TABLE, stored, ddl)


def registered(*tables: Table, state: TableState = TableState.LIVE) -> dict[int, Registered]:
    found = {}
    for one in tables:
        synced = for_sync(target_table(create_table_of(one), Dialect.MARIADB, database="t").create)
        entry = TargetTable(one, "t", one.name, synced.create, synced.stripped, synced.disabled)
        found[one.id] = Registered(entry, state, Location(0, 1))
    return found


def codes(plan: TargetPlan) -> dict[int, str]:
    return {table_id: step.failure.code for table_id, step in plan.behind.items() if step.failure}


def live(entries: Mapping[int, Registered]) -> dict[int, TargetTable]:
    return {table_id: entry.table for table_id, entry in entries.items()}


def test_nothing_has_changed():
    tables = [table(1, "a"), table(2, "b")]
    assert plan_target(FULL, registered(*tables), tables).steps == ()


def test_two_names_that_change_places_go_by_way_of_a_third():
    there = registered(table(1, "a"), table(2, "b"))
    plan = plan_target(FULL, there, [table(1, "b"), table(2, "a")])
    moved, (statement,) = renames(plan, live(there))
    assert {one.id: one.name for one in moved} == {1: "b", 2: "a"}
    assert all(f"`{one.name}`" in one.create for one in moved)
    assert statement == (
        "RENAME TABLE `t`.`a` TO `t`.`ccpr_between_1`, `t`.`b` TO `t`.`ccpr_between_2`, "
        "`t`.`ccpr_between_1` TO `t`.`b`, `t`.`ccpr_between_2` TO `t`.`a`"
    )


@pytest.mark.slow
@given(st.permutations(range(6)), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)))
def test_renames_take_every_name_that_is_free_at_that_moment(order: list[int], gone: set[int], truncated: set[int]):
    there = registered(*(table(1 + number, f"n{number}") for number in range(6)))
    after = [
        table((11 if number in truncated else 1) + number, f"n{place}", logical_id=1 + number)
        for number, place in enumerate(order)
        if number not in gone
    ]
    plan = plan_target(replace(FULL, max_drop=MaxDrop(6)), there, after)
    assert plan.behind == {}
    moved, statements = renames(plan, live(there))
    names = {entry.table.name: table_id for table_id, entry in there.items()}
    for statement in statements:
        for pair in statement.removeprefix("RENAME TABLE ").split(", "):
            old, new = (side.strip("`").removeprefix("t`.`") for side in pair.split(" TO "))
            assert new not in names
            names[new] = names.pop(old)
    assert {one.name: one.id for one in moved}.items() <= names.items()
    for build in plan.of(Build):
        assert build.wanted is not None
        for table_id in replaced(plan, build):
            names = {name: held for name, held in names.items() if held != table_id}
        assert build.wanted.name not in names
        names[build.wanted.name] = build.wanted.id
    for drop in plan.of(Drop):
        names = {name: held for name, held in names.items() if held != drop.id}
    assert names == {one.name: one.id for one in after}


def test_a_table_waits_for_the_name_of_one_that_waits_and_so_on():
    there = registered(table(1, "a"), table(2, "b"), table(3, "c"))
    after = [table(2, "a"), table(3, "b"), table(4, "c"), table(5, "new")]
    kept = {1: Failure("CODE", "", "", "")}
    plan = plan_target(FULL, there, after, kept=kept)
    assert codes(plan) == {1: "CODE", 2: "TARGET_NAME_TAKEN", 3: "TARGET_NAME_TAKEN", 4: "TARGET_NAME_TAKEN"}
    assert [step.table.name for step in plan.of(Build)] == ["new"]


@pytest.mark.parametrize(
    ("after", "waits"),
    [
        ([], True),
        ([table(9, "a", logical_id=1)], True),  # TRUNCATE
        ([table(1, "b")], True),
        ([table(1, "a", {"k": 0, "v": 1, "w": 2})], False),
        ([table(9, "a", {"k": 0, "v": 1, "w": 2}, logical_id=1)], False),  # a copying ALTER
        ([table(9, "a", logical_id=1, unique=True)], True),  # TRUNCATE, and an index as well
        ([table(1, "a", {"k": 0})], True),
    ],
)
def test_what_removes_something_waits_under_the_policy_additive(after: list[Table], waits: bool):
    plan = plan_target(ADDITIVE, registered(table(1, "a")), after)
    assert codes(plan) == ({1: "TARGET_DDL_WAITS"} if waits else {})
    assert all(step.statements for step in plan.steps), "what waits is shown"


def test_a_copying_alter_is_built_and_one_in_place_is_altered():
    wider = {"k": 0, "v": 1, "w": 2}
    (build,) = plan_target(FULL, registered(table(1, "a")), [table(9, "a", wider, logical_id=1)]).of(Build)
    assert (build.id, build.replaces) == (1, (1,))
    (alter,) = plan_target(FULL, registered(table(1, "a")), [table(1, "a", wider)]).of(Alter)
    assert alter.first == ("ALTER TABLE `t`.`a` ADD COLUMN `w` int DEFAULT NULL AFTER `v`",)
    assert alter.between == alter.wanted


def test_a_plan_has_each_statement_once_and_in_the_place_where_it_is_run():
    there = registered(table(1, "a"), table(2, "b"), table(3, "c"), table(4, "d"))
    plan = plan_target(FULL, there, [table(9, "b", logical_id=1), table(2, "a"), table(5, "c", unique=True)])
    assert plan.renaming == (
        "RENAME TABLE `t`.`b` TO `t`.`ccpr_between_2`, `t`.`a` TO `t`.`ccpr_between_1`, "
        "`t`.`ccpr_between_2` TO `t`.`a`, `t`.`ccpr_between_1` TO `t`.`b`",
    )
    shadows = {
        number: [f"`t`.`{shadow_name(purpose, '', number)}`" for purpose in ("load", "old")] for number in (1, 3, 5, 9)
    }
    statements = {step.table.id: step.statements for step in plan.steps}
    assert statements[2] == ()
    assert statements[9][0].startswith(f"CREATE TABLE {shadows[9][0]} (")
    assert statements[9][1:] == (
        f"RENAME TABLE `t`.`b` TO {shadows[1][1]}, {shadows[9][0]} TO `t`.`b`",
        f"DROP TABLE IF EXISTS {shadows[1][1]}",
    )
    assert statements[3] == (), "it goes in the step of the table that takes its name"
    assert statements[5][1:] == (
        f"ALTER TABLE {shadows[5][0]} ADD UNIQUE KEY `u` (`v`)",
        f"RENAME TABLE `t`.`c` TO {shadows[3][1]}, {shadows[5][0]} TO `t`.`c`",
        f"DROP TABLE IF EXISTS {shadows[3][1]}",
    )
    assert statements[4] == ("DROP TABLE IF EXISTS `t`.`d`",)


def test_what_waits_is_shown_with_the_rename_that_it_needs():
    there = registered(table(1, "a"), table(2, "b"))
    plan = plan_target(ADDITIVE, there, [table(9, "c", logical_id=1), table(2, "d")])
    assert plan.renaming == ()
    truncated, renamed = plan.steps[1].statements, plan.steps[0].statements
    assert (truncated[0], renamed) == ("RENAME TABLE `t`.`a` TO `t`.`c`", ("RENAME TABLE `t`.`b` TO `t`.`d`",))
    assert truncated[-1] == f"DROP TABLE IF EXISTS `t`.`{shadow_name('old', '', 1)}`"


def test_what_had_to_wait_for_the_rows_is_found_again_after_an_interruption():
    before, after = table(1, "a"), table(1, "a", unique=True)
    (alter,) = plan_target(FULL, registered(before), [after]).of(Alter)
    assert (alter.first, alter.last) == ((), ("ALTER TABLE `t`.`a` ADD UNIQUE KEY `u` (`v`)",))
    assert alter.between is not None
    between = {1: Registered(alter.between, TableState.LIVE, Location(1, 2))}
    (again,) = plan_target(FULL, between, [after]).of(Alter)
    assert again.last == alter.last
    assert plan_target(FULL, between, [after], is_done=lambda _: True).steps == ()


def test_released_and_dropped_tables_are_known_by_what_they_were():
    after = [table(9, "a", logical_id=1), table(2, "b")]
    assert (
        plan_target(FULL, registered(table(1, "a"), state=TableState.RELEASED) | registered(table(2, "b")), after).steps
        == ()
    )
    plan = plan_target(FULL, registered(table(1, "a"), state=TableState.DROPPED) | registered(table(2, "b")), after)
    assert codes(plan) == {1: "TARGET_TABLE_DROPPED"}


def test_a_table_whose_definition_cannot_be_read_does_not_stop_others():
    unreadable = replace(table(1, "a"), ddl="CREATE TABLE what")
    plan = plan_target(FULL, {}, [unreadable, table(2, "b")])
    assert codes(plan) == {1: "DDL_UNREADABLE"}
    assert [step.table.name for step in plan.of(Build)] == ["b"]


def test_a_table_with_a_column_of_an_unknown_type_waits_alone_and_says_which() -> None:
    fresh, other = table(1, "a"), table(2, "b")
    key, value = fresh.columns
    odd = replace(fresh, columns=(key, replace(value, type=SqlType(230))))
    plan = plan_target(FULL, {}, [odd, other])
    assert codes(plan) == {1: "TARGET_UNFIT"}
    (failure,) = (step.failure for step in plan.behind.values())
    assert failure is not None
    assert (failure.subject, failure.message) == ("column v of table d.a", "type 230 is not known to this release")
    assert [step.table.id for step in plan.of(Build)] == [2]
    altered = plan_target(FULL, registered(fresh, other), [odd, other])
    assert codes(altered) == {1: "TARGET_UNFIT"}
    assert [step.table for step in altered.steps] == [odd]


@pytest.mark.parametrize(
    ("there", "gone", "max_drop", "held"),
    [
        (1, 1, "half", False),
        (2, 1, "half", False),
        (2, 2, "half", True),
        (3, 2, "half", False),
        (3, 3, "half", True),
        (6, 2, "half", False),
        (6, 3, "half", True),
        (7, 3, "half", False),
        (7, 3, "2", True),
        (7, 7, "7", False),
        (1, 1, "0", True),
    ],
)
def test_most_tables_that_are_gone_at_once_are_held_and_the_others_go_on(
    there: int, gone: int, max_drop: str, held: bool
) -> None:
    tables = [table(number, f"t{number}") for number in range(1, there + 1)]
    new = table(100, "new")
    plan = plan_target(replace(FULL, max_drop=MaxDrop.parse(max_drop)), registered(*tables), [*tables[gone:], new])
    assert codes(plan) == (dict.fromkeys(range(1, gone + 1), "TARGET_DROPS_HELD") if held else {})
    assert len(plan.of(Drop)) == (0 if held else gone)
    assert [step.table.name for step in plan.of(Build)] == ["new"]
    assert all(step.statements for step in plan.behind.values()), "what would be run is shown"


def test_tables_that_are_replaced_or_renamed_are_not_gone() -> None:
    tables = [table(number, f"t{number}") for number in range(1, 7)]
    truncated = [table(10 + one.id, one.name, logical_id=one.id) for one in tables]
    recreated = [table(20 + one.id, one.name) for one in tables]
    renamed = [table(one.id, f"r{one.id}") for one in tables]
    for later in (truncated, recreated, renamed):
        plan = plan_target(replace(FULL, max_drop=MaxDrop.parse("0")), registered(*tables), later)
        assert plan.behind == {}


def test_what_is_held_stays_held_however_many_tables_are_made_meanwhile() -> None:
    tables = [table(number, f"t{number}") for number in range(1, 9)]
    held = replace(FULL, held=frozenset({"d.t1", "d.t2"}))
    assert set(codes(plan_target(held, registered(*tables), tables[3:]))) == {1, 2}
    assert codes(plan_target(held, registered(*tables), tables)) == {}, "they are there again"
    assert codes(plan_target(replace(held, max_drop=MaxDrop(3)), registered(*tables), tables[3:])) == {}
    approved = replace(held, approved=held.held)
    assert codes(plan_target(approved, registered(*tables), tables[3:])) == {}


def test_what_was_approved_goes_and_what_is_gone_since_is_held() -> None:
    tables = [table(number, f"t{number}") for number in range(1, 9)]
    approved = replace(FULL, approved=frozenset({"d.t1", "d.t2", "d.t3", "d.t4"}))
    assert codes(plan_target(approved, registered(*tables), tables[4:])) == {}
    assert {step.id for step in plan_target(approved, registered(*tables), []).of(Drop)} == {1, 2, 3, 4}


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "half ", "1" * 10])
def test_what_is_no_limit_of_drops_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a number of tables"):
        MaxDrop.parse(text)
