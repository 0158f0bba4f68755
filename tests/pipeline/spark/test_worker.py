"""Importers of archives are forgotten, and found again; what arrives is acknowledged at once."""

import gc
import importlib
import os
import socket
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

from ccpr.pipeline.spark.tasks import configure_worker
from tests.support.descriptors import descriptors

pytestmark = pytest.mark.integration


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


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has it")
def test_connections_acknowledge_at_once_and_stay_as_they_are() -> None:
    quick = (socket.IPPROTO_TCP, socket.TCP_QUICKACK)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other, Path(os.devnull).open("rb"):
            one.setsockopt(*quick, 0)
            assert one.getsockopt(*quick) == 0
            before = descriptors()
            try:
                configure_worker()
            finally:
                gc.unfreeze()
            assert descriptors() == before, "nothing is left open, nor closed"
            assert one.getsockopt(*quick) == 1
            one.sendall(b"as before")
            assert other.recv(20) == b"as before"
