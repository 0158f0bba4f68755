"""What engines find by filters at, just above and just below each bound of each file: they leave out files by bounds,
and must not leave out a row. Of every type that has bounds."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ccpr_emulator.engine.storage import Storage
from tests.support.lake_engines import Query, duckdb_reads
from tests.support.lakes import Published, source

pytestmark = pytest.mark.integration

FILES, MOST = 8, 315_537_897_599_999_999  # microseconds from year 1 to the end of 9999
EXACT = Context(prec=60)
YEAR_1 = -62_135_596_800_000_000
LONG = ("x" * 31 + "é", "y" * 32, "z" * 33)
WORDS = ("", "a", "é", "日本語", "🦆", "𠮷", "\U0010ffff", "'quoted' \\ \"x\"", "a\0b", *LONG)


@dataclass(frozen=True, slots=True)
class Kind:
    """A type whose values are numbers of units, or texts.

    Attributes
    ----------
    hard : values that are drawn now and then.
    sql : a value in the SQL of delta-rs and of DuckDB.
    """

    declared: str
    arrow: pa.DataType
    low: int
    high: int
    hard: Sequence[Any]
    sql: Callable[[Any], tuple[str, str]]

    def draw(self, rng: random.Random) -> Any:
        size = rng.choice((10 ** rng.randint(0, 20), self.high))  # so that numbers of all lengths are drawn
        return rng.choice((*self.hard, *(rng.randint(max(self.low, -size), min(self.high, size)) for _ in range(9))))

    def around(self, value: Any) -> tuple[Any, Any]:
        """The values next to one."""
        return (value[:-1], value + "!") if isinstance(value, str) else (value - 1, value + 1)

    def array(self, values: list[Any]) -> pa.Array:
        if pa.types.is_decimal(self.arrow):
            return pa.array([Decimal(value).scaleb(-self.arrow.scale, EXACT) for value in values], self.arrow)
        return pa.array(values, self.arrow)


def integer(declared: str, arrow: pa.DataType, *hard: int) -> Kind:
    bits = arrow.bit_width - 1
    return Kind(declared, arrow, -(1 << bits), (1 << bits) - 1, (-(1 << bits), (1 << bits) - 1, 0, *hard), _number)


def decimal(digits: int, scale: int) -> Kind:
    top = 10**digits - 1
    near = [10**15 - 1, 10**15, 10**15 + 1, 2**53 + 1, 5_629_499_534_213_123]
    hard = [sign * value for value in (0, 1, top, *near) for sign in (1, -1) if value <= top]

    def sql(value: int) -> tuple[str, str]:
        text = f"CAST('{Decimal(value).scaleb(-scale, EXACT):f}' AS DECIMAL({digits},{scale}))"
        return text, text

    return Kind(f"DECIMAL({digits},{scale})", pa.decimal128(digits, scale), -top, top, hard, sql)


def _number(value: int) -> tuple[str, str]:
    return (str(value), str(value))


def _day(value: int) -> tuple[str, str]:
    text = f"DATE '{date(1970, 1, 1) + timedelta(days=value)}'"
    return text, text


def _local(value: int) -> tuple[str, str]:
    return f"arrow_cast({value}, 'Timestamp(Microsecond, None)')", f"make_timestamp({value})"


def _zoned(value: int) -> tuple[str, str]:
    return f"arrow_cast({value}, 'Timestamp(Microsecond, Some(\"UTC\"))')", f"make_timestamptz({value})"


def _text(value: str) -> tuple[str, str]:
    quoted = "'{}'".format(value.replace("'", "''"))
    return quoted, quoted


TIMES = (YEAR_1, YEAR_1 + 1, -1, 0, 1, 999, 1001, YEAR_1 + MOST, -12_219_292_800_000_001)
KINDS: dict[str, Kind] = {
    "byte": integer("TINYINT", pa.int8()),
    "long": integer("BIGINT", pa.int64(), 2**53 + 1, -(2**53) - 1),
    "day": Kind("DATE", pa.date32(), -719_162, 2_932_896, (-719_162, -141_428, -1, 0, 2_932_896), _day),
    "local": Kind("DATETIME(6)", pa.timestamp("us"), YEAR_1, YEAR_1 + MOST, TIMES, _local),
    "zoned": Kind("TIMESTAMP(6)", pa.timestamp("us", "UTC"), YEAR_1, YEAR_1 + MOST, TIMES, _zoned),
    "tenths": decimal(17, 1),
    "whole": decimal(18, 0),
    "small": decimal(18, 18),
    "money": decimal(10, 2),
    "wide": decimal(38, 10),
    "word": Kind("VARCHAR(60)", pa.string(), 0, 0, WORDS, _text),
}


def drawn(kind: Kind, rng: random.Random) -> Any:
    return rng.choice(WORDS) + rng.choice(("", "q")) if kind.arrow == pa.string() else kind.draw(rng)


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[dict[str, list[Any]]]]]:
    """A table in a lake, and the values of each of its files."""
    rng, folder = random.Random(7), tmp_path_factory.mktemp("bounds")
    declared = ", ".join(f"v_{name} {kind.declared}" for name, kind in KINDS.items())
    storage = Storage()
    with source(folder, f"CREATE TABLE shop.b (id INT PRIMARY KEY, {declared})", storage=storage) as found:
        lake, files = Published(found.mirror, folder / "lake"), []
        for number in range(FILES):
            files.append({name: [drawn(kind, rng) for _ in range(2)] for name, kind in KINDS.items()})
            arrays = {f"v_{name}": KINDS[name].array(values) for name, values in files[-1].items()}
            ids = pa.array([2 * number, 2 * number + 1], pa.int32())
            with storage.begin() as transaction:
                transaction.insert("shop", "b", pa.table({"id": ids, **arrays}))
            storage.flush("shop", "b")
        lake.publish(found.point())
        path = lake.folder / "shop.b"
        assert len(list((path / "data").iterdir())) == FILES
        yield path, files


def questions(files: list[dict[str, list[Any]]]) -> Iterator[tuple[str, str, Any, int]]:
    """A column, a comparison, a value, and how many rows there are."""
    for name, kind in KINDS.items():
        values = [value for file in files for value in file[name]]
        order = (lambda value: value.encode()) if kind.arrow == pa.string() else (lambda value: value)
        for bound in {end(file[name], key=order) for file in files for end in (min, max)}:
            if "\0" in str(bound):
                continue
            below, above = kind.around(bound)
            asked = {"=": bound, ">=": bound, "<=": bound, ">": below, "<": above}
            for sign, value in asked.items():
                if isinstance(value, str) or kind.low <= value <= kind.high:
                    ours = order(value)
                    tests = {
                        "=": lambda one, ours=ours: one == ours,
                        ">=": lambda one, ours=ours: one >= ours,
                        "<=": lambda one, ours=ours: one <= ours,
                        ">": lambda one, ours=ours: one > ours,
                        "<": lambda one, ours=ours: one < ours,
                    }
                    yield name, sign, value, sum(map(tests[sign], map(order, values)))


def by_delta_rs(path: Path, asked: Sequence[tuple[str, str, Any]]) -> list[int]:
    from deltalake import DeltaTable, QueryBuilder

    engine = QueryBuilder().register("t", DeltaTable(str(path)))
    where = [f"v_{name} {sign} {KINDS[name].sql(value)[0]}" for name, sign, value in asked]
    return [pa.table(engine.execute(f"SELECT id FROM t WHERE {one}")).num_rows for one in where]


def by_duckdb(path: Path, asked: Sequence[tuple[str, str, Any]]) -> list[int]:
    where = [f"v_{name} {sign} {KINDS[name].sql(value)[1]}" for name, sign, value in asked]
    queries = [Query(str(path), 0, f"SELECT id FROM t WHERE {one}") for one in where]
    return [answer.num_rows for answer in duckdb_reads(queries)]


def by_polars(path: Path, asked: Sequence[tuple[str, str, Any]]) -> list[int]:
    import polars as pl

    found = []
    for name, sign, value in asked:
        literal = pl.lit(value) if isinstance(value, str) else pl.lit(pl.from_arrow(KINDS[name].array([value]))).first()
        column = pl.col(f"v_{name}")
        where = {"=": column.eq, ">=": column.ge, "<=": column.le, ">": column.gt, "<": column.lt}[sign](literal)
        found.append(pl.scan_delta(str(path)).filter(where).select("id").collect().height)
    return found


@pytest.mark.parametrize("reads", [by_delta_rs, by_duckdb, by_polars])
def test_no_filter_at_a_bound_loses_a_row(
    filed: tuple[Path, list[dict[str, list[Any]]]], reads: Callable[..., list[int]]
) -> None:
    path, files = filed
    asked = list(questions(files))
    found = reads(path, [one[:3] for one in asked])
    wrong = [(*one, count) for one, count in zip(asked, found, strict=True) if one[3] != count]
    assert not wrong, f"{len(wrong)} of {len(asked)}: {wrong[:5]}"
