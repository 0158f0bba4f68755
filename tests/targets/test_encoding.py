"""Every value of every type is in the target as it is in the source, or is refused."""

import datetime as dt
import hashlib
import shutil
import struct
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ccpr.matrixone.ddl.definition import ColumnDefinition, ColumnType
from ccpr.matrixone.schema import Column, SqlType
from ccpr.matrixone.sql.quoting import quote_name
from ccpr.schema.choices import Dialect
from ccpr.schema.target_types import TargetUnfit
from ccpr.service.script import HEAD, DumpTable
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.base import LoadPart
from ccpr.targets.encoding import LoadColumn, encode
from ccpr.targets.errors import TargetValueRefused
from ccpr.targets.expected_tables import target_of
from ccpr.values.cells import plain_floats
from ccpr.values.times import time_text
from tests.support.mariadb import MariaDb
from tests.targets.target_database import Part, Place, new_database, source_table

pytestmark = pytest.mark.integration

CLIENT = shutil.which("mariadb") or shutil.which("mysql")

HOSTILE_TEXTS = [
    "",
    "NULL",
    "\\N",
    "\\",
    '"',
    '""',
    "'",
    ",",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "\x1a",
    'a"b\\"c',
    "é€😀",
    "\\\\N",
    '\\"',
]
TEXTS = st.sampled_from(HOSTILE_TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SHORT = TEXTS.filter(lambda text: len(text) <= 10)
BYTES = st.sampled_from([b"", b"\\N", b"NULL", b'\0\xff"\\,\n']) | st.binary(max_size=8)
F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
F64 = st.floats(allow_nan=False, allow_infinity=False)
DAY = dt.timedelta(hours=838, minutes=59, seconds=59)


def integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    return st.integers(-(10**precision) + 1, 10**precision - 1).map(lambda number: Decimal(f"{number}e-{scale}"))


def plain(value: Decimal) -> str:
    return format(value, "f")  # exact: a Decimal is as long as it is written


def number(cell: bytes) -> int:
    return int.from_bytes(cell, "big")


def floats(text: bytes) -> bytes:
    return struct.pack("<d", float(text))


def bits_of(value: float) -> bytes:
    return struct.pack("<d", value + 0.0)  # MariaDB has no -0: it stores 0


def moment(text: bytes) -> dt.datetime:
    return dt.datetime.fromisoformat(text.decode())


def span(text: bytes) -> dt.timedelta:
    sign, (hours, minutes, seconds) = -1 if text.startswith(b"-") else 1, text.decode().lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    micros = int(fraction.ljust(6, "0") or 0)
    return sign * dt.timedelta(hours=int(hours), minutes=int(minutes), seconds=int(whole), microseconds=micros)


def vector(text: bytes) -> list[float]:
    return [float(item) for item in text.decode()[1:-1].split(", ") if item]


def vector32(text: bytes) -> list[float]:
    return [struct.unpack("<f", struct.pack("<f", item))[0] for item in vector(text)]


@dataclass(frozen=True)
class Kind:
    """A type: how it is declared, what the reader gives, values; how the target is asked for a cell, and what a cell
    means."""

    ddl: str
    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    read: Callable[[bytes], Any]
    same: Callable[[Any], Any] = lambda value: value
    asked: str = "{}"
    as_text: bool = False


def text(cell: bytes) -> str:
    return cell.decode()


U64 = pa.decimal128(20, 0)
DATES = st.dates()
TIMES = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999))
SPANS = st.timedeltas(-DAY, DAY)
LABELS = ["red", "gr'een", 'a "b" \\c']
KINDS = {
    "bool": Kind("bool", pa.bool_(), st.booleans(), lambda cell: bool(int(cell))),
    "bit10": Kind("bit(10)", U64, integers(10, False), number, int),
    "bit64": Kind("bit(64)", U64, integers(64, False), number, int),
    "i8": Kind("tinyint", pa.int8(), integers(8), int),
    "u8": Kind("tinyint unsigned", pa.int16(), integers(8, False), int),
    "i32": Kind("int", pa.int32(), integers(32), int),
    "i64": Kind("bigint", pa.int64(), integers(64), int),
    "u64": Kind("bigint unsigned", U64, integers(64, False), int, int),
    "f32": Kind("float", pa.float32(), F32, floats, bits_of, "{} + 0e0"),
    "f64": Kind("double", pa.float64(), F64, floats, bits_of),
    "d18": Kind("decimal(18,18)", pa.decimal128(18, 18), decimals(18, 18), lambda cell: Decimal(cell.decode())),
    "d38": Kind("decimal(38,5)", pa.decimal128(38, 5), decimals(38, 5), lambda cell: Decimal(cell.decode())),
    "d65": Kind("decimal(65,30)", pa.string(), decimals(65, 30).map(plain), text),
    "d76": Kind("decimal(76,5)", pa.string(), decimals(76, 5).map(plain), text),
    "date": Kind("date", pa.date32(), DATES, lambda cell: dt.date.fromisoformat(cell.decode())),
    "dt0": Kind("datetime", pa.timestamp("us"), TIMES.map(lambda value: value.replace(microsecond=0)), moment),
    "dt6": Kind("datetime(6)", pa.timestamp("us"), TIMES, moment),
    "dt3": Kind(
        "datetime(3)",
        pa.timestamp("us"),
        TIMES.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
        moment,
    ),
    "ts": Kind(
        "timestamp(6)",
        pa.timestamp("us", "UTC"),
        TIMES.map(lambda t: t.replace(tzinfo=dt.UTC)),
        lambda c: moment(c).replace(tzinfo=dt.UTC),
    ),
    "tm6": Kind("time(6)", pa.duration("us"), SPANS, span),
    "tm0": Kind(
        "time", pa.duration("us"), SPANS.map(lambda value: dt.timedelta(seconds=int(value.total_seconds()))), span
    ),
    "tmt": Kind("time(2)", pa.duration("us"), st.timedeltas(-DAY * 100, DAY * 100), span, as_text=True),
    "yr": Kind("year", pa.int16(), st.just(0) | st.integers(1901, 2155), int),
    "ch": Kind("char(10)", pa.string(), SHORT, text),
    "vc": Kind("varchar(200)", pa.string(), TEXTS, text),
    "tx": Kind("text", pa.string(), TEXTS, text),
    "bn": Kind("binary(8)", pa.binary(), BYTES, bytes),
    "bl": Kind("blob", pa.binary(), BYTES, bytes),
    "js": Kind("json", pa.string(), TEXTS, text),
    "uu": Kind("uuid", pa.string(), st.uuids().map(str), text),
    "en": Kind("enum('red','gr''een','a \"b\" \\\\c')", pa.string(), st.sampled_from(LABELS), text),
    "se": Kind("set('x','y','z')", pa.string(), st.sampled_from(["", "x", "x,y", "y,z", "x,y,z"]), text),
    "v32": Kind("vecf32(3)", pa.list_(pa.float32()), st.lists(F32, min_size=3, max_size=3), vector32),
    "v64": Kind("vecf64(2)", pa.list_(pa.float64()), st.lists(F64, min_size=2, max_size=2), vector),
    "ge": Kind("geometry", pa.string(), st.just("POINT(1 2.5)"), text),
}
COLUMNS = ", ".join(f"{quote_name(name)} {kind.ddl}" for name, kind in KINDS.items())
DDL = f"CREATE TABLE `every` (`id` int NOT NULL, {COLUMNS}, PRIMARY KEY (`id`))"


# No shrinking: it would take minutes against a server; the assertion tells the column and its values.
SETTINGS: dict[str, Any] = {
    "max_examples": 15,
    "deadline": None,
    "phases": [Phase.explicit, Phase.reuse, Phase.generate],
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(1, 8))
    columns: dict[str, pa.Array] = {"id": pa.array(range(count), pa.int32())}
    for name, kind in KINDS.items():
        values = draw(st.lists(st.none() | kind.values, min_size=count, max_size=count))
        columns[name] = pa.array(values, kind.arrow)
    return pa.table(columns)


def arrived(place: Place, kinds: dict[str, Kind] = KINDS) -> dict[str, list[Any]]:
    """The cells as their Python values, from the text protocol and not by a driver's conversions."""
    shown = ", ".join(kind.asked.format(quote_name(name)) for name, kind in kinds.items())
    with closing(place.server.connect(place.database)) as connection:
        connection.decoders, connection.use_unicode = {}, False
        connection.query(f"SELECT {shown} FROM `every` ORDER BY id")
        rows = connection._result.rows
    return {
        name: [None if row[place] is None else kind.read(row[place]) for row in rows]
        for place, (name, kind) in enumerate(kinds.items())
    }


def expected(rows: pa.Table, kinds: dict[str, Kind] = KINDS) -> dict[str, list[Any]]:
    return {
        name: [None if value is None else kind.same(value) for value in rows.column(name).to_pylist()]
        for name, kind in kinds.items()
    }


def assert_same(found: dict[str, list[Any]], wanted: dict[str, list[Any]]) -> None:
    differing = [
        (name, *pair) for name in wanted for pair in zip(found[name], wanted[name], strict=True) if pair[0] != pair[1]
    ]
    assert differing == []


@settings(
    max_examples=15,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(rows=tables())
def test_what_is_loaded_and_what_is_applied_is_what_was_read(mariadb: MariaDb, rows: pa.Table):
    with new_database(mariadb) as place, place.target() as target:
        as_text = [name for name, kind in KINDS.items() if kind.as_text]
        table = target_of(source_table(DDL), target.dialect, place.database, as_text=as_text)
        target.create(table, [LoadPart("all", lambda: [rows])], Location(0, 1))
        assert_same(arrived(place), expected(rows))
        backwards = rows.take(list(range(rows.num_rows))[::-1]).set_column(0, "id", rows.column("id"))
        target.apply(1, [Part(backwards, rows.select(["id"]).slice(0, 0))], Location(1, 2))
        assert_same(arrived(place), expected(backwards))


HARDEST = {  # a column at a time; the others are null
    "bit10": [0, 1, 5, 1023],
    "bit64": [0, 5, 1023, 2**63, 2**64 - 1],
    "u64": [0, 2**64 - 1],
    "i64": [-(2**63), 2**63 - 1],
    "f64": [-0.0, 5e-324, 1.7976931348623157e308],
    "d65": ["0." + "0" * 29 + "1", "-" + "9" * 35 + "." + "9" * 30],
    "tx": [*HOSTILE_TEXTS, "\r", "a\r\nb", "\u2028\u2029\x85", "\ufeffbom", "delimiter //\n;\n\\g"],
    "js": ["\r\n\0é" * 600_000] * 6,
    "bl": [b"\r\n\0\x1a\xff", bytes(range(256)) * 12_000],
    "tm6": [-DAY - dt.timedelta(microseconds=999_999), DAY + dt.timedelta(microseconds=999_999), dt.timedelta()],
    "en": LABELS,
    "se": ["", "x,y,z"],
    "yr": [0, 1901, 2155],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "v32": [[1.0, 1.1754943508222875e-38, -0.0], [3.4028234663852886e38, 0.1, 1e10]],
    "ge": ["POINT(1 2.5)"],
    "dt6": [dt.datetime(1, 1, 1), dt.datetime(1582, 10, 10), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)],
}


@pytest.mark.skipif(CLIENT is None, reason="there is no client of MariaDB")
@pytest.mark.parametrize("mode", ["--skip-binary-mode", "--binary-mode"])
def test_what_a_client_loads_from_a_dump_is_what_was_read(mariadb: MariaDb, mode: str) -> None:
    kinds = {name: kind for name, kind in KINDS.items() if not kind.as_text}
    values = [(name, value) for name, some in HARDEST.items() for value in some]
    assert HARDEST.keys() <= kinds.keys()
    cells = {name: [value if name == column else None for column, value in values] for name in kinds}
    columns = {"id": pa.array(range(len(values)), pa.int32())}
    rows = pa.table(columns | {name: pa.array(cells[name], kind.arrow) for name, kind in kinds.items()})
    described = ", ".join(f"{quote_name(name)} {kind.ddl}" for name, kind in kinds.items())
    source = source_table(f"CREATE TABLE `every` (`id` int NOT NULL, {described}, PRIMARY KEY (`id`))")
    dump = DumpTable.of(source, Dialect.MARIADB)
    script = b"".join([HEAD.format(title="t").encode(), dump.statement.encode(), *map(bytes, dump.inserts([rows]))])
    assert len(max(script.split(b";\n"), key=len)) < 16 << 20, "a server takes no longer statement"
    with new_database(mariadb) as place:
        load_script(place, script, mode)
        assert_same(arrived(place, kinds), expected(rows, kinds))


@pytest.mark.parametrize(
    ("ddl", "values"),
    [
        ("time(6)", pa.array([DAY + dt.timedelta(seconds=1)], pa.duration("us"))),
        ("time", pa.array([-DAY - dt.timedelta(seconds=1), None], pa.duration("us"))),
        ("enum('a','b,c')", pa.array(["b,c", ""])),
        ("enum('a')", pa.array(["#7"])),
        ("set('a','b')", pa.array(["a,b", "", "a,#9"])),
        ("double", pa.array([1.0, float("nan")])),
        ("date", pa.array([2_932_897], pa.int32()).cast(pa.date32())),
    ],
)
def test_a_dump_refuses_what_would_end_it_at_the_server(ddl: str, values: pa.Array) -> None:
    source = source_table(f"CREATE TABLE t (id int NOT NULL, v {ddl}, PRIMARY KEY (id))")
    rows = pa.table({"id": pa.array(range(len(values)), pa.int32()), "v": values})
    with pytest.raises(TargetValueRefused, match="column v"):
        list(DumpTable.of(source, Dialect.MARIADB).inserts([rows]))
    if ddl.startswith("time"):
        assert b":" in b"".join(map(bytes, DumpTable.of(source, Dialect.MATRIXONE).inserts([rows])))


@pytest.mark.parametrize("name", ["a\r\nb", "a\nb", "a\rb"])
def test_a_dump_refuses_a_name_that_a_client_would_change(name: str) -> None:
    source = source_table(f"CREATE TABLE t (id int NOT NULL, {quote_name(name)} int, PRIMARY KEY (id))")
    with pytest.raises(TargetUnfit, match="line end"):
        DumpTable.of(source, Dialect.MARIADB)


def load_script(place: Place, script: bytes, *options: str) -> None:
    """As a person does: `mariadb shop < shop.sql`."""
    server = place.server
    login = [f"-u{server.user}", f"-p{server.password}", f"-h{server.host}", f"-P{server.port}", "--protocol=tcp"]
    words = [str(CLIENT), "--no-defaults", *options, *login, place.database]
    loaded = subprocess.run(words, input=script, capture_output=True, check=False)
    assert loaded.returncode == 0, loaded.stderr.decode(errors="replace")[:2000]


@pytest.mark.parametrize(
    ("ddl", "values"),
    [
        ("double", pa.array([1.0, float("nan")])),
        ("float", pa.array([float("inf")], pa.float32())),
        ("time", pa.array([dt.timedelta(hours=839)], pa.duration("us"))),
        ("enum('a')", pa.array([""])),
        ("varchar(2)", pa.array(["abc"])),
        ("tinyint", pa.array([128], pa.int16())),
        ("datetime(3)", pa.array([253402300800000000], pa.timestamp("us"))),
    ],
)
def test_what_the_target_cannot_hold_is_refused_and_nothing_is_there(place: Place, ddl: str, values: pa.Array):
    with place.target() as target:
        table = place.table(f"CREATE TABLE t (id int NOT NULL, v {ddl}, PRIMARY KEY (id))")
        rows = pa.table({"id": pa.array(range(len(values)), pa.int32()), "v": values})
        with pytest.raises(TargetValueRefused):
            target.create(table, [LoadPart("all", lambda: [rows])], Location(0, 1))
        assert place.query("SHOW TABLES LIKE 't'") == []
        target.create(table, [LoadPart("none", lambda: [])], Location(1, 1))
        with pytest.raises(TargetValueRefused):
            target.apply(1, [Part(rows, rows.select(["id"]).slice(0, 0))], Location(2, 2))
        assert place.rows("t") == []
        assert target.points() == {1: Location(1, 1)}


@given(st.lists(st.none() | F64), st.booleans())
def test_floats_are_written_without_exponents_and_read_back(values: list[float | None], single: bool):
    array = pa.array(values, pa.float64())
    if single:
        array = array.cast(pa.float32(), safe=False)
        array = array.filter(pa.compute.is_finite(array))
    texts = plain_floats(array)
    assert not any("e" in text for text in texts.to_pylist() if text)
    assert texts.cast(array.type).equals(array)


@pytest.mark.parametrize(("kind", "unit"), [(pa.date32(), 1), (pa.timestamp("us"), 86_400_000_000)])
def test_a_date_that_no_target_has_is_refused_unless_it_is_kept_as_text(kind: pa.DataType, unit: int):
    integer = pa.int32() if unit == 1 else pa.int64()
    values = pa.array([2_932_897 * unit, None, -719_528 * unit, -719_163 * unit - unit // 2], integer).cast(kind)
    source = Column("d", 1, SqlType(50 if unit == 1 else 52))
    table = [pa.table({"d": values})]
    written = [LoadColumn("d", "d", source, ColumnDefinition("d", ColumnType(name))) for name in ("longtext", "date")]
    assert b"10000-01-01" in b"".join(map(bytes, encode(table, written[:1], "t")))
    with pytest.raises(TargetValueRefused, match="outside the years 0 to 9999"):
        list(encode(table, written[1:], "t"))
    assert b"0000-01-01" in b"".join(map(bytes, encode([table[0].slice(1)], written[1:], "t")))


def test_times_show_the_digits_of_their_type_and_never_hide_one():
    values = pa.array([0, -1, 3_600_000_000, 3_020_399_500_000, None], pa.duration("us"))
    assert time_text(values, 0).to_pylist() == ["00:00:00", "-00:00:00.000001", "01:00:00", "838:59:59.500000", None]
    least = pa.array([-(2**63)], pa.duration("us"))
    assert time_text(least, 0).to_pylist() == ["-2562047788:00:54.775808"], "it is stored all the same"
    assert time_text(values, 1).to_pylist() == ["00:00:00.0", "-00:00:00.000001", "01:00:00.0", "838:59:59.5", None]


def test_texts_and_bytes_beyond_a_packet_of_the_server(place: Place):
    ((packet,),) = place.query("SELECT @@max_allowed_packet")
    size = packet + packet // 4
    kinds = {"id": pa.int32(), "x": pa.string(), "b": pa.binary()}
    values = ('\\N,"\0\x1aé\n' * (size // 9), bytes(range(256)) * (size // 256))
    first, second = (
        pa.table(
            [pa.array([value], kind) for value, kind in zip((1, *row), kinds.values(), strict=True)], names=list(kinds)
        )
        for row in (values, (values[0][::-1], values[1][::-1]))
    )
    with place.target() as target:
        ddl = "CREATE TABLE `t` (`id` int NOT NULL, `x` text DEFAULT NULL, `b` blob DEFAULT NULL, PRIMARY KEY (`id`))"
        table = place.table(ddl)
        target.create(table, [LoadPart("all", lambda: [first])], Location(0, 1))
        target.apply(1, [Part(second, second.select(["id"]).slice(0, 0))], Location(1, 2))
    digests = [hashlib.sha1(value).hexdigest() for value in (values[0][::-1].encode(), values[1][::-1])]
    assert place.query("SELECT SHA1(x), SHA1(b) FROM t") == [tuple(digests)]
