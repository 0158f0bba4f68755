"""Consistency `isolated`: a table that fails stays at its point and the others go on; it returns when it succeeds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from ccpr.matrixone.client.table_catalog import TableCatalog
from ccpr.matrixone.objects.errors import ObjectUnsupported
from ccpr.matrixone.schema import SqlType, Table
from ccpr.mirror.table_read import plan_read
from ccpr.pipeline import known_catalog, object_list
from ccpr.pipeline import scope as scope_module
from ccpr.pipeline.driver import drive
from ccpr.pipeline.step_names import Stage
from ccpr.pipeline.steps.release import sweep
from ccpr.service.workspace import Workspace
from ccpr.state.checkpoint.checkpoint import Checkpoint
from ccpr.state.database import transaction
from ccpr.state.quarantine import Quarantine
from ccpr_emulator.serving.faults import DamagedByte, FailStatement, MissingObject, WrongTotalSize
from tests.support.expected import assert_rows_equal
from tests.support.replica import NAME, Replica, replaying
from tests.support.settings import setting, upstream_goes_on


@contextmanager
def isolated(recordings: Path, recording: str, home: Path) -> Iterator[Replica]:
    with replaying(recordings / recording, home) as replica:
        replica.subscribe()
        setting("consistency", "isolated")
        yield replica


def new_objects(replica: Replica, table: str, snapshot: int) -> list[str]:
    """Names of the data objects of a table that a recorded snapshot has and the mirror has not."""
    from tests.support.recorded import Snapshot

    recorded = Snapshot(replica.about.folder / f"snapshot-{snapshot:03}")
    listed = recorded.objects.get(table.partition(".")[2], [])
    there = {path.name for path in (replica.mirror / "objects").glob("*")}
    return [entry.stats.name for entry in listed if entry.deleted is None and entry.stats.name not in there]


def changed_tables(replica: Replica, snapshot: int) -> list[str]:
    return [table for table in sorted(replica.about.expected(snapshot)) if new_objects(replica, table, snapshot)]


def assert_others_equal(replica: Replica, snapshot: int, behind: str, at: int | None = None) -> None:
    """Every table but one equals the source at a recorded snapshot, and that one is not shown."""
    expected = replica.about.expected(snapshot)
    expected.pop(behind, None)
    options = [] if at is None else ["--at", str(at)]
    shown = replica.command("tables", NAME, *options)
    assert {table["table"] for table in shown["tables"] if table["kind"] == "table"} == set(expected)
    assert [late["table"] for late in shown["behind"]] == [behind]
    assert not shown["consistent"]
    replica.assert_exported(expected, at)


def export_error(replica: Replica, table: str, *options: str) -> dict:
    out = str(replica.folder / "refused.parquet")
    return replica.command("export", NAME, table, "--out", out, *options, code=1)["error"]


def quarantined() -> list[tuple[str, str, int, int]]:
    log = Workspace().log
    entries = Quarantine(log.engine, log.row(NAME).task_id).entries()
    return [(entry.qualified_name, entry.failure.code, entry.since_lsn, entry.attempts) for entry in entries]


def global_lsn() -> int:
    log = Workspace().log
    checkpoint = Checkpoint(log.engine, log.row(NAME).task_id)
    checkpoint.load()
    return checkpoint.flushed_global_point().lsn


FAULTS = {
    "missing": (lambda name: MissingObject(name), "OBJECT_GONE"),
    "of another size": (lambda name: WrongTotalSize(7, name), "OBJECT_SIZE_MISMATCH"),
    "damaged": (lambda name: DamagedByte(0, name), "OBJECT_DAMAGED"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_table_whose_object_cannot_be_fetched_stays_behind_and_returns(
    fault: str, recordings: Path, home: Path
) -> None:
    make, code = FAULTS[fault]
    with isolated(recordings, "many_tables", home) as replica:
        replica.run()
        table = changed_tables(replica, 2)[0]
        replica.emulator.inject(*(make(name) for name in new_objects(replica, table, 2)))
        outcome = replica.run()
        assert (outcome["point"], outcome["quarantined"]) == (True, [table])
        assert_others_equal(replica, 2, behind=table)
        error = export_error(replica, table)
        assert error["code"] == "POINT_NOT_REACHED"
        assert "point 0" in error["message"]
        assert_rows_equal(replica.export(table, at=0), pq.read_table(replica.about.expected(1)[table]))
        assert quarantined() == [(table, code, 1, 1)]
        assert global_lsn() == 0
        assert [point["consistent"] for point in replica.command("points", NAME)] == [True, False]

        outcome = replica.run()  # nothing else changes: an idle iteration, and yet the table is tried again
        assert outcome["point"] is False
        assert quarantined() == [(table, code, 1, 2)]
        assert export_error(replica, table, "--at", "2")["code"] == "POINT_NOT_REACHED"
        assert replica.command("verify", NAME)["sound"]

        replica.emulator.clear_faults()
        outcome = replica.run()
        assert (outcome["point"], outcome["quarantined"], outcome["tables_changed"]) == (True, [], 1)
        replica.assert_equal_to_source(2)
        assert quarantined() == []
        assert global_lsn() == 3
        assert_others_equal(replica, 2, behind=table, at=1)
        assert export_error(replica, table, "--at", "1")["code"] == "POINT_NOT_REACHED"
        assert replica.command("verify", NAME, "--deep")["sound"]
        assert replica.run()["point"] is False
        assert global_lsn() == 4


def test_with_consistency_together_the_same_fault_stops_the_iteration(recordings: Path, home: Path) -> None:
    with replaying(recordings / "many_tables", home) as replica:
        replica.subscribe()
        replica.run()
        table = changed_tables(replica, 2)[0]
        replica.emulator.inject(*(MissingObject(name) for name in new_objects(replica, table, 2)))
        assert replica.run(code=1)["error"]["code"] == "OBJECT_GONE"
        replica.assert_equal_to_source(1)
        assert quarantined() == []
        replica.emulator.clear_faults()
        replica.run()
        replica.assert_equal_to_source(2)


@pytest.mark.parametrize("recording", ["dml", "ddl"])
def test_a_table_that_misses_some_points_is_completed_from_the_full_list(
    recording: str, recordings: Path, home: Path
) -> None:
    """In every other iteration a changed table fails; it is behind across merges, renames, truncates and drops."""
    with isolated(recordings, recording, home) as replica:
        replica.run()
        last = replica.about.snapshots
        for snapshot in range(2, last + 1):
            failing = changed_tables(replica, snapshot)[:1] if snapshot % 2 == 0 else []
            replica.emulator.inject(
                *(MissingObject(name) for table in failing for name in new_objects(replica, table, snapshot))
            )
            outcome = replica.run()
            assert outcome["quarantined"] == failing
            if failing:
                assert_others_equal(replica, snapshot, behind=failing[0])
            else:
                replica.assert_equal_to_source(snapshot)
            replica.emulator.clear_faults()
        replica.run()
        replica.assert_equal_to_source(last)
        assert quarantined() == []
        assert replica.command("verify", NAME, "--deep")["sound"]


def test_a_table_that_fails_in_the_first_iteration_has_no_point_until_it_succeeds(recordings: Path, home: Path) -> None:
    with isolated(recordings, "ddl", home) as replica:
        table = changed_tables(replica, 1)[0]
        replica.emulator.inject(*(MissingObject(name) for name in new_objects(replica, table, 1)))
        assert replica.run()["quarantined"] == [table]
        assert_others_equal(replica, 1, behind=table)
        assert "no point yet" in export_error(replica, table)["message"]
        assert global_lsn() == -1
        replica.emulator.clear_faults()
        replica.run()
        replica.assert_equal_to_source(2)
        assert global_lsn() == 1


def test_a_lost_connection_puts_no_table_in_quarantine(recordings: Path, home: Path) -> None:
    with isolated(recordings, "other_account", home) as replica:
        replica.run()
        replica.emulator.inject(FailStatement("get_object", number=1053, text="Server shutdown in progress", times=0))
        error = replica.run(code=1)["error"]
        assert quarantined() == [], error
        replica.emulator.clear_faults()
        replica.run()
        replica.assert_equal_to_source(2)


def test_retention_keeps_the_newest_point_of_a_table_that_is_behind(recordings: Path, home: Path) -> None:
    with isolated(recordings, "many_tables", home) as replica:
        setting("retain", 1)
        replica.run()
        table = changed_tables(replica, 2)[0]
        replica.emulator.inject(*(MissingObject(name) for name in new_objects(replica, table, 2)))
        replica.run()
        assert [point["lsn"] for point in replica.command("points", NAME)] == [0, 1]
        assert_rows_equal(replica.export(table, at=0), pq.read_table(replica.about.expected(1)[table]))
        replica.emulator.clear_faults()
        replica.run()
        assert [point["lsn"] for point in replica.command("points", NAME)] == [2]
        replica.assert_equal_to_source(2)


def test_a_reader_without_the_catalog_database_gets_the_same_error(recordings: Path, home: Path) -> None:
    with isolated(recordings, "many_tables", home) as replica:
        replica.run()
        table = changed_tables(replica, 2)[0]
        replica.emulator.inject(*(MissingObject(name) for name in new_objects(replica, table, 2)))
        replica.run()
        with pytest.raises(Exception, match="POINT_NOT_REACHED"):
            plan_read(str(replica.mirror), table)
        assert plan_read(str(replica.mirror), table, 0).lsn == 0
        replica.assert_equal_to_source(1, at=0)


def test_a_lost_manifest_fails_its_table_and_a_resync_of_it_repairs_it(recordings: Path, home: Path) -> None:
    with isolated(recordings, "dml", home) as replica:
        for _ in range(2):
            replica.run()
        for manifest in (replica.mirror / "manifests").rglob("*.arrow"):
            manifest.unlink()
        error = export_error(replica, "gd_dml.acc")
        assert error["code"] == "MIRROR_DAMAGED"
        assert "gd_dml.acc" in error["subject"]
        assert replica.run()["quarantined"] == ["gd_dml.acc"]
        assert replica.run()["quarantined"] == ["gd_dml.acc"]
        done = replica.command("resync", NAME, "--table", "gd_dml.acc", "--yes")
        assert done["outcome"]["quarantined"] == []
        replica.assert_equal_to_source(5)
        replica.run()
        replica.assert_equal_to_source(6)


def test_objects_copied_for_a_table_that_fails_are_kept_as_garbage_until_it_succeeds(
    recordings: Path, home: Path
) -> None:
    with isolated(recordings, "dml", home) as replica:
        snapshot = next(number for number in range(1, 7) if has_several(replica, number))
        first, *others = new_objects(replica, "gd_dml.acc", snapshot)
        replica.emulator.inject(MissingObject(first))
        replica.run()
        assert {f"objects/{name}" for name in others} <= garbage()
        upstream_goes_on(0.5)
        with Workspace().iteration(NAME) as iteration:
            drive(iteration, until=Stage.SNAPSHOT)
            assert sweep(iteration).files_deleted == 0
        replica.emulator.clear_faults()
        missing = new_objects(replica, "gd_dml.acc", snapshot + 1)
        assert replica.run()["objects_copied"] == len(missing), "objects in the mirror are not fetched again"
        assert not {f"objects/{name}" for name in others} & garbage() - {
            f"objects/{name}" for name in set(others) - live(replica)
        }
        replica.assert_equal_to_source(snapshot + 1)


def has_several(replica: Replica, snapshot: int) -> bool:
    """Whether a snapshot brings several objects; if not, the iteration is run."""
    if len(new_objects(replica, "gd_dml.acc", snapshot)) > 1:
        return True
    replica.run()
    return False


def garbage() -> set[str]:
    with transaction(Workspace().log.engine) as connection:
        return set(connection.scalars(sa.text("SELECT path FROM ccpr_garbage")))


def live(replica: Replica) -> set[str]:
    mirror = Workspace().mirror(NAME)
    return {
        listed.stats.name for ref in mirror.point().tables.values() for listed in mirror.manifest(ref).listed_objects()
    }


def spoil_list(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """From now on the upstream's lists have stats of a wrong length for the objects of one table."""
    original = object_list.object_list

    def spoiled(*args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        for batch in original(*args, **options):
            short = pa.array([b"short"] * batch.num_rows, pa.binary())
            stats = pc.if_else(
                pc.equal(batch.column("table"), table.partition(".")[2]), short, batch.column("stats").cast(pa.binary())
            )
            yield batch.set_column(batch.schema.get_field_index("stats"), batch.schema.field("stats"), stats)

    monkeypatch.setattr(object_list, "object_list", spoiled)


def test_invalid_rows_of_an_object_list_fail_only_their_table(
    recordings: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with isolated(recordings, "many_tables", home) as replica:
        replica.run()
        table = changed_tables(replica, 2)[0]
        with monkeypatch.context() as patched:
            spoil_list(patched, table)
            assert replica.run()["quarantined"] == [table]
            assert_others_equal(replica, 2, behind=table)
            assert [entry[1] for entry in quarantined()] == ["OBJECT_LIST_INVALID"]
            setting("consistency", "together")
            assert replica.run(code=1)["error"]["code"] == "OBJECT_LIST_INVALID"
        replica.run()
        replica.assert_equal_to_source(2)


def test_an_unknown_column_type_fails_no_table_and_is_an_error_to_who_reads_it(
    recordings: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with isolated(recordings, "many_tables", home) as replica:
        replica.run()
        table = changed_tables(replica, 2)[0]
        original = scope_module.read_catalog

        def odd(*args: Any, **options: Any) -> TableCatalog:
            catalog = original(*args, **options)
            tables = (with_odd_column(found) if found.qualified_name == table else found for found in catalog.tables)
            return replace(catalog, tables=tuple(tables))

        with monkeypatch.context() as patched:
            patched.setattr(scope_module, "read_catalog", odd)
            patched.setattr(known_catalog, "catalog_checksum", lambda *_: "of the odd catalog")
            assert replica.run()["quarantined"] == []
            assert quarantined() == []
            assert list(replica.command("status", NAME)["unreadable_columns"]) == [table]
            for other, file in replica.about.expected(2).items():
                if other != table:
                    assert_rows_equal(replica.export(other), pq.read_table(file))
            mirror = Workspace().mirror(NAME)
            with pytest.raises(ObjectUnsupported, match="type 99"):
                mirror.read(mirror.point(), table)
            plan = replica.command("plan", NAME)
            assert list(plan["failures"]) == []
        replica.run()  # the planned iteration: its steps' results are kept
        replica.run()
        replica.assert_equal_to_source(2)


def with_odd_column(table: Table) -> Table:
    first, *others = table.columns
    return replace(table, columns=(replace(first, type=SqlType(99)), *others))


def test_a_table_that_is_dropped_upstream_leaves_quarantine(recordings: Path, home: Path) -> None:
    """Each table that some snapshot drops fails in the snapshot before."""
    with isolated(recordings, "ddl", home) as replica:
        for snapshot in range(1, replica.about.snapshots):
            dropped = sorted(set(replica.about.expected(snapshot)) - set(replica.about.expected(snapshot + 1)))
            failing = [table for table in dropped if new_objects(replica, table, snapshot)]
            replica.emulator.inject(
                *(MissingObject(name) for table in failing for name in new_objects(replica, table, snapshot))
            )
            assert replica.run()["quarantined"] == failing
        replica.emulator.clear_faults()
        replica.run()
        replica.assert_equal_to_source(replica.about.snapshots)
        assert quarantined() == []


def test_damage_is_reported_for_the_points_that_show_the_table_only(recordings: Path, home: Path) -> None:
    with isolated(recordings, "many_tables", home) as replica:
        replica.run()
        table = changed_tables(replica, 2)[0]
        replica.emulator.inject(*(MissingObject(name) for name in new_objects(replica, table, 2)))
        replica.run()
        mirror = Workspace().mirror(NAME)
        (replica.mirror / mirror.point(0).table(table).manifest).write_bytes(b"nothing")
        (damage,) = replica.command("verify", NAME, code=1)["damages"]
        assert damage["points"] == {"0": [table]}
        replica.emulator.clear_faults()
        replica.command("resync", NAME, "--table", table, "--yes")
        replica.assert_equal_to_source(2)
