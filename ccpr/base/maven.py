"""Fetches a jar by its coordinates with the machine's own Maven and its settings, and accepts only the pinned file."""

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

_FETCH_SECONDS = 300.0


class NoJar(Exception):
    """The jar cannot be fetched, or is not the pinned file."""


@dataclass(frozen=True)
class Jar:
    """`artifact` is group:name:version."""

    artifact: str
    sha256: str

    @property
    def file(self) -> str:
        _, name, version = self.artifact.split(":")
        return f"{name}-{version}.jar"

    def fetch(self, folder: Path) -> Path:
        """Fetch the file into an empty folder. Raises NoJar."""
        options = (f"-Dartifact={self.artifact}", f"-DoutputDirectory={folder}", "-Dtransitive=false")
        try:
            subprocess.run(
                ["mvn", "-B", "-q", "dependency:copy", *options],
                check=True,
                capture_output=True,
                timeout=_FETCH_SECONDS,
            )
            (jar,) = folder.glob("*.jar")
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise NoJar(f"{self.artifact} cannot be fetched ({error})") from error
        self.check(jar)
        return jar

    def check(self, path: Path) -> None:
        """Raises NoJar."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != self.sha256:
            raise NoJar(f"{path} is another file than expected of {self.artifact}: its SHA-256 is {digest}")
