"""Trino on the loopback address: its server and its Iceberg plugin, as jars of Maven Central, in a JVM of its own."""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import requests

from tests.support.lake_engines import maven_folder
from tests.support.ports import free_port

VERSION, _JAVA = "483", 25
_START_SECONDS, _QUERY_SECONDS = 400, 240
# What its packages have of their own: the class that starts the server, and the file that names the plugin's class.
_MAIN = f'public static void main(String[] words) {{ new io.trino.server.Server().start("{VERSION}"); }}'
_SERVICE, _PLUGIN = "META-INF/services/io.trino.spi.Plugin", "io.trino.plugin.iceberg.IcebergPlugin"


@dataclass
class Trino:
    uri: str

    def ask(self, sql: str) -> list[list[Any]]:
        """The rows of the answer. Raises AssertionError with Trino's message."""
        return self._answered(sql)[1]

    def table(self, name: str, schema: pa.Schema) -> pa.Table:
        """The rows of a table with these columns."""
        names, rows = self._answered(f"SELECT * FROM {name}")
        assert names == schema.names
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        return pa.Table.from_arrays([_arrow(*one) for one in zip(columns, schema.types, strict=True)], schema=schema)

    def _answered(self, sql: str) -> tuple[list[str], list[list[Any]]]:
        headers = {"X-Trino-User": "me", "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}
        answer = requests.post(f"{self.uri}/v1/statement", data=sql.encode(), headers=headers, timeout=60).json()
        names, rows, until = list[str](), list(answer.get("data", ())), time.monotonic() + _QUERY_SECONDS
        while "nextUri" in answer:
            assert time.monotonic() < until, sql
            answer = requests.get(answer["nextUri"], headers=headers, timeout=60).json()
            names = [column["name"] for column in answer.get("columns", ())] or names
            rows += answer.get("data", ())
        assert "error" not in answer, f"{sql}: {answer['error']['message']}"
        return names, rows

    def attach(self, name: str, uri: str, warehouse: str, files: Mapping[str, str]) -> None:
        """As docs/how-to/attach-engines.md has it."""
        said = {
            "iceberg.catalog.type": "rest",
            "iceberg.rest-catalog.uri": uri,
            "iceberg.rest-catalog.warehouse": warehouse,
            "iceberg.rest-catalog.security": "OAUTH2",
            "iceberg.rest-catalog.oauth2.credential": "reader:secret",
            "iceberg.rest-catalog.oauth2.server-uri": f"{uri}/v1/oauth/tokens",
            **files,
        }
        listed = ", ".join(f"\"{key}\" = '{value}'" for key, value in said.items())
        self.ask(f"CREATE CATALOG {name} USING iceberg WITH ({listed})")


def _arrow(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Decimals and times come as text."""
    return pa.array(values, pa.string() if pa.types.is_decimal(kind) or pa.types.is_timestamp(kind) else kind).cast(
        kind
    )


@contextmanager
def trino_server(folder: Path) -> Iterator[Trino]:
    port, plugin = free_port(), folder / "plugins" / "iceberg"
    plugin.mkdir(parents=True)
    for jar in maven_folder("trino-iceberg", f"io.trino:trino-iceberg:{VERSION}").glob("*.jar"):
        (plugin / jar.name).symlink_to(jar)
    (plugin / "named" / _SERVICE).parent.mkdir(parents=True)
    (plugin / "named" / _SERVICE).write_text(_PLUGIN)
    (folder / "Starts.java").write_text(f"class Starts {{ {_MAIN} }}")
    settings = {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(port),
        "discovery.uri": f"http://127.0.0.1:{port}",
        "catalog.management": "dynamic",
        "catalog.store": "memory",
        "plugin.dir": str(plugin.parent),
        "query.max-memory-per-node": "300MB",
        "memory.heap-headroom-per-node": "200MB",
    }
    (folder / "config.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    node = {"environment": "test", "id": "one", "data-dir": str(folder), "bind-ip": "127.0.0.1"}
    node["internal-address"] = "127.0.0.1"
    words = [str(_java()), "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    words += ["-Djdk.attach.allowAttachSelf=true", "--add-modules=jdk.incubator.vector"]
    words += [f"-Dnode.{key}={value}" for key, value in node.items()]
    words += ["-Dconfig=config.properties", "-cp", f"{maven_folder('trino', f'io.trino:trino-main:{VERSION}')}/*"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*words, "Starts.java"], cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait(server, folder / "log")
        yield Trino(f"http://127.0.0.1:{port}")
    finally:
        server.kill()
        server.wait()


def _wait(server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while b"SERVER STARTED" not in log.read_bytes():
        assert server.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < until, log.read_text()[-3000:]
        time.sleep(0.5)


def _java() -> Path:
    """That of JAVA_HOME or of the system's, which is new enough."""
    homes = [Path(os.environ.get("JAVA_HOME") or "none"), *sorted(Path("/usr/lib/jvm").glob("*"))]
    for home in homes:
        about = home / "release"
        found = re.search(r'^JAVA_VERSION="(\d+)', about.read_text(), re.MULTILINE) if about.is_file() else None
        if found and int(found[1]) >= _JAVA and (home / "bin" / "javac").is_file():
            return home / "bin" / "java"
    raise AssertionError(f"Trino {VERSION} needs a JDK {_JAVA} in JAVA_HOME or /usr/lib/jvm")
