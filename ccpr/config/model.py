"""What a configuration file may say, as pydantic models: its types, its ranges, and a sentence about each key for
editors (`schema`) and docs/reference/ccpr-yaml.md."""

import json
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from ccpr.state.settings import MOST_SESSIONS, SPAN, seconds_of

_MOST = 10**9


def _seconds(value: object) -> object:
    return seconds_of(value) if isinstance(value, str) else value


_SPAN_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": SPAN}]}
Span: TypeAlias = Annotated[int, Field(ge=0, le=_MOST), BeforeValidator(_seconds), WithJsonSchema(_SPAN_SCHEMA)]
Name: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,60}$")]
Uri: TypeAlias = Annotated[str, Field(min_length=1, repr=False)]
Secret: TypeAlias = Annotated[str | None, Field(default=None, repr=False)]


class Part(BaseModel):
    """A part of the file. An unknown key is an error; a number is not taken for text, nor text for a number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class Upstream(Part):
    """A cluster to replicate from, with a login there."""

    uri: Uri = Field(description="mysql://account#user[:password]@host:port, with the options of TLS.")
    password: Secret = Field(description="The password, if the URI has none: '${NAME}'.")


class Mirror(Part):
    """Where mirrors are kept, and who may read them."""

    url: str | None = Field(
        default=None,
        description="A folder or s3://bucket/prefix, in which {subscription} is the subscription's name. Without it, "
        "the state folder.",
    )
    shared: bool = Field(default=False, description="Let other users of this machine read it, as the umask says.")


class Objective(Part):
    """How fresh a replica has to be."""

    max_lag: Span = Field(description="How old its state may be: seconds, or 90s, 10m, 24h.")


class Policy(Part):
    """Settings of subscriptions. What is not said has the default of `ccpr subscribe`."""

    interval: Annotated[Span, Field(ge=1)] | None = Field(
        default=None, description="Time between iterations: seconds, or 90s, 10m."
    )
    retain: Annotated[int, Field(ge=0, le=_MOST)] | None = Field(
        default=None, description="How many points stay readable; 0 keeps all."
    )
    retain_for: Span | None = Field(default=None, description="How long points stay readable: 90m, 24h, 7d.")
    retain_files: Span | None = Field(
        default=None, description="How long files stay that no point names any more, for who still reads: 10m, 1h."
    )
    with_indexes: bool | None = Field(
        default=None, description="Copy hidden index tables as well. It cannot be changed later."
    )
    flush: Literal["on_demand", "wait"] | None = Field(
        default=None, description="Whether the upstream is asked to flush a snapshot, or waited for."
    )
    max_sessions: Annotated[int, Field(ge=1, le=MOST_SESSIONS)] | None = Field(
        default=None, description="Upstream sessions that copy at the same time."
    )
    max_mb_s: Annotated[float, Field(ge=0, le=_MOST, allow_inf_nan=False)] | None = Field(
        default=None, description="Megabytes per second that copying may use; 0: no limit."
    )
    consistency: Literal["together", "isolated"] | None = Field(
        default=None, description="together: all tables move to a point or none; isolated: a failing one stays behind."
    )
    resync_limit: Annotated[int, Field(ge=0, le=2**62)] | None = Field(
        default=None, description="Bytes that may be copied without asking if the base snapshot was lost; 0 asks."
    )
    invalid_text: Literal["escape", "replace", "binary", "error"] | None = Field(
        default=None, description="How export and targets get text that is not UTF-8."
    )
    zero_dates: Literal["null", "keep", "error"] | None = Field(
        default=None, description="What export gives for the date 0000-00-00."
    )
    objects_from: str | None = Field(
        default=None,
        description="The upstream's storage, to read objects from it: s3://bucket/prefix, gs://… or file:///folder.",
    )
    tables: str | None = Field(
        default=None, description="Only tables that match: patterns with * and ?, joined by commas: order_*,item."
    )
    exclude_tables: str | None = Field(
        default=None, description="Without tables that match one of these patterns: '*_tmp'."
    )


class Target(Part):
    """A database of MariaDB, MySQL or MatrixOne that a subscription is synced to."""

    uri: Uri = Field(description="mysql://user[:password]@host:port/database, with the options of TLS.")
    password: Secret = Field(description="The password, if the URI has none: '${NAME}'.")
    database: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Of several databases, the one upstream whose tables it gets. It stays so."
    )
    ddl_policy: Literal["additive", "full", "manual"] = Field(
        default="additive", description="Which changes of definitions are applied, and which wait for a person."
    )
    as_text: tuple[Annotated[str, Field(pattern=r"^.+\..+$")], ...] = Field(
        default=(), strict=False, description="Columns (table.column) that are kept as long text. They stay so."
    )
    duplicate_keys: Literal["error", "last"] = Field(
        default="error", description="What happens to a table of which two rows have one key upstream."
    )
    max_drop: Annotated[int, Field(ge=0, lt=1_000_000_000)] | Literal["half"] = Field(
        default="half", description="How many tables it drops at once without being asked; `half`: fewer than half."
    )


class Follower(Part):
    """A database of another MatrixOne that follows a subscription through the relay."""

    uri: Uri = Field(description="mysql://sys#user[:password]@host:port of that cluster, with the options of TLS.")
    password: Secret = Field(description="The password, if the URI has none: '${NAME}'.")
    database: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="The database's name there; if not given, the subscription's. It stays so."
    )
    relay_address: Annotated[str, Field(pattern=r"^\S+:[0-9]{1,5}$")] | None = Field(
        default=None,
        description="HOST:PORT where that cluster reaches the relay; if not given, 127.0.0.1:6002, for one on this "
        "machine. It stays so.",
    )


class Subscription(Policy):
    """What is replicated, from where, and how. Settings that stand here win over those of the policy."""

    upstream: str = Field(description="A name of `upstreams`.")
    database: Annotated[str, Field(min_length=1)] | None = Field(default=None, description="The database to replicate.")
    databases: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="In its place several of an account, which have points together: names and patterns joined by "
        "commas, 'shop_*,crm'; '*' for all.",
    )
    table: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Only this table of the database."
    )
    publication: str | None = Field(
        default=None, description="The publication upstream; if not given, the one that covers the database."
    )
    publisher: str | None = Field(
        default=None, description="The account that owns the publication; if not given, it is looked up."
    )
    allow_overlap: bool = Field(default=False, description="It may have tables that another subscription has, too.")
    policy: str | None = Field(default=None, description="A name of `policies`.")
    objective: str | None = Field(default=None, description="A name of `objectives`.")
    mirror: str | None = Field(default=None, description="A name of `mirrors`; without it, the state folder.")
    paused: bool | None = Field(
        default=None, description="true pauses it, false resumes it; without it, it stays as commands left it."
    )
    targets: dict[Name, Target] = Field(default_factory=dict, description="Databases that it is synced to, by name.")
    followers: dict[Name, Follower] = Field(
        default_factory=dict, description="Databases of other clusters that follow it through the relay, by name."
    )


class Spark(Part):
    """Where Spark runs, for the commands and Dagster. CCPR_SPARK_* win over it."""

    master: str | None = Field(default=None, description="local[4], spark://host:7077, yarn, k8s://…")
    remote: Annotated[str, Field(pattern="^sc://.")] | None = Field(
        default=None, repr=False, description="A Spark Connect server in its place, sc://host:port."
    )
    config: dict[Annotated[str, Field(pattern=r"^spark\.")], str | int | float | bool] = Field(
        default_factory=dict, repr=False, description="Settings of Spark: spark.executor.memory: 2g."
    )


class ConfigFile(Part):
    """Upstreams, subscriptions with targets and followers, and what they share. `ccpr config apply` makes the state
    folder so."""

    version: Literal[1] = Field(default=1, description="Of the file's format.")
    upstreams: dict[str, Upstream] = Field(default_factory=dict, description="Clusters to replicate from, by name.")
    mirrors: dict[str, Mirror] = Field(default_factory=dict, description="Places for mirrors, by name.")
    policies: dict[str, Policy] = Field(default_factory=dict, description="Settings that subscriptions share, by name.")
    objectives: dict[str, Objective] = Field(
        default_factory=dict, description="How fresh replicas have to be, by name."
    )
    subscriptions: dict[Name, Subscription] = Field(default_factory=dict, description="Subscriptions, by name.")
    spark: Spark | None = Field(default=None, description="Where Spark runs.")


# The model of each place, by the keys that lead there without the names between them.
PARTS: dict[tuple[str, ...], type[Part]] = {
    (): ConfigFile,
    ("upstreams",): Upstream,
    ("mirrors",): Mirror,
    ("policies",): Policy,
    ("objectives",): Objective,
    ("subscriptions",): Subscription,
    ("subscriptions", "targets"): Target,
    ("subscriptions", "followers"): Follower,
    ("spark",): Spark,
}


def schema() -> dict[str, Any]:
    """The JSON schema of a file, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **ConfigFile.model_json_schema(),
        "title": "ccpr.yaml",
    }


def schema_text() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
