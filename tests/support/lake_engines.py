"""Engines that read a lake in processes of their own: DuckDB's Delta extension, in the release of its wheel, and Spark
with Delta Lake's jars. Both are fetched once, by pip and Maven, into the cache of the tests."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from ccpr.base.maven import Jar, NoJar
from ccpr.lake.iceberg_jvm import find_jars

# The extension is a wheel for this release of DuckDB only; the project's own DuckDB is another.
DUCKDB = ("duckdb==1.5.5", "duckdb-extension-delta==1.5.5")
DUCKDB_ICEBERG = ("duckdb==1.5.5", *(f"duckdb-extension-{name}==1.5.5" for name in ("httpfs", "avro", "iceberg")))
JARS = (
    Jar("io.delta:delta-spark_4.1_2.13:4.3.1", "ebf35a4383f0a653c3ee3c7882c0edcac2f846be31ac61af4b96ccfaaf36c171"),
    Jar("io.delta:delta-storage:4.3.1", "577c12c7e371be4c041714fb48e88ad86e3c3512beea2bdaffbe7a4debf79718"),
    Jar("io.delta:delta-kernel-api:4.3.1", "b081b818d6f5686c7d6406588af72c9f8baf6765a41ada8197364aef90a260e8"),
    Jar("io.delta:delta-kernel-defaults:4.3.1", "27471cca7dd7a36289af2c8d52d2babb37e9e5a13cdaaea76730120f4c72e62f"),
    Jar("io.delta:delta-kernel-unitycatalog:4.3.1", "a288342b7e53da34a608a1a227c8109aa4681fcb582da499ed19347f2193362b"),
)
_SECONDS = 280.0


@dataclass(frozen=True, slots=True)
class Query:
    """
    Attributes
    ----------
    uri : of the table, or "" if the statement names it.
    sql : selects from `t`, the table at a version.
    before : Spark alone: a statement that runs before.
    changes : Spark alone: `t` is what the version changed, as the change data feed has it.
    iceberg : the URI is that of an Iceberg table's metadata, the version a snapshot's id.
    """

    uri: str = ""
    version: int = 0
    sql: str = "SELECT * FROM t"
    before: str = ""
    changes: bool = False
    iceberg: bool = False


class NotRead(AssertionError):
    """The engine ended with an error."""


def duckdb_reads(queries: Sequence[Query]) -> list[pa.Table]:
    """Raises NotRead. Skips the test if the wheels cannot be had."""
    wanted = DUCKDB_ICEBERG if any(query.iceberg for query in queries) else DUCKDB
    return _run("tests.support.lake_duckdb", queries, {"LAKE_DUCKDB": str(duckdb_packages(wanted))})


def spark_reads(queries: Sequence[Query], catalog: str = "") -> list[pa.Table]:
    """`catalog` is the URL of one with a login `reader`, of which Spark attaches `shop.lake` as `lake`. Raises NotRead.
    Skips the test if the jars cannot be had."""
    has_iceberg = catalog or any(query.iceberg for query in queries)
    jars = [*delta_jars(), *(find_jars(s3=False) if has_iceberg else ())]
    return _run("tests.support.lake_spark", queries, {"LAKE_JARS": ",".join(map(str, jars)), "LAKE_CATALOG": catalog})


def _run(module: str, queries: Sequence[Query], environment: Mapping[str, str]) -> list[pa.Table]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "queries.json").write_text(json.dumps([asdict(query) for query in queries]))
        result = subprocess.run(
            [sys.executable, "-m", module, folder],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if result.returncode:
            said = (line for line in result.stderr.splitlines() if not line.lstrip().startswith("at "))
            raise NotRead("\n".join((module, *said))[-2000:])
        return [_table(Path(folder, f"{number}.arrow")) for number in range(len(queries))]


def _table(path: Path) -> pa.Table:
    with pa.ipc.open_file(path) as file:
        return file.read_all()


def duckdb_packages(wanted: Sequence[str]) -> Path:
    """The folder with these wheels."""
    folder = _cache() / f"duckdb-{hashlib.sha256('|'.join(wanted).encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            target = Path(scratch) / "packages"
            words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), *wanted]
            if (result := subprocess.run(words, capture_output=True, text=True, check=False)).returncode:
                pytest.skip(f"{' and '.join(wanted)} cannot be installed: {result.stderr[-200:]}")
            target.rename(folder)
    return folder


def maven_folder(name: str, *wanted: str) -> Path:
    """The folder with these artifacts (group:name:version, and a classifier) and all that they need."""
    folder = _cache() / f"{name}-{hashlib.sha256('|'.join(wanted).encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            jars, pom = Path(scratch) / "jars", Path(scratch) / "pom.xml"
            pom.write_text(_pom(wanted))
            words = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
            subprocess.run(words, check=True, capture_output=True, timeout=280)
            jars.rename(folder)
    return folder


def _pom(wanted: Sequence[str]) -> str:
    tags = ("groupId", "artifactId", "version", "classifier")
    listed = (zip(tags, one.split(":"), strict=False) for one in wanted)
    inner = ("".join(f"<{tag}>{text}</{tag}>" for tag, text in one) for one in listed)
    about = "<modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>"
    dependencies = "".join(f"<dependency>{one}</dependency>" for one in inner)
    return f"<project>{about}<dependencies>{dependencies}</dependencies></project>"


def delta_jars() -> list[Path]:
    found = []
    for jar in JARS:
        _, name, version = jar.artifact.split(":")
        path = _cache() / f"{name}-{version}.jar"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
                try:
                    jar.fetch(Path(scratch)).rename(path)
                except NoJar as error:
                    pytest.skip(str(error))
        found.append(path)
    return found


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "matrixone-ccpr" / "lake"
