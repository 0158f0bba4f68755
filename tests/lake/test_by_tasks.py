"""Objects of a lake published by Spark tasks: the same files, vectors and errors as by the process."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ccpr.mirror.errors import MirrorDamaged
from ccpr.pipeline.spark import carry
from ccpr.pipeline.spark.engine import Copier
from tests.support.lake_readers import READERS, assert_same_rows, truth
from tests.support.lakes import Published, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_tasks_write_what_the_process_writes_and_return_what_they_raise(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carry, "TASK_BYTES", 1)
    tasks = Copier(tmp_path, "spark", own_session=lambda: spark)

    with source(tmp_path, "CREATE TABLE shop.t (id INT PRIMARY KEY, name VARCHAR(20))") as found:
        first = found.point("INSERT INTO shop.t SELECT result, 'x' FROM generate_series(1, 500) g")
        second = found.point("DELETE FROM shop.t WHERE id % 5 = 0", "INSERT INTO shop.t VALUES (900, 'y')")
        lakes = {}
        for name in ("process", "tasks"):
            published = Published(found.mirror, tmp_path / name)
            for point in (first, second):
                sync = published.sync(point)
                if name == "tasks":
                    sync.lake.carry = tasks.carry
                assert sync.run().behind == ()
                published.note(sync.contents)
            published.assert_shows(first, second)
            lakes[name] = published
        names = [sorted(path.name for path in (one.folder / "shop.t" / "data").iterdir()) for one in lakes.values()]
        assert names[0] == names[1]
        folder, version = lakes["tasks"].shown[second.lsn]["shop.t"]
        rows = READERS["delta-rs"](str(lakes["tasks"].folder / folder), version)
        assert_same_rows(rows, truth(found.mirror, second, "shop.t"), "by tasks")
        for path in (Path(found.mirror.store.url.removeprefix("file://")) / "objects").iterdir():
            path.unlink()
        broken = replace(lakes["tasks"], folder=tmp_path / "broken", shown={}).sync(second)
        broken.lake.carry = tasks.carry
        assert [one.failure.code for one in broken.run().behind] == [MirrorDamaged.code]
