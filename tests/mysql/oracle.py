"""The same statement here and on a MariaDB that has the same rows."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pymysql

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.prepared import Parameter, Unsigned
from ccpr.mysql.select_rules import translated
from ccpr.mysql.select_scope import ReadTable
from ccpr.mysql.statement_text import understood
from ccpr.mysql.terms import MACROS
from ccpr.mysql.value_kinds import DATE, DOUBLE, INT, TEXT, UINT, ValueKind
from ccpr.mysql.wire_values import text_of
from tests.mysql.generated_statements import STRINGS

LABELS = ("b", "10", "a", "ä", "A", "ab")
KINDS = {
    "id": (INT, "int not null", pa.int32()),
    "a": (INT, "int", pa.int32()),
    "b": (INT, "bigint", pa.int64()),
    "u": (UINT, "int unsigned", pa.int64()),
    "d": (ValueKind("decimal", 2), "decimal(10,2)", pa.decimal128(10, 2)),
    "e": (ValueKind("decimal", 5), "decimal(12,5)", pa.decimal128(12, 5)),
    "x": (DOUBLE, "double", pa.float64()),
    "s": (TEXT, "varchar(20)", pa.string()),
    "k": (TEXT, "varchar(20)", pa.string()),
    "dt": (DATE, "date", pa.date32()),
    "ts": (ValueKind("datetime"), "datetime", pa.timestamp("us")),
    "tf": (ValueKind("datetime", 6), "datetime(6)", pa.timestamp("us")),
    "tz": (ValueKind("datetime", 3, "timestamp"), "timestamp(3) null", pa.timestamp("us", "UTC")),
    "ti": (INT, "tinyint", pa.int8()),
    "bo": (ValueKind("int", name="bool"), "tinyint(1)", pa.bool_()),
    "ub": (UINT, "bigint unsigned", pa.uint64()),
    "w": (ValueKind("decimal", 10), "decimal(38,10)", pa.decimal128(38, 10)),
    "v": (ValueKind("decimal"), "decimal(38,0)", pa.decimal128(38, 0)),
    "z": (ValueKind("decimal", 18), "decimal(20,18)", pa.decimal128(20, 18)),
    "f": (ValueKind("double", name="float"), "float", pa.float32()),
    "en": (ValueKind("text", name="enum", labels=LABELS), f"enum{LABELS}", pa.string()),
    "em": (ValueKind("text", name="enum", labels=LABELS[::-2]), f"enum{LABELS[::-2]}", pa.string()),
    "se": (ValueKind("text", name="set"), f"set{LABELS}", pa.string()),
}
WIDE = "9999999999999999999999999999.9999999999", "-123456789012345678.0123456789", "0.0000000001"
COLLATED = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"  # by bytes, without padding: as MatrixOne up to 4.2
MODE = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO"


def generated_rows(random: Random, count: int) -> pa.Table:
    choice, number, noon = random.choice, random.randint, datetime(2021, 6, 1, 12)

    def small() -> int:
        return choice((0, 1, -1, 2, 3, 5, 7, -4, 10))

    values: Mapping[str, Callable[[], Any]] = {
        "a": lambda: choice((small(), small(), small(), 2**31 - 1, -(2**31))),
        "b": lambda: choice((small(), small(), 10**12, 2**63 - 1, -(2**63))),
        "u": lambda: choice((abs(small()), 2**32 - 1)),
        "d": lambda: Decimal(choice((small() * 100, number(-99999, 99999)))).scaleb(-2),
        "e": lambda: Decimal(choice((small() * 100000, number(-(10**8), 10**8)))).scaleb(-5),
        "x": lambda: choice((float(small()), small() / 3, 0.1, 1e10, -2.5)),
        "s": lambda: choice(STRINGS),
        "k": lambda: choice(STRINGS),
        "dt": lambda: date(2024, 2, 29) + timedelta(choice((0, 1, -1, 30, 366, -4000, number(-9000, 9000)))),
        "ts": lambda: noon + timedelta(seconds=choice((0, 1, number(-(10**8), 10**8)))),
        "tf": lambda: noon + timedelta(microseconds=choice((0, number(-(10**14), 10**14)))),
        "tz": lambda: noon + timedelta(milliseconds=number(-(10**11), 10**11)),
        "ti": lambda: choice((small(), 127, -128)),
        "bo": lambda: random.random() < 0.5,
        "ub": lambda: choice((abs(small()), 2**63, 2**64 - 1)),
        "w": lambda: Decimal(choice((str(small()), *WIDE))),
        "v": lambda: choice((Decimal(small()), Decimal(10**37), Decimal(-(10**25)))),
        "z": lambda: Decimal(choice((small() * 10**18, number(-(10**18), 10**18), 1))).scaleb(-18),
        "f": lambda: choice((float(small()), 0.1, 1.5, -2.25, 1e10)),
        "en": lambda: choice(LABELS),
        "em": lambda: choice(LABELS[::-2]),
        "se": lambda: ",".join(one for one in LABELS if random.random() < 0.3),
    }
    columns = {
        name: [None if random.random() < 0.15 else make() for _ in range(count)] for name, make in values.items()
    }
    columns["id"] = list(range(count))
    return pa.table({name: pa.array(columns[name], kind) for name, (_, _, kind) in KINDS.items()})


@dataclass
class Oracle:
    """
    Attributes
    ----------
    refused : by what was refused, how often.
    different : the statements whose answers differ, and both.
    """

    theirs: pymysql.Connection
    collated: str = COLLATED
    equal: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    different: list[tuple[str, Any, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ours = duckdb.connect(config={"threads": 1})
        for macro in MACROS:
            self.ours.execute(macro)

    def load(self, name: str, rows: pa.Table) -> None:
        columns = ", ".join(f"{one} {sql}" for one, (_, sql, _) in KINDS.items())
        with self.theirs.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {name}")
            cursor.execute(f"CREATE TABLE {name} ({columns}) {self.collated}")
            places = ", ".join(["%s"] * len(KINDS))
            cursor.executemany(
                f"INSERT INTO {name} VALUES ({places})", [tuple(row.values()) for row in rows.to_pylist()]
            )
        self.theirs.commit()
        self.ours.register(name, rows)

    def table(self, database: str, name: str, point: int | None) -> ReadTable:
        return ReadTable(name, {one: kind for one, (kind, _, _) in KINDS.items()})

    def ask(self, statement: str, parameters: Sequence[Parameter] = ()) -> None:
        """Theirs are given by EXECUTE, each as a literal of its type."""
        try:
            found = translated(understood(statement, parameters), self, lambda name: None)
            relation = self.ours.sql(found.sql)
            batches = list(relation.to_arrow_reader(1000))
        except CcprError as error:
            self.refused[error.subject] += 1
            return
        except StatementError as error:
            self._error(statement, error.text)
            return
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            self._error(statement, str(error).partition("\n")[0])
            return
        rows = [
            row
            for batch in batches
            for row in zip(
                *(map(_decoded, text_of(c, k)) for c, k in zip(batch.columns, found.columns, strict=True)), strict=True
            )
        ]
        if parameters:
            given = ", ".join(map(literal_of, parameters))
            statement = f"EXECUTE IMMEDIATE {self.theirs.escape(statement)} USING {given}"
        try:
            with self.theirs.cursor() as cursor:
                cursor.execute(statement)
                expected = [tuple(row) for row in cursor.fetchall()]
        except pymysql.MySQLError as error:
            self.failed[f"there: {error.args[0]}"] += 1
            if error.args[0] not in ACCEPTED:
                self.different.append((statement, rows[:5], error.args))
            return
        if any(_CUT.fullmatch(cell) for row in expected for cell in row if cell is not None):
            self.failed["there: cut to a width"] += 1
            return
        doubles = {place for place, column in enumerate(found.columns) if column.kind.base == "double"}
        if same_rows(rows, expected, doubles, ordered=_ORDERED.search(statement) is not None):
            self.equal += 1
        else:
            mine, other = Counter(rows), Counter(expected)
            self.different.append((statement, list((mine - other).items())[:4], list((other - mine).items())[:4]))

    def _error(self, statement: str, text: str) -> None:
        self.refused[f"error: {text[:60]}"] += 1


# Errors of theirs that follow from how they evaluate: an overflow in a part that we never compute.
# 1055: MariaDB does not know NULLIF of GROUP BY again; 1064: a ? where it takes none.
ACCEPTED = frozenset((1690, 1055, 1064))


_ORDERED = re.compile(r" ORDER BY \d[^()]*$")
# MariaDB cuts an average of a window that is wider than it took it to be.
_CUT = re.compile(r"-?9{5,}\.9+|-?9{12,}|-?9+\.9{4}")
# MariaDB keeps the sign of a decimal that was rounded to nothing.
_ZERO = re.compile(r"^-(0(?:\.0+)?)$")


def literal_of(value: Parameter) -> str:
    if isinstance(value, Unsigned):
        return f"CAST({value} AS UNSIGNED)"
    if isinstance(value, date):
        return f"{'TIMESTAMP' if isinstance(value, datetime) else 'DATE'}'{value}'"
    if isinstance(value, float):
        return f"{value!r}e0"
    return pymysql.converters.escape_item(value, "utf8mb4")


def _decoded(cell: Any) -> str | None:
    return None if cell.as_py() is None else cell.as_py().decode()


def same_rows(ours: Sequence[tuple], theirs: Sequence[tuple], doubles: set[int], *, ordered: bool) -> bool:
    if len(ours) != len(theirs):
        return False
    ours, theirs = ([tuple(map(_unsigned_zero, row)) for row in rows] for rows in (ours, theirs))
    if not ordered and Counter(ours) == Counter(theirs):
        return True
    if not ordered:
        ours, theirs = (sorted(rows, key=lambda row: _key(row, doubles)) for rows in (ours, theirs))
    return all(
        _same(a, b, place in doubles)
        for mine, other in zip(ours, theirs, strict=True)
        for place, (a, b) in enumerate(zip(mine, other, strict=True))
    )


def _unsigned_zero(cell: str | None) -> str | None:
    return cell if cell is None else _ZERO.sub(r"\1", cell)


def _key(row: tuple, doubles: set[int]) -> str:
    return repr(
        [f"{float(cell):.9e}" if place in doubles and cell is not None else cell for place, cell in enumerate(row)]
    )


def _same(a: str | None, b: str | None, is_double: bool) -> bool:
    if a is None or b is None or not is_double:
        return a == b
    return math.isclose(float(a), float(b), rel_tol=1e-12, abs_tol=1e-300)
