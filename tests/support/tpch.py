"""TPC-H: its eight tables, its 22 queries (`tpch.sql`, with an order of all rows), and rows for them.

The rows are not those of TPC's generator: they have its keys and its types, and fewer different words, so that each
query finds some also among few rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.simulated import SimulatedSource

QUERIES = tuple(Path(__file__).with_suffix(".sql").read_text().strip().removesuffix(";").split(";\n\n"))
DATABASE = "tpch"
_OBJECT_ROWS = 16 * 8192
_MONEY = "decimal(15,2) not null"
_TEXT = "varchar(200) not null"
_INT = "int not null"
TABLES: Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]] = {  # columns, primary key
    "region": ({"r_regionkey": _INT, "r_name": _TEXT, "r_comment": _TEXT}, ("r_regionkey",)),
    "nation": ({"n_nationkey": _INT, "n_name": _TEXT, "n_regionkey": _INT, "n_comment": _TEXT}, ("n_nationkey",)),
    "supplier": (
        {"s_suppkey": _INT, "s_name": _TEXT, "s_address": _TEXT, "s_nationkey": _INT, "s_phone": _TEXT}
        | {"s_acctbal": _MONEY, "s_comment": _TEXT},
        ("s_suppkey",),
    ),
    "customer": (
        {"c_custkey": _INT, "c_name": _TEXT, "c_address": _TEXT, "c_nationkey": _INT, "c_phone": _TEXT}
        | {"c_acctbal": _MONEY, "c_mktsegment": _TEXT, "c_comment": _TEXT},
        ("c_custkey",),
    ),
    "part": (
        {"p_partkey": _INT, "p_name": _TEXT, "p_mfgr": _TEXT, "p_brand": _TEXT, "p_type": _TEXT, "p_size": _INT}
        | {"p_container": _TEXT, "p_retailprice": _MONEY, "p_comment": _TEXT},
        ("p_partkey",),
    ),
    "partsupp": (
        {"ps_partkey": _INT, "ps_suppkey": _INT, "ps_availqty": _INT, "ps_supplycost": _MONEY, "ps_comment": _TEXT},
        ("ps_partkey", "ps_suppkey"),
    ),
    "orders": (
        {"o_orderkey": _INT, "o_custkey": _INT, "o_orderstatus": _TEXT, "o_totalprice": _MONEY}
        | {"o_orderdate": "date not null", "o_orderpriority": _TEXT, "o_clerk": _TEXT, "o_shippriority": _INT}
        | {"o_comment": _TEXT},
        ("o_orderkey",),
    ),
    "lineitem": (
        {"l_orderkey": _INT, "l_partkey": _INT, "l_suppkey": _INT, "l_linenumber": _INT}
        | dict.fromkeys(("l_quantity", "l_extendedprice", "l_discount", "l_tax"), _MONEY)
        | {"l_returnflag": _TEXT, "l_linestatus": _TEXT}
        | dict.fromkeys(("l_shipdate", "l_commitdate", "l_receiptdate"), "date not null")
        | dict.fromkeys(("l_shipinstruct", "l_shipmode", "l_comment"), _TEXT),
        ("l_orderkey", "l_linenumber"),
    ),
}
_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_NATIONS = "ALGERIA ARGENTINA BRAZIL CANADA EGYPT ETHIOPIA FRANCE GERMANY INDIA INDONESIA IRAN IRAQ JAPAN JORDAN KENYA"
_NATIONS += " MOROCCO MOZAMBIQUE PERU CHINA ROMANIA SAUDI_ARABIA VIETNAM RUSSIA UNITED_KINGDOM UNITED_STATES"
_REGION_OF = (0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1)
_SIZES = (1, 2, 3, 4, 5, 9, 14, 15, 19, 23, 36, 45, 49)
_FIRST_DAY, _LAST_DAY, _PRESENT = (np.datetime64(day).astype(int) for day in ("1992-01-01", "1998-08-02", "1995-06-17"))


def arrow_type(column: str) -> pa.DataType:
    kinds = {"int": pa.int32(), "date": pa.date32(), "decimal(15,2)": pa.decimal128(15, 2)}
    return kinds.get(column.partition(" ")[0], pa.string())


def generated(scale: float, seed: int = 1) -> dict[str, pa.Table]:
    """With `scale` as in TPC-H: 1 has 6,000,000 lines."""
    rng = np.random.default_rng(seed)
    suppliers, customers, parts, orders = (max(20, int(scale * n)) for n in (10_000, 150_000, 200_000, 1_500_000))
    found: dict[str, Mapping[str, Any]] = {
        "region": {"r_regionkey": np.arange(5), "r_name": _REGIONS, "r_comment": ["a region"] * 5},
        "nation": {
            "n_nationkey": np.arange(25),
            "n_name": [name.replace("_", " ") for name in _NATIONS.split()],
            "n_regionkey": _REGION_OF,
            "n_comment": ["a nation"] * 25,
        },
    }
    for name, count, first in (("supplier", suppliers, "s"), ("customer", customers, "c")):
        keys, nations = np.arange(1, count + 1), rng.integers(0, 25, count)
        notes = ("a note", "Customer has Complaints", "none", "final packages")
        found[name] = {
            f"{first}_{'supp' if first == 's' else 'cust'}key": keys,
            f"{first}_name": np.char.mod(f"{name.title()}#%09d", keys),
            f"{first}_address": np.char.mod("street %d", keys * 7 % 1000),
            f"{first}_nationkey": nations,
            f"{first}_phone": np.char.add(np.char.mod("%d-", nations + 10), np.char.mod("%07d", keys * 31 % 10**7)),
            f"{first}_acctbal": rng.integers(-99_999, 1_000_000, count),
            f"{first}_comment": _words(rng, count, notes),
        }
    found["customer"] = {
        **found["customer"],
        "c_mktsegment": _words(rng, customers, ("BUILDING", "AUTOMOBILE", "MACHINERY", "HOUSEHOLD", "FURNITURE")),
    }
    keys = np.arange(1, parts + 1)
    found["part"] = {
        "p_partkey": keys,
        "p_name": _joined(rng, parts, ("forest", "green", "ivory", "blue"), ("lace", "green", "rose"), ("dim", "pale")),
        "p_mfgr": np.char.mod("Manufacturer#%d", rng.integers(1, 6, parts)),
        "p_brand": _words(rng, parts, [f"Brand#{number}" for number in (12, 23, 34, 45)]),
        "p_type": _joined(rng, parts, ("ECONOMY", "PROMO", "MEDIUM"), ("ANODIZED", "POLISHED"), ("STEEL", "BRASS")),
        "p_size": rng.choice(_SIZES, parts),
        "p_container": _joined(rng, parts, ("SM", "MED", "LG"), ("CASE", "BOX", "PACK", "PKG", "BAG")),
        "p_retailprice": _price(keys),
        "p_comment": _words(rng, parts, ("a part", "another part")),
    }
    pairs = np.repeat(keys, 4)
    found["partsupp"] = {
        "ps_partkey": pairs,
        "ps_suppkey": _supplier(pairs, np.tile(np.arange(4), parts), suppliers),
        "ps_availqty": rng.integers(1, 10_000, 4 * parts),
        "ps_supplycost": rng.integers(100, 100_000, 4 * parts),
        "ps_comment": _words(rng, 4 * parts, ("a supply", "another supply")),
    }
    found |= _orders_of(rng, orders, customers, parts, suppliers)
    return {
        name: pa.table({column: _array(found[name][column], kind) for column, kind in columns.items()})
        for name, (columns, _) in TABLES.items()
    }


def _orders_of(
    rng: np.random.Generator, orders: int, customers: int, parts: int, suppliers: int
) -> dict[str, Mapping[str, Any]]:
    number = np.arange(orders)
    keys, days = number // 8 * 32 + number % 8 + 1, rng.integers(_FIRST_DAY, _LAST_DAY - 120, orders)
    lines = np.where(number % 50, rng.integers(1, 8, orders), 7)  # each 50th order is a large one
    line_of = np.repeat(number, lines)
    count = len(line_of)
    part, quantity = rng.integers(1, parts + 1, count), np.where(line_of % 50, rng.integers(1, 51, count), 48)
    shipped = days[line_of] + rng.integers(1, 122, count)
    committed, received = days[line_of] + rng.integers(30, 91, count), shipped + rng.integers(1, 31, count)
    is_open = shipped > _PRESENT
    price, open_lines = quantity * _price(part), np.bincount(line_of, is_open, orders)
    returned = np.where(received <= _PRESENT, _words(rng, count, ("R", "A")), "N")
    buyers = rng.integers(1, customers + 1, orders)
    priorities = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
    notes = ("an order", "special handling requests", "special requests", "none")
    return {
        "orders": {
            "o_orderkey": keys,
            "o_custkey": np.where(buyers % 3 == 0, np.maximum(1, buyers - 1), buyers),
            "o_orderstatus": np.where(open_lines == lines, "O", np.where(open_lines == 0, "F", "P")),
            "o_totalprice": np.bincount(line_of, price, orders).astype(np.int64),
            "o_orderdate": days,
            "o_orderpriority": _words(rng, orders, priorities),
            "o_clerk": np.char.mod("Clerk#%05d", rng.integers(1, 1000, orders)),
            "o_shippriority": np.zeros(orders, int),
            "o_comment": _words(rng, orders, notes),
        },
        "lineitem": {
            "l_orderkey": keys[line_of],
            "l_partkey": part,
            "l_suppkey": _supplier(part, rng.integers(0, 4, count), suppliers),
            "l_linenumber": np.arange(count) - np.repeat(np.cumsum(lines) - lines, lines) + 1,
            "l_quantity": quantity * 100,
            "l_extendedprice": price,
            "l_discount": rng.integers(0, 11, count),
            "l_tax": rng.integers(0, 9, count),
            "l_returnflag": returned,
            "l_linestatus": np.where(is_open, "O", "F"),
            "l_shipdate": shipped,
            "l_commitdate": committed,
            "l_receiptdate": received,
            "l_shipinstruct": _words(rng, count, ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")),
            "l_shipmode": _words(rng, count, ("AIR", "AIR REG", "MAIL", "SHIP", "RAIL", "TRUCK", "FOB")),
            "l_comment": np.char.mod("line %d", rng.integers(0, 10**6, count)),
        },
    }


def _price(part: np.ndarray) -> np.ndarray:
    return 90_000 + part // 10 % 20_001 + 100 * (part % 1000)


def _supplier(part: np.ndarray, which: np.ndarray, suppliers: int) -> np.ndarray:
    return (part + which * (suppliers // 4)) % suppliers + 1


def _words(rng: np.random.Generator, count: int, words: Sequence[str]) -> np.ndarray:
    return np.array(words)[rng.integers(0, len(words), count)]


def _joined(rng: np.random.Generator, count: int, *lists: Sequence[str]) -> np.ndarray:
    found = _words(rng, count, lists[0])
    for words in lists[1:]:
        found = np.char.add(np.char.add(found, " "), _words(rng, count, words))
    return found


def _array(values: Any, column: str) -> pa.Array:
    kind = arrow_type(column)
    if pa.types.is_decimal(kind):
        return pa.array(np.asarray(values), pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(15, 0)).view(kind)
    if pa.types.is_string(kind):
        return pa.array(np.asarray(values).astype(object), kind)
    return pa.array(np.asarray(values, np.int32)).cast(kind)


@contextmanager
def published(home: Path, tables: Mapping[str, pa.Table]) -> Iterator[SimulatedSource]:
    """A simulated upstream with the tables; `home` is the parent of the state folder, which CCPR_HOME names."""
    storage = Storage()
    storage.create_database(DATABASE)
    storage.create_publication("p", DATABASE)
    for name, (columns, key) in TABLES.items():
        storage.create_table(DATABASE, name, dict(columns), primary_key=list(key))
        for start in range(0, tables[name].num_rows, _OBJECT_ROWS):
            with storage.begin() as transaction:
                transaction.insert(DATABASE, name, tables[name].slice(start, _OBJECT_ROWS))
    with SimulatedUpstream(storage) as emulator:
        yield SimulatedSource(storage, emulator, home, DATABASE)


def load_mysql(connection: pymysql.Connection, tables: Mapping[str, pa.Table]) -> None:
    """Into a database `tpch` that is made with texts compared by bytes, without padding."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
        cursor.execute(f"USE {DATABASE}")
        for name, (columns, key) in TABLES.items():
            declared = ", ".join(f"{column} {kind}" for column, kind in columns.items())
            cursor.execute(f"CREATE TABLE {name} ({declared}, PRIMARY KEY ({', '.join(key)}))")
            places = f"({', '.join(['%s'] * len(columns))})"
            for batch in tables[name].to_batches(max_chunksize=20_000):
                texts = [pc.cast(column, pa.string()).to_pylist() for column in batch.columns]
                cursor.executemany(f"INSERT INTO {name} VALUES {places}", list(zip(*texts, strict=True)))
        for name in ("l_partkey", "l_suppkey"):
            cursor.execute(f"CREATE INDEX {name} ON lineitem ({name})")
        cursor.execute("CREATE INDEX o_custkey ON orders (o_custkey)")
        cursor.execute("ANALYZE TABLE lineitem, orders, part, partsupp, customer, supplier")
    connection.commit()
