"""What a client reads from mo_catalog."""

from pathlib import Path

import pytest

from ccpr.matrixone.client import upstream_sql
from ccpr_emulator.recorded_upstream import RecordedUpstream
from tests.support.wire_client import Connect, folder_of

pytestmark = [pytest.mark.integration, pytest.mark.recordings]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select relname from mo_catalog.mo_tables where relkind = 'v'", [b"v1"]),
        ("SELECT `relname`\nFROM `mo_catalog`.`mo_tables`  WHERE relkind='v' ;", [b"v1"]),
        (
            "select t.relname as n from mo_catalog.mo_tables as t where (t.account_id = 0 and t.relkind in ('v','x'))",
            [b"v1"],
        ),
        (
            'select relname from mo_catalog.mo_tables where relkind = "r" '
            "and relname like 'fk_' order by relname desc",
            [b"fkp", b"fkc"],
        ),
        ("select relname from mo_catalog.mo_tables where relname like 'fk%' order by `relname` limit 1", [b"fkc"]),
        ("select relname from mo_catalog.mo_tables where relname = 'weird name é'", ["weird name é".encode()]),
        ("select relname from mo_catalog.mo_tables where account_id != 0", []),
        ("select relname from mo_catalog.mo_tables where account_id = '0' and relkind not in ('r','i')", [b"v1"]),
        ("select relname from mo_catalog.mo_tables where relname is null", []),
        (
            "select count(*) from mo_catalog.mo_tables where relname is not null and rel_id > 9 and rel_id <= 9999999",
            [b"7"],
        ),
        ("select relname from mo_catalog.mo_tables where relname = NULL", []),
        ("select relname from mo_catalog.mo_tables {mo_ts = 1} where account_id = 0", []),
        ("select datname from mo_catalog.mo_database where account_id = 0", [b"mo_catalog", b"gd_schema"]),
        ("select account_id from mo_catalog.mo_account where account_name = 'sys'", [b"0"]),
        ("select account_id from mo_catalog.mo_account where account_name = 'nobody'", []),
    ],
)
def test_conditions_columns_and_order(recordings: Path, connect: Connect, sql: str, expected: list[bytes]) -> None:
    with RecordedUpstream(folder_of(recordings, "ddl", 6)) as emulator:
        client = connect(emulator.port)
        for number in range(6):
            client.rows(f"create snapshot s{number} for database gd_schema from sys publication p")
        assert [row[0] for row in client.rows(sql)] == expected


def test_the_catalog_without_a_time_is_that_of_the_newest_snapshot(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(folder_of(recordings, "ddl", 6)) as emulator:
        client = connect(emulator.port)
        names = "select relname from mo_catalog.mo_tables where reldatabase = 'gd_schema' order by relname"
        assert client.rows(names) == [(b"gone",), (b"t1",)]  # before any: the first
        client.rows("create snapshot s1 for database gd_schema from sys publication p")
        assert client.rows(names) == [(b"gone",), (b"t1",)]
        client.rows("create snapshot s2 for database gd_schema from sys publication p")
        assert client.rows(names) == [(b"t1",)]
        first, second = (snapshot.ts for snapshot in emulator.recording.snapshots[:2])
        for ts, count in ((first - 1, 0), (first, 2), (second - 1, 2), (second, 1), (second + 1, 1)):
            assert (
                len(
                    client.rows(
                        f"SELECT relname FROM mo_catalog.mo_tables {{MO_TS = {ts}}} WHERE reldatabase = 'gd_schema'"
                    )
                )
                == count
            )
        assert len(client.rows("select * from mo_catalog.mo_tables {snapshot = 's1'} where rel_id > 3")) == 2


def test_publications_are_listed_where_they_are(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "table_level", strict_publication=True) as emulator:
        client = connect(emulator.port)
        pubs = (
            "select account_name, pub_name, database_name, all_table, table_list, account_list from mo_catalog.mo_pubs"
        )
        assert client.rows(pubs) == [(b"sys", b"pub_table_level", b"gd_tbl", b"0", b"only_me", b"all")]
        assert client.rows(f"{pubs} where pub_name = 'other'") == []
        columns, types, rows = client.answer("show publications")
        assert columns[:4] == ["publication", "database", "tables", "sub_account"]
        assert types == [15, 15, 252, 252, 252, 7, 7, 252]
        assert rows[0][:4] == (b"pub_table_level", b"gd_tbl", b"only_me", b"*")
        assert client.rows("show publications like 'x%'") == []
        assert client.answer("show publication coverage pub_table_level") == (
            ["Database", "Table"],
            [15, 15],
            [(b"gd_tbl", b"only_me")],
        )
        assert client.error("show publication coverage other")[0] == 20101
    with RecordedUpstream(recordings / "keys") as emulator:
        rows = connect(emulator.port).rows("show publication coverage `anything`")
        assert rows[0] == (b"gd_keys", b"*")
        assert len(rows) == 14
    with RecordedUpstream(recordings / "other_account") as emulator:
        client = connect(emulator.port)
        assert client.rows("show publications") == []  # the publisher's own
        assert client.rows("select account_id, account_name from mo_catalog.mo_account") == [
            (b"0", b"sys"),
            (b"2", b"acc1"),
        ]
        assert connect(emulator.port, user="acc1:admin").rows("show publications")[0][3] == b"sys"


def test_a_publication_that_is_accepted_is_also_found(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "dml") as emulator:
        client = connect(emulator.port)
        assert [row[2] for row in client.rows(upstream_sql.select_publication("sys", "mine"))] == [b"mine"]
        assert [row[2] for row in client.rows(upstream_sql.select_publications("gd_dml"))] == [b"pub_dml"]
        assert client.rows(upstream_sql.select_publication("acc9", "mine")) == []


def test_an_account_sees_its_own_rows(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "other_account") as emulator:
        tables = "select * from mo_catalog.mo_tables where reldatabase != 'mo_catalog'"
        assert len(connect(emulator.port).rows(tables)) == 2
        assert len(connect(emulator.port, user="acc1:admin").rows(tables)) == 2
        stranger = connect(emulator.port, user="acc7:admin")
        assert stranger.rows("select * from mo_catalog.mo_tables") == []
        assert stranger.error("select * from mo_catalog.mo_pubs")[0] == 20101


def test_snapshots_are_in_the_publishers_own_table(recordings: Path, connect: Connect) -> None:
    for scenario, database, seen in (("dml", "gd_dml", True), ("other_account", "gd_acc", False)):
        with RecordedUpstream(recordings / scenario) as emulator:
            client = connect(emulator.port)
            publisher, ts = emulator.recording.publisher, emulator.recording.snapshots[0].ts
            client.rows(f"create snapshot s1 for database {database} from {publisher} publication p")
            sql = "select sname, ts, level, database_name from mo_catalog.mo_snapshots"
            expected = [(b"s1", str(ts).encode(), b"database", database.encode())]
            assert client.rows(sql) == (expected if seen else [])
            assert connect(emulator.port, user=f"{publisher}:x").rows(sql) == expected


def test_every_catalog_at_every_time_holds_the_catalog_itself(recordings: Path, connect: Connect) -> None:
    with RecordedUpstream(recordings / "dml") as emulator:
        client, ts = connect(emulator.port), emulator.recording.snapshots[0].ts
        for at in ("", f"{{mo_ts = {ts}}}"):
            found = f"select dat_id, account_id from mo_catalog.mo_database {at} where datname = 'mo_catalog'"
            assert client.rows(found) == [(b"1", b"0")]
            tables = f"select relname from mo_catalog.mo_tables {at} where reldatabase = 'mo_catalog' order by rel_id"
            assert client.rows(tables) == [(b"mo_database",), (b"mo_tables",), (b"mo_columns",)]
