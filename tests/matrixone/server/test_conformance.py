"""docs/upstream.md, sentence by sentence: what a plain client sees of a simulated upstream."""

import json
from collections.abc import Iterator

import pytest

from ccpr.matrixone.objects.stats import ObjectStats
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.wire_client import Client, Connect

pytestmark = pytest.mark.integration

BIGINT, VARCHAR, BLOB, VAR_STRING, STRING, INT, TINY = 8, 15, 252, 253, 254, 3, 1
COMMANDS = {  # command: its words here, and the columns of its answer
    "get_snapshot_ts": ("s acc1 p", {"snapshotts": BIGINT}),
    "get_databases": ("s acc1 p account - -", {"datname": VARCHAR}),
    "get_ddl": (
        "s acc1 p database d -",
        {"dbname": VARCHAR, "tablename": VARCHAR, "tableid": BIGINT, "tablesql": VARCHAR},
    ),
    "get_mo_indexes": (
        "1 acc1 p s",
        {"table_id": BIGINT, "name": VARCHAR, "algo_table_type": VARCHAR, "index_table_name": VARCHAR},
    ),
    "check_snapshot_flushed": ("s acc1 p", {"result": TINY}),
    "object_list": (
        "s - acc1 p",
        {
            "db name": VAR_STRING,
            "table name": VAR_STRING,
            "stats": STRING,
            "create_at": VARCHAR,
            "delete_at": VARCHAR,
            "is_tombstone": TINY,
        },
    ),
    "get_object": (
        "acc1 p {object} 1",
        {"data": BLOB, "total_size": BIGINT, "chunk_index": INT, "total_chunks": INT, "is_complete": TINY},
    ),
}


@pytest.fixture
def storage() -> Storage:
    """acc1 publishes `d` to sys (p), to acc2 (q), to both (r); sys publishes `own` to all (o)."""
    storage = Storage(cn_rows=50)
    for account in ("acc1", "acc2"):
        storage.create_account(account)
    for account, database in (("acc1", "d"), ("acc1", "empty"), ("acc1", "e"), ("sys", "own"), ("sys", "d")):
        storage.create_database(database, account=account)
    storage.create_table("d", "t", {"id": "int", "n": "int"}, primary_key=["id"], indexes={"ix": ["n"]}, account="acc1")
    storage.create_table("d", "u", {"id": "int"}, account="acc1")
    storage.create_table("e", "t", {"id": "int"}, account="acc1")
    storage.create_table("own", "t", {"id": "int"})
    storage.create_table("d", "t", {"id": "int"})
    for account, database, table in (
        ("acc1", "d", "t"),
        ("acc1", "d", "u"),
        ("acc1", "e", "t"),
        ("sys", "own", "t"),
        ("sys", "d", "t"),
    ):
        with storage.begin(account) as txn:
            txn.insert(database, table, {"id": [1, 2, 3]})
    for name, accounts in (("p", ["sys"]), ("q", ["acc2"]), ("r", ["sys", "acc2"])):
        storage.create_publication(name, "d", accounts=accounts, account="acc1")
    storage.create_publication("o", "own")
    return storage


@pytest.fixture
def simulated(storage: Storage) -> Iterator[SimulatedUpstream]:
    with SimulatedUpstream(storage, chunk_bytes=500) as emulator:
        yield emulator


@pytest.fixture
def client(simulated: SimulatedUpstream, connect: Connect) -> Client:
    client = connect(simulated.port)
    client.rows("create snapshot s for database d from acc1 publication p")
    client.rows("select mo_ctl('dn','checkpoint','')")
    return client


def objects(client: Client, words: str) -> list[tuple[str, str, ObjectStats, bytes, bytes, bytes]]:
    return [
        (
            (row[0] or b"").decode(),
            (row[1] or b"").decode(),
            ObjectStats.parse(row[2] or b""),
            row[3] or b"",
            row[4] or b"",
            row[5] or b"",
        )
        for row in client.rows(f"__++__internal_object_list {words}")
    ]


def tables_of(client: Client, words: str) -> set[str]:
    return {
        f"{row[0]}.{row[1]}" if not row[1].startswith("__mo_index") else f"{row[0]}.index"
        for row in objects(client, words)
    }


def said(text: str) -> tuple[int, str]:
    return 20101, f"internal error: {text}"


# ---- who may (sections 1, 3.3, 4.2, 10)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_has_its_columns_and_character_set_0(client: Client, command: str) -> None:
    words, columns = COMMANDS[command]
    name = objects(client, "s - acc1 p")[0][2].name
    with client.connection.cursor() as cursor:
        cursor.execute(f"__++__internal_{command} {words.format(object=name)}")
        assert {field.name: field.type_code for field in cursor._result.fields} == columns
        assert {field.charsetnr for field in cursor._result.fields} == {0}


@pytest.mark.parametrize("command", COMMANDS)
def test_internal_commands_need_account_sys_and_a_publication_that_names_it(
    simulated: SimulatedUpstream, client: Client, connect: Connect, command: str
) -> None:
    text = f"__++__internal_{command} {COMMANDS[command][0].format(object='x')}"
    listed = connect(simulated.port, user="acc2:admin")
    refused = f"tenant acc2 user admin is not allowed to execute publication internal command {command}"
    assert listed.error(text.replace("acc1 p", "acc1 q")) == said(refused)
    assert (
        connect(simulated.port, user="acc1#boss")
        .error(text)[1]
        .startswith("internal error: tenant acc1 user boss is not allowed")
    )
    missing = "account sys does not have permission to access publication acc1.q"
    assert client.error(text.replace("acc1 p", "acc1 q")) == said(missing)
    assert client.error(text.replace("acc1 p", "acc1 none")) == said("publication acc1.none does not exist")
    assert client.error(text.replace("acc1 p", "acc2 p")) == said("publication acc2.p does not exist")
    assert client.error(text + " more")[1].startswith(f"internal error: invalid {command} command format")
    reader = connect(simulated.port, user="sys:any:reader")  # any role of sys may
    if command != "get_object":
        assert reader.answer(text)[0] == list(COMMANDS[command][1])


def test_snapshots_need_the_list_and_an_admin_role_but_not_sys(
    simulated: SimulatedUpstream, client: Client, connect: Connect
) -> None:
    create = "create snapshot {} for database d from acc1 publication {}"
    assert client.error(create.format("x", "q")) == said(
        "account sys does not have permission to access publication acc1.q"
    )
    acc2 = connect(simulated.port, user="acc2:admin")
    assert acc2.error(create.format("x", "p")) == said(
        "account acc2 does not have permission to access publication acc1.p"
    )
    acc2.rows(create.format("x", "q"))
    acc2.rows("drop snapshot s from acc1 publication q")  # even one that another took (D1)
    assert client.error("__++__internal_get_snapshot_ts s acc1 p")[0] == 20101
    for role in ("sys:u:reader", "acc2:u:reader"):
        assert connect(simulated.port, user=role).error(create.format("y", "r")) == said(
            "do not have privilege to execute the statement"
        )
    assert client.error(create.format("x", "p")) == said("snapshot x already exists")
    assert client.error("drop snapshot nope from acc1 publication p") == said("snapshot nope does not exist")
    client.rows("drop snapshot if exists nope from acc1 publication p")
    assert client.error("create snapshot y for database nope from acc1 publication p") == said(
        "database nope does not exist"
    )
    assert client.error("create snapshot y for table d nope from acc1 publication p") == said(
        "table d.nope does not exist"
    )
    system = said("can not create snapshot for system database mo_catalog")
    assert client.error("create snapshot y for database mo_catalog from acc1 publication p") == system
    assert client.error("create snapshot y for table d.t from acc1 publication p")[0] == 1064
    assert client.error("create snapshot y for cluster from acc1 publication p")[0] == 1064


def test_a_publication_gives_access_and_does_not_filter(client: Client) -> None:
    """Section 1, fact 3: all of the publisher's account, and every file, through a publication of one database."""
    assert client.rows("__++__internal_get_ddl - acc1 p database e -")[0][:2] == (b"e", b"t")
    client.rows("create snapshot other for database e from acc1 publication p")
    assert tables_of(client, "other - acc1 p") == {"e.t"}
    client.rows("create snapshot mine for database own from sys publication o")
    name = objects(client, "mine - sys o")[0][2].name
    assert client.rows(f"__++__internal_get_object acc1 p {name} 1")


@pytest.mark.parametrize(
    "text", ["OBJECTLIST", "GET OBJECT x OFFSET 0", "GETDDL DATABASE d", "CHECK SNAPSHOT FLUSHED s", "savepoint a"]
)
def test_what_only_looks_public_is_a_syntax_error(client: Client, text: str) -> None:
    assert client.error(text)[0] == 1064
    assert client.one("select 1") == b"1"


# ---- snapshots (section 4)


def test_snapshots_of_each_level_have_their_scope_and_their_obj_id(
    simulated: SimulatedUpstream, client: Client, connect: Connect
) -> None:
    for name, scope in (("a", "account"), ("b", "database d"), ("c", "table d t"), ("e", "table e t")):
        client.rows(f"create snapshot {name} for {scope} from acc1 publication p")
    assert tables_of(client, "a - acc1 p") == {"d.t", "d.u", "e.t", "d.index"}
    assert tables_of(client, "b - acc1 p") == {"d.t", "d.u", "d.index"}
    assert tables_of(client, "c - acc1 p") == {"d.t", "d.index"}
    assert tables_of(client, "e - acc1 p") == {"e.t"}
    acc1 = connect(simulated.port, user="acc1:admin")
    acc1.rows("truncate d.t")
    client.rows("create snapshot c2 for table d t from acc1 publication p")
    ((database_id,),) = acc1.rows("select dat_id from mo_catalog.mo_database where datname = 'd'")
    ((rel_id, logical_id),) = acc1.rows(
        "select rel_id, rel_logical_id from mo_catalog.mo_tables where relname = 't' and reldatabase = 'd'"
    )
    rows = {
        row[0]: row
        for row in acc1.rows("select sname, level, obj_id, database_name, table_name from mo_catalog.mo_snapshots")
    }
    assert rows[b"a"] == (b"a", b"account", b"0", b"", b""), "the caller's own account: D4"
    assert rows[b"b"] == (b"b", b"database", database_id, b"d", b"")
    assert rows[b"c2"] == (b"c2", b"table", logical_id, b"d", b"t"), "the logical id: D5"
    assert rel_id != logical_id


def test_snapshots_without_a_publication_are_the_callers_own(
    simulated: SimulatedUpstream, client: Client, connect: Connect
) -> None:
    for name, scope in (
        ("cl", "cluster"),
        ("ac", "account"),
        ("an", "account acc1"),
        ("db", "database own"),
        ("tb", "table own t"),
    ):
        client.rows(f"create snapshot {name} for {scope}")
    shown = {
        row[0]: row[1:] for row in client.rows("select sname, level, account_name, obj_id from mo_catalog.mo_snapshots")
    }
    assert shown[b"an"] == (b"account", b"acc1", b"1")
    assert shown[b"cl"][0] == b"cluster"
    assert [row[0] for row in client.rows("show snapshots")] == [b"tb", b"db", b"an", b"ac", b"cl"]
    client.rows("create snapshot ccpr_1 for account")
    assert b"ccpr_1" not in [row[0] for row in client.rows("show snapshots")]
    assert tables_of(client, "cl - sys o") == tables_of(client, "ac - sys o") == {"own.t", "d.t"}
    assert client.one("__++__internal_check_snapshot_flushed ac sys o") == b"1"
    assert client.error("__++__internal_check_snapshot_flushed cl sys o") == said("invalid snapshot level: cluster")
    acc1 = connect(simulated.port, user="acc1:admin")
    for scope in ("cluster", "account sys"):
        assert acc1.error(f"create snapshot z for {scope}") == said("do not have privilege to execute the statement")
    acc1.rows("create snapshot z for account acc1")
    assert client.error("create snapshot z for account nobody") == said("account nobody does not exist")


def test_if_not_exists_keeps_the_old_time(client: Client) -> None:
    before = client.one("__++__internal_get_snapshot_ts s acc1 p")
    client.rows(
        "CREATE SNAPSHOT IF NOT EXISTS `S` FOR DATABASE `D` FROM ACC1 PUBLICATION P"
    )  # SQL lowers names, internal words are literal
    assert client.one("__++__internal_get_snapshot_ts s acc1 p") == before
    for command in ("get_snapshot_ts", "check_snapshot_flushed"):
        lost = "failed to query snapshot: internal error: find 0 snapshot records by name(S), expect only 1"
        assert client.error(f"__++__internal_{command} S acc1 p") == said(lost)


# ---- internal commands (section 5)


def test_databases_are_echoed_or_listed(client: Client) -> None:
    ask = "__++__internal_get_databases {} acc1 p {} {} -"
    for level in ("database", "table"):
        assert client.rows(ask.format("s", level, "nowhere")) == [(b"nowhere",)]
        assert client.rows(ask.format("-", level, "-")) == [(b"",)]
    for level in ("account", "anything"):
        assert {row[0] for row in client.rows(ask.format("s", level, "-"))} == {b"d", b"e", b"empty"}
    assert client.error(ask.format("none", "account", "-"))[1].endswith(
        "find 0 snapshot records by name(none), expect only 1"
    )


def test_ddl_of_an_account_a_database_a_table(simulated: SimulatedUpstream, client: Client, connect: Connect) -> None:
    ask = "__++__internal_get_ddl {} acc1 p {} {} {}"
    for level in ("account", "database", "table", "nonsense"):  # not used
        assert {row[:2] for row in client.rows(ask.format("s", level, "-", "-"))} == {
            (b"d", b"t"),
            (b"d", b"u"),
            (b"e", b"t"),
        }
    assert {row[1] for row in client.rows(ask.format("s", "database", "d", "-"))} == {b"t", b"u"}, "no index tables"
    ((_, _, table_id, text),) = client.rows(ask.format("s", "table", "d", "t"))
    assert text == (
        b"CREATE TABLE `d`.`t` (\n  `id` int NOT NULL,\n  `n` int DEFAULT NULL,\n  PRIMARY KEY (`id`),\n"
        b"  KEY `ix` (`n`)\n)"
        b' PROPERTIES("from_publication" = "true")'
    )
    assert client.rows(ask.format("s", "database", "empty", "-")) == []
    assert client.error(ask.format("s", "database", "no", "-")) == said("failed to get database: ExpectedEOB")
    assert client.error(ask.format("s", "table", "d", "no")) == said("failed to get table: no such table d.no")
    acc1 = connect(simulated.port, user="acc1:admin")
    acc1.rows("use d")
    for statement, changes in (  # docs/upstream.md 5.4
        ("rename table t to t2", False),
        ("alter table t2 rename column n to m", False),
        ("alter table t2 drop index ix", False),
        ("alter table t2 comment 'c'", False),
        ("alter table t2 add index jx (m)", False),
        ("alter table t2 drop index jx", False),
        ("alter table t2 add column s varchar(5)", True),
        ("alter table t2 modify column s varchar(9)", False),
        ("alter table t2 modify column s varchar(8)", True),
        ("alter table t2 modify column m bigint", True),
        ("alter table t2 drop column s", True),
        ("truncate table t2", True),
    ):
        before = table_id
        acc1.rows(statement)
        ((_, _, table_id, _),) = client.rows(ask.format("-", "table", "d", "t2"))
        assert (table_id != before) == changes, statement
    assert client.rows(ask.format("s", "table", "d", "t"))[0][3] == text, "as it was at the snapshot"


def test_indexes_have_a_row_a_column(client: Client) -> None:
    ((_, _, table_id, _),) = client.rows("__++__internal_get_ddl s acc1 p table d t")
    rows = client.rows(f"__++__internal_get_mo_indexes {(table_id or b'').decode()} acc1 p s")
    assert [(row[0], row[1], row[2]) for row in rows] == [(table_id, b"ix", b"")] * 2 + [(table_id, b"PRIMARY", b"")]
    assert rows[0][3] == rows[1][3]
    assert (rows[0][3] or b"").startswith(b"__mo_index_secondary_")
    assert rows[2][3] == b""
    assert client.rows("__++__internal_get_mo_indexes 99 acc1 p -") == []


def test_flushed_means_each_table_of_the_level_with_its_index_tables(
    simulated: SimulatedUpstream, client: Client, connect: Connect
) -> None:
    acc1 = connect(simulated.port, user="acc1:admin")
    acc1.rows("insert into d.t values (10, 1)")
    for name, scope in (
        ("a", "account"),
        ("b", "database d"),
        ("t", "table d t"),
        ("u", "table d u"),
        ("e", "database e"),
    ):
        client.rows(f"create snapshot {name} for {scope} from acc1 publication p")

    def flushed() -> dict[str, bool]:
        return {name: client.one(f"__++__internal_check_snapshot_flushed {name} acc1 p") == b"1" for name in "abtue"}

    assert flushed() == {"a": False, "b": False, "t": False, "u": True, "e": True}
    for (id_,) in client.rows("select rel_id from mo_catalog.mo_tables where account_id = 1 and relkind = 'r'"):
        client.rows(f"select mo_ctl('dn','flush','{(id_ or b'').decode()}')")
    assert flushed() == {"a": False, "b": False, "t": False, "u": True, "e": True}, "the index table is dirty"
    index = client.one("select relname from mo_catalog.mo_tables where relkind = 'i'") or b""
    client.rows(f"select mo_ctl('dn','flush','d.{index.decode()}.1')")
    assert all(flushed().values())


def test_a_dropped_table_is_flushed_by_its_id_for_the_snapshot_that_sees_its_rows(
    simulated: SimulatedUpstream, client: Client, connect: Connect
) -> None:
    acc1 = connect(simulated.port, user="acc1:admin")
    acc1.rows("insert into d.u values (10)")
    ((id_,),) = acc1.rows("select rel_id from mo_catalog.mo_tables where relname = 'u'")
    client.rows("create snapshot b for database d from acc1 publication p")
    acc1.rows("truncate d.u")
    assert client.one("__++__internal_check_snapshot_flushed b acc1 p") == b"0"
    client.rows(f"select mo_ctl('dn','flush','{(id_ or b'').decode()}')")
    assert client.one("__++__internal_check_snapshot_flushed b acc1 p") == b"1"
    assert 1 in {row[2].rows for row in objects(client, "b - acc1 p") if row[1] == "u"}


def test_mo_ctl_is_for_the_admin_of_sys(simulated: SimulatedUpstream, client: Client, connect: Connect) -> None:
    for user in ("acc1:admin", "sys:u:reader"):
        for arguments in ("'dn','flush','own.t'", "'dn','checkpoint',''"):
            refused = said("do not have privilege to execute the statement")
            assert connect(simulated.port, user=user).error(f"select mo_ctl({arguments})") == refused
    for target in ("own.t", "d.t.1", "d.t"):
        answer = json.loads(client.one(f"SELECT mo_ctl('dn','flush','{target}')") or b"")
        assert answer == {"method": "Flush", "result": [{"ReturnStr": "OK"}]}
    assert json.loads(client.one("select mo_ctl('dn','checkpoint','')") or b"")["method"] == "Checkpoint"
    for arguments in (
        "'dn','flush','d.u'",
        "'dn','flush','7'",
        "'dn','diskcleaner','gc_status'",
        "'cn','flush','own.t'",
        "'dn','flush'",
    ):
        assert client.error(f"select mo_ctl({arguments})")[0] == 20101


# ---- object lists (5.7)


def test_full_lists_and_differences(
    storage: Storage, client: Client, simulated: SimulatedUpstream, connect: Connect
) -> None:
    acc1 = connect(simulated.port, user="acc1:admin")
    full = objects(client, "s - acc1 p")
    assert {row[4] for row in full} == {b"0-0"}
    acc1.rows("insert into d.u values (4)")
    client.rows("create snapshot s2 for database d from acc1 publication p")
    client.rows("select mo_ctl('dn','flush','d.u.1')")
    appended = [
        row for row in objects(client, "s2 - acc1 p") if row[2].appendable and row[1] == "u" and row[2].rows == 1
    ]
    assert [row[4] for row in appended] == [b"0-0"], "deleted by the flush, after the snapshot"
    acc1.rows("delete from d.u where id < 3")
    client.rows("create snapshot s3 for database d from acc1 publication p")
    client.rows("select mo_ctl('dn','flush','d.u.1')")
    storage.merge("d", "u", account="acc1")
    client.rows("create snapshot s4 for database d from acc1 publication p")
    between = [row for row in objects(client, "s4 s2 acc1 p") if row[1] == "u"]
    flushed = next(row for row in between if row[2].name == appended[0][2].name)
    assert flushed[4] != b"0-0"
    assert [row[5] for row in between].count(b"1") == 2, (
        "tombstones: appendable, deleted by the flush, and what it became"
    )
    both = [row for row in between if row[3] > flushed[3] and row[4] != b"0-0"]
    assert both, "made and deleted in between: once, with both times"
    assert len({(row[2].name, row[5]) for row in between}) == len(between)
    # Both ends are closed: what came to be at the older snapshot's very time is in the difference, too.
    at = int(client.one("__++__internal_get_snapshot_ts s2 acc1 p") or 0)
    assert all(int(row[3].split(b"-")[0]) >= at or int(row[4].split(b"-")[0]) >= at for row in between)
    (one,) = storage.table("d", "u", account="acc1").stored.mergeable()
    one.created = storage.snapshots["acc1", "s4"].tick
    assert one.written.name in {row[2].name for row in objects(client, "s4 s4 acc1 p")}
    assert client.error("__++__internal_object_list s2 s4 acc1 p") == said("invalid timestamp")
    lost = (
        "internal error: failed to query snapshot: internal error: find 0 snapshot records by name(no), expect only 1"
    )
    assert client.error("__++__internal_object_list no - acc1 p") == said(f"failed to resolve snapshot 'no': {lost}")
    assert client.error("__++__internal_object_list s no acc1 p") == said(
        f"failed to resolve against snapshot 'no': {lost}"
    )


def test_differences_know_ids_and_not_names(client: Client, simulated: SimulatedUpstream, connect: Connect) -> None:
    acc1 = connect(simulated.port, user="acc1:admin")
    client.rows("create snapshot s1 for database d from acc1 publication p")
    acc1.rows("rename table d.t to d.t9")
    acc1.rows("truncate d.u")
    acc1.rows("insert into d.u values (9)")
    client.rows("create snapshot s2 for database d from acc1 publication p")
    client.rows("select mo_ctl('dn','flush','d.u.1')")
    assert tables_of(client, "s2 - acc1 p") == {"d.t9", "d.u", "d.index"}
    difference = objects(client, "s2 s1 acc1 p")
    assert {row[1] for row in difference if row[4] == b"0-0"} == {"u"}, (
        "the renamed table's objects are not new; the truncated one's are"
    )
    assert all(row[2].rows == 1 for row in difference if row[1] == "u"), "the difference has nothing of the old table"


def test_a_difference_over_a_checkpoint_names_objects_twice(
    client: Client, simulated: SimulatedUpstream, storage: Storage
) -> None:
    with storage.begin("acc1") as txn:
        txn.insert("d", "u", {"id": [7]})
    client.rows("select mo_ctl('dn','checkpoint','')")
    storage.merge("d", "u", account="acc1")
    client.rows("create snapshot s2 for database d from acc1 publication p")
    rows = [row for row in objects(client, "s2 s acc1 p") if row[1] == "u"]
    deletes: dict[str, list[bytes]] = {}
    for row in rows:
        deletes.setdefault(row[2].name, []).append(row[4])
    twice = [ends for ends in deletes.values() if len(ends) == 2]
    assert twice
    assert all(ends[0] == b"0-0" != ends[1] for ends in twice)
    live = {name for name, ends in deletes.items() if ends[-1] == b"0-0"}
    assert live == {row[2].name for row in objects(client, "s2 - acc1 p") if row[1] == "u"}


# ---- objects (5.8)


def test_objects_come_in_chunks(client: Client, storage: Storage) -> None:
    stats = objects(client, "s - acc1 p")[0][2]
    content = storage.files.read(stats.name)
    assert content is not None
    chunks = -(-len(content) // 500)
    assert chunks > 1
    ask = f"__++__internal_get_object acc1 p {stats.name}"
    assert client.rows(f"{ask} 0") == [(b"", b"%d" % len(content), b"0", b"%d" % chunks, b"0")]
    for chunk in range(1, chunks + 1):
        part = content[(chunk - 1) * 500 : chunk * 500]
        assert client.rows(f"{ask} {chunk}") == [
            (part, b"%d" % len(content), b"%d" % chunk, b"%d" % chunks, b"1" if chunk == chunks else b"0")
        ]
    beyond = f"invalid input: invalid chunk_index: {chunks + 1}, file has only {chunks} data chunks"
    assert client.error(f"{ask} {chunks + 1}") == (20301, beyond)
    assert client.error(f"{ask} -1") == (20301, "invalid input: invalid chunk_index: must be >= 0")
    assert client.error(f"{ask} 1x") == said("invalid chunkIndex: 1x")
    for chunk in (0, 1):
        assert client.error(f"__++__internal_get_object acc1 p nothing {chunk}") == (20405, "file nothing is not found")


def test_a_collected_object_is_not_found(client: Client, storage: Storage) -> None:
    gone = [row[2].name for row in objects(client, "s - acc1 p") if row[1] == "u" and row[2].appendable]
    client.rows("select mo_ctl('dn','diskcleaner','force_gc')")
    assert client.rows(f"__++__internal_get_object acc1 p {gone[0]} 0"), "the snapshot protects it"
    client.rows("drop snapshot s from acc1 publication p")
    client.rows("select mo_ctl('dn','diskcleaner','force_gc')")
    assert client.error(f"__++__internal_get_object acc1 p {gone[0]} 0") == (20405, f"file {gone[0]} is not found")


# ---- the catalog at a time


def test_the_catalog_is_read_at_a_time_or_a_snapshot_of_ones_own(
    client: Client, simulated: SimulatedUpstream, connect: Connect
) -> None:
    acc1 = connect(simulated.port, user="acc1:admin")
    acc1.rows("create snapshot mine for account")
    ts = (client.one("__++__internal_get_snapshot_ts s acc1 p") or b"").decode()
    acc1.rows("drop table d.u")
    where = "account_id = 1 and reldatabase = 'd' and relkind = 'r'"
    tables = f"select relname from mo_catalog.mo_tables {{}} where {where} order by relname"
    assert client.rows(tables.format(f"{{mo_ts = {ts}}}")) == [(b"t",), (b"u",)]
    assert client.rows(tables.format("")) == [(b"t",)]
    assert acc1.rows(tables.format("{snapshot = 'mine'}")) == [(b"t",), (b"u",)]
    assert "find 0 snapshot records" in client.error(tables.format("{snapshot = 's'}"))[1], "only of one's own account"
    assert acc1.rows("select id from d.u {snapshot = 'mine'} order by id") == [(b"1",), (b"2",), (b"3",)]
    assert acc1.rows(f"select id from d.u {{mo_ts = {ts}}} order by id desc limit 1") == [(b"3",)]
    columns = "select attname, att_is_hidden from mo_catalog.mo_columns {} where account_id = 1 and att_relname = 'u'"
    assert [row[1] for row in client.rows(columns.format(f"{{mo_ts = {ts}}}"))] == [b"0", b"1", b"1"]
    assert client.rows(columns.format("")) == []
    assert client.rows("select datname from mo_catalog.mo_database {mo_ts = 1}") == [(b"mo_catalog",)]


# ---- publications (section 3)


def test_publications_are_refused_as_the_upstream_does(
    client: Client, simulated: SimulatedUpstream, connect: Connect
) -> None:
    acc1 = connect(simulated.port, user="acc1:admin")
    for text, error in (
        ("create publication x database d account acc1", said("can't publish to self")),
        ("create publication x database d account nobody", said("not existed account name 'nobody'")),
        ("create publication x database no account sys", said("database 'no' does not exist")),
        ("create publication x database d table no account sys", said("table 'no' not exists")),
        (
            "create publication x database * table t account sys",
            said("account level publication (DATABASE *) cannot specify tables"),
        ),
        (
            "create publication x database mo_catalog account sys",
            said("Unknown database name 'mo_catalog', not support publishing system database"),
        ),
        (
            "create publication x database d account all",
            said("only sys account and authorized normal accounts can publish to all accounts"),
        ),
        ("drop publication x", said("publication 'x' does not exist")),
        ("alter publication x account sys", said("publication 'x' does not exist")),
        ("drop database d", said("can not drop database 'd' which is publishing")),
    ):
        assert acc1.error(text) == error
    assert acc1.error("create publication `a b` database d account sys")[0] == 20301
    assert acc1.error("create publication if not exists p database d account sys")[0] == 1062, "parsed and ignored"
    assert acc1.error("create publication x database d")[0] == 1064
    acc1.rows("drop publication if exists x")
    reader = connect(simulated.port, user="acc1:u:reader")
    assert reader.error("create publication x database d account sys") == said("only admin can create publication")
    assert connect(simulated.port, user="acc1:u").error("create account acc9 admin_name 'a' identified by 'b'") == said(
        "do not have privilege to execute the statement"
    )


def test_publications_are_altered_and_shown(client: Client, simulated: SimulatedUpstream, connect: Connect) -> None:
    acc1 = connect(simulated.port, user="acc1:admin")
    acc1.rows("create publication x database d table u, t account acc2 comment 'mine'")
    ts = "__++__internal_get_databases - acc1 x account - -"
    assert client.error(ts) == said("account sys does not have permission to access publication acc1.x")
    acc1.rows("alter publication x account add sys")
    assert client.rows(ts)
    columns, types, rows = acc1.answer("show publications")
    names = [
        "publication",
        "database",
        "tables",
        "sub_account",
        "subscribed_accounts",
        "create_time",
        "update_time",
        "comments",
    ]
    assert (columns, types) == (names, [VARCHAR, VARCHAR, BLOB, BLOB, BLOB, 7, 7, BLOB])
    assert [row[0] for row in rows] == [b"x", b"r", b"q", b"p"], "newest first"
    assert (rows[0][1:4], rows[0][7]) == ((b"d", b"t,u", b"acc2,sys"), b"mine")
    assert [row[0] for row in acc1.rows("show publications like '%'")] == [b"p", b"q", b"r", b"x"]
    assert acc1.rows("show create publication x") == [
        (b"x", b"CREATE PUBLICATION x DATABASE d TABLE t,u ACCOUNT acc2,sys")
    ]
    acc2 = connect(simulated.port, user="acc2:admin")
    assert acc2.answer("show publication coverage x") == (
        ["Database", "Table"],
        [VARCHAR] * 2,
        [(b"d", b"t"), (b"d", b"u")],
    )
    covered = acc2.rows("show publication coverage q")
    assert covered[0] == (b"d", b"*")
    assert {(row[1] or b"")[:10] for row in covered[1:]} == {b"t", b"u", b"__mo_index"}, "hidden tables, too"
    assert acc2.error("show publication coverage p") == said("account 'acc2' is not allowed to access publication 'p'")
    acc1.rows("drop table d.u")
    acc1.rows("create table d.u (id int)")
    assert acc2.rows("show publication coverage x") == [(b"d", b"t")], "a table that is dropped leaves the publication"
    acc1.rows("drop table d.t")
    assert acc2.rows("show publication coverage x") == []
    acc1.rows("alter publication x account drop sys database e comment 'other'")
    assert client.error(ts)[0] == 20101
    assert acc1.rows("show publications like 'x'")[0][1:4] == (b"e", b"*", b"acc2")
    assert client.rows("select account_name, all_table from mo_catalog.mo_pubs where pub_name = 'x'") == [
        (b"acc1", b"1")
    ]


def test_a_login_of_no_account_is_refused(simulated: SimulatedUpstream, connect: Connect) -> None:
    with pytest.raises(Exception, match="there is no tenant acc7"):
        connect(simulated.port, user="acc7:admin")
    assert simulated.status().sessions_opened == 0
