"""The names of pieces of a load: stored in targets, so they may not change with the code."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.objects.stats import Extent, ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject
from ccpr.matrixone.schema import Column, SqlType
from ccpr.mirror.delta.row_keys import KeyRange, RowKey
from ccpr.mirror.delta.split import DeltaShape, DeltaSplit
from ccpr.targets.source_rows import part_key

ID, NAME = (
    Column("id", 0, SqlType(22, 32, -1), nullable=False),
    Column("naïve 'name'", 1, SqlType(61, 30, 0), labels=("a", "b")),
)
SHAPE = DeltaShape("d.t", (ID, NAME), RowKey((ID,), ID))


def listed(number: int, *, created: int = 5, deleted: Timestamp | None = None, tombstone: bool = False) -> ListedObject:
    stats = ObjectStats.build(
        bytes(16) + number.to_bytes(2, "little"),
        Extent(1, 700, 136, 300),
        7,
        1,
        size=900,
        origin_size=1000,
        sort_key_zonemap=bytes(64),
        appendable=True,
        in_order=False,
        created_by_cn=False,
    )
    return ListedObject(stats, Timestamp(created, 1), deleted, tombstone)


WORK = DeltaSplit(
    SHAPE, Timestamp(3), Timestamp(9), added=(listed(1), listed(2)), tombstones_after=(listed(3, tombstone=True),)
)


def test_the_keys_are_what_they_were() -> None:
    assert part_key(WORK) == "2-17b116b81ff3def77df018151c1ecefadef0aa11"


bounds = st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=8)
objects = st.lists(
    st.builds(listed, st.integers(0, 3), created=st.integers(1, 3), tombstone=st.booleans()), max_size=2
).map(tuple)
splits = st.builds(
    DeltaSplit,
    st.sampled_from([SHAPE, replace(SHAPE, dated=False), replace(SHAPE, table="d.u"), replace(SHAPE, columns=(ID,))]),
    st.integers(1, 2).map(Timestamp),
    st.integers(3, 4).map(Timestamp),
    added=objects,
    removed=objects,
    tombstones_after=objects,
    keys=st.builds(KeyRange, bounds, bounds),
)


@given(splits, splits)
def test_two_pieces_have_one_key_only_if_they_are_the_same(one: DeltaSplit, other: DeltaSplit) -> None:
    assert (part_key(one) == part_key(other)) is (one == other)
    assert len(part_key(one)) <= 64
