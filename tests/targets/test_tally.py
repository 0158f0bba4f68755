"""What a restore compares: each value as the server has it, in whatever order the rows are."""

import os
import random
import zlib

import pyarrow as pa
import pytest

from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.matrixone.schema import FAKE_KEY
from ccpr.mirror.crc32 import crc32_sum
from ccpr.service.point_loading import TableTally
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.base import LoadPart
from ccpr.targets.database_server import DatabaseServer
from ccpr.targets.encoding import load_columns
from tests.targets.target_database import Place

DDL = """CREATE TABLE `src`.`t` (
  `id` bigint NOT NULL,
  `d` double DEFAULT NULL,
  `f` float DEFAULT NULL,
  `n` decimal(38,31) DEFAULT NULL,
  `m` decimal(10,2) DEFAULT NULL,
  `day` date DEFAULT NULL,
  `at` datetime(3) DEFAULT NULL,
  `tm` time(2) DEFAULT NULL,
  `c` char(8) DEFAULT NULL,
  `v` varchar(40) DEFAULT NULL,
  `b` varbinary(40) DEFAULT NULL,
  `e` enum('red','green') DEFAULT NULL,
  `bits` bit(10) DEFAULT NULL,
  `y` year DEFAULT NULL,
  `j` json DEFAULT NULL,
  PRIMARY KEY (`id`)
)"""
DOUBLES = [0.0, -0.0, 1e-15, 9.99e-16, 1e15, 123456789012.5, 1234567890123456.8, 5e-324, 1.7976931348623157e308, 0.1]


def rows() -> pa.Table:
    count = len(DOUBLES)
    columns = {
        "id": pa.array(range(count), pa.int64()),
        "d": pa.array(DOUBLES, pa.float64()),
        "f": pa.array([1.1, None, 3.4e38, 1e-45, 16777216, 1e10, 0.5, -2.5, 7, 123456.79], pa.float32()),
        "n": pa.array([None, "0.1234567890123456789012345678901", *["-2.5"] * (count - 2)]).cast(pa.decimal128(38, 31)),
        "m": pa.array(["-0.05", "12345678.90", *["0"] * (count - 2)]).cast(pa.decimal128(10, 2)),
        "day": pa.array([0, -719528, 2932896, None, *[20000] * (count - 4)], pa.int32()).cast(pa.date32()),
        "at": pa.array([0, 123000, -62167219200000000, *[10**15] * (count - 3)], pa.int64()).cast(pa.timestamp("us")),
        "tm": pa.array([-3020399 * 10**6, 3020399 * 10**6, 10000, *[None] * (count - 3)], pa.duration("us")),
        "c": pa.array(["a  ", "", "é😀", *["x"] * (count - 3)]),
        "v": pa.array(["a  ", "\\N", 'q"\r\n\0', *["same"] * (count - 3)]),
        "b": pa.array([b"", b"\xff\x00", None, *[b"\\"] * (count - 3)]),
        "e": pa.array(["red", "green", None, *["red"] * (count - 3)]),
        "bits": pa.array([0, 1023, None, *[5] * (count - 3)], pa.uint64()),
        "y": pa.array([0, 2155, 1901, *[None] * (count - 3)], pa.int16()),
        "j": pa.array(['{"a": 1}', "null", None, *["[]"] * (count - 3)]),
    }
    return pa.table(columns)


CHANGES = {
    "d": "UPDATE t SET d = 0.10000000000000002 WHERE d = 0.1",
    "f": "UPDATE t SET f = 1.1000001 WHERE id = 0",
    "n": "UPDATE t SET n = '0.1234567890123456789012345678902' WHERE id = 1",
    "m": "UPDATE t SET m = m + IF(id = 0, 0.01, IF(id = 1, -0.01, 0))",
    "day": "UPDATE t SET day = '2024-10-05' WHERE id = 5",
    "at": "UPDATE t SET at = '1970-01-01 00:00:00.122' WHERE id = 1",
    "tm": "UPDATE t SET tm = '00:00:00.02' WHERE id = 2",
    "c": "UPDATE t SET c = 'a ' WHERE id = 0",
    "v": "UPDATE t SET v = 'samf' WHERE id = 5",
    "b": "UPDATE t SET b = x'ff01' WHERE id = 1",
    "e": "UPDATE t SET e = 'green' WHERE id = 0",
    "bits": "UPDATE t SET bits = 6 WHERE id = 5",
    "y": "UPDATE t SET y = 2154 WHERE id = 1",
    "j": "UPDATE t SET j = '[ ]' WHERE id = 5",
}


@pytest.mark.integration
def test_each_changed_value_is_found_and_only_that(place: Place) -> None:
    table = place.table(DDL)
    with place.target() as target:
        target.create(table, [LoadPart("all", lambda: [rows()])], Location(0, 10))
        dialect = target.dialect
    columns = load_columns(table.source, parse_create_table(table.create).columns, "", FAKE_KEY)
    tally, backwards = (TableTally(columns, dialect, "table t") for _ in range(2))
    tally.add(rows(), rows())
    for number in reversed(range(len(DOUBLES))):
        backwards.add(rows().slice(number, 1), rows().slice(number, 1))
    with DatabaseServer(place.address.endpoint, place.server.password) as server:

        def found() -> tuple[object, ...]:
            return server.figures(place.database, "t", tally.expressions)

        assert tally.only_counted == []
        assert tally.differs(found()) == ""
        assert backwards.differs(found()) == ""
        place.query("CREATE TABLE kept AS SELECT * FROM t")
        for name, statement in CHANGES.items():
            with_commit(place, statement)
            assert tally.differs(found()).startswith(f"column {name}:"), name
            with_commit(place, "DELETE FROM t", "INSERT INTO t SELECT * FROM kept")
            assert tally.differs(found()) == ""


def with_commit(place: Place, *statements: str) -> None:
    connection = place.server.connect(place.database)
    with connection.cursor() as cursor:
        for statement in statements:
            assert cursor.execute(statement) > 0
    connection.commit()
    connection.close()


def test_the_sum_is_that_of_the_known_function() -> None:
    chance = random.Random(7)
    sizes = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 33, 64, 100, 1000, 4999]
    for _ in range(100):
        values = [
            None if chance.random() < 0.1 else os.urandom(chance.choice(sizes)) for _ in range(chance.randrange(40))
        ]
        array = pa.array(values, chance.choice([pa.binary(), pa.large_binary()])).slice(chance.randrange(3))
        assert crc32_sum(array) == sum(zlib.crc32(one) for one in array.to_pylist() if one is not None)
    long = os.urandom(3_000_001)
    assert crc32_sum(pa.array([long, b"x"])) == zlib.crc32(long) + zlib.crc32(b"x")
