"""The core alone, from the wheel, in an environment of its own: what somebody has who types `pip install
matrixone-ccpr`."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_KEPT = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR")  # of the environment; nothing that leads back to the checkout


def pip(*words: str | Path) -> None:
    """The test's own pip, as `make install` calls it."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True)
class Core:
    """An environment, and the state folder of its programs. They run in `folder`, from which no checkout is seen."""

    folder: Path

    @classmethod
    def install(cls, folder: Path, extra: str = "") -> "Core":
        """From the wheels of both distributions: the one, and with an extra what that brings."""
        wheels = folder / "wheel"
        pip("wheel", "--no-deps", "--wheel-dir", wheels, ROOT, ROOT / "packages" / "emulator")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        core = cls(folder)
        (wheel,) = wheels.glob("matrixone_ccpr-*.whl")
        options = ("--constraint", ROOT / "constraints.txt", "--find-links", wheels)
        pip("--python", core.python, "install", *options, f"{wheel}[{extra}]" if extra else wheel)
        return core

    def installed(self, distribution: str) -> list[str]:
        """The files of a distribution, but for compiled ones and its programs."""
        (record,) = self.packages.glob(f"{distribution}-*.dist-info/RECORD")
        with record.open(newline="") as lines:
            names = [row[0] for row in csv.reader(lines)]
        return [name for name in names if not name.startswith("..") and "__pycache__" not in name]

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def packages(self) -> Path:
        (found,) = (self.folder / "venv" / "lib").glob("python3*/site-packages")
        return found

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in os.environ if name in _KEPT or name.startswith("AWS_")}
        return {**kept, "CCPR_HOME": str(self.home), "UPSTREAM_PASSWORD": "any", **variables}

    def run(self, *words: str | Path, seconds: float = 60, **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(word) for word in words],
            cwd=self.folder,
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def ccpr(self, *words: str | Path, **variables: str) -> "subprocess.CompletedProcess[str]":
        return self.run(self.python.with_name("ccpr"), *words, **variables)

    def command(self, *words: str | Path, **variables: str) -> Any:
        """The JSON document of a command that succeeds."""
        done = self.ccpr(*words, "--json", **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def program(self, code: str, **variables: str) -> str:
        """What a program of Python prints."""
        done = self.run(self.python, "-c", code, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def files(self) -> Iterator[os.stat_result]:
        return (path.lstat() for path in self.packages.rglob("*"))
