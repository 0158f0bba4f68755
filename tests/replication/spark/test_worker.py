"""Importers of archives are forgotten, and found again."""

import gc
import importlib
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

from replication.spark.worker import configure_worker


def test_archives_are_read_again_only_when_something_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = str(tmp_path / "some.zip")
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("ccpr_test_one.py", "value = 1")
        file.writestr("ccpr_test_two.py", "value = 2")
    monkeypatch.syspath_prepend(archive)
    assert importlib.import_module("ccpr_test_one").value == 1
    assert isinstance(sys.path_importer_cache[archive], zipimport.zipimporter)
    try:
        configure_worker()
        assert archive not in sys.path_importer_cache
        importlib.invalidate_caches()
        assert importlib.import_module("ccpr_test_two").value == 2
    finally:
        gc.unfreeze()
