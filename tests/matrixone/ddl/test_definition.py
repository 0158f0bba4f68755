from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.ddl.definition import enum_members


def test_members_are_found_by_column():
    ddl = (
        "CREATE TABLE `d`.`t` (\n `id` int NOT NULL,\n `en` enum('red','green') DEFAULT NULL,\n `st` set('x','y'),\n"
        " PRIMARY KEY (`id`)\n)"
    )
    assert enum_members(ddl) == {"en": ("red", "green"), "st": ("x", "y")}


def test_members_may_hold_commas_quotes_brackets_and_backslashes():
    ddl = r"create table t (`a``b` enum('a,b', 'it''s', ')', 'back\\slash', 'line\nbreak', ',') default 'a,b', c int)"
    assert enum_members(ddl) == {"a`b": ("a,b", "it's", ")", "back\\slash", "line\nbreak", ",")}


def test_words_that_only_look_like_an_enum_are_left_alone():
    ddl = (
        "CREATE TABLE `t` (`x` varchar(10) DEFAULT 'enum(''a'')' COMMENT 'z set(''q'')', /* `y` enum('no') */"
        " `enum` int, KEY `set` (`x`))"
        " COMMENT='`w` enum(''no'')' CLUSTER BY (`x`)"
    )
    assert enum_members(ddl) == {}


def test_a_name_without_backquotes_and_capitals_in_the_type_are_read():
    assert enum_members("CREATE TABLE t (e ENUM ('A','b') NOT NULL)") == {"e": ("A", "b")}


def test_an_empty_member_is_a_member():
    assert enum_members("create table t (e enum('','a'), f enum(''))") == {"e": ("", "a"), "f": ("",)}


def test_text_that_breaks_off_yields_what_was_complete():
    assert enum_members("create table t (e enum('a'), f enum('b','c") == {"e": ("a",)}
    assert enum_members("") == {}


@given(st.text())
def test_any_text_is_read_to_its_end(text: str):
    enum_members(text)


_MEMBER = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=8)


@given(
    st.lists(
        st.tuples(_MEMBER.filter(bool), st.lists(_MEMBER, min_size=1, max_size=4)),
        max_size=3,
        unique_by=lambda column: column[0],
    )
)
def test_what_is_written_is_read_back(columns: list[tuple[str, list[str]]]):
    def quote(member: str) -> str:
        return "'" + member.replace("\\", "\\\\").replace("'", "''") + "'"

    body = ", ".join(f"`{name.replace('`', '``')}` enum({','.join(map(quote, members))})" for name, members in columns)
    assert enum_members(f"CREATE TABLE t ({body}, `last` int)") == {name: tuple(members) for name, members in columns}
