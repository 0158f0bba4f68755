"""Where the tests get their MariaDB if the machine has none."""

from pathlib import Path

import pytest

from tests.support import mariadb

pytestmark = pytest.mark.integration


@pytest.fixture
def no_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mariadb, "_of_the_system", lambda: None)
    monkeypatch.setattr(mariadb, "_apt_install", lambda: False)


def test_a_server_that_was_unpacked_before_is_used_again(tmp_path: Path, no_system: None) -> None:
    base = tmp_path / "mariadb-11.4.5"
    base.mkdir()
    program = mariadb.find_program(tmp_path)
    assert program.mariadbd == base / "bin" / "mariadbd"
    assert program.environment == {"LD_LIBRARY_PATH": str(base / "libs")}
    assert program.common[:2] == ["--no-defaults", f"--basedir={base}"]


def test_without_any_the_error_says_how_to_install_one(
    tmp_path: Path, no_system: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # where no program is, Maven least of all
    with pytest.raises(mariadb.NoMariaDb, match="apt-get install mariadb-server-core"):
        mariadb.find_program(tmp_path / "cache")


def test_a_file_other_than_the_pinned_one_is_not_run(
    tmp_path: Path, no_system: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven = tmp_path / "programs" / "mvn"
    maven.parent.mkdir()
    option = '-DoutputDirectory=*) echo other > "${word#*=}/server.jar"'
    maven.write_text(f"#!/bin/sh\nfor word; do case $word in {option} ;; esac; done\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(maven.parent))
    cache = tmp_path / "cache"
    with pytest.raises(mariadb.NoMariaDb, match="another file than expected"):
        mariadb.find_program(cache)
    assert not list(cache.iterdir())
