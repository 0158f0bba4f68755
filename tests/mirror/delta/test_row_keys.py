"""The key of a table, equality of values, and ranges of keys."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ccpr.matrixone.ddl.definition import CreateTable
from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.errors import ObjectMismatch
from ccpr.matrixone.schema import COMPOSITE_KEY, FAKE_KEY, Column, Kind, SqlType, Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.mirror.delta.row_keys import KeyRange, Zone, key_zone, partners, row_key, same
from ccpr.mirror.errors import TableWithoutKey

INT, TEXT = SqlType(types.INT32, 32, -1), SqlType(types.VARCHAR, 10, 0)
K, V, W = Column("k", 0, INT, nullable=False), Column("v", 1, TEXT), Column("w", 2, INT)
DDL = "CREATE TABLE `t` (\n  `k` int NOT NULL,\n  `v` varchar(10) DEFAULT NULL,\n  PRIMARY KEY (`k`)\n)"


def test_the_key_is_the_users_or_the_hidden_one() -> None:
    composite = Column(COMPOSITE_KEY, 2, SqlType(types.VARCHAR, 65535, 0), hidden=True)
    fake = Column(FAKE_KEY, 2, SqlType(types.UINT64), hidden=True)
    two = DDL.replace("PRIMARY KEY (`k`)", "PRIMARY KEY (`v`,`k`)")
    none = DDL.replace(",\n  PRIMARY KEY (`k`)", "")
    key = row_key(Table(1, 1, "db", "t", Kind.TABLE, (K, V), DDL))
    assert (key.columns, key.match, key.hidden) == ((K,), K, False)
    key = row_key(Table(1, 1, "db", "t", Kind.TABLE, (K, V, composite), two))
    assert (key.columns, key.match, key.hidden) == ((V, K), composite, False)
    key = row_key(Table(1, 1, "db", "t", Kind.TABLE, (K, V, fake), none))
    assert (key.columns, key.match, key.hidden) == ((fake,), fake, True)
    for kind in (INT, TEXT):
        theirs = Column(FAKE_KEY, 1, kind)
        key = row_key(Table(1, 1, "db", "t", Kind.TABLE, (K, theirs), DDL.replace("`v`", f"`{FAKE_KEY}`")))
        assert (key.match, key.hidden) == (K, False), "a user's column that is called so"
    theirs = replace(K, name=FAKE_KEY)
    key = row_key(Table(1, 1, "db", "t", Kind.TABLE, (theirs, V), DDL.replace("`k`", f"`{FAKE_KEY}`")))
    assert (key.match, key.hidden) == (theirs, False)
    for ddl in (none, two, DDL.replace("(`k`)", "(`nope`)")):
        with pytest.raises(TableWithoutKey):
            row_key(Table(1, 1, "db", "t", Kind.TABLE, (K, V), ddl))


def test_a_definition_is_parsed_once_whatever_point_it_is_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse(ddl: str, **options: Any) -> CreateTable:
        parsed.append(ddl)
        return parse_create_table(ddl, **options)

    monkeypatch.setattr("ccpr.mirror.delta.row_keys.parse_create_table", parse)
    once = Table(1, 1, "db", "parsed_once", Kind.TABLE, (K, V), DDL.replace("`t`", "`parsed_once`"))
    altered = replace(once, ddl=once.ddl.replace("(`k`)", "(`v`)"))
    for table, key in ((once, K), (altered, V), (once, K), (altered, V)):
        assert row_key(Table.from_json(table.to_json())).match == key
    assert parsed == [once.ddl, altered.ddl]
    broken = replace(once, ddl="CREATE TABLE")
    for _ in range(2):
        with pytest.raises(DdlUnreadable, match=r"db\.parsed_once"):
            row_key(broken)


NAN = float("nan")
OTHER_NAN = np.array([0x7FF8_0000_0000_0001], np.uint64).view(np.float64)[0]


@pytest.mark.parametrize(
    ("kind", "left", "right", "expected"),
    [
        (
            pa.float64(),
            [NAN, 0.0, None, 1.5, OTHER_NAN],
            [NAN, -0.0, None, None, NAN],
            [True, False, True, False, True],
        ),
        (pa.float32(), [NAN, 0.0, 1.5], [NAN, -0.0, 1.5], [True, False, True]),
        (
            pa.list_(pa.float32()),
            [[1.0, NAN], [0.0], [], None, [1.0]],
            [[1.0, NAN], [-0.0], None, None, [1.0, 2.0]],
            [True, False, False, True, False],
        ),
        (pa.string(), ["a", None, "a "], ["a", None, "a"], [True, True, False]),
        (pa.decimal128(38, 10), [Decimal("1.5"), None], [Decimal("1.50"), Decimal(0)], [True, False]),
        (pa.duration("us"), [1, None], [1, 1], [True, False]),
        (pa.bool_(), [True, None], [True, None], [True, True]),
    ],
)
def test_values_are_equal_by_their_bits(
    kind: pa.DataType, left: list[Any], right: list[Any], expected: list[bool]
) -> None:
    assert same(pa.array(left, kind), pa.array(right, kind)).tolist() == expected
    sliced = pa.array([left[0], *left], kind).slice(1), pa.array([right[0], right[0], *right], kind).slice(2)
    assert same(*sliced).tolist() == expected


@pytest.mark.parametrize(
    ("oid", "keys"),
    [
        (types.INT64, pa.array([-(2**63), 0, 5])),
        (types.UINT64, pa.array([0, 2**63, 2**64 - 1], pa.decimal128(20, 0))),
        (types.DECIMAL128, pa.array([Decimal("-1.5"), Decimal("1e20"), Decimal(0)], pa.decimal128(38, 2))),
        (types.FLOAT64, pa.array([0.0, -0.0, 1.5])),
        (types.VARCHAR, pa.array(["", "a", "a\x00"])),
        (types.VARBINARY, pa.array([b"", b"\xff", b"\x00"])),
        (types.UUID, pa.array(["0" * 36, "1" * 36, "f" * 36])),
        (types.DATE, pa.array([0, -1, 5], pa.date32())),
        (types.DATETIME, pa.array([0, -1, 5], pa.timestamp("us"))),
        (types.TIMESTAMP, pa.array([0, -1, 5], pa.timestamp("us", "UTC"))),
        (types.TIME, pa.array([0, -1, 5], pa.duration("us"))),
        (types.BOOL, pa.array([True, False])),
    ],
)
def test_keys_of_every_type_find_their_partner(oid: int, keys: pa.Array) -> None:
    column = Column("k", 0, SqlType(oid))
    order = np.arange(len(keys))[::-1].copy()
    one, rest = keys.take(pa.array(order[:1])), keys.take(pa.array(order[1:]))
    assert partners([keys], [one, rest], column, "t").tolist() == order.tolist()
    assert partners([keys.slice(1)], [keys.slice(0, 1), keys.slice(1)], column, "t").tolist() == [
        -1,
        *range(len(keys) - 1),
    ]
    assert partners([], [keys], column, "t").tolist() == [-1] * len(keys)
    for two in (([keys, keys], [keys]), ([keys], [keys, keys])):
        with pytest.raises(ObjectMismatch, match="same key"):
            partners(*two, column, "t")
    with pytest.raises(CcprError, match="1 keys are null"):
        partners([keys], [pa.nulls(1, keys.type)], column, "t")


def test_ranges_leave_out_what_lies_beyond_and_only_that() -> None:
    keys = KeyRange(10, 20)
    zones = (Zone(1, 9), Zone(1, 10), Zone(19, 30), Zone(20, 30), Zone(1, None), None)
    assert [keys.excludes(zone) for zone in zones] == [True, False, False, True, False, False]
    assert [keys.holds(zone) for zone in (Zone(10, 19), Zone(9, 19), Zone(10, 20), Zone(10, None), None)] == [True] + [
        False
    ] * 4
    assert KeyRange().holds(None)
    assert keys.mask(pa.array([9, 10, 19, 20], pa.int32()), K).tolist() == [False, True, True, False]


@pytest.mark.parametrize(("length", "flag", "bounded"), [(30, 0, False), (30, 0x80, False), (29, 0, True)])
def test_a_zone_whose_greatest_key_was_cut_short_may_have_no_end(length: int, flag: int, bounded: bool) -> None:
    raw = (
        b"a".ljust(30, b"\0")
        + bytes([1])
        + (b"\xff" * length).ljust(30, b"\0")
        + bytes([length | flag, 0x80, types.VARBINARY])
    )
    zone = key_zone(raw, Column("k", 0, SqlType(types.VARBINARY, 100, 0)))
    assert zone is not None
    assert (zone.low, zone.high) == (b"a", b"\xff" * length if bounded else None)
    assert key_zone(raw, Column("k", 0, SqlType(types.VARCHAR, 100, 0))) is None
