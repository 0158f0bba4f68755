"""Every statement is answered as recorded, and refused as by the upstream."""

import json
from pathlib import Path

import pymysql
import pytest

from ccpr_emulator.recorded_upstream import RecordedUpstream
from tests.support.wire_client import Client, Connect, as_answer, folder_of, recorded, scenario_names

pytestmark = [pytest.mark.integration, pytest.mark.recordings]
SCENARIOS = scenario_names()


def take(client: Client, emulator: RecordedUpstream, name: str, *, flush: bool = True) -> str:
    """Takes a snapshot through the recorded publication and flushes it."""
    recording = emulator.recording
    source = f"from {recording.publisher} publication {recording.publication.name}"
    client.rows(f"create snapshot {name} for database `{recording.publication.database}` {source}")
    if flush:
        client.rows("select mo_ctl('dn','checkpoint','')")
    return f"{recording.publisher} {recording.publication.name}"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_answer_equals_the_recorded_one(recordings: Path, connect: Connect, scenario: str) -> None:
    folders = sorted((recordings / scenario).glob("snapshot-*"))
    with RecordedUpstream(recordings / scenario, strict_publication=True) as emulator:
        client = connect(emulator.port)
        about = emulator.recording
        database = about.publication.database
        for number, folder in enumerate(folders, 1):
            pub = take(client, emulator, f"s{number}")
            ts = client.one(f"__++__internal_get_snapshot_ts s{number} {pub}")
            assert client.answer(f"__++__internal_get_snapshot_ts s{number} {pub}") == recorded(
                folder / "snapshot_ts.json"
            )
            assert client.answer(f"__++__internal_get_databases s{number} {pub} account - -") == recorded(
                folder / "databases.json"
            )
            assert client.answer(f"__++__internal_get_databases s{number} {pub} database {database} -") == recorded(
                folder / "databases.json"
            )
            for scope in ("- -", f"{database} -"):
                assert client.answer(f"__++__internal_get_ddl s{number} {pub} database {scope}") == recorded(
                    folder / "ddl.json"
                )
            for table_id, value in json.loads((folder / "indexes.json").read_text()).items():
                assert client.answer(f"__++__internal_get_mo_indexes {table_id} {pub} s{number}") == as_answer(value)
            for table, column in (
                ("mo_database", "datname"),
                ("mo_tables", "reldatabase"),
                ("mo_columns", "att_database"),
            ):
                where = f"where {column} = '{database}' and account_id = {about.account_id}"
                sql = f"select * from mo_catalog.{table} {{mo_ts = {(ts or b'').decode()}}} {where}"
                assert client.answer(sql) == recorded(folder / f"{table}.json")
                assert client.answer(f"select * from mo_catalog.{table} {where}") == recorded(folder / f"{table}.json")
            assert client.rows(f"__++__internal_check_snapshot_flushed s{number} {pub}") == [(b"1",)]
            if not (folder / "object_list.json").exists():
                error = (recordings / scenario / "object_list_error.txt").read_text().strip()
                refused = client.error(f"__++__internal_object_list s{number} - {pub}")
                assert f"{refused[0]}: {refused[1]}" == error
                continue
            assert client.answer(f"__++__internal_object_list s{number} - {pub}") == recorded(
                folder / "object_list.json"
            )
            if number > 1:
                against = client.answer(f"__++__internal_object_list s{number} s{number - 1} {pub}")
                assert against == recorded(folder / "object_list_against_previous.json")


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("chunk_bytes", [100_000, 104_857_600])
def test_every_object_arrives_byte_for_byte(
    recordings: Path, connect: Connect, scenario: str, chunk_bytes: int
) -> None:
    with RecordedUpstream(recordings / scenario, chunk_bytes=chunk_bytes) as emulator:
        client = connect(emulator.port)
        served = 0
        objects = sorted((recordings / scenario / "objects").glob("*"))
        for path in objects:
            size = path.stat().st_size
            chunks = max(1, -(-size // chunk_bytes))
            ask = f"__++__internal_get_object {emulator.recording.publisher} anything {path.name}"
            columns, types, rows = client.answer(f"{ask} 0")
            assert columns == ["data", "total_size", "chunk_index", "total_chunks", "is_complete"]
            assert types == [252, 8, 3, 3, 1]
            assert rows == [(b"", b"%d" % size, b"0", b"%d" % chunks, b"0")]
            parts = []
            for chunk in range(1, chunks + 1):
                ((data, *rest),) = client.rows(f"{ask} {chunk}")
                assert rest == [b"%d" % size, b"%d" % chunk, b"%d" % chunks, b"1" if chunk == chunks else b"0"]
                parts.append(data or b"")
            assert b"".join(parts) == path.read_bytes()
            served += size
            assert client.error(f"{ask} {chunks + 1}")[0] == 20301
        status = emulator.status()
        assert (status.object_bytes, status.objects_fetched) == (served, len(objects))
        assert status.sessions_that_fetched == bool(objects)


def test_get_object_refuses_as_the_upstream_does(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "dml") as emulator:
        client = connect(emulator.port)
        name = sorted((recordings / "dml" / "objects").glob("*"))[0].name
        get = "__++__internal_get_object sys p"
        assert client.error(f"{get} {name} -1") == (20301, "invalid input: invalid chunk_index: must be >= 0")
        assert client.error(f"{get} {name} x") == (20101, "internal error: invalid chunkIndex: x")
        assert client.error(f"{get} 01a1fbac-0000-0000-0000-000000000000_00000 1")[0] == 20405
        for hostile in (
            "../about.json",
            "/etc/passwd",
            "..",
            ".",
            f"{name}/..",
            f"../objects/{name}",
            name.upper(),
            f"{name}0",
            "\0",
        ):
            assert client.error(f"{get} {hostile} 1")[0] == 20405
        assert emulator.status().object_bytes == 0


def test_the_lexical_rules_of_internal_commands_hold(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "dml") as emulator:
        client = connect(emulator.port)
        take(client, emulator, "s1")
        assert client.rows("__++__INTERNAL_Get_Snapshot_TS \t s1\n sys   p  ") == client.rows(
            "__++__internal_get_snapshot_ts s1 sys p"
        )
        for text in (
            " __++__internal_get_snapshot_ts s1 sys p",
            "/**/__++__internal_get_snapshot_ts s1 sys p",
            "__++__internal_nothing a",
        ):
            assert client.error(text)[0] == 1064
        for text in (
            "__++__internal_get_snapshot_ts s1 sys",
            "__++__internal_get_snapshot_ts s1 sys p q",
            "__++__internal_object_list",
        ):
            number, message = client.error(text)
            assert number == 20101
            assert "command format" in message
        for publication in ("p;", "`p`", "'p'", "P"):
            message = f"internal error: publication sys.{publication} does not exist"
            assert client.error(f"__++__internal_get_snapshot_ts s1 sys {publication}") == (20101, message)
        assert "publication Sys.p does not exist" in client.error("__++__internal_get_snapshot_ts s1 Sys p")[1]
        assert (
            "find 0 snapshot records by name(S1), expect only 1"
            in client.error("__++__internal_get_snapshot_ts S1 sys p")[1]
        )


def test_snapshots_follow_the_recording_and_then_the_clock(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "dml") as emulator:
        client = connect(emulator.port)
        count = len(emulator.recording.snapshots)
        times, pub = [], ""
        for number in range(count + 3):
            pub = take(client, emulator, f"s{number}")
            times.append(int(client.one(f"__++__internal_get_snapshot_ts s{number} {pub}") or 0))
        assert times[:count] == [snapshot.ts for snapshot in emulator.recording.snapshots]
        assert [later - times[count - 1] for later in times[count:]] == [1_000_000_000, 2_000_000_000, 3_000_000_000]
        assert client.rows(f"__++__internal_object_list s{count + 2} s{count - 1} {pub}") == []
        assert client.rows(f"__++__internal_object_list s{count + 2} - {pub}") == client.rows(
            f"__++__internal_object_list s{count} - {pub}"
        )
        assert emulator.status().snapshots_created == count + 3


@pytest.mark.parametrize(
    "statement",
    [
        "create snapshot if not exists s1 for database gd_dml from sys publication p",
        "CREATE  SNAPSHOT\nIF NOT EXISTS `S1` FOR DATABASE `gd_dml` FROM `sys` PUBLICATION `P`;",
        "/* note */ Create Snapshot If Not Exists s1 For Table gd_dml acc From SYS Publication p -- end",
        "create snapshot if not exists s1 for account from sys publication p",
    ],
)
def test_an_existing_snapshot_keeps_its_time(recordings: Path, connect: Connect, statement: str) -> None:
    with RecordedUpstream(recordings / "dml") as emulator:
        client = connect(emulator.port)
        client.rows(statement)
        first = client.one("__++__internal_get_snapshot_ts s1 sys p")
        client.rows(statement)
        assert client.one("__++__internal_get_snapshot_ts s1 sys p") == first
        assert client.error("create snapshot s1 for account from sys publication p") == (
            20101,
            "internal error: snapshot s1 already exists",
        )
        assert emulator.status().snapshots_created == 1
        client.rows("drop snapshot if exists `s1` from sys publication p")
        client.rows("drop snapshot if exists s1 from sys publication p")
        assert client.error("drop snapshot s1 from sys publication p") == (
            20101,
            "internal error: snapshot s1 does not exist",
        )
        assert emulator.snapshots() == ()


def test_create_snapshot_refuses_as_the_upstream_does(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "dml", strict_publication=True) as emulator:
        client = connect(emulator.port)
        for scope, publication, fragment in (
            ("database nowhere", "pub_dml", "database nowhere does not exist"),
            ("table gd_dml nothing", "pub_dml", "table gd_dml.nothing does not exist"),
            ("database mo_catalog", "pub_dml", "system database mo_catalog"),
            ("database gd_dml", "other", "publication sys.other does not exist"),
        ):
            number, text = client.error(f"create snapshot s for {scope} from sys publication {publication}")
            assert number == 20101
            assert fragment in text
        assert client.error("create snapshot `a b` for account from sys publication pub_dml")[0] == 20301
        assert client.error(f"create snapshot {'s' * 65} for account from sys publication pub_dml")[0] == 20301
        client.rows("begin")
        assert "open transaction" in client.error("create snapshot s for account from sys publication pub_dml")[1]
        client.rows("rollback")
        client.rows("set role reader")
        assert (
            "do not have privilege to execute the statement"
            in client.error("create snapshot s for account from sys publication pub_dml")[1]
        )
        client.rows("set role moadmin")
        client.rows("create snapshot s for account from sys publication pub_dml")


def test_a_snapshot_counts_as_flushed_only_after_a_flush_of_each_table(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(folder_of(recordings, "keys", 2)) as emulator:
        client = connect(emulator.port)
        pub = take(client, emulator, "s1")
        before = client.rows(f"__++__internal_object_list s1 - {pub}")
        assert before
        take(client, emulator, "s2", flush=False)
        assert client.one(f"__++__internal_check_snapshot_flushed s2 {pub}") == b"0"
        assert client.one(f"__++__internal_check_snapshot_flushed s1 {pub}") == b"1"
        # Rows in memory are in no object: who does not wait reads the state before.
        assert client.rows(f"__++__internal_object_list s2 - {pub}") == before
        assert client.rows(f"__++__internal_object_list s2 s1 {pub}") == []
        ids = [
            row[0]
            for row in client.rows("select rel_id from mo_catalog.mo_tables where relkind in ('r', 'i') and rel_id > 3")
        ]
        assert len(ids) > 2
        for id_ in ids:
            assert client.one(f"__++__internal_check_snapshot_flushed s2 {pub}") == b"0"
            answer = json.loads(client.one(f"select mo_ctl('dn','flush','{(id_ or b'').decode()}')") or b"")
            assert answer["method"] == "Flush"
        assert client.one(f"__++__internal_check_snapshot_flushed s2 {pub}") == b"1"
        after = recordings / "keys" / "snapshot-002"
        assert client.answer(f"__++__internal_object_list s2 - {pub}") == recorded(after / "object_list.json")
        assert client.answer(f"__++__internal_object_list s2 s1 {pub}") == recorded(
            after / "object_list_against_previous.json"
        )
        take(client, emulator, "s3", flush=False)  # the state did not change: nothing is in memory
        assert client.one(f"__++__internal_check_snapshot_flushed s3 {pub}") == b"1"


def test_nothing_is_listed_before_the_first_flush(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(folder_of(recordings, "many_tables")) as emulator:
        client = connect(emulator.port)
        client.rows("select mo_ctl('dn','checkpoint','')")  # before the snapshot: it covers nothing
        pub = take(client, emulator, "s1", flush=False)
        assert client.rows(f"__++__internal_object_list s1 - {pub}") == []


def test_a_table_snapshot_is_flushed_and_listed_by_its_table(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "keys") as emulator:
        client = connect(emulator.port)
        client.rows("create snapshot t for table gd_keys idx from sys publication p")
        scope = {row[3] for row in client.rows(f"__++__internal_get_mo_indexes {_id(client, 'idx')} sys p t")} - {
            b""
        } | {b"idx"}
        assert len(scope) > 1
        for name in scope:
            assert client.one("__++__internal_check_snapshot_flushed t sys p") == b"0"
            client.rows(f"select mo_ctl('dn','flush','gd_keys.{(name or b'').decode()}')")
        assert client.one("__++__internal_check_snapshot_flushed t sys p") == b"1"
        client.rows("select mo_ctl('dn','checkpoint','')")
        assert {row[1] for row in client.rows("__++__internal_object_list t - sys p")} == scope


def _id(client: Client, table: str) -> str:
    return (client.one(f"select rel_id from mo_catalog.mo_tables where relname = '{table}'") or b"").decode()


def test_the_upstream_flushes_by_itself_after_a_while(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "dml", flush_after=0.0, may_flush=False) as emulator:
        client = connect(emulator.port)
        assert (
            "do not have privilege to execute the statement" in client.error("select mo_ctl('dn','checkpoint','')")[1]
        )
        pub = take(client, emulator, "s1", flush=False)
        assert client.one(f"__++__internal_check_snapshot_flushed s1 {pub}") == b"1"


def test_mo_ctl_takes_names_of_its_own_account_and_of_others(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "other_account") as emulator:
        client = connect(emulator.port)
        pub = take(client, emulator, "s1", flush=False)
        assert client.error("select mo_ctl('dn','flush','gd_acc.p')")[0] == 20101
        for table in ("p", "q"):
            client.rows(f"select mo_ctl('dn','flush','gd_acc.{table}.{emulator.recording.account_id}')")
        assert client.one(f"__++__internal_check_snapshot_flushed s1 {pub}") == b"1"
        for text in (
            "'dn','flush'",
            "'dn','flush','1'",
            "'cn','mergeobjects','t:a.b'",
            "'dn','diskcleaner','gc_status'",
        ):
            assert client.error(f"select mo_ctl({text})")[0] == 20101


@pytest.mark.parametrize(
    ("user", "account", "role"),
    [
        ("dump", "sys", "moadmin"),
        ("sys:dump", "sys", "moadmin"),
        ("sys#dump", "sys", "moadmin"),
        ("sys#dump#moadmin", "sys", "moadmin"),
        ("sys%3Adump?label", "sys", "moadmin"),
        ("sys:du#mp:reader", "sys", "reader"),
        ("acc1:admin", "acc1", "accountadmin"),
        ("acc1#admin", "acc1", "accountadmin"),
    ],
)
def test_logins_name_account_user_and_role(
    recordings: Path, connect: Connect, user: str, account: str, role: str
) -> None:
    with RecordedUpstream(recordings / "dml", flush_after=0) as emulator:
        client = connect(emulator.port, user=user)
        assert client.one("select current_role()") == role.encode()
        text = "__++__internal_get_databases - sys p database gd_dml -"
        if account == "sys":
            assert client.one(text) == b"gd_dml"
        else:
            message = (
                f"tenant {account} user admin is not allowed to execute publication internal command get_databases"
            )
            assert client.error(text) == (20101, f"internal error: {message}")
        # Other accounts may do this as well (docs/upstream.md 4.2).
        create = "create snapshot s for database gd_dml from sys publication p"
        if role == "reader":
            assert "do not have privilege" in client.error(create)[1]
            assert "do not have privilege" in client.error("select mo_ctl('dn','checkpoint','')")[1]
        else:
            client.rows(create)


def test_a_publication_for_sys_is_closed_to_others(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "other_account") as emulator:
        client = connect(emulator.port, user="acc9:admin")
        text = "account acc9 does not have permission to access publication acc1.p"
        assert client.error("create snapshot s for account from acc1 publication p") == (
            20101,
            f"internal error: {text}",
        )
        assert "is not allowed to access publication" in client.error("show publication coverage p")[1]


@pytest.mark.parametrize("user", ["?", "a:b:c:d", ":user", "acc#"])
def test_malformed_logins_are_refused(recordings: Path, connect: Connect, user: str) -> None:
    with RecordedUpstream(recordings / "dml") as emulator:
        with pytest.raises(pymysql.err.OperationalError) as caught:
            connect(emulator.port, user=user)
        assert caught.value.args[0] == 1045


def test_a_wrong_password_is_refused(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "dml", password="right") as emulator:
        connect(emulator.port, password="right")
        with pytest.raises(pymysql.err.OperationalError) as caught:
            connect(emulator.port, password="wrong")
        assert caught.value.args[0] == 1045
        assert emulator.status().sessions_opened == 1


def test_two_sessions_at_once_are_distinguished(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "dml") as emulator:
        first, second, third = (connect(emulator.port) for _ in range(3))
        take(first, emulator, "s1")
        names = sorted(path.name for path in (recordings / "dml" / "objects").glob("*"))
        first.rows(f"__++__internal_get_object sys p {names[0]} 1")
        second.rows(f"__++__internal_get_object sys p {names[1]} 1")
        third.rows(f"__++__internal_get_object sys p {names[1]} 0")
        second.rows("use gd_dml")
        assert second.one("select database()") == b"gd_dml"
        assert first.one("select database()") is None
        assert first.error("use nowhere")[0] == 1049
        status = emulator.status()
        assert (status.sessions_opened, status.sessions_open, status.sessions_that_fetched) == (3, 3, 2)
        assert status.statements["get_object"] == 3
        assert status.snapshots == ("s1",)
        shown = {row[0]: row[1] for row in third.rows("show emulator status")}
        assert shown[b"sessions_that_fetched"] == b"2"
        assert shown[b"snapshots"] == b"s1"
        assert [(entry.session, entry.kind) for entry in emulator.log() if entry.kind == "get_object"] == [
            (1, "get_object"),
            (2, "get_object"),
            (3, "get_object"),
        ]


def test_a_lost_snapshot_has_the_upstreams_error(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "dml") as emulator:
        client = connect(emulator.port)
        take(client, emulator, "s1")
        take(client, emulator, "s2")
        assert "invalid timestamp" in client.error("__++__internal_object_list s1 s2 sys p")[1]
        emulator.drop_snapshot("s1")
        number, text = client.error("__++__internal_object_list s2 s1 sys p")
        assert number == 20101
        assert "failed to resolve against snapshot 's1'" in text
        assert "find 0 snapshot records by name(s1), expect only 1" in text
        assert "failed to resolve snapshot 's1'" in client.error("__++__internal_object_list s1 - sys p")[1]
        for command in ("get_snapshot_ts", "check_snapshot_flushed"):
            assert "find 0 snapshot records by name(s1)" in client.error(f"__++__internal_{command} s1 sys p")[1]


def test_ddl_of_one_table_and_of_what_is_not_there(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(folder_of(recordings, "ddl", 6)) as emulator:
        client = connect(emulator.port)
        pub = take(client, emulator, "s1")
        assert [row[1] for row in client.rows(f"__++__internal_get_ddl s1 {pub} table gd_schema gone")] == [b"gone"]
        take(client, emulator, "s2")
        assert "failed to get table" in client.error(f"__++__internal_get_ddl s2 {pub} table gd_schema gone")[1]
        assert [row[1] for row in client.rows(f"__++__internal_get_ddl - {pub} database gd_schema -")] == [b"t1"]
        refused = client.error(f"__++__internal_get_ddl s2 {pub} database nowhere -")[1]
        assert "failed to get database: ExpectedEOB" in refused
        assert client.rows(f"__++__internal_get_mo_indexes 1 {pub} s2") == []
