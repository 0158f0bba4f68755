"""The state as a configuration file: what `ccpr config apply` would find unchanged. Passwords leave as names of
environment variables."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ccpr.config.document import written
from ccpr.lake.lake_options import LAKE_SETTINGS, options_of
from ccpr.matrixone.client.endpoint import Endpoint, format_uri
from ccpr.mirror.encryption_keys import IN_CLEAR, with_key
from ccpr.pipeline.spark.connect import shown_url
from ccpr.pipeline.spark.stored import StoredSpark
from ccpr.service.subscriptions import overlapping
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable
from ccpr.state.followers import Follower, FollowerStage
from ccpr.state.setting_entry import FilePart, Setting
from ccpr.state.settings import SETTINGS, TARGET_SETTINGS
from ccpr.state.states import State
from ccpr.state.subscription import Subscription
from ccpr.state.targets import Target, TargetState
from ccpr.targets.address import address_of, format_target_uri

_SECRET = re.compile("secret|password|token|access[._]?key", re.I)  # names of Spark's settings, as Spark redacts them


@dataclass(slots=True)
class _Names:
    """Names that are not used twice."""

    used: set[str] = field(default_factory=set)

    def new(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self.used:
            number += 1
            name = f"{wanted}_{number}"
        self.used.add(name)
        return name


@dataclass(frozen=True, slots=True)
class Exported:
    """`text`: the file. `variables`: the environment variables that it names."""

    text: str
    variables: tuple[str, ...]


def export_config(workspace: Workspace) -> Exported:
    """Raises StateUnreadable, if the row of a subscription cannot be read."""
    rows, bad = workspace.log.all_rows()
    if bad:
        raise StateUnreadable(
            "its row cannot be read, so the file would lack it",
            subject=f"subscription {bad[0].subscription_name}",
        )
    rows = sorted(rows, key=lambda row: row.subscription_name)
    known = [Subscription.from_row(row) for row in rows]
    variables, places = _Names(), _Names()
    upstreams: dict[tuple[Endpoint, str], str] = {}
    file: dict[str, Any] = {"version": 1, "upstreams": {}, "mirrors": {}, "objectives": {}, "subscriptions": {}}
    for row, one in zip(rows, known, strict=True):
        login = (one.endpoint, _password(workspace, one))
        if login not in upstreams:
            upstreams[login] = name = places.new(re.sub("[^A-Za-z0-9]+", "-", one.endpoint.host).strip("-") or "a")
            file["upstreams"][name] = {
                "uri": _escaped(format_uri(one.endpoint)),
                "password": _variable(variables, f"UPSTREAM_{name}_PASSWORD"),
            }
        scope = {"databases" if one.of_account else "database": _escaped(one.databases)}
        entry: dict[str, Any] = {"upstream": upstreams[login], **scope}
        if one.table is not None:
            entry["table"] = _escaped(one.table)
        entry |= {"publication": _escaped(one.publication.name), "publisher": _escaped(one.publication.publisher)}
        settings = one.settings
        if overlapping(one, known) is not None:  # from before it was a setting
            settings = replace(settings, allow_overlap=True)
        for part in (FilePart.POLICY, FilePart.SUBSCRIPTION):
            entry |= _said(SETTINGS, settings, part)
        for part in (FilePart.MIRROR, FilePart.OBJECTIVE):
            if said := _said(SETTINGS, settings, part):
                file[part][one.name] = said
                entry[part.reference] = one.name
        if row.state == State.PAUSED:
            entry["paused"] = True
        records = workspace.of(row)
        below = {
            "targets": _targets(records.targets.databases(), one.name, variables),
            "lakes": _lakes(records.targets.lakes(), IN_CLEAR if settings.encrypt else ""),
            "followers": _followers(records.followers.all(), one, variables),
        }
        entry |= {key: those for key, those in below.items() if those}
        file["subscriptions"][one.name] = entry
    if (spark := StoredSpark.of(workspace.home)) != StoredSpark():
        file["spark"] = _spark(spark, variables)
    named = tuple(sorted(variables.used))
    said = {key: value for key, value in file.items() if value or key == "subscriptions"}  # none, on purpose
    text = written(said)
    return Exported(_head(named) + text, named)


def _head(variables: Iterable[str]) -> str:
    lines = [f"#   export {name}=…" for name in variables]
    return "\n".join(["# Written by `ccpr config export`; read by `ccpr config apply`.", *lines, ""])


def _password(workspace: Workspace, one: Subscription) -> str:
    """For comparing only: two subscriptions with one login are one upstream."""
    try:
        return workspace.vault.open(one.sealed_password, one.endpoint)
    except StateUnreadable:
        return one.sealed_password


def _said(known: Mapping[str, Setting], settings: object, part: FilePart) -> dict[str, Any]:
    """What is not the default, under its key in a part of the file."""
    said = (one for one in known.values() if one.part is part and one.of(settings) != one.default)
    return {one.key: _literally(one.plain(settings)) for one in said}


def _targets(targets: Iterable[Target], subscription: str, variables: _Names) -> dict[str, Any]:
    """Those that are synced."""
    found: dict[str, Any] = {}
    for target in targets:
        if target.state is TargetState.RELEASED:
            continue
        found[target.name] = {
            "uri": _escaped(format_target_uri(address_of(target))),
            "password": _variable(variables, f"TARGET_{subscription}_{target.name}_PASSWORD"),
            **({"database": _escaped(target.source_database)} if target.source_database else {}),
            **_said(TARGET_SETTINGS, target.settings, FilePart.TARGET),
        }
    return found


def _lakes(lakes: Iterable[Target], encrypt: str) -> dict[str, Any]:
    """What is not the default. `encrypt` is said in their URLs."""
    found: dict[str, Any] = {}
    for lake in lakes:
        database = {"database": _escaped(lake.source_database)} if lake.source_database else {}
        said = _said(LAKE_SETTINGS, options_of(lake), FilePart.LAKE)
        found[lake.name] = {"to": _escaped(with_key(lake.uri, encrypt)), **database, **said}
    return found


def _followers(followers: Iterable[Follower], one: Subscription, variables: _Names) -> dict[str, Any]:
    """Those that follow, or are about to."""
    found: dict[str, Any] = {}
    for follower in followers:
        if follower.stage not in (FollowerStage.STARTING, FollowerStage.FOLLOWING):
            continue
        found[follower.name] = {
            "uri": _escaped(follower.uri),
            "password": _variable(variables, f"FOLLOWER_{one.name}_{follower.name}_PASSWORD"),
            **({"database": _escaped(follower.database)} if follower.database != one.database else {}),
            "relay_address": _escaped(follower.relay_address),
        }
    return found


def _spark(spark: StoredSpark, variables: _Names) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if spark.master:
        found["master"] = _escaped(spark.master)
    if spark.remote:
        plain = shown_url(spark.remote) == spark.remote
        found["remote"] = _escaped(spark.remote) if plain else _variable(variables, "SPARK_REMOTE")
    if spark.config:
        found["config"] = {
            name: _variable(variables, name) if _SECRET.search(name) else _escaped(value)
            for name, value in spark.config.items()
        }
    return found


def _variable(variables: _Names, wanted: str) -> str:
    return f"${{{variables.new(re.sub('[^A-Za-z0-9]+', '_', wanted).upper())}}}"


def _literally(value: Any) -> Any:
    """With texts that mean themselves."""
    if isinstance(value, list):
        return list(map(_escaped, value))
    return _escaped(value) if isinstance(value, str) else value


def _escaped(text: str) -> str:
    return text.replace("${", "$${")
