"""Values as text, read back by programs that are not ours: Python's csv and json, DuckDB, Arrow."""

import csv
import io
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects.errors import ValueRefused
from ccpr.values.cells import SCREEN, cells, csv_head, csv_lines, json_lines, json_rows

TEXTS = [
    *(
        "",
        "a",
        '"',
        '""',
        "'",
        ",",
        "\\",
        "\\N",
        "NULL",
        "null",
        "\n",
        "\r",
        "\r\n",
        "\t",
        "\0",
        "\x1a",
        "\x1f",
        "\x7f",
    ),
    *("\x85", "\u2028", "\u2029", "\ufeff", "é€😀", "\U0010fe80\U0010feff", '{"a": 1}', " x ", "\r\n\0é" * 600_000),
]
ZERO_DAY, ZERO_MICROSECOND = -719_163, -62_135_596_800_000_001


def csv_text(table: pa.Table) -> str:
    return (csv_head(table.column_names) + csv_lines(table).to_pybytes()).decode()


def csv_rows(table: pa.Table) -> list[list[str]]:
    csv.field_size_limit(1 << 24)
    return list(csv.reader(io.StringIO(csv_text(table), newline="")))[1:]


def lines_of(table: pa.Table) -> list[dict[str, Any]]:
    """As strict a reader as there is, of lines as most readers have them."""

    def refuse(text: str) -> Any:
        raise AssertionError(f"{text} is no JSON")

    text = json_lines(table).to_pybytes().decode()
    found = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    assert len(found) == table.num_rows
    return found


def times(*texts: str, zone: str | None = "UTC") -> pa.Array:
    return pa.array(np.array(texts, "M8[us]").astype("i8")).cast(pa.timestamp("us", zone))


def shown(values: pa.Array) -> list[str]:
    """The text that all destinations for people and files agree on."""
    table = pa.table({"n": pa.array(range(len(values))), "v": values})
    screen = cells(values, SCREEN).whole.to_pylist()
    in_json = [str(row["v"]) for row in lines_of(table)]
    assert in_json == screen
    assert [row["v"] for row in json_rows(table)] == [row["v"] for row in lines_of(table)]
    assert [cell.replace(" ", "T") for _, cell in csv_rows(table)] == screen
    return screen


@pytest.mark.parametrize("start", [0, 3])
def test_every_text_arrives_in_csv_and_json(start: int, tmp_path: Path) -> None:
    table = pa.table({"n": pa.array(range(len(TEXTS) + 1)), 'a "name",\n': pa.array([*TEXTS, None])}).slice(start)
    expected = [*TEXTS[start:], None]
    assert [row['a "name",\n'] for row in lines_of(table)] == expected
    assert [row['a "name",\n'] for row in json_rows(table)] == expected
    assert [cell for _, cell in csv_rows(table)] == [*TEXTS[start:], ""]
    assert "\n27,\n" in csv_text(pa.table({"n": [27], "v": pa.array([None], pa.string())})), "null is nothing"
    file = tmp_path / "rows.csv"
    file.write_bytes(csv_text(table.rename_columns(["n", "v"])).encode())
    options = pa_csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""])
    parsed = pa_csv.ParseOptions(newlines_in_values=True)
    read = pa_csv.ReadOptions(block_size=1 << 24)
    assert pa_csv.read_csv(file, read, parsed, options).column("v").to_pylist() == expected
    settings = "header = true, allow_quoted_nulls = false, max_line_size = 20000000, quote = '\"', escape = '\"'"
    with duckdb.connect() as connection:
        query = f"SELECT v FROM read_csv('{file}', {settings}, columns = {{'n': 'INT', 'v': 'VARCHAR'}}) ORDER BY n"
        assert [row[0] for row in connection.execute(query).fetchall()] == expected
        lines = tmp_path / "rows.jsonl"
        lines.write_bytes(json_lines(table.rename_columns(["n", "v"])).to_pybytes())
        columns = "columns = {'n': 'INT', 'v': 'VARCHAR'}"
        query = f"SELECT v FROM read_json('{lines}', maximum_object_size = 40000000, {columns})"
        assert [row[0] for row in connection.execute(f"{query} ORDER BY n").fetchall()] == expected


FLOATS = [0.0, -0.0, 1.0, 0.1, 1e15, 1e16, 1e22, 1e-7, 5e-324, 1.7976931348623157e308, -1.5]


def test_floats_read_back_as_the_same_bits_and_what_json_has_not_is_text() -> None:
    table = pa.table({"n": pa.array(range(11)), "v": pa.array(FLOATS)})
    for found in ([row["v"] for row in lines_of(table)], [float(cell) for _, cell in csv_rows(table)]):
        assert [value.hex() for value in found] == [value.hex() for value in FLOATS], "and none is a whole number"
    single = pa.array([0.1, 16777217.0, None], pa.float32())
    assert shown(single.slice(0, 2)) == ["0.1", "16777216.0"]
    odd = pa.array([math.nan, math.inf, -math.inf])
    assert shown(odd) == ["nan", "inf", "-inf"]
    nested = pa.table({"v": pa.array([[1.0, math.nan, None], [], None], pa.list_(pa.float32()))})
    assert [row["v"] for row in lines_of(nested)] == [[1.0, "nan", None], [], None]
    assert [cell for (cell,) in csv_rows(nested)[:2]] == ['[1.0, "nan", null]', "[]"]


def test_decimals_keep_all_digits_and_have_no_exponent() -> None:
    nines = "0." + "9" * 38
    values = [Decimal(text) for text in ("1E-38", nines, f"-{nines}", "0E-38")]
    found = shown(pa.array(values, pa.decimal128(38, 38)))
    assert found == ["0." + "0" * 37 + "1", nines, f"-{nines}", "0." + "0" * 38]
    assert shown(pa.array([2**64 - 1, 0], pa.decimal128(20, 0))) == ["18446744073709551615", "0"]
    whole = pa.array([2**63 - 1, -(2**63)])
    assert [row["v"] for row in lines_of(pa.table({"v": whole}))] == [2**63 - 1, -(2**63)], "numbers in JSON"


def test_dates_of_every_year_have_a_text() -> None:
    days = [
        0,
        ZERO_DAY,
        ZERO_DAY + 1,
        -719_528,
        2_932_896,
        2_932_897,
        20_000_000,
        -700_000_000,
        2**31 - 1,
        -(2**31) + 1,
    ]
    found = shown(pa.array(days, pa.int32()).cast(pa.date32()))
    first = ["1970-01-01", "0000-00-00", "0001-01-01", "0000-01-01", "9999-12-31", "10000-01-01", "56728-02-22"]
    assert found == [*first, str(np.datetime64(-700_000_000, "D")), "infinity", "-infinity"]


def test_moments_of_every_year_have_a_text() -> None:
    values = times(
        "0001-01-01", "1582-10-10", "1969-12-31T23:59:59.999999", "9999-12-31T23:59:59", "12000-01-01", "-0044-03-15"
    )
    found = ["0001-01-01T00:00:00", "1582-10-10T00:00:00", "1969-12-31T23:59:59.999999", "9999-12-31T23:59:59"]
    found += ["12000-01-01T00:00:00", "-0044-03-15T00:00:00"]
    assert shown(values.cast(pa.timestamp("us"))) == found
    assert shown(values) == [f"{text}+00:00" for text in found]
    edges = pa.array([ZERO_MICROSECOND, 2**63 - 1, -(2**63) + 1]).cast(pa.timestamp("us", "Europe/Berlin"))
    assert shown(edges) == ["0000-00-00", "infinity", "-infinity"]
    for unit, text in (("s", "09:30:01"), ("ms", "09:30:01.500"), ("ns", "09:30:01.500000001")):
        value = np.array([f"2026-11-21T{text}"], f"M8[{unit}]")
        assert shown(pa.array(value)) == [f"2026-11-21T{text}"]


ZONES = ["Europe/Berlin", "Asia/Kathmandu", "America/New_York", "Africa/Monrovia", "Australia/Lord_Howe"]
MOMENTS = st.lists(st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)), min_size=1, max_size=30)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(ZONES), MOMENTS)
def test_a_moment_in_a_zone_is_what_clocks_show_there(zone: str, moments: list[datetime]) -> None:
    values = pa.array([moment.replace(tzinfo=UTC) for moment in moments], pa.timestamp("us", zone))
    expected = [moment.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).isoformat() for moment in moments]
    assert shown(values) == expected


def test_a_zone_is_known_after_2037_and_beyond_the_years_of_python() -> None:
    values = times(
        "2050-07-01T12:00:00", "9999-12-31T23:59:59", "1890-01-01", "9999-07-01T12:00:00", zone="Europe/Berlin"
    )
    texts = ["2050-07-01T14:00:00+02:00", "10000-01-01T00:59:59+01:00", "1890-01-01T00:53:28+00:53:28"]
    assert shown(values) == [*texts, "9999-07-01T14:00:00+02:00"]


def test_times_of_day_are_as_matrixone_prints_them() -> None:
    day = timedelta(hours=838, minutes=59, seconds=59, microseconds=999_999)
    values = pa.array([day, -day, timedelta(0), timedelta(hours=-12), timedelta(hours=9000)], pa.duration("us"))
    expected = ["838:59:59.999999", "-838:59:59.999999", "00:00:00", "-12:00:00", "9000:00:00"]
    assert shown(values) == expected
    clock = pa.array([0, 86_400_000_000, 36_000_500_000], pa.int64()).cast(pa.time64("us"))
    assert shown(clock) == ["00:00:00", "24:00:00", "10:00:00.500000"]


def test_bytes_are_hexadecimal_digits_also_those_of_a_slice() -> None:
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        values = pa.array([b"\0", b"", b"\xff\xfe\x0a", None], kind)
        assert shown(values.slice(0, 3)) == ["00", "", "fffe0a"]
        assert shown(values.slice(1, 2)) == ["", "fffe0a"]
    assert [row["v"] for row in lines_of(pa.table({"v": values}))] == ["00", "", "fffe0a", None]


def duckdb_of(expression: str) -> pa.Table:
    with duckdb.connect() as connection:
        return connection.sql(f"SELECT {expression} AS v").to_arrow_table()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("{'a\"b': 1, 'c': [DATE '9999-12-31', NULL]}", {'a"b': 1, "c": ["9999-12-31", None]}),
        ("MAP {'x\n': 1, 'y': NULL}", {"x\n": 1, "y": None}),
        ("MAP {7: 'seven'}", {"7": "seven"}),
        ("[[1, 2], NULL, []]", [[1, 2], None, []]),
        ("[1, 2]::INTEGER[2]", [1, 2]),
        ("'x'::ENUM ('x', 'y')", "x"),
        ("union_value(k := 5)", 5),
        ("NULL", None),
        ("'6ba7b810-9dad-11d1-80b4-00c04fd430c8'::UUID", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        ("170141183460469231731687303715884105727::HUGEINT", "170141183460469231731687303715884105727"),
        ("18446744073709551615::UBIGINT", 18446744073709551615),
        ("true", True),
    ],
)
def test_what_a_query_can_give_is_json(expression: str, value: Any) -> None:
    table = duckdb_of(expression)
    assert lines_of(table) == json_rows(table) == [{"v": value}]
    several = pa.concat_tables([table] * 3)
    assert lines_of(several.combine_chunks().slice(1)) == [{"v": value}] * 2


def test_a_null_that_is_among_the_values_of_a_dictionary_is_null() -> None:
    table = pa.table({"v": pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None]))})
    assert lines_of(table) == [{"v": "a"}, {"v": None}, {"v": None}]


def test_a_type_without_a_text_is_refused_by_name() -> None:
    with pytest.raises(ValueRefused, match="month_day_nano_interval"):
        cells(pa.array([pa.scalar((1, 2, 3), pa.month_day_nano_interval())]), SCREEN)


def test_a_wide_row_and_no_row() -> None:
    table = pa.table({f"c{number}": [number] for number in range(1_100)})
    assert list(lines_of(table)[0].values()) == list(range(1_100))
    assert csv_rows(table) == [[str(number) for number in range(1_100)]]
    for write in (csv_lines, json_lines):
        assert write(table.slice(0, 0)).to_pybytes() == b""
    assert json_rows(table.slice(0, 0)) == []


@pytest.mark.parametrize("write", [csv_lines, json_lines])
def test_a_slice_is_written_as_its_rows(write: Callable[[pa.Table], pa.Buffer]) -> None:
    table = pa.table(
        {
            "t": pa.array(['a"', None, "", "é"]),
            "x": pa.array([b"\0", None, b"", b"\xff"]),
            "v": pa.array([[1.5], None, [], [2.0, 3.0]]),
            "d": pa.array([Decimal("1E-9"), None, Decimal(0), Decimal(1)], pa.decimal128(20, 9)),
            "m": pa.array([[("k", 1)], None, [], [("l", 2)]], pa.map_(pa.string(), pa.int64())),
            "s": pa.array([{"a": 1}, None, {"a": None}, {"a": 2}]),
        }
    )
    rows = [write(table.slice(number, 1)).to_pybytes() for number in range(4)]
    assert b"".join(rows) == write(table).to_pybytes()
    assert b"".join(rows[2:]) == write(table.slice(2)).to_pybytes()
