"""The errors of Spark: of its sessions, also those that others keep (a Spark Connect server, a cluster), and of its
jobs."""

from ccpr.matrixone.errors import Terminal, Transient


class SparkSessionLost(Transient):
    """A session of Spark Connect ended, or no longer answers, while it was used."""

    code = "SPARK_SESSION_LOST"
    about = "session of Spark"
    default_remedy = (
        "Run it again: what is done is kept. Look whether the Spark Connect server runs; `--engine process` copies "
        "without Spark."
    )


class SparkRefused(Terminal):
    """A Spark Connect server refused the token of this program."""

    code = "SPARK_REFUSED"
    about = "session of Spark"
    default_remedy = "Name the token in CCPR_SPARK_REMOTE: sc://host:port/;token=…"


class SparkVersionDiffers(Terminal):
    """A Spark Connect server has another version of Spark than its client here."""

    code = "SPARK_VERSION_DIFFERS"
    about = "session of Spark"
    default_remedy = "Use a server of the version that this program has: the one of the package pyspark."


class SparkCodeDiffers(Terminal):
    """Spark's workers import another version of this program, or none."""

    code = "SPARK_CODE_DIFFERS"
    about = "session of Spark"
    default_remedy = "Install this version where the executors run, and start them again."


class StoreNotShared(Terminal):
    """Spark's executors run on other machines and cannot read a folder of this one."""

    code = "STORE_NOT_SHARED"
    about = "store"
    default_remedy = "Use a local Spark master, or run Spark on the machine that has the folder."


class SparkJobFailed(Transient):
    """A job failed for a reason of Spark's own: a lost executor, a worker without memory, a broken connection."""

    code = "SPARK_JOB_FAILED"
    about = "job of Spark"
    default_remedy = "Run it again: what is done is kept. `--engine process` copies without Spark."


class JavaMissing(Terminal):
    """This machine has no Java on which Spark can run."""

    code = "JAVA_MISSING"
    about = "program"
    default_remedy = (
        "pip install 'matrixone-ccpr[spark]' (no system package needed), or install Java 17 or 21 and set JAVA_HOME."
    )


class SparkUnavailable(Terminal):
    """A Spark session could not be created."""

    code = "SPARK_UNAVAILABLE"
    about = "address of Spark"
    default_remedy = "Read what Spark wrote on standard error. `--engine process` works without Spark."
