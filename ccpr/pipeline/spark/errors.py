"""The errors of Spark sessions that others keep: the warm one of a state folder, a Spark Connect server, a cluster."""

from ccpr.matrixone.errors import Terminal, Transient


class SparkSessionLost(Transient):
    """A session of Spark Connect ended, or no longer answers, while it was used."""

    code = "SPARK_SESSION_LOST"
    about = "session of Spark"
    default_remedy = (
        "Run it again: what is done is kept. `ccpr spark status` shows the warm session, `ccpr spark start` starts it; "
        "`--engine process` copies without Spark."
    )


class SparkRefused(Terminal):
    """A Spark Connect server refused the token of this program."""

    code = "SPARK_REFUSED"
    about = "session of Spark"
    default_remedy = (
        "For the warm session: `ccpr spark stop`, then `ccpr spark start`. For another server, CCPR_SPARK_REMOTE "
        "has to name the token: sc://host:port/;token=…"
    )


class SparkVersionDiffers(Terminal):
    """A Spark Connect server has another version of Spark than its client here."""

    code = "SPARK_VERSION_DIFFERS"
    about = "session of Spark"
    default_remedy = "Use a server of the version that this program has; `ccpr spark status` names it."


class SparkCodeDiffers(Terminal):
    """Spark's workers import another version of this program, or none. They would read and write as that one does."""

    code = "SPARK_CODE_DIFFERS"
    about = "session of Spark"
    default_remedy = (
        "For the warm session: `ccpr spark start` starts it again, with this version. On a cluster, install this "
        "version where the executors run, and start them again."
    )
