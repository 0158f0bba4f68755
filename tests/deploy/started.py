"""Builds the image of deploy/ in a root folder of its own and starts what compose.yaml says, without a container
engine. Run by test_started.py in an overlay of this machine's file system that nobody else sees; `start` also has a
network of its own, with the loopback address only. It prints one JSON object.

What is as in a container: the instructions of the Containerfile, each at the path that it names; user, environment,
folder and command of each service; the order of `depends_on`; the checks of health. Not so: the base image is this
machine's, with a Python of the version that FROM names; files of volumes are in the root folder.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql

from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.deploy.test_files import FOLDER, SERVICES, instructions
from tests.docs.pages import ROOT
from tests.support import mariadb

BASE = Path("/opt/base")  # the Python of the image
UID = "1000"
SECRETS = {"DB_PASSWORD": "hushdb61f2", "DB_ROOT_PASSWORD": "hushroot77d0"}
SECONDS = 240.0
_GRAPHQL = (
    "{ repositoriesOrError { __typename ... on RepositoryConnection { nodes { name } } }"
    " assetsOrError { __typename ... on AssetConnection { nodes { key { path } } } }"
    " instance { daemonHealth { allDaemonStatuses { daemonType healthy } } } }"
)


def build(python: str) -> None:
    """FROM, COPY and RUN."""
    subprocess.run([python, "-m", "venv", "--copies", BASE], check=True)
    for file in ("/etc/passwd", "/etc/group"):  # the base image has nobody of this number
        kept = [line for line in Path(file).read_text().splitlines() if line.split(":")[2] != UID]
        Path(file).write_text("".join(f"{line}\n" for line in kept))
    Path("/root").chmod(0o711)  # where this machine keeps its Pythons; only this root folder has it so
    environment = {**os.environ, "PATH": f"{BASE}/bin:{os.environ['PATH']}", "CCPR_HOME": ""}
    for name, rest in instructions():
        words = shlex.split(rest)
        if name == "ARG":
            environment.setdefault(*rest.split("=", 1))
        elif name == "RUN":
            subprocess.run(["sh", "-ec", rest], env=environment, check=True, stdout=sys.stderr)
        elif name == "COPY":
            *sources, target = [word for word in words if not word.startswith("--")]
            for source in sources:
                _copy(ROOT / source, Path(target), target.endswith("/"))
            if owner := next((word.partition("=")[2] for word in words if word.startswith("--chown=")), None):
                subprocess.run(["chown", "-R", owner, target], check=True)


def _copy(source: Path, target: Path, into: bool) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        return
    target.mkdir(parents=True, exist_ok=True) if into else target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


class Service:
    """A service of the image, as its user."""

    def __init__(self, name: str) -> None:
        image = dict(rest.split("=", 1) for key, rest in instructions() if key == "ENV")
        own = {key: re.sub(r"\$\{(\w+)[^}]*\}", _secret, value) for key, value in SERVICES[name]["environment"].items()}
        self.environment = {
            "PATH": f"{BASE}/bin:/usr/bin:/bin",
            "HOME": "/home/ccpr",
            "LANG": "C.UTF-8",
            **image,
            **own,
        }
        self.log = Path(f"/tmp/{name}.log")
        with self.log.open("wb") as log:
            self.process = self.run(SERVICES[name]["command"], stdout=log, stderr=log)

    def run(self, words: list[str], **options: Any) -> subprocess.Popen:
        folder = next(rest for key, rest in instructions() if key == "WORKDIR")
        user = ["setpriv", "--reuid", UID, "--regid", UID, "--clear-groups", "--inh-caps=-all", "--no-new-privs"]
        return subprocess.Popen([*user, *words], env=self.environment, cwd=folder, **options)

    def output(self, *words: str) -> str:
        process = self.run(list(words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        text, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, f"{' '.join(words)}: {text}"
        return text

    def is_healthy(self) -> bool:
        check = next(rest for key, rest in instructions() if key == "HEALTHCHECK")
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        return self.run(json.loads(check.removeprefix("CMD ")), stderr=subprocess.DEVNULL).wait(30) == 0

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def _secret(found: re.Match[str]) -> str:
    return SECRETS[found[1]]


def start() -> dict[str, Any]:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with Path("/etc/hosts").open("a") as hosts:
        hosts.write("127.0.0.1 db\n")
    mariadb.free_port = lambda: 3306
    storage = Storage()
    storage.create_database("shop")
    storage.create_table("shop", "orders", {"n": "bigint not null", "v": "varchar(20)"}, primary_key=["n"])
    with storage.begin() as transaction:
        numbers = np.arange(1000)
        transaction.insert("shop", "orders", pa.table({"n": numbers, "v": [f"v{number}" for number in numbers]}))
    storage.create_publication("p", "shop")
    with mariadb.running(mariadb.find_program()) as server, SimulatedUpstream(storage) as upstream:
        _as_the_image_of_mariadb(server)
        shown: dict[str, Any] = {"stopped": {}}
        services = {"ccpr": Service("ccpr")}
        _wait(services["ccpr"].is_healthy, "ccpr is healthy")
        services |= {name: Service(name) for name in ("ui", "daemon")}
        uri = f"mysql://sys#dump:111@127.0.0.1:{upstream.port}"
        scope = ("--database", "shop", "--publication", "p", "--publisher", "sys")
        services["ccpr"].output("ccpr", "subscribe", "shop", "--from", uri, *scope, "--interval", "1")
        _wait(lambda: _points(services["ccpr"]), "there is a point")
        _wait(lambda: len(_asked()["assets"]) > 3 and _asked()["unhealthy"] == [], "Dagster has assets and daemons")
        shown |= {
            "dagster": _asked(),
            "rows": services["ccpr"].output("ccpr", "query", "shop", "SELECT COUNT(*) FROM orders"),
        }
        login = pymysql.connect(host="db", user="ccpr", password=SECRETS["DB_PASSWORD"])
        with closing(login) as connection, connection.cursor() as cursor:
            for database in ("ccpr", "dagster"):
                cursor.execute(f"SHOW TABLES FROM {database}")
                shown[f"{database}_tables"] = sorted(str(name) for (name,) in cursor.fetchall())
        shown["stopped"] = {name: service.stop() for name, service in reversed(services.items())}
        owners = {path.stat().st_uid for folder in ("/state", "/dagster/storage") for path in Path(folder).rglob("*")}
        shown["owners"] = sorted(owners)
        logs = b"".join(service.log.read_bytes() for service in services.values())
        shown["secrets"] = [name for name, value in SECRETS.items() if value.encode() in logs]
    return shown


def _as_the_image_of_mariadb(server: mariadb.MariaDb) -> None:
    """Its database and user, and the files of its folder of first statements."""
    made = {key: re.sub(r"\$\{(\w+)[^}]*\}", _secret, value) for key, value in SERVICES["db"]["environment"].items()}
    user, database = made["MARIADB_USER"], made["MARIADB_DATABASE"]
    statements = [f"CREATE DATABASE {database}", f"CREATE USER '{user}'@'%' IDENTIFIED BY '{made['MARIADB_PASSWORD']}'"]
    statements += [f"GRANT ALL ON {database}.* TO '{user}'@'%'"]
    for file in sorted((FOLDER / "mariadb").glob("*.sql")):
        lines = [line for line in file.read_text().splitlines() if not line.startswith("--")]
        statements += [one for one in " ".join(lines).split(";") if one.strip()]
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for statement in [*statements, f"DROP USER {server.user}@127.0.0.1"]:
            cursor.execute(statement)


def _points(service: Service) -> bool:
    return bool(json.loads(service.output("ccpr", "points", "shop", "--json")))


def _asked() -> dict[str, Any]:
    request = urllib.request.Request(
        "http://127.0.0.1:3000/graphql",
        json.dumps({"query": _GRAPHQL}).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            data = json.loads(answer.read())["data"]
    except (urllib.error.URLError, OSError):
        return {"assets": [], "unhealthy": ["no answer"]}
    statuses = data["instance"]["daemonHealth"]["allDaemonStatuses"]
    return {
        "repositories": [node["name"] for node in data["repositoriesOrError"].get("nodes", ())],
        "assets": sorted("/".join(node["key"]["path"]) for node in data["assetsOrError"].get("nodes", ())),
        "unhealthy": [one["daemonType"] for one in statuses if not one["healthy"]],
    }


def _wait(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, f"it did not become true: {what}"
        time.sleep(1)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["build", python]:
            build(python)
        case ["start"]:
            print(json.dumps(start()))
