"""Whether the tests run in continuous integration, where none may be skipped (see tests/conftest.py)."""

import os
from typing import TypeVar

import pytest

UNDER_CI = os.environ.get("CI", "").lower() == "true"
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def not_skipped(report: Report) -> Report:
    """The report; under CI=true as of a failure if something was skipped."""
    if UNDER_CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped, which no test may be under CI=true: {report.longreprtext}"
    return report
