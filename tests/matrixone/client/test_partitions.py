"""Whose partition a hidden table is: with the names, ids and `extra_info` that a cluster had after each statement
(docs/upstream.md, "Partitioned tables")."""

from dataclasses import replace

import pytest

from ccpr.matrixone.client.table_partitions import Owners, with_partitions
from ccpr.matrixone.objects.types import INT32
from ccpr.matrixone.protobuf import ProtobufMessage, varint
from ccpr.matrixone.schema import Column, Kind, Partition, SqlType, Table

COLUMNS = (Column("id", 0, SqlType(INT32, 32, -1), nullable=False),)
COPY = "_copy_01a205eb-dc2a-7aac-b733-ed6c955d582c"


def table(number: int, name: str, kind: Kind = Kind.TABLE, logical: int = 0) -> Table:
    return Table(number, logical or number, "d", name, kind, COLUMNS)


def part(number: int, name: str, logical: int = 0) -> Table:
    return table(number, name, Kind.PARTITION, logical)


def found(*tables: Table, owners: dict[int, int], partitioned: tuple[str, ...] = ("t",)) -> object:
    """The partitions by table, or the names of tables whose partitions are not known."""
    result, unknown = with_partitions(tables, partitioned, Owners(owners))
    if unknown:
        return {one.name for one in result if one.id in unknown}
    return {one.name: one.partitions for one in result if one.partitions}


def test_extra_info_says_whose_a_partition_is() -> None:
    message = b"\x08\x02P\x80@\x60\x04p" + varint(272579)
    assert [ProtobufMessage(message).number(field) for field in (12, 14)] == [4, 272579]
    assert Owners.of([(1, message), (2, message[:-1])]) == Owners({1: 272579})
    rows = [(1, b"\x60\x01"), (2, b"\x60\x04p\x01"), (3, b"\x60\x02p\x02"), (4, b""), (5, b"\xff")]
    assert Owners.of(rows) == Owners({2: 1}, {3: 2})


def test_partitions_of_a_new_table() -> None:
    tables = [table(1, "t"), part(2, "%!%p0%!%t"), part(3, "%!%p1%!%t"), table(4, "plain")]
    expected = {"t": (Partition("p0", 2), Partition("p1", 3))}
    assert found(*tables, owners={2: 1, 3: 1}) == expected
    assert found(*tables, owners={}) == expected  # of a server that does not say it


def test_a_truncated_partition_looks_like_an_ordinary_table() -> None:
    tables = [table(1, "t"), part(3, "%!%p1%!%t"), table(9, "%!%p0%!%t", logical=2)]
    assert found(*tables, owners={3: 1}) == {"t": (Partition("p1", 3), Partition("p0", 9))}
    result, _ = with_partitions(tables, ["t"], Owners({3: 1}))
    assert [one.kind for one in result] == [Kind.TABLE, Kind.PARTITION, Kind.PARTITION]


def test_a_table_that_was_copied_by_an_alter() -> None:
    tables = [table(7, "t", logical=1), part(8, f"%!%p0%!%t{COPY}", 1), table(9, f"%!%p1%!%t{COPY}", logical=1)]
    assert found(*tables, owners={8: 7}) == {"t": (Partition("p0", 8), Partition("p1", 9))}


def test_a_table_that_somebody_named_like_a_partition_is_one_of_its_own() -> None:
    tables = [table(1, "t"), part(2, "%!%p0%!%t"), table(3, "%!%p1%!%t")]
    result, unknown = with_partitions(tables, ["t"], Owners({2: 1}))
    assert (result[2].kind, result[0].partitions, unknown) == (Kind.TABLE, (Partition("p0", 2),), {})


@pytest.mark.parametrize(
    ("tables", "owners"),
    [
        pytest.param([part(3, "%!%p1%!%gone")], {}, id="of no table"),
        pytest.param([part(3, "%!%p1%!%gone")], {3: 1}, id="another name"),
        pytest.param([part(3, "%!%p1%!%t")], {3: 99}, id="another table"),
        pytest.param([table(3, "%!%p1%!%gone", logical=9)], {}, id="truncated, of no table"),
    ],
)
def test_a_partition_of_nobody_makes_all_tables_unknown(tables: list[Table], owners: dict[int, int]) -> None:
    known = [table(1, "t"), part(2, "%!%p0%!%t"), table(4, "u"), part(5, "%!%p0%!%u")]
    both = ("t", "u")
    assert found(*known, owners={2: 1, 5: 4}, partitioned=both) == {
        "t": (Partition("p0", 2),),
        "u": (Partition("p0", 5),),
    }
    assert found(*known, *tables, owners={2: 1, 5: 4, **owners}, partitioned=both) == {"t", "u"}


def test_a_name_that_can_be_read_in_two_ways() -> None:
    tables = [table(1, "t"), table(2, "x%!%t"), part(3, "%!%p%!%x%!%t"), part(4, "%!%p%!%t")]
    owners = {3: 2, 4: 1}
    expected = {"t": (Partition("p", 4),), "x%!%t": (Partition("p", 3),)}
    assert found(*tables, owners=owners, partitioned=("t", "x%!%t")) == expected
    assert found(*tables, owners={}, partitioned=("t", "x%!%t")) == {"t", "x%!%t"}


def test_a_partition_with_other_columns_makes_its_table_unknown() -> None:
    other = replace(part(2, "%!%p0%!%t"), columns=(replace(COLUMNS[0], seqnum=1),))
    tables = [table(1, "t"), other, table(4, "u"), part(5, "%!%p0%!%u")]
    assert found(*tables, owners={2: 1, 5: 4}, partitioned=("t", "u")) == {"t"}
    assert found(table(1, "t"), owners={}) == {"t"}  # none at all


def test_index_tables_of_partitions_are_not_replicated() -> None:
    hidden = [table(number, f"__mo_index_secondary_{number}", Kind.INDEX) for number in (6, 7, 8)]
    tables = [table(1, "t"), part(2, "%!%p0%!%t"), table(3, "plain"), *hidden]
    result, _ = with_partitions(tables, ["t"], Owners({2: 1}, {6: 1, 7: 2, 8: 3}))
    assert [one.kind for one in result[3:]] == [Kind.OTHER, Kind.OTHER, Kind.INDEX]
