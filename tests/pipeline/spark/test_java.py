"""Which Java is taken for Spark. Programs that play a Java are shell scripts; the real ones run in test_spark."""

import subprocess
from pathlib import Path

import pytest

from ccpr.pipeline.spark import java
from ccpr.pipeline.spark.errors import JavaMissing
from ccpr.pipeline.spark.java import find_java

pytestmark = pytest.mark.integration


def fake_java(folder: Path, version: str, *, code: int = 0) -> Path:
    """A `java` that answers -version, and else prints its arguments; its class archive is there."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    (folder / "lib" / "server").mkdir(parents=True)
    (folder / "lib" / "server" / "classes.jsa").touch()
    answer = f"""#!/bin/bash
if [ "$1" = -version ]; then echo 'openjdk version "{version}" 2025-04-15' >&2; exit {code}; fi
printf '%s\\n' "$@"
"""
    program.write_text(answer)
    program.chmod(0o755)
    return program


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No Java anywhere."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    return monkeypatch


def test_java_home_comes_before_path(nothing: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "17.0.15")
    on_path = fake_java(tmp_path / "path", "21.0.8")
    nothing.setattr(java.shutil, "which", lambda name: str(on_path))
    nothing.setenv("JAVA_HOME", str(tmp_path / "home"))
    found = find_java(tmp_path / "cache")
    assert (found.origin, found.version) == ("JAVA_HOME", "17.0.15")


def test_the_script_drops_the_incubator_module_and_keeps_every_other_argument(
    nothing: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path / "a folder with 'quotes'", "21.0.8")
    nothing.setenv("JAVA_HOME", str(tmp_path / "a folder with 'quotes'"))
    script = find_java(tmp_path / "the cache").home / "bin" / "java"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=x=y", "", "$HOME"]
    printed = subprocess.run([script, *arguments], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["-cp", "a b", "--add-opens=x=y", "", "$HOME"]


def test_what_was_made_is_found_again(nothing: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "17.0.15")
    nothing.setenv("JAVA_HOME", str(tmp_path / "home"))
    first = find_java(tmp_path / "cache")
    assert find_java(tmp_path / "cache") == first
    nothing.setenv("JAVA_HOME", str(first.home))  # as after the first session of a process
    assert find_java(tmp_path / "cache").home == first.home
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [first.home.name]


def test_other_versions_and_programs_that_do_not_run_are_passed_over(
    nothing: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path / "old", "1.8.0_442")
    on_path = fake_java(tmp_path / "broken", "17.0.1", code=1)
    nothing.setenv("JAVA_HOME", str(tmp_path / "old"))
    nothing.setattr(java.shutil, "which", lambda name: str(on_path))
    with pytest.raises(
        JavaMissing, match=r"JAVA_HOME has 1\.8\.0_442, PATH does not answer.*pip install 'matrixone-ccpr\[spark\]'"
    ):
        find_java(tmp_path / "cache")
    nothing.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JavaMissing, match="JAVA_HOME does not answer"):
        find_java(tmp_path / "cache")


def test_no_java_at_all_says_what_to_install(nothing: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=r"there is none \[java\] pip install 'matrixone-ccpr\[spark\]'"):
        find_java(tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_named(nothing: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "17.0.15")
    nothing.setenv("JAVA_HOME", str(tmp_path / "home"))
    (tmp_path / "file").touch()
    with pytest.raises(JavaMissing, match=r"cannot be written: Not a directory \[.*/file/java\] Make it writable"):
        find_java(tmp_path / "file" / "java")
