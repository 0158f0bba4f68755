"""Fixtures of all tests, and the rule that none is skipped under CI=true."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.support.ci import not_skipped
from tests.support.lanes import UNIT, assign, guarded, has_no_unit_test
from tests.support.mariadb import MariaDb, program_or_skip, running
from tests.support.recordings_location import SAMPLE, recordings_folder
from tests.support.s3_fixtures import s3_credentials, s3_server, s3_url
from tests.support.spark_fixtures import key_file, recorded_mirror, spark
from tests.support.wire_client import connect

if TYPE_CHECKING:
    from tests.support.one_table import OneTable
    from tests.support.replica import Replica
    from tests.support.scratch_database import Scratch

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")  # Dagster uses it, too; see `ccpr.pipeline.spark.connect`
# How long an example takes says more about the machine than about the program.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")
# `spark` is here and in no folder below: a process has one session, whose workers know one key file.
__all__ = ["connect", "key_file", "recorded_mirror", "s3_credentials", "s3_server", "s3_url", "spark"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under CI=true a test that is skipped fails: something that it needs was not installed."""
    return not_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole module, which is skipped when it is imported."""
    return not_skipped((yield))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m unit` imports no file whose tests are all of another lane: each process would, for a third of the time."""
    return True if config.option.markexpr == UNIT and has_no_unit_test(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    assign(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    with guarded(item):
        return (yield)


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder of recordings. Skips the test if there is none."""
    folder = recordings_folder()
    if folder is None:
        pytest.skip("no recordings: set CCPR_RECORDINGS")
    return _Sample(SAMPLE) if folder.resolve() == SAMPLE else folder


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """One server for the session; a test creates its own database in it. Skips the test if there is no MariaDB."""
    with running(program_or_skip()) as server:
        yield server


class _Sample(PosixPath):
    """The sample in the repository. Skips a test that asks for a scenario or snapshot that is not in it."""

    def __truediv__(self, name: str) -> Path:
        path = super().__truediv__(name)
        if (self == SAMPLE or name.startswith("snapshot-")) and not path.exists():
            pytest.skip(f"the sample of recordings has no {path.relative_to(SAMPLE)}")
        return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the test, with a new state folder `home` in it."""
    monkeypatch.setenv("CCPR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("UPSTREAM_PASSWORD", "111")
    return tmp_path


@pytest.fixture
def scratch(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> "Iterator[Scratch]":
    """Not made yet; dropped afterwards."""
    from tests.support.scratch_database import Scratch

    monkeypatch.setenv("RESTORE_PASSWORD", mariadb.password)
    place = Scratch(mariadb, f"restored_{tmp_path.name[-30:]}")
    place.drop()
    yield place
    place.drop()


@pytest.fixture
def replica(recordings: Path, home: Path) -> "Iterator[Replica]":
    """Of a recording, after a first run."""
    from tests.support.replica import replaying

    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        replica.run()
        yield replica


@pytest.fixture
def one_table(home: Path) -> "Iterator[OneTable]":
    """Not subscribed to yet."""
    from tests.support.one_table import published

    with published(home) as source:
        yield source
