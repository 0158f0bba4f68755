"""What a server counts of a column, and we of the rows."""

import zlib

import pyarrow as pa

from ccpr.matrixone.ddl.definition import ColumnType
from ccpr.mirror.column_sums import ColumnSum
from ccpr.schema.choices import Dialect


def test_floats_are_summed_as_a_matrixone_prints_them():
    printed = [("nan", "NaN"), ("inf", "+Inf"), ("-inf", "-Inf"), ("1e300", "1E+300"), ("-0", "-0"), ("0", "0")]
    column = ColumnSum("f", ColumnType("double"), Dialect.MATRIXONE)
    assert column.expressions == ("COUNT(`f`)", "SUM(CRC32(CAST(`f` AS TEXT)))")
    for value, text in printed:
        assert column.of(pa.array([float(value), None])) == (1, zlib.crc32(text.encode()))


def test_vectors_are_summed_by_their_bytes_and_others_only_counted():
    vectors = pa.array([[0.0, 1.0], None, [-0.0, 1.0]], pa.list_(pa.float32()))
    expected = sum(zlib.crc32(zero + b"\0\0\x80\x3f") for zero in (b"\0\0\0\0", b"\0\0\0\x80"))
    assert ColumnSum("v", ColumnType("vecf32", (2,)), Dialect.MATRIXONE).of(vectors) == (2, expected)
    assert ColumnSum("v", ColumnType("vecint8", (2,)), Dialect.MATRIXONE).of(vectors) == (2,)


def test_a_year_is_summed_with_its_four_digits():
    years = pa.array([0, None], pa.int16())
    assert ColumnSum("y", ColumnType("year"), Dialect.MATRIXONE).of(years) == (1, zlib.crc32(b"0000"))
