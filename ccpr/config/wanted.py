"""From a file to what it wants, as values: subscriptions with their settings, targets, followers and logins, and
Spark.

Every problem of a file is reported with its line, up to ten at once, and none shows a value.
"""

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ccpr.config import document
from ccpr.config.document import Document, Problem, is_reference, read_document, with_variables
from ccpr.config.errors import ConfigInvalid
from ccpr.config.model import (
    PARTS,
    ConfigFile,
    FollowerEntry,
    LakeTargetEntry,
    SparkEntry,
    SubscriptionEntry,
    TargetEntry,
    UpstreamEntry,
)
from ccpr.lake.lake_options import LakeOptions
from ccpr.matrixone.client.endpoint import EVERYTHING, Endpoint, parse_uri
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.spark.stored import StoredSpark
from ccpr.service.subscriptions import Wanted
from ccpr.state.settings import Settings, TargetSettings
from ccpr.targets.address import Address, parse_target_uri

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class WantedTarget:
    """A target as the file has it."""

    name: str
    address: Address
    password: str = field(repr=False)
    settings: TargetSettings
    source_database: str


@dataclass(frozen=True, slots=True)
class WantedLake:
    """A lake as the file has it."""

    name: str
    url: str
    options: LakeOptions
    source_database: str


@dataclass(frozen=True, slots=True)
class WantedFollower:
    """A follower as the file has it. `database`, `relay_address`: None if not said."""

    name: str
    endpoint: Endpoint
    password: str = field(repr=False)
    database: str | None
    relay_address: str | None


@dataclass(frozen=True, slots=True)
class WantedSubscription(Wanted):
    """A subscription as the file has it. What is None is not said: it is looked up, or stays as it is."""

    paused: bool | None = None
    targets: tuple[WantedTarget, ...] = ()
    followers: tuple[WantedFollower, ...] = ()
    lakes: tuple[WantedLake, ...] = ()


@dataclass(frozen=True, slots=True)
class WantedConfig:
    """All that a file says. `spark`: None if it says nothing about Spark. `plain`: lines on which a password stands as
    it is, not as `${NAME}`."""

    document: Document = field(repr=False)
    subscriptions: tuple[WantedSubscription, ...]
    spark: StoredSpark | None
    plain: tuple[int, ...]


def read_file(path: Path) -> WantedConfig:
    """Raises ConfigInvalid."""
    try:
        with path.open("rb") as file:
            content = file.read(document.MOST_BYTES + 1)
    except OSError as error:
        raise ConfigInvalid(
            f"it cannot be read: {error.strerror}",
            subject=str(path),
            remedy="Name a file with -f, or write one with `ccpr config init`.",
        ) from error
    return read_text(content, path.name)


def read_text(content: bytes, source: str, environment: Mapping[str, str] | None = None) -> WantedConfig:
    """Raises ConfigInvalid. `environment`: the process's own if None."""
    raw = read_document(content, source)
    values = with_variables(raw, os.environ if environment is None else environment)
    return _Resolver(raw, values, validated(values)).wanted()


def validated(values: Document) -> ConfigFile:
    """Types, ranges and keys. Raises ConfigInvalid."""
    try:
        return ConfigFile.model_validate(values.value)
    except ValidationError as error:
        problems: dict[document.Path, Problem] = {}
        for found in error.errors(include_url=False, include_context=False, include_input=False):
            place = _place(values, found["loc"])
            problems.setdefault(place, Problem(place, _text(found["type"], found["msg"], place, found["loc"])))
        raise values.error(list(problems.values())) from None


def _place(values: Document, location: tuple[str | int, ...]) -> document.Path:
    """Without the names of alternatives, which pydantic adds at the end."""
    place = location
    while place and place not in values.lines:
        place = place[:-1]
    return place


def _text(kind: str, message: str, place: document.Path, location: tuple[str | int, ...]) -> str:
    if kind == "extra_forbidden":
        part = PARTS.get(tuple(map(str, place[:-1][::2])))
        return "there is no such key" + similar(str(place[-1]), part.model_fields if part else ())
    if kind == "missing":
        return f"`{location[-1]}` is missing"
    if location[-1] == "[key]":
        return "it is not a name for this place: " + message
    hint = "; put it in quotes" if kind == "string_type" else ""
    return message.removeprefix("Value error, ").removeprefix("Input ") + hint


def similar(name: str, known: Iterable[str]) -> str:
    """A question at the end of a message, if there are similar names."""
    found = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(found)}?" if found else ""


class _Resolver:
    """Names become what they name, texts become values; problems are collected."""

    def __init__(self, raw: Document, values: Document, file: ConfigFile) -> None:
        self._raw, self._values, self._file = raw, values, file
        self._problems: list[Problem] = []
        self._plain: set[int] = set()

    def wanted(self) -> WantedConfig:
        logins = {name: self._login(("upstreams", name), one) for name, one in self._file.upstreams.items()}
        found = [self._subscription(name, one, logins) for name, one in self._file.subscriptions.items()]
        spark = None if self._file.spark is None else self._spark(self._file.spark)
        if self._problems:
            raise self._values.error(self._problems)
        subscriptions = tuple(one for one in found if one is not None)
        return WantedConfig(self._values, subscriptions, spark, tuple(sorted(self._plain)))

    def _subscription(
        self, name: str, one: SubscriptionEntry, logins: Mapping[str, tuple[Endpoint, str] | None]
    ) -> WantedSubscription | None:
        path: document.Path = ("subscriptions", name)
        targets = [self._target((*path, "targets", below), below, target) for below, target in one.targets.items()]
        followers = [
            self._follower((*path, "followers", below), below, follower) for below, follower in one.followers.items()
        ]
        databases = one.said().get("databases")
        if databases == "":
            self._problem((*path, "databases"), "it is empty; '*' is for all databases")
        if (one.database is None) == (databases is None):
            there = "neither `database` nor `databases`" if one.database is None else "both `database` and `databases`"
            self._problem(path, f"it has {there}")
        login = self._named(path, "upstream", one.upstream, logins)
        settings = self._settings(path, name, one)
        if login is None:
            return None
        return WantedSubscription(
            name,
            *login,
            one.database or EVERYTHING,
            one.table,
            one.publication,
            one.publisher,
            settings,
            one.paused,
            tuple(target for target in targets if target is not None),
            tuple(follower for follower in followers if follower is not None),
            tuple(self._lake(below, lake) for below, lake in one.lakes.items()),
        )

    def _settings(self, path: document.Path, name: str, one: SubscriptionEntry) -> Settings:
        shared = [
            self._named(path, "policy", one.policy, self._file.policies),
            self._named(path, "objective", one.objective, self._file.objectives),
            self._named(path, "mirror", one.mirror, self._file.mirrors),
        ]
        values: dict[str, Any] = {}
        for part in (*shared, one):
            values |= part.said() if part is not None else {}
        values["mirror"] = values.get("mirror", "").replace("{subscription}", name)
        return Settings(**values)

    def _target(self, path: document.Path, name: str, one: TargetEntry) -> WantedTarget | None:
        try:
            address, inside = parse_target_uri(one.uri)
        except CcprError as error:
            return self._problem((*path, "uri"), error.message)
        password = self._password(path, inside, one.password)
        if password is None:
            return None
        return WantedTarget(name, address, password, TargetSettings(**one.said()), one.database or "")

    def _lake(self, name: str, one: LakeTargetEntry) -> WantedLake:
        return WantedLake(name, one.to, LakeOptions(**one.said()), one.database or "")

    def _follower(self, path: document.Path, name: str, one: FollowerEntry) -> WantedFollower | None:
        login = self._login(path, one)
        return None if login is None else WantedFollower(name, *login, one.database, one.relay_address)

    def _login(self, path: document.Path, one: UpstreamEntry | FollowerEntry) -> tuple[Endpoint, str] | None:
        try:
            endpoint, inside = parse_uri(one.uri)
        except CcprError as error:
            return self._problem((*path, "uri"), error.message)
        password = self._password(path, inside, one.password)
        return None if password is None else (endpoint, password)

    def _password(self, path: document.Path, inside: str | None, beside: str | None) -> str | None:
        """The one that the URI has, or the one of the key `password`."""
        if (inside is None) == (beside is None):
            text = "there is no password" if inside is None else "there are two passwords, in `uri` and in `password`"
            return self._problem(path, f"{text}; write `password: ${{NAME}}`")
        place = (*path, "uri" if beside is None else "password")
        if not is_reference(self._raw.text_at(place)):
            self._plain.add(self._raw.line_of(place))
        return inside if beside is None else beside

    def _spark(self, spark: SparkEntry) -> StoredSpark:
        if spark.master and spark.remote:
            self._problem(("spark", "remote"), "a master and a Spark Connect server are named; Spark runs in one")
        config = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in spark.config.items()
        }
        return StoredSpark(spark.master or "", spark.remote or "", config)

    def _named(self, path: document.Path, key: str, name: str | None, known: Mapping[str, _Found]) -> _Found | None:
        if name is None or name in known:
            return None if name is None else known[name]
        section = {"policy": "policies"}.get(key, f"{key}s")
        return self._problem((*path, key), f"`{section}` has no {name[:80]!r}{similar(name, known)}")

    def _problem(self, path: document.Path, text: str) -> None:
        self._problems.append(Problem(path, text))
