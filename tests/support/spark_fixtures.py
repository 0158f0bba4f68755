"""One Spark session for all tests of a process, and mirrors of recordings to read with it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.spark.session import SparkSettings, spark_session
from tests.support.recorded_mirror import mirror_of_recording

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RecordedMirror = Callable[[str], Mirror]


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the workers look for the key file; fixed before the JVM starts."""
    return tmp_path_factory.mktemp("keys") / "key"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, key_file: Path, s3_credentials: None) -> Iterator["SparkSession"]:
    config = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    session = spark_session(
        SparkSettings(tmp_path_factory.mktemp("java"), "local[2]", key_file=key_file, config=config)
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def recorded_mirror(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> RecordedMirror:
    """`recorded_mirror("dml")`: the mirror of that recording, made once for the session."""
    made: dict[str, Mirror] = {}

    def mirror(scenario: str) -> Mirror:
        if scenario not in made:
            if not (recordings / scenario).is_dir():
                pytest.skip(f"no recording {scenario}")
            root = tmp_path_factory.mktemp("mirrors") / Path(scenario).name
            made[scenario] = mirror_of_recording(recordings / scenario, root)
        return made[scenario]

    return mirror
