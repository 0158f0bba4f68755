from ccpr.matrixone.ddl.database_script import script_of
from ccpr.matrixone.definitions import Definitions, SequenceState, Unreadable, View


def test_sequences_come_first_then_views_after_those_that_they_need_each_where_it_was_typed() -> None:
    views = (View("a", "select * from b", (), "other"), View("b", "select 1", (), "shop"))
    sequence = SequenceState("s", "bigint", 12, 1, 99, 10, 2, cycle=False, called=True)
    text = script_of(Definitions("shop", views, (sequence,)), "copy", "title").text
    statements = [line for line in text.splitlines() if line not in ("", ";") and not line.startswith("--")]
    assert statements == [
        "USE `copy`;",
        *sequence.statements(),
        "CREATE VIEW `copy`.`b` AS select 1",
        "USE `other`;",
        "CREATE VIEW `copy`.`a` AS select * from b",
    ]


def test_what_is_not_one_statement_is_left_out_and_no_comment_can_be_left() -> None:
    views = (View("v", "select 1; drop database x"), View("w\n; drop table t", "select 1"))
    left = Unreadable("view", "x\ndrop table t;", "because\n; drop table u")
    script = script_of(Definitions("shop", views, unreadable=(left,)), "shop", "title\n; drop table t")
    assert (script.statements, len(script.left_out)) == (1, 2)
    for line in script.text.splitlines():
        assert not line.lower().lstrip().startswith("drop"), line
    assert "drop database" not in script.text


def test_a_view_that_names_the_old_database_is_remarked() -> None:
    found = Definitions("shop", (View("v", "select * from `Shop` . t"), View("w", "select shop from t")))
    assert script_of(found, "copy", "").text.count("change it where it is meant") == 1
    assert "change it" not in script_of(found, "shop", "").text


def test_a_sequence_whose_value_cannot_be_set_is_said() -> None:
    found = Definitions("shop", (), (SequenceState("S q", "int", 7, 1, 9, 1, 1, cycle=False, called=True),))
    script = script_of(found, "shop", "")
    assert [(one.kind, one.name) for one in script.left_out] == [("value of sequence", "S q")]
    assert "setval" not in script.text
