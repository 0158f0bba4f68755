"""What the plan and the settings of a session say of the tasks that it runs at once."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pytest

from ccpr.pipeline.spark import engine
from ccpr.pipeline.spark.engine import await_executors, slots_of
from ccpr.pipeline.spark.errors import SparkJobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@dataclass
class Asked:
    """A session whose plans say one number after another, the last one for ever."""

    splits: list[Any]
    settings: dict[str, str] = field(default_factory=dict)
    jobs: int = 0

    @property
    def conf(self) -> Any:
        return self.settings

    def sql(self, text: str) -> Self:
        return self

    def collect(self) -> list[list[str]]:
        found = self.splits.pop(0) if len(self.splits) > 1 else self.splits[0]
        if isinstance(found, Exception):
            raise found
        return [[f"== Physical Plan ==\n*(1) Range (0, 1, step=1, splits={found})"]]

    def range(self, rows: int) -> Self:
        return self

    def toArrow(self) -> None:
        self.jobs += 1


@pytest.mark.parametrize(
    ("splits", "settings", "expected"),
    [
        (6, {}, 6),
        (6, {"spark.task.cpus": "2"}, 3),
        (1, {"spark.task.cpus": "4"}, 1),
        (2, {"spark.cores.max": "1"}, 1),
        (6, {"spark.cores.max": "8"}, 6),
        (2, {"spark.dynamicAllocation.enabled": "TRUE"}, None),
        ("None", {}, None),
    ],
)
def test_slots_are_the_cores_of_executors_by_those_of_a_task(splits: Any, settings: dict, expected: int | None) -> None:
    assert slots_of(Asked([splits], settings)) == expected  # pyright: ignore[reportArgumentType]


def test_executors_are_awaited_until_no_other_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    session = Asked([2, 2, 2, 4, 4, 6])
    await_executors(session)  # pyright: ignore[reportArgumentType]
    assert session.splits == [6]
    assert session.jobs == 1
    assert 2.9 < now[0] < 3.3  # two seconds after the last one
    session = Asked(list(range(1, 10_000)))
    await_executors(session)  # pyright: ignore[reportArgumentType]
    assert now[0] < 25


def test_a_session_that_fails_is_an_error_of_ours() -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(SparkJobFailed, match="out of luck"):
        slots_of(Asked([PySparkException("out of luck")]))  # pyright: ignore[reportArgumentType]


@pytest.mark.spark
def test_a_session_says_how_many_tasks_it_runs_at_once(spark: "SparkSession") -> None:
    assert slots_of(spark) == 2
    assert engine._setting(spark, "spark.no.such") == ""
