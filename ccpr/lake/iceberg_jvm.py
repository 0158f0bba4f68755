"""The JVM in which Iceberg's own library writes metadata and commits: one for a process, started when it is needed,
again if it was killed, and ended with the process. Source: decision lake-iceberg.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from ccpr.base.errors import require
from ccpr.base.maven import Jar, NoJar
from ccpr.lake.errors import IcebergFailed, IcebergJarMissing, LakeConflict
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.errors import BadName

JAR_FOLDER = "CCPR_ICEBERG_JARS"  # a folder with the jars, for machines that Maven does not reach
# What keeps it small: a commit needs some 60 MB of heap. C1 alone starts sooner and has a smaller code cache.
_OPTIONS = ("-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxMetaspaceSize=128m", "-Xss512k")
_SOURCE = Path(__file__).with_name("IcebergCommits.java")
_PACKAGES = ("pyspark", "py4j")
_OPENED = 8
_SECRETS = ("token", "credential", "s3.access-key-id", "s3.secret-access-key", "s3.session-token")
_CATALOG = "Write https://host/path?warehouse=NAME, and a secret as token=env:NAME or credential=env:NAME."
_TAKEN = ("CommitFailedException", "AlreadyExistsException")


ICEBERG = Jar(
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    "d6ea6c5d099288daeb7d5a92061bd3d7d8f296492632b42378e5f2f0e3066242",
)
AWS = Jar(
    "org.apache.iceberg:iceberg-aws-bundle:1.11.0", "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f"
)


def require_iceberg(java: Callable[[], Path], *, s3: bool) -> None:
    """Whether a JVM with Iceberg's library can be started. Raises ExtraMissing, IcebergJarMissing, and what `java`
    raises."""
    require("iceberg", *_PACKAGES)
    java()
    find_jars(s3=s3)


def find_jars(*, s3: bool) -> list[Path]:
    """In the folder that JAR_FOLDER names, else in one of the user's caches, where Maven brings them once. Raises
    IcebergJarMissing."""
    given = os.environ.get(JAR_FOLDER)
    cache = Path.home() / ".cache" / "matrixone-ccpr" / "iceberg"
    return [_found(jar, Path(given or cache), fetched=not given) for jar in ((ICEBERG, AWS) if s3 else (ICEBERG,))]


def _found(jar: Jar, folder: Path, *, fetched: bool) -> Path:
    path = folder / jar.file
    try:
        if path.is_file():
            jar.check(path)
        elif fetched:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                jar.fetch(Path(scratch)).rename(path)
        else:
            raise NoJar(f"{path} is not there")
    except (NoJar, OSError) as error:
        raise IcebergJarMissing(str(error), subject=jar.artifact) from error
    return path


class IcebergJvm:
    """A JVM with Iceberg's library. Threads may share it.

    Attributes
    ----------
    manifests : names of the manifests of a snapshot, which never change.
    """

    def __init__(self, java: Path, *, s3: bool) -> None:
        """Raises ExtraMissing, IcebergJarMissing, IcebergFailed."""
        require("iceberg", *_PACKAGES)
        import pyspark
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
        from py4j.protocol import Py4JError

        jars, self._s3 = find_jars(s3=s3), s3
        spark = Path(pyspark.__file__).parent / "jars"
        (py4j_jar,) = spark.glob("py4j-*.jar")
        try:
            launched: Any = launch_gateway(
                jarpath=str(py4j_jar),
                classpath=os.pathsep.join([*map(str, jars), f"{spark}/*"]),
                javaopts=list(_OPTIONS),
                java_path=str(java),
                die_on_exit=True,
                enable_auth=True,
                return_proc=True,
            )
        except (OSError, ValueError, Py4JError) as error:
            raise IcebergFailed(f"it did not start: {error}", subject=str(java)) from error
        port, token, self._process = launched
        parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
        self._gateway: Any = JavaGateway(gateway_parameters=parameters)
        self._opened: dict[tuple[Any, ...], Any] = {}
        self._lock = Lock()
        self.manifests: dict[int, set[str]] = {}
        self._shown: dict[int, set[str]] = {}  # by snapshots of held points, which are few
        with java_errors(_SOURCE.name):
            compiler = self._gateway.jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setTargetVersion(8)
            compiler.setParentClassLoader(self.java.lang.Thread.currentThread().getContextClassLoader())
            compiler.cook(_SOURCE.read_text())
            self.commits = compiler.getClassLoader().loadClass(_SOURCE.stem).newInstance()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def java(self) -> Any:
        return self._gateway.jvm.java

    @property
    def iceberg(self) -> Any:
        return self._gateway.jvm.org.apache.iceberg

    def catalog(self, properties: Mapping[str, str]) -> Any:
        """A REST catalog, opened once."""

        def opened() -> Any:
            found = self.iceberg.rest.RESTCatalog()
            found.setConf(self._gateway.jvm.org.apache.hadoop.conf.Configuration())
            found.initialize("ccpr", dict(properties))
            return found

        return self._kept("catalog", properties, opened)

    def files(self, properties: Mapping[str, str]) -> Any:
        """What reads and writes files of this machine, or of a bucket by its `store_properties`."""
        if not self._s3:
            return self.commits.localFiles()

        def opened() -> Any:
            return self.iceberg.CatalogUtil.loadFileIO("org.apache.iceberg.aws.s3.S3FileIO", dict(properties), None)

        return self._kept("files", properties, opened)

    def _kept(self, kind: str, properties: Mapping[str, str], opened: Callable[[], Any]) -> Any:
        key = (kind, *sorted(properties.items()))
        with self._lock:
            if key not in self._opened:
                found = opened()
                while len(self._opened) >= _OPENED:
                    self._opened.pop(next(iter(self._opened))).close()
                self._opened[key] = found
            return self._opened[key]

    def staged(self, files: Any, asked: Sequence[Mapping[str, Any]]) -> Any:
        """Tables after changes, see `IcebergCommits.java`; manifests are written."""
        return self.commits.staged(files, json.dumps(asked))

    def contents(self, staged: Any) -> list[tuple[str | None, str | None]]:
        """Metadata of tables that are `staged`, as JSON, or why there are none."""
        return json.loads(self.commits.contents(staged))

    def read_manifests(self, files: Any, metadata: str) -> None:
        """Note the `manifests` of a table's snapshots."""
        known = json.dumps(dict.fromkeys(map(str, self.manifests)))
        for number, paths in json.loads(self.commits.manifests(files, metadata, known)).items():
            self.manifests[int(number)] = {path.rpartition("/")[2] for path in paths}

    def shown(self, files: Any, metadata: str, snapshots: Sequence[int]) -> set[str]:
        """Paths of the files that snapshots of a table show."""
        if missing := [one for one in snapshots if one not in self._shown]:
            read = json.loads(self.commits.shown(files, metadata, json.dumps(missing)))
            self._shown.update({int(number): set(paths) for number, paths in read.items()})
        return set[str]().union(*(self._shown[one] for one in snapshots))

    def identifier(self, name: str) -> Any:
        """Of the table `db.t`."""
        database, _, table = name.partition(".")
        levels = self._gateway.new_array(self._gateway.jvm.java.lang.String, 1)
        levels[0] = database
        return self.iceberg.catalog.TableIdentifier.of(self.iceberg.catalog.Namespace.of(levels), table)

    def end(self) -> None:
        with suppress(OSError):
            self._process.kill()
            self._process.wait()


_running: dict[bool, IcebergJvm] = {}
_starting = Lock()


def running_jvm(java: Callable[[], Path], *, s3: bool) -> IcebergJvm:
    """The JVM of this process. Raises what `java` raises, IcebergJarMissing, ExtraMissing, IcebergFailed.

    Parameters
    ----------
    java : finds the program; not called if the JVM runs.
    s3 : with what writes metadata to a bucket.
    """
    with _starting:
        found = _running.get(s3)
        if found is None or not found.alive:
            found = _running[s3] = IcebergJvm(java(), s3=s3)
        return found


@contextmanager
def java_errors(subject: str) -> Iterator[None]:
    """What Java raises, as LakeConflict if another writer was first, else as IcebergFailed."""
    from py4j.protocol import Py4JError

    try:
        yield
    except CcprError:
        raise
    except Exception as error:
        thrown = java_exception(error)
        if thrown is None and not isinstance(error, Py4JError | OSError):
            raise
        if thrown is None:
            raise IcebergFailed(f"the JVM does not answer: {error}"[:400], subject=subject) from error
        name = exception_name(thrown)
        message = f"{name}: {thrown.getMessage()}"[:400]
        raise (LakeConflict if name in _TAKEN else IcebergFailed)(message, subject=subject) from error


def java_exception(error: BaseException) -> Any:
    """What Java raised; None if it did not.

    Where the process has a session of Spark, PySpark takes each exception that py4j brings for one of its own JVM, and
    may raise another one for it: then the one of ours is the context of that.
    """
    from py4j.protocol import Py4JJavaError

    found: BaseException | None = error
    while found is not None and not isinstance(found, Py4JJavaError):
        found = found.__context__
    return None if found is None else found.java_exception


def exception_name(thrown: Any) -> str:
    """Of a `java_exception`, without its package."""
    return str(thrown.getClass().getSimpleName())


def catalog_properties(url: str) -> dict[str, str]:
    """Those of a REST catalog, from its URL: its options are properties, and `env:NAME` is what the environment has.
    Raises BadName for a secret that is written out."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise BadName("not the URL of a REST catalog", subject=shown, remedy=_CATALOG)
    found = {"uri": shown}
    for key, value in given.items():
        named = value.removeprefix("env:")
        if key in _SECRETS and named == value:
            raise BadName("a secret in a URL, which is shown and logged", subject=shown, remedy=_CATALOG)
        if named != value and named not in os.environ:
            raise BadName(f"the environment variable {named} is not set", subject=shown, remedy=f"export {named}=…")
        found[key] = value if named == value else os.environ[named]
    return found


def store_properties(url: str) -> dict[str, str]:
    """By which Iceberg's library writes to a bucket; it finds credentials where the AWS clients do."""
    given = dict(parse_qsl(urlsplit(url).query))
    found = {"client.region": given.get("region", "us-east-1")}
    if endpoint := given.get("endpoint_override"):
        found |= {"s3.endpoint": f"{given.get('scheme', 'https')}://{endpoint}", "s3.path-style-access": "true"}
    return found
