"""What a table is after its release (D5), in a real server: ordinary and writable, whatever the server refuses of its
source."""

import pyarrow as pa
import pytest

from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.base import LoadPart, TableState
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.errors import TargetTableDropped
from tests.targets.target_database import Part, Place

pytestmark = pytest.mark.integration

DDL = """CREATE TABLE `src`.`r` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `n` int DEFAULT NULL,
  `g` int NOT NULL GENERATED ALWAYS AS (`n` * 2) STORED,
  `h` varchar(20) GENERATED ALWAYS AS (serial_full(`n`)) VIRTUAL COMMENT 'h',
  `i` int GENERATED ALWAYS AS (`g` + 1) VIRTUAL,
  `at` datetime(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
  PRIMARY KEY (`id`),
  UNIQUE KEY `over g` (`g`,`n`),
  KEY `over h` (`h`),
  CONSTRAINT `positive` CHECK (`n` > 0),
  CONSTRAINT `nobody knows` CHECK (is_nice(`n`)),
  CONSTRAINT `once` CHECK (`n` <> 99)
) COMMENT='mine'"""


def rows() -> pa.Table:
    columns = {
        "id": pa.array([0, 7], pa.int64()),
        "n": pa.array([1, 99], pa.int32()),
        "g": pa.array([2, 198], pa.int32()),
        "h": pa.array(["x", "y"]),
        "i": pa.array([3, 199], pa.int32()),
        "at": pa.array([None, 5_000_000], pa.timestamp("us")),
    }
    return pa.table(columns)


def test_what_the_server_refuses_is_left_out_and_the_rest_is_as_it_was(place: Place):
    with place.target() as target:
        target.create(
            place.table(DDL),
            [LoadPart("all", lambda: [rows()])],
            Location(0, 10),
        )
        before = place.rows("r")
        left_out = target.release(1)
        assert target.tables()[1].state is TableState.RELEASED
    assert place.rows("r") == before, "no value is lost, nor a row with the key 0 renumbered"
    first_words = [text.split(" (")[0] for text in left_out]
    assert first_words == ["column h GENERATED ALWAYS AS", "CONSTRAINT `nobody knows` CHECK", "CONSTRAINT `once` CHECK"]
    assert "1901" in left_out[0], "the server's reason is shown"
    text = place.query("SHOW CREATE TABLE r")[0][1]
    assert text.endswith("COMMENT='mine'")
    for kept in (
        "AUTO_INCREMENT=8",
        "`h` varchar(20) DEFAULT NULL COMMENT 'h'",
        "KEY `over h` (`h`)",
        "UNIQUE KEY `over g` (`g`,`n`)",
    ):
        assert kept in text
    place.query("INSERT INTO r (n) VALUES (21)")
    ((identity, g, i, at),) = place.query("SELECT id, g, i, at FROM r WHERE n = 21")
    assert (identity, g, i) == (8, 42, 43)
    assert at is not None
    place.query("UPDATE r SET n = 22 WHERE id = 0")
    assert place.query("SELECT g, i, at IS NULL FROM r WHERE id = 0") == [(44, 45, 0)], (
        "generated values follow, and so does ON UPDATE"
    )
    with pytest.raises(Exception, match="positive"):
        place.query("INSERT INTO r (n) VALUES (-1)")


def test_a_hidden_key_counts_by_itself_after_the_release(place: Place):
    ddl = "CREATE TABLE `src`.`k` (\n  `a` int DEFAULT NULL\n)"
    with place.target() as target:
        made = pa.table({"a": pa.array([1, None], pa.int32()), "__mo_fake_pk_col": pa.array([3, 9], pa.uint64())})
        target.create(
            place.table(ddl),
            [LoadPart("all", lambda: [made])],
            Location(0, 10),
        )
        assert target.release(1) == ("the table has no key: the invisible column __mo_fake_pk_col is its key",)
    place.query("INSERT INTO k VALUES (5)")
    assert sorted(place.query("SELECT __mo_fake_pk_col, a FROM k")) == [(3, 1), (9, None), (10, 5)]


def test_a_name_that_another_subscription_has_taken_meanwhile_is_not_ours(place: Place):
    ddl = "CREATE TABLE `src`.`k` (\n  `a` int NOT NULL,\n  PRIMARY KEY (`a`)\n)"
    row = pa.table({"a": pa.array([1], pa.int32())})

    def make(target: DatabaseTarget) -> None:
        target.create(
            place.table(ddl),
            [LoadPart("all", lambda: [row])],
            Location(0, 10),
        )

    with place.target("first") as first:
        make(first)
    place.query("DROP TABLE k")
    with place.target("second") as second:
        make(second)
    with place.target("first") as first:
        with pytest.raises(TargetTableDropped):
            first.apply(1, [Part(row.slice(0, 0), row)], Location(1, 20))
        first.drop([1])
    assert place.rows("k") == [(1,)]
