"""Which type a column has in a target."""

from ccpr.matrixone.ddl.definition import ColumnType
from ccpr.schema.choices import Dialect
from ccpr.schema.target_types import MAX_KEY_BYTES, target_type


def test_key_bytes_of_each_type_are_at_most_the_limit():
    for kind in (
        ColumnType("int"),
        ColumnType("uuid"),
        ColumnType("decimal", (65, 2)),
        ColumnType("decimal", (76, 2)),
        ColumnType("enum", members=("a",)),
    ):
        size = target_type(kind, Dialect.MARIADB, "x").key_bytes
        assert size is not None
        assert 0 < size < MAX_KEY_BYTES
