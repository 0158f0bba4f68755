"""A default that the target refuses is skipped; the table is not."""

from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from ccpr.matrixone.errors import CcprError
from ccpr.schema.choices import Dialect
from ccpr.schema.policy import DdlPolicy
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.base import LoadPart
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.expected_tables import TargetRules
from ccpr.targets.initial_load import InitialLoad
from ccpr.targets.target_plan import Alter, plan_target
from tests.targets.target_database import Place, source_table

pytestmark = pytest.mark.integration

# MatrixOne checks literals and strings, not integers: it stores 100.00 in a DECIMAL(4,2).
DDL = (
    "CREATE TABLE `t` (`id` bigint NOT NULL, `v` varchar(20) DEFAULT 'x', `d` decimal(4,2) DEFAULT 100, "
    "PRIMARY KEY (`id`))"
)
COMMENTED = DDL.replace("DEFAULT 'x'", "DEFAULT 'x' COMMENT 'c'")
AT = Location(0, 10)


def part(number: int) -> LoadPart:
    rows = pa.table({"id": pa.array([number], pa.int64()), "v": ["v"], "d": pa.array([None], pa.decimal128(4, 2))})
    return LoadPart(str(number), lambda: [rows])


def plan(place: Place, target: DatabaseTarget, ddl: str) -> Any:
    rules = TargetRules(Dialect.MARIADB, place.database, DdlPolicy.FULL, (), "task")
    return plan_target(rules, target.tables(), [source_table(ddl)])


def test_a_table_is_created_without_the_default_that_the_target_refuses(place: Place) -> None:
    with place.target() as target:
        applied = target.create(place.table(DDL), [part(1)], AT)
        assert applied.remarks == ("column d: the default 100 is skipped: the target refuses it",)
        place.query("INSERT INTO t (id) VALUES (2)")
        assert plan(place, target, DDL).steps == (), "it is not tried again"
        (step,) = plan(place, target, COMMENTED).of(Alter)
        assert "COMMENT 'c'" in step.first[0]
        assert "DEFAULT 100" not in "".join(step.first)
        target.alter([step.wanted])
    with place.target() as target:  # and its definition is ours
        target.release(1)


def test_a_load_that_was_cut_goes_on(place: Place) -> None:
    def first_only(load: InitialLoad, parts: list[LoadPart], connections: int) -> int:
        original(load, parts[:1], connections)
        raise CcprError("cut", subject="here")

    original = InitialLoad.run
    with place.target() as target, patch.object(InitialLoad, "run", first_only), pytest.raises(CcprError, match="cut"):
        target.create(place.table(DDL), [part(1), part(2)], AT)
    with place.target() as target:
        applied = target.create(place.table(DDL), [part(1), part(2)], AT)
        assert (applied.parts, applied.parts_skipped) == (1, 1)
        assert len(applied.remarks) == 1
    assert place.query("SELECT id, v, d FROM t ORDER BY id") == [(1, "v", None), (2, "v", None)]
