from collections.abc import Iterator
from pathlib import Path, PosixPath

import pytest

from tests.support.mariadb import MariaDb, program_or_skip, running
from tests.support.recordings_location import SAMPLE, recordings_folder
from tests.support.s3_fixtures import s3_credentials
from tests.support.spark_fixtures import (
    key_file,
    spark,
)  # here, and nowhere below: a process has one session, whose workers know one key
from tests.support.wire_client import connect

__all__ = ["connect", "key_file", "s3_credentials", "spark"]


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder of recordings; the test is skipped where there is none (never under CI=true)."""
    folder = recordings_folder()
    if folder is None:
        pytest.skip("no recordings: set CCPR_RECORDINGS")
    return _Sample(SAMPLE) if folder.resolve() == SAMPLE else folder


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """A server of the session's own; a test makes its database in it. Skipped where there is none to be had (never
    under CI=true)."""
    with running(program_or_skip()) as server:
        yield server


class _Sample(PosixPath):
    """The sample in the repository: a test that asks for a scenario or a snapshot which it leaves out is skipped."""

    def __truediv__(self, name: str) -> Path:
        path = super().__truediv__(name)
        if (self == SAMPLE or name.startswith("snapshot-")) and not path.exists():
            pytest.skip(f"the sample of recordings has no {path.relative_to(SAMPLE)}")
        return path
