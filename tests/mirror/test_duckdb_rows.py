"""What DuckDB gives as Arrow: names as DuckDB makes them different itself, and TIMEs that are not cut."""

import duckdb
import pyarrow as pa
import pytest

from ccpr.mirror.duckdb_rows import quoted, rows_of, unique_names

HOUR = 3_600_000_000  # microseconds


@pytest.mark.parametrize(
    "names",
    [
        ["a"],
        ["a", "a"],
        ["id", "id", "d", "ID", "id_1", "id_1", "id"],
        ["a_1", "a", "a", "a"],
        ['we"ird', 'we"ird', "", ""],
    ],
)
def test_names_become_different_as_duckdb_makes_them_in_a_table(names: list[str]) -> None:
    named = [name for name in names if name]
    cells = ", ".join(f"{number} AS {quoted(name)}" for number, name in enumerate(named))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {cells}")
        expected = [row[0] for row in connection.execute("DESCRIBE t").fetchall()]
    assert unique_names(named) == expected
    assert len({name.lower() for name in unique_names(names)}) == len(names)


def test_values_of_columns_of_one_name_stay_where_they_are() -> None:
    with duckdb.connect() as connection:
        rows = rows_of(
            connection.sql("SELECT 1 AS a, 2 AS a, 'x' AS b, INTERVAL 90 MINUTE AS a ORDER BY ALL")
        ).read_all()
    assert rows.column_names == ["a", "a_1", "b", "a_2"]
    assert [column[0].as_py() for column in rows.columns[:3]] == [1, 2, "x"]
    assert rows.column("a_2").cast(pa.int64()).to_pylist() == [90 * 60_000_000]


def test_a_time_of_any_length_is_the_same_behind_duckdb() -> None:
    values = [0, -12 * HOUR, 838 * HOUR + 1, 2_562_047_787 * HOUR, -2_562_047_787 * HOUR, None]
    with duckdb.connect() as connection:
        connection.register("t", pa.table({"d": pa.array(values, pa.duration("us"))}))
        found = rows_of(connection.sql("SELECT d FROM t")).read_all().column("d")
    assert found.type == pa.duration("us")
    assert found.cast(pa.int64()).to_pylist() == values


def test_an_interval_of_months_is_an_error_that_says_what_to_write() -> None:
    with duckdb.connect() as connection:
        with pytest.raises((duckdb.Error, pa.ArrowException, OSError), match="CAST"):
            rows_of(connection.sql("SELECT INTERVAL 14 MONTH AS i")).read_all()
        text = rows_of(connection.sql("SELECT CAST(INTERVAL 14 MONTH AS VARCHAR) AS i")).read_all()
    assert text.to_pylist() == [{"i": "1 year 2 months"}]
