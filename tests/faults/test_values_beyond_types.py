"""What MatrixOne stores beyond a column's declared type is a value: decimals longer than declared, text that is not
UTF-8. Issue 11, item 12, as it was found on a real cluster."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import ccpr
from ccpr.matrixone.objects.invalid_text import escaped
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command, source_uri

NAME, DATABASE = "values", "d"
BYTES = b"\xff\x00\xfe"
COLUMNS = {"id": "int not null", "e": "decimal(4,2)", "s": "varchar(20)"}


@dataclass(frozen=True)
class Upstream:
    storage: Storage
    port: int
    folder: Path

    def command(self, *words: str, code: int = 0) -> Any:
        return command(*words, code=code)

    def insert(self, **columns: list[Any]) -> None:
        with self.storage.begin() as transaction:
            transaction.insert(DATABASE, "t", columns)

    def export(self, *options: str, code: int = 0) -> pa.Table:
        file = self.folder / "t.parquet"
        self.command("export", NAME, f"{DATABASE}.t", "--out", str(file), *options, code=code)
        return pq.read_table(file).sort_by("id") if code == 0 else pa.table({})

    @property
    def mirror(self) -> Path:
        return self.folder / "home" / "mirrors" / NAME


@pytest.fixture
def upstream(home: Path) -> Iterator[Upstream]:
    storage = Storage()
    storage.create_database(DATABASE)
    storage.create_publication("p", DATABASE)
    storage.create_table(DATABASE, "t", COLUMNS, primary_key=["id"], unchecked=["e"])
    with SimulatedUpstream(storage) as emulator:
        upstream = Upstream(storage, emulator.port, home)
        upstream.insert(id=[1, 2], e=[Decimal("1.5"), Decimal(100)], s=["a", escaped(BYTES)])
        source = source_uri(emulator.port)
        scope = ["--database", DATABASE, "--publication", "p", "--publisher", "sys"]
        upstream.command("subscribe", NAME, "--from", source, *scope)
        upstream.command("run", NAME)
        yield upstream


def test_a_decimal_is_as_wide_at_a_point_as_its_longest_value(upstream: Upstream) -> None:
    first = upstream.export("--at", "0")
    assert first.schema.field("e").type == pa.decimal128(5, 2)
    assert first.column("e").to_pylist() == [Decimal("1.50"), Decimal("100.00")]
    upstream.insert(id=[3], e=[Decimal("-12345.67")], s=[None])
    upstream.command("run", NAME)
    second = upstream.export()
    assert second.schema.field("e").type == pa.decimal128(7, 2)
    assert second.column("e").to_pylist() == [Decimal("1.50"), Decimal("100.00"), Decimal("-12345.67")]
    assert upstream.export("--at", "0").equals(first)
    changes = ccpr.open_mirror(upstream.mirror).table(f"{DATABASE}.t").changes(since=0)
    assert changes.upserts.to_pylist() == [{"id": 3, "e": Decimal("-12345.67"), "s": None}]
    filtered = ccpr.open_mirror(upstream.mirror).table(f"{DATABASE}.t").to_arrow(filters=[("e", ">=", 100)])
    assert filtered.column("id").to_pylist() == [2]


def test_a_column_stays_as_wide_when_its_long_values_are_gone(upstream: Upstream) -> None:
    with upstream.storage.begin() as transaction:
        transaction.delete(DATABASE, "t")
    upstream.insert(id=[4], e=[Decimal(2)], s=["x"])
    upstream.command("run", NAME)
    assert upstream.export().schema.field("e").type == pa.decimal128(5, 2)


def test_text_that_is_not_utf8_is_read_as_it_was_asked_for(upstream: Upstream) -> None:
    assert upstream.export().column("s").to_pylist() == ["a", "\U0010feff\x00\U0010fefe"]
    assert upstream.export("--invalid-text", "replace").column("s").to_pylist() == ["a", "\ufffd\x00\ufffd"]
    assert upstream.export("--invalid-text", "binary").column("s").to_pylist() == [b"a", BYTES]
    upstream.export("--invalid-text", "error", code=1)
    upstream.command("alter", NAME, "--invalid-text", "replace")
    assert upstream.export().column("s").to_pylist() == ["a", "\ufffd\x00\ufffd"]
    upstream.command("alter", NAME, "--invalid-text", "other", code=2)
    for how, text in (("escape", escaped(BYTES)), ("replace", "\ufffd\x00\ufffd"), ("binary", BYTES)):
        table = ccpr.open_mirror(upstream.mirror, invalid_text=how).table(f"{DATABASE}.t")
        rows = table.to_arrow(filters=[("s", "=", escaped(BYTES))])
        assert rows.schema == table.schema
        assert rows.to_pylist() == [{"id": 2, "e": Decimal(100), "s": text}]
        assert text in table.changes(None).upserts.column("s").to_pylist()
    refused = ccpr.open_mirror(upstream.mirror, invalid_text="error").table(f"{DATABASE}.t")
    with pytest.raises(ccpr.ValueRefused, match="not UTF-8"):
        refused.to_arrow()
    assert refused.to_arrow(columns=["id"]).num_rows == 2
    with pytest.raises(ccpr.BadOption):
        ccpr.open_mirror(upstream.mirror, invalid_text="guess")


def test_filters_compare_stored_bytes_so_that_no_row_is_skipped_by_zone_maps(upstream: Upstream) -> None:
    raws = [b"\x80", b"\xc3\xa9", b"\xf5", "\U0010feff".encode(), b"a\x80", "aé".encode(), "a\U0001f642".encode()]
    upstream.insert(id=list(range(10, 10 + len(raws))), e=[None] * len(raws), s=[escaped(raw) for raw in raws])
    upstream.storage.flush(DATABASE, "t")
    upstream.command("run", NAME)
    table = ccpr.open_mirror(upstream.mirror, invalid_text="binary").table(f"{DATABASE}.t")
    stored = {row["id"]: row["s"] for row in table.to_arrow().to_pylist()}
    for raw in raws:
        for operator, test in (("=", raw.__eq__), ("<", raw.__gt__), (">=", raw.__le__)):
            found = table.to_arrow(filters=[("s", operator, escaped(raw))]).column("id").to_pylist()
            assert sorted(found) == sorted(number for number, value in stored.items() if test(value))


def test_a_deep_verify_reads_the_rows_and_is_content_with_them(upstream: Upstream) -> None:
    assert upstream.command("verify", NAME, "--deep")["damages"] == []


def test_a_deep_verify_reports_a_table_that_cannot_be_read(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a first copy by a release that did not look how long the values are."""
    upstream.insert(id=[3], e=[None], s=[None])
    with monkeypatch.context() as patch:
        patch.setattr("ccpr.pipeline.building.with_found", lambda mirror, table, *others: table)
        patch.setattr("ccpr.pipeline.known_catalog.catalog_checksum", lambda *_: None)  # nor did it know any
        upstream.command("run", NAME)
    (damage,) = upstream.command("verify", NAME, "--deep", code=1)["damages"]
    assert "more than the 4 digits" in damage["reason"]
    assert damage["points"] == {"1": [f"{DATABASE}.t"]}
    assert upstream.export("--invalid-text", "replace", code=1).num_rows == 0
    upstream.command("run", NAME)
    assert upstream.export().column("e").to_pylist() == [Decimal("1.50"), Decimal(100), None]


ZERO_DAY, ZERO_MOMENT = -719_163, -62_135_596_800_000_001


def zero_dates(upstream: Upstream) -> None:
    """A table with zero dates in its key and elsewhere, as 4.2.0 stores them."""
    columns = {"d": "date not null", "n": "int not null", "dt": "datetime(6)", "ts": "timestamp(6)"}
    upstream.storage.create_table(DATABASE, "z", columns, primary_key=["d", "n"])
    moments = pa.array([ZERO_MOMENT, 0, None], pa.int64())
    with upstream.storage.begin() as transaction:
        rows = {
            "d": pa.array([ZERO_DAY, 0, ZERO_DAY], pa.int32()).view(pa.date32()),
            "n": [1, 2, 3],
            "dt": moments.view(pa.timestamp("us")),
            "ts": moments.view(pa.timestamp("us", "UTC")),
        }
        transaction.insert(DATABASE, "z", rows)
    upstream.command("run", NAME)


def test_zero_dates_are_null_unless_they_are_asked_for(upstream: Upstream) -> None:
    zero_dates(upstream)
    table = ccpr.open_mirror(upstream.mirror).table(f"{DATABASE}.z")
    rows = table.to_arrow().sort_by("n")
    assert rows.column("d").is_null().to_pylist() == [True, False, True]
    assert rows.column("dt").is_null().to_pylist() == rows.column("ts").is_null().to_pylist() == [True, False, True]
    for name, expected in (("d", [1, 3]), ("dt", [1, 3]), ("ts", [1, 3])):
        assert sorted(table.to_arrow(filters=[(name, "is null")]).column("n").to_pylist()) == expected
        assert table.to_arrow(filters=[(name, "is not null")]).column("n").to_pylist() == [2]
    kept = ccpr.open_mirror(upstream.mirror, zero_dates="keep").table(f"{DATABASE}.z").to_arrow().sort_by("n")
    assert kept.column("d").cast(pa.int32()).to_pylist() == [ZERO_DAY, 0, ZERO_DAY]
    assert kept.column("ts").cast(pa.int64()).to_pylist() == [ZERO_MOMENT, 0, None]
    refused = ccpr.open_mirror(upstream.mirror, zero_dates="error").table(f"{DATABASE}.z")
    with pytest.raises(ccpr.ValueRefused, match="zero date"):
        refused.to_arrow()
    assert refused.to_arrow(columns=["n"]).num_rows == 3


def test_deltas_keep_keys_with_zero_dates_apart(upstream: Upstream) -> None:
    zero_dates(upstream)
    with upstream.storage.begin() as transaction:
        transaction.delete(DATABASE, "z")
        rows = {"d": pa.array([ZERO_DAY], pa.int32()).view(pa.date32()), "n": [4], "dt": [None], "ts": [None]}
        transaction.insert(DATABASE, "z", rows)
    upstream.command("run", NAME)
    changes = ccpr.open_mirror(upstream.mirror, zero_dates="keep").table(f"{DATABASE}.z").changes(since=1)
    assert changes.upserts.select(["n", "dt", "ts"]).to_pylist() == [{"n": 4, "dt": None, "ts": None}]
    assert changes.upserts.column("d").cast(pa.int32()).to_pylist() == [ZERO_DAY]
    assert sorted(changes.deletes.column("n").to_pylist()) == [1, 2, 3]


def merged(rows: pa.Table, changes: ccpr.Changes) -> pa.Table:
    """The rows with changes merged by key, as `changes` promises it may be done."""
    import duckdb

    names = {"rows": rows, "up": changes.upserts, "gone": changes.deletes}
    with duckdb.connect() as connection:
        for name, table in names.items():
            connection.register(name, table)
        connection.execute("CREATE TABLE t AS SELECT * FROM rows")
        for name in ("up", "gone"):
            same = " AND ".join(f't."{key}" = {name}."{key}"' for key in changes.key)
            connection.execute(f"DELETE FROM t USING {name} WHERE {same}")
        connection.execute("INSERT INTO t SELECT * FROM up")
        return connection.sql("SELECT * FROM t").to_arrow_table().cast(rows.schema)


def test_changes_of_a_key_with_zero_dates_merge_to_the_rows_of_the_point_or_are_refused(upstream: Upstream) -> None:
    zero_dates(upstream)
    with upstream.storage.begin() as transaction:
        transaction.delete(DATABASE, "z", pc.field("n") < 3)
        rows = {"d": pa.array([ZERO_DAY], pa.int32()).view(pa.date32()), "n": [4], "dt": [None], "ts": [None]}
        transaction.insert(DATABASE, "z", rows)
        transaction.update(DATABASE, "z", {"dt": None}, pc.field("n") == 3)
    upstream.command("run", NAME)
    table = ccpr.open_mirror(upstream.mirror, zero_dates="keep").table(f"{DATABASE}.z")
    changes = table.changes(since=1)
    assert changes.deletes.column("d").null_count == changes.upserts.column("d").null_count == 0
    assert changes.deletes.num_rows == 2
    there = table.to_arrow()
    assert merged(table.to_arrow(at=1), changes).sort_by("n").equals(there.sort_by("n"))
    for how in ("null", "error"):
        refused = ccpr.open_mirror(upstream.mirror, zero_dates=how).table(f"{DATABASE}.z")
        with pytest.raises(ccpr.ValueRefused, match="zero date") as raised:
            refused.changes(since=1).to_arrow()
        assert how == "error" or 'zero_dates="keep"' in raised.value.remedy


def test_changes_refuse_a_zero_date_in_a_key_that_only_the_earlier_point_has(upstream: Upstream) -> None:
    """Its files are gone at the later point, and its count with them."""
    zero_dates(upstream)
    with upstream.storage.begin() as transaction:
        transaction.delete(DATABASE, "z", pc.field("n") != 2)
    upstream.storage.merge(DATABASE, "z")
    upstream.command("run", NAME)
    changes = ccpr.open_mirror(upstream.mirror).table(f"{DATABASE}.z").changes(since=1)
    with pytest.raises(ccpr.ValueRefused, match="zero date"):
        changes.to_arrow()
    assert ccpr.open_mirror(upstream.mirror).table(f"{DATABASE}.z").changes(since=2).to_arrow().num_rows == 0


def test_a_key_that_is_not_utf8_is_changed_by_no_reading_of_changes(upstream: Upstream) -> None:
    upstream.storage.create_table(DATABASE, "k", {"s": "varchar(20) not null", "n": "int"}, primary_key=["s"])
    keys = [escaped(BYTES), escaped(b"\xff\x00\xff"), "a"]
    with upstream.storage.begin() as transaction:
        transaction.insert(DATABASE, "k", {"s": keys, "n": [1, 2, 3]})
    upstream.command("run", NAME)
    with upstream.storage.begin() as transaction:
        transaction.delete(DATABASE, "k", pc.field("n") == 1)
        transaction.update(DATABASE, "k", {"n": 5}, pc.field("n") == 2)
    upstream.command("run", NAME)
    for how in ("escape", "binary"):
        table = ccpr.open_mirror(upstream.mirror, invalid_text=how).table(f"{DATABASE}.k")
        assert merged(table.to_arrow(at=1), table.changes(since=1)).sort_by("n").equals(table.to_arrow().sort_by("n"))
    for how in ("replace", "error"):
        table = ccpr.open_mirror(upstream.mirror, invalid_text=how).table(f"{DATABASE}.k")
        with pytest.raises(ccpr.ValueRefused, match="not UTF-8"):
            table.changes(since=1).to_arrow()


def test_a_comparison_of_points_shows_that_a_null_became_a_zero_date(upstream: Upstream) -> None:
    zero_dates(upstream)
    moment = pa.scalar(ZERO_MOMENT, pa.int64()).cast(pa.timestamp("us"))
    with upstream.storage.begin() as transaction:
        transaction.update(DATABASE, "z", {"dt": moment}, pc.field("n") == 3)
    upstream.command("run", NAME)
    found = upstream.command("diff", NAME, f"{DATABASE}.z", "--from", "1", "--to", "2")
    assert (found["added"], found["removed"], found["columns"]) == (0, 0, {"dt": 1})
    (row,) = found["rows"]
    assert row["key"] == {"d": "0000-00-00", "n": 3}
    assert (row["before"], row["after"]) == ({"dt": None}, {"dt": "0000-00-00"})


def test_the_first_and_last_dates_and_zero_dates_are_the_same_text_everywhere(
    upstream: Upstream, tmp_path: Path
) -> None:
    columns = {"n": "int not null", "d": "date", "ts": "timestamp(6)"}
    upstream.storage.create_table(DATABASE, "odd", columns, primary_key=["n"])
    days = [ZERO_DAY, 2_932_896, 0, None]
    moments = [ZERO_MOMENT, 253_402_300_799_999_999, ZERO_MOMENT + 1, None]
    rows = {"n": [1, 2, 3, 4], "d": pa.array(days, pa.int32()).view(pa.date32())}
    with upstream.storage.begin() as transaction:
        transaction.insert(DATABASE, "odd", rows | {"ts": pa.array(moments).view(pa.timestamp("us", "UTC"))})
    upstream.command("run", NAME)
    dates = ["0000-00-00", "9999-12-31", "1970-01-01", None]
    times = ["0000-00-00", "9999-12-31T23:59:59.999999+00:00", "0001-01-01T00:00:00+00:00", None]
    expected = [{"n": n, "d": d, "ts": ts} for n, d, ts in zip((1, 2, 3, 4), dates, times, strict=True)]
    for ending in ("jsonl", "csv"):
        file = tmp_path / f"odd.{ending}"
        upstream.command("export", NAME, f"{DATABASE}.odd", "--out", str(file), "--zero-dates", "keep")
        text = file.read_text()
        in_json = ending == "jsonl"
        lines = text.splitlines()
        found = [json.loads(line) for line in lines] if in_json else list(csv.DictReader(lines))
        wanted = (
            expected if in_json else [{k: str(v or "").replace("T", " ") for k, v in one.items()} for one in expected]
        )
        assert found == wanted
    for words in (("query", NAME, f"{DATABASE}.odd"), ("query", NAME, "SELECT * FROM odd ORDER BY n")):
        assert upstream.command(*words)["rows"][1:] == expected[1:], "zero dates are null for them"
    with upstream.storage.begin() as transaction:
        transaction.update(DATABASE, "odd", {"d": None}, pc.field("n") == 2)
    upstream.command("run", NAME)
    (row,) = upstream.command("diff", NAME, f"{DATABASE}.odd", "--from", "1", "--to", "2")["rows"]
    assert (row["before"], row["after"]) == ({"d": "9999-12-31"}, {"d": None})


def test_zero_dates_are_counted_by_table_and_column(upstream: Upstream) -> None:
    name = f"{DATABASE}.z"

    def counts() -> dict[str, int]:
        found = upstream.command("status", NAME)["zero_dates"].get(name, {})
        (table,) = [one for one in upstream.command("tables", NAME)["tables"] if one["table"] == name]
        (info,) = [one for one in ccpr.open_mirror(upstream.mirror).tables() if one.name == name]
        assert found == table["zero_dates"] == dict(info.zero_dates)
        return found

    zero_dates(upstream)
    assert counts() == {"d": 2, "dt": 1, "ts": 1}
    with upstream.storage.begin() as transaction:
        rows = {"d": pa.array([ZERO_DAY], pa.int32()).view(pa.date32()), "n": [4], "dt": [None], "ts": [None]}
        transaction.insert(DATABASE, "z", rows)
        transaction.delete(DATABASE, "z", pc.field("n") == 1)
    upstream.command("run", NAME)
    assert counts() == {"d": 3, "dt": 1, "ts": 1}, "a deleted row is still stored"
    upstream.storage.merge(DATABASE, "z")
    upstream.command("run", NAME)
    assert counts() == {"d": 2}
    assert ccpr.open_mirror(upstream.mirror).table(name).to_arrow().column("d").null_count == 2
    with upstream.storage.begin() as transaction:
        transaction.delete(DATABASE, "z", pc.field("n") != 2)
    upstream.storage.merge(DATABASE, "z")
    upstream.command("run", NAME)
    assert counts() == {}


def test_a_count_of_zero_dates_does_not_depend_on_files_that_are_gone(upstream: Upstream) -> None:
    zero_dates(upstream)
    stored = {path.name for path in (upstream.mirror / "objects").rglob("*") if path.is_file()}
    upstream.storage.merge(DATABASE, "z")
    with upstream.storage.begin() as transaction:
        transaction.insert(DATABASE, "t", {"id": [9], "e": [None], "s": [None]})
    for path in (upstream.mirror / "objects").rglob("*"):
        if path.name in stored and path.is_file():
            path.write_bytes(b"")
    upstream.command("run", NAME)
    assert upstream.command("status", NAME)["zero_dates"] == {}
    assert ccpr.open_mirror(upstream.mirror).table(f"{DATABASE}.z").to_arrow().num_rows == 3
