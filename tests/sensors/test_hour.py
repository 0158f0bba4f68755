"""Ten minutes of the simulated hour of benchmarks/sensor_hour.py."""

from pathlib import Path

import pytest

from benchmarks.sensor_hour import simulate


@pytest.mark.recordings
def test_ten_minutes_run_without_drift_and_leave_nothing_over(
    recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CCPR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("UPSTREAM_PASSWORD", "111")
    figures = simulate(recordings / "cut_inside_object", tmp_path, minutes=10)
    assert figures.points_compared == figures.runs == 4
    assert figures.iterations == figures.runs + figures.idle
    assert figures.iterations in (10, 11), "the first at once, the second within a minute, then one a minute"
    assert abs(figures.drift_s) < 20, "on a busy machine a tick or two, and never an interval"
    assert figures.latest_s < 20
    assert (figures.orphans, figures.leftovers) == (0, 0)
    assert 0 <= figures.after.mirror - figures.changed.mirror < 10, "idle iterations rewrite the head and nothing else"
