"""What a configuration file may say, as pydantic models: its types, its ranges, and a sentence about each key for
editors (`schema`) and docs/reference/ccpr-yaml.md."""

import json
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema, create_model

from ccpr.lake.lake_options import LAKE_SETTINGS
from ccpr.state.setting_entry import FilePart, Setting
from ccpr.state.settings import SETTINGS, TARGET_SETTINGS

Name: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,60}$")]
Uri: TypeAlias = Annotated[str, Field(min_length=1, repr=False)]
Secret: TypeAlias = Annotated[str | None, Field(default=None, repr=False)]


class ConfigPart(BaseModel):
    """A part of the file. An unknown key is an error; a number is not taken for text, nor text for a number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)
    settings: ClassVar[tuple[Setting, ...]] = ()  # whose keys it has

    def said(self) -> dict[str, Any]:
        """The settings that it names, by their names."""
        found = {one.name: getattr(self, one.key) for one in self.settings}
        return {name: value for name, value in found.items() if value is not None}


_Part = TypeVar("_Part", bound=ConfigPart)


def with_settings(part: FilePart) -> Callable[[type[_Part]], type[_Part]]:
    """The model with a key for each setting that stands in that part of a file."""
    known = (*SETTINGS.values(), *TARGET_SETTINGS.values(), *LAKE_SETTINGS.values())
    chosen = tuple(one for one in known if one.part is part)

    def with_keys(model: type[_Part]) -> type[_Part]:
        keys: dict[str, Any] = {one.key: _key(one) for one in chosen}
        made = create_model(model.__name__, __base__=model, __doc__=model.__doc__, __module__=model.__module__, **keys)
        made.settings = (*model.settings, *chosen)
        return made

    return with_keys


def _key(one: Setting) -> tuple[Any, Any]:
    """The type of a key, and its field. The value is read by the setting's kind, whose error shows no value."""

    def read(value: object) -> Any:
        found = one.kind.read(value)
        one.kind.check(found)
        return found

    typed: Any = Annotated[Any, PlainValidator(read), WithJsonSchema(dict(one.kind.schema))]
    text = one.sentence_in_file
    return (typed, Field(description=text)) if one.required else (typed | None, Field(default=None, description=text))


class UpstreamEntry(ConfigPart):
    """A cluster to replicate from, with a login there."""

    uri: Uri = Field(description="mysql://account#user[:password]@host:port, with the options of TLS.")
    password: Secret = Field(description="The password, if the URI has none: '${NAME}'.")


@with_settings(FilePart.MIRROR)
class MirrorEntry(ConfigPart):
    """Where mirrors are kept, and who may read them."""


@with_settings(FilePart.OBJECTIVE)
class ObjectiveEntry(ConfigPart):
    """How fresh a replica must be."""


@with_settings(FilePart.POLICY)
class PolicyEntry(ConfigPart):
    """Settings of subscriptions. A setting that is not given has its default."""


@with_settings(FilePart.TARGET)
class TargetEntry(ConfigPart):
    """A database of MariaDB, MySQL or MatrixOne that a subscription is synced to."""

    uri: Uri = Field(description="mysql://user[:password]@host:port/database, with the options of TLS.")
    password: Secret = Field(description="The password, if the URI has none: '${NAME}'.")
    database: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Of several databases, the one upstream whose tables it gets. It stays so."
    )


@with_settings(FilePart.LAKE)
class LakeTargetEntry(ConfigPart):
    """Tables of files that a subscription is published to. What is kept and whose metadata they have can be changed
    later."""

    to: str = Field(description="file:///folder or s3://bucket/prefix, with region and endpoint as its options.")
    database: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Of several databases, the one upstream whose tables it gets."
    )


class FollowerEntry(ConfigPart):
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


@with_settings(FilePart.SUBSCRIPTION)
class SubscriptionEntry(PolicyEntry):
    """What is replicated, from where, and how. Settings that stand here win over those of the policy."""

    upstream: str = Field(description="A name of `upstreams`.")
    database: Annotated[str, Field(min_length=1)] | None = Field(default=None, description="The database to replicate.")
    table: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Only this table of the database."
    )
    publication: str | None = Field(
        default=None, description="The publication upstream; if not given, the one that covers the database."
    )
    publisher: str | None = Field(
        default=None, description="The account that owns the publication; if not given, it is looked up."
    )
    policy: str | None = Field(default=None, description="A name of `policies`.")
    objective: str | None = Field(default=None, description="A name of `objectives`.")
    mirror: str | None = Field(default=None, description="A name of `mirrors`; without it, the state folder.")
    paused: bool | None = Field(
        default=None, description="true pauses it, false resumes it; without it, it stays as commands left it."
    )
    targets: dict[Name, TargetEntry] = Field(
        default_factory=dict, description="Databases that it is synced to, by name."
    )
    lakes: dict[Name, LakeTargetEntry] = Field(
        default_factory=dict, description="Lakes that it is published to, by name. A target has another name."
    )
    followers: dict[Name, FollowerEntry] = Field(
        default_factory=dict, description="Databases of other clusters that follow it through the relay, by name."
    )


class SparkEntry(ConfigPart):
    """Where Spark runs, for the commands and Dagster. CCPR_SPARK_* win over it."""

    master: str | None = Field(default=None, description="local[4], spark://host:7077, yarn, k8s://…")
    remote: Annotated[str, Field(pattern="^sc://.")] | None = Field(
        default=None, repr=False, description="A Spark Connect server in its place, sc://host:port."
    )
    config: dict[Annotated[str, Field(pattern=r"^spark\.")], str | int | float | bool] = Field(
        default_factory=dict, repr=False, description="Settings of Spark: spark.executor.memory: 2g."
    )


class ConfigFile(ConfigPart):
    """Upstreams, subscriptions with targets and followers, and what they share. `ccpr config apply` makes the state
    folder so."""

    version: Literal[1] = Field(default=1, description="Of the file's format.")
    upstreams: dict[str, UpstreamEntry] = Field(
        default_factory=dict, description="Clusters to replicate from, by name."
    )
    mirrors: dict[str, MirrorEntry] = Field(default_factory=dict, description="Places for mirrors, by name.")
    policies: dict[str, PolicyEntry] = Field(
        default_factory=dict, description="Settings that subscriptions share, by name."
    )
    objectives: dict[str, ObjectiveEntry] = Field(
        default_factory=dict, description="How fresh replicas must be, by name."
    )
    subscriptions: dict[Name, SubscriptionEntry] = Field(default_factory=dict, description="Subscriptions, by name.")
    spark: SparkEntry | None = Field(default=None, description="Where Spark runs.")


# The model of each place, by the keys that lead there without the names between them.
PARTS: dict[tuple[str, ...], type[ConfigPart]] = {
    (): ConfigFile,
    ("upstreams",): UpstreamEntry,
    ("mirrors",): MirrorEntry,
    ("policies",): PolicyEntry,
    ("objectives",): ObjectiveEntry,
    ("subscriptions",): SubscriptionEntry,
    ("subscriptions", "targets"): TargetEntry,
    ("subscriptions", "lakes"): LakeTargetEntry,
    ("subscriptions", "followers"): FollowerEntry,
    ("spark",): SparkEntry,
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
