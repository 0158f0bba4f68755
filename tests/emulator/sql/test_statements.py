"""What people type: definitions, changes and queries of each kind, without a wire."""

from collections.abc import Callable
from typing import Any

import pytest

from ccpr.matrixone.server.answers import Done, ResultSet, StatementError
from ccpr.matrixone.server.backing import parse_login
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.sql.session import SqlSession

Run = Callable[[str], Any]


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def run(storage: Storage) -> Run:
    """Rows, or the number of rows that were changed."""
    session = SqlSession(storage, parse_login("root"))

    def one(text: str) -> Any:
        answer = session.run(text, "shop")
        if isinstance(answer, ResultSet):
            return [tuple(row) for row in answer.rows]
        assert isinstance(answer, Done)
        return answer.affected

    one("create database shop")
    return one


def refused(run: Run, text: str) -> tuple[int, str]:
    with pytest.raises(StatementError) as caught:
        run(text)
    return caught.value.number, caught.value.text


def test_defaults_numbers_and_generated_columns_fill_what_is_not_given(run: Run) -> None:
    run(
        "create table t (id int auto_increment primary key, a int default 7, b varchar(10) default 'x', u uuid default"
        " uuid(), s int generated always as (a * 2) stored, at timestamp(3) default current_timestamp)"
    )
    run("insert into t () values ()")
    run("insert into t (a, b) values (1, default), (2, 'y')")
    run("insert into t (id, a) values (10, 3)")
    run("insert into t (a) values (4)")
    assert run("select id, a, b, s from t order by id") == [
        ("1", "7", "x", "14"),
        ("2", "1", "x", "2"),
        ("3", "2", "y", "4"),
        ("10", "3", "x", "6"),
        ("11", "4", "x", "8"),
    ]
    assert run("select count(distinct u), count(at) from t") == [("5", "5")]
    assert run("select last_insert_id()") == [("11",)]
    run("update t set a = a + 1 where id <= 2")
    assert run("select s from t where id <= 2 order by id") == [("16",), ("4",)]
    assert refused(run, "insert into t (id) values (1)")[0] == 1062


def test_get_ddl_prints_definitions_as_they_were_written(run: Run, storage: Storage) -> None:
    run(
        "create table t (id int auto_increment primary key, p decimal(10,2) default 3.50, `a b` varchar(10) comment"
        " 'it''s \"q\"' default 'd;--', at timestamp default now() on update now(), key ix (p), foreign key (p)"
        " references other (id)) comment = 'all'"
    )
    ((_, text),) = run("show create table t")
    assert text == (
        "CREATE TABLE `t` (\n  `id` int NOT NULL AUTO_INCREMENT,\n  `p` decimal(10,2) DEFAULT 3.50,\n"
        "  `a b` varchar(10) DEFAULT 'd;--' COMMENT 'it''s \"q\"',\n"
        "  `at` timestamp DEFAULT now() ON UPDATE now(),\n  PRIMARY KEY (`id`),\n  KEY `ix` (`p`),\n"
        "  CONSTRAINT `other_p_fk` FOREIGN KEY (`p`) REFERENCES `other` (`id`) ON DELETE RESTRICT ON UPDATE RESTRICT\n"
        ") COMMENT='all'"
    )


def test_conflicting_rows_are_replaced_ignored_or_updated(run: Run) -> None:
    run("create table t (id int primary key, k varchar(5) unique, n int)")
    run("insert into t values (1, 'a', 1), (2, 'b', 2)")
    assert run("replace into t values (3, 'a', 3), (2, 'z', 4)") == 4
    assert run("select * from t order by id") == [("2", "z", "4"), ("3", "a", "3")]
    assert run("insert ignore into t values (2, 'q', 0), (4, 'a', 0), (5, 'e', 5), (5, 'f', 6)") == 1
    assert (
        run("insert into t values (2, 'x', 10), (6, 'g', 1), (6, 'h', 2) on duplicate key update n = n + values(n)")
        == 5
    )
    with pytest.raises(StatementError, match="1064"):
        run("insert into t values (5, 'x', 10) as new on duplicate key update n = new.n * 2, k = 'E'")
    assert run("insert into t values (5, 'x', 10) on duplicate key update n = values(n) * 2, k = 'E'") == 2
    assert run("select * from t order by id") == [
        ("2", "z", "14"),
        ("3", "a", "3"),
        ("5", "E", "20"),
        ("6", "g", "3"),
    ]


def test_changes_follow_joins_orders_and_subqueries(run: Run) -> None:
    run("create table o (id int primary key, c int, total decimal(8,2), note varchar(20))")
    run("create table c (id int primary key, name varchar(20), vip bool)")
    run("insert into c values (1, 'Ann', true), (2, 'Bob', false)")
    run("insert into o select result, result % 2 + 1, result * 1.5, null from generate_series(1, 6) g")
    assert run("update o join c on c.id = o.c set o.note = upper(c.name), total = total * 2 where c.vip") == 3
    assert run("update o set note = 'low' where total < (select avg(total) from c, o) and note is null") == 3
    assert run("update o set total = 0 order by id desc limit 1") == 1
    assert run("delete o from o join c on c.id = o.c where c.name = 'Bob' and o.id > 3") == 1
    assert run("delete from o where id in (select max(id) from o)") == 1
    assert run("select id, total, note from o order by id") == [
        ("1", "1.50", "low"),
        ("2", "6.00", "ANN"),
        ("3", "4.50", "low"),
        ("4", "12.00", "ANN"),
    ]
    assert run("update o, c set o.total = 1, c.name = 'X' where o.c = c.id and o.id = 2") == 2


@pytest.mark.parametrize(
    "text",
    [
        "delete t from s join t on s.id = t.id",
        "delete x from t as x left join s on s.id = x.id",
        "delete t from t join s using (id)",
        "delete from t using t join s on s.id = t.id",
        "delete t from t, s",
    ],
)
def test_a_delete_that_takes_every_row_in_a_matrixone_is_refused(text: str, run: Run) -> None:
    run("create table t (id int primary key, v int)")
    run("create table s (id int primary key)")
    run("insert into t values (1, 1), (2, 2), (3, 3)")
    run("insert into s values (2), (3), (77)")
    number, message = refused(run, text)
    assert (number, "deletes every row of" in message) == (20105, True)
    assert run("select count(*) from t") == [("3",)]
    assert run("delete t from t join s on s.id = t.id where true") == 2, "so it is right there, too"
    assert run("delete t, s from t join s on s.id = t.id + 1") == 2


def test_tables_are_made_of_queries_copied_and_cloned(run: Run) -> None:
    run("create table t (id int primary key, e enum('a','b') default 'b', d datetime(3), key (e))")
    run("insert into t values (1, 'a', '2026-01-02 03:04:05.678'), (2, default, null)")
    run("create table q as select id, e, d, id / 2 half, count(*) over () n from t")
    assert run("select * from q order by id") == [
        ("1", "a", "2026-01-02 03:04:05.678", "0.5", "2"),
        ("2", "b", None, "1", "2"),
    ]
    run("create table l like t")
    run("create table k clone t")
    assert run("select count(*) from l") == [("0",)]
    assert run("select * from k") == run("select * from t")
    run("create database other")
    run("create table other.k clone q")
    assert run("select count(*) from other.k") == [("2",)]
    run("truncate table k")
    assert run("select count(*) from k") == [("0",)]


def test_columns_are_added_moved_changed_and_dropped(run: Run) -> None:
    run("create table t (id int, a varchar(5), b int, key ia (a), key ab (a, b))")
    run("insert into t values (1, 'x', 5), (2, 'y', 6)")
    run("alter table t add column c decimal(6,2) not null default 1.5 after id, add d int first, drop column b")
    assert run("select * from t order by id") == [(None, "1", "1.50", "x"), (None, "2", "1.50", "y")]
    run("alter table t change a name varchar(20) not null, modify c decimal(8,3) first, add primary key (id)")
    assert run("select * from t where id = 2") == [("1.500", None, "2", "y")]
    assert [row[:1] + row[2:5] for row in run("show index from t")] == [
        ("t", "PRIMARY", 1, "id"),
        ("t", "ia", 1, "name"),
        ("t", "ab", 1, "name"),
    ]
    run("alter table t alter column d set default 9, comment 'new', rename to u")
    run("insert into u (id, name) values (3, 'z')")
    assert run("select d, c from u where id = 3") == [("9", None)], "MODIFY without DEFAULT takes it away"
    assert refused(run, "alter table u add column id int")[0] == 1060
    assert refused(run, "alter table u add unique key (c)")[0] == 1062
    assert refused(run, "alter table u drop column id")[0] == 20301


def test_views_and_sequences_are_read_listed_and_dropped(run: Run, storage: Storage) -> None:
    run("create table t (id int primary key, n int)")
    run("insert into t values (1, 10), (2, 20)")
    run("create view v (key_, twice) as select id, n * 2 from t where n > 10")
    run("create view w as select twice from v")
    assert run("select * from w") == [("40",)]
    assert run("select v.key_, t.n from v join t on t.id = v.key_") == [("2", "20")]
    run("create sequence s start with 5 increment by 2")
    assert [run("select nextval('s')")[0][0] for _ in range(2)] == ["5", "7"]
    assert run("show full tables where table_type = 'VIEW'") == [("v", "VIEW"), ("w", "VIEW")]
    assert run(
        "select table_name, table_type from information_schema.tables where table_schema = 'shop' order by 1"
    ) == [
        ("s", "SEQUENCE"),
        ("t", "BASE TABLE"),
        ("v", "VIEW"),
        ("w", "VIEW"),
    ]
    assert refused(run, "insert into v values (1, 1)")[0] == 20105
    run("drop view w, v")
    run("drop sequence s")
    assert refused(run, "drop view v")[0] == 1051
    run("create view loop1 as select 1 a")
    run("create or replace view loop1 as select 2 a")
    assert run("select * from loop1") == [("2",)]


def test_a_state_in_the_past_is_queried_like_the_present(run: Run, storage: Storage) -> None:
    run("create table t (id int primary key, n int)")
    run("insert into t values (1, 1), (2, 2)")
    storage.create_snapshot("before", "database", "shop")
    at = storage.now.physical
    run("update t set n = n * 10")
    run("alter table t add column more int")
    assert run("select sum(n) from t {snapshot = 'before'}") == [("3",)]
    assert run(f"select * from t{{mo_ts = {at}}} where id = 1") == [("1", "1")]
    assert run(
        "select now.id, now.n - old.n from t now join t {snapshot = 'before'} old on old.id = now.id order by 1"
    ) == [("1", "9"), ("2", "18")]
    assert refused(run, "select * from t {snapshot = 'nothing'}")[0] == 20101


def test_a_transaction_sees_its_own_changes_and_no_others(run: Run, storage: Storage) -> None:
    run("create table t (id int primary key, n int)")
    run("insert into t values (1, 1), (2, 2), (3, 3)")
    run("begin")
    run("insert into t values (4, 4)")
    run("update t set n = n + 1 where id in (1, 4)")
    run("delete from t where id = 2")
    with storage.begin() as other:
        other.insert("shop", "t", {"id": [9], "n": [9]})
    assert run("select id, n from t order by id") == [("1", "2"), ("3", "3"), ("4", "5")]
    assert refused(run, "insert into t values (4, 0)")[0] == 1062
    run("insert into t values (2, 22)")
    run("commit")
    assert run("select sum(n), count(*) from t") == [("41", "5")]


def test_single_rows_are_one_commit_each_and_keep_keys_unique(run: Run, storage: Storage) -> None:
    run("create table t (id bigint auto_increment primary key, k varchar(9) unique, d decimal(5,2) default 1.25)")
    tick = storage.clock.last
    for number in range(100):
        run(f"insert into t (k) values ('k{number}')")
    assert storage.clock.last == tick + 100
    assert refused(run, "insert into t (k) values ('k7')")[0] == 1062
    assert refused(run, "insert into t (k, d) values ('long', 12345)")[0] == 20301
    run("delete from t where id = 8")
    run("insert into t (k) values ('k7')")
    half = storage.clock.time(tick + 50)
    assert storage.rows_at("shop", "t", half).num_rows == 50
    assert run("select count(*), max(id), sum(d) from t") == [("100", "102", "125.00")]
    run("alter table t add column more int default 5")
    run("insert into t (k) values ('last')")
    assert run("select more from t where k = 'last'") == [("5",)]


def test_single_rows_follow_a_table_that_is_dropped_and_made_again(run: Run) -> None:
    text = "insert into values_t (id) values (1)"
    assert refused(run, text)[0] == 1146
    for kind, shown in (("int", "1"), ("varchar(5)", "1"), ("decimal(4,2)", "1.00")):
        run(f"create table values_t (id {kind} primary key)")
        assert run(text) == 1
        assert refused(run, text)[0] == 1062
        assert run("select id from values_t") == [(shown,)]
        run("truncate table values_t")
        assert run(text) == 1
        run("drop table values_t")


def test_sets_of_statements_that_are_not_supported_are_refused_by_name(run: Run) -> None:
    run("create table t (id int)")
    for text in ("create temporary table x (id int)", "create procedure p() begin end", "select sha512(id) from t"):
        number, shown = refused(run, text)
        assert number == 20105, text
        assert "not supported" in shown
    assert refused(run, "create table p (id int) partition by hash(id + 1)")[0] == 20105


def test_prepared_statements_and_variables_hold_values(run: Run) -> None:
    run("create table t (id int primary key, n varchar(20))")
    run("insert into t values (1, 'it''s'), (2, 'b')")
    run("set @id = 1 + 1, @text = 'it''s'")
    run("prepare one from 'select id from t where id = ? or n = ? order by id'")
    assert run("execute one using @id, @text") == [("1",), ("2",)]
    run("deallocate prepare one")
    assert refused(run, "execute one using @id, @text")[0] == 1243
    assert run("select @id, @nothing, @@autocommit") == [("2", None, "1")]


def test_no_query_opens_a_file_of_this_machine(run: Run) -> None:
    assert refused(run, "select * from read_csv('/etc/passwd')")[0] in (1064, 20105, 20301)
    assert refused(run, "select * from read_text('/etc/passwd')")[0] in (1064, 20105, 20301)
    assert refused(run, "select * from `/etc/passwd`")[0] == 1146
