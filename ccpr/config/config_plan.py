"""What a configuration file changes: a plan, made from the file and the state alone.

What is not in the file stays, unless it is pruned. A setting that the file does not name has its default. What is done
with followers is the relay's, which is above this package: the maker of a plan gives it (`Following`).
"""

import pathlib as files
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from ccpr.config.config_actions import Action, Change, Following, Plan, Verb
from ccpr.config.document import Path, Problem
from ccpr.config.errors import ConfigConflict, ConfigEmpty
from ccpr.config.wanted import WantedConfig, WantedFollower, WantedLake, WantedSubscription, WantedTarget
from ccpr.lake.lake_options import LakeOptions
from ccpr.lake.stores import canonical_url
from ccpr.matrixone.client.endpoint import EVERYTHING, Endpoint, parse_uri
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.spark.connect import shown_url
from ccpr.pipeline.spark.stored import StoredSpark
from ccpr.service import lakes, subscriptions, targets
from ccpr.service.drop import Dropped, drop
from ccpr.service.workspace import Workspace
from ccpr.state.credentials import Vault
from ccpr.state.errors import StateUnreadable
from ccpr.state.followers import Follower, FollowerStage
from ccpr.state.log_rows import LogRow
from ccpr.state.pins import check_unpinned
from ccpr.state.setting_entry import Setting
from ccpr.state.settings import SETTINGS, TARGET_SETTINGS
from ccpr.state.states import State
from ccpr.state.subscription import Subscription
from ccpr.state.targets import Target, TargetState
from ccpr.targets.address import address_of

SPARK = "spark"


def plan(workspace: Workspace, wanted: WantedConfig, following: Following, *, prune: bool = False) -> Plan:
    """Asks no upstream and writes nothing. `prune`: what is not in the file is dropped. Raises ConfigConflict,
    ConfigEmpty, StateUnreadable."""
    if prune and "subscriptions" not in wanted.document.value:
        raise ConfigEmpty("it says nothing about subscriptions", subject=wanted.document.source)
    rows, _ = workspace.log.all_rows()
    known = {row.subscription_name: row for row in rows}
    comparison = _Comparison(workspace, wanted, known, following, prune=prune)
    found = [list(comparison.subscription(one)) for one in wanted.subscriptions]
    gone = [name for name in known if name not in {one.name for one in wanted.subscriptions}]
    if comparison.problems:
        raise wanted.document.error(comparison.problems, ConfigConflict)
    stored = StoredSpark.of(workspace.home)
    spark, unlisted = [], list(comparison.unlisted)
    if wanted.spark is not None:
        spark = list(_spark(stored, wanted.spark))
    elif stored != StoredSpark():
        spark = list(_spark(stored, StoredSpark())) if prune else []
        unlisted.append(SPARK)
    drops = [_drop(name, following) for name in gone] if prune else []
    removed = comparison.removals if prune else []
    unchanged = sum(not actions for actions in found)
    actions = (*drops, *removed, *(action for actions in found for action in actions), *spark)
    return Plan(actions, () if prune else (*gone, *unlisted), unchanged)


class _Comparison:
    """Of what the file wants with the rows. Collects what cannot be had, and what the file does not name."""

    def __init__(
        self,
        workspace: Workspace,
        wanted: WantedConfig,
        rows: Mapping[str, LogRow],
        following: Following,
        *,
        prune: bool,
    ) -> None:
        self._workspace, self._wanted, self._rows, self._following = workspace, wanted, rows, following
        self._prune = prune
        self.problems: list[Problem] = []
        self.unlisted: list[str] = []
        self.removals: list[Action] = []

    def subscription(self, one: WantedSubscription) -> Iterator[Action]:
        path: Path = ("subscriptions", one.name)
        one = self._checked(path, one)
        if one.followers and one.database == EVERYTHING:
            self.problems.append(Problem((*path, "followers"), "a subscription to several databases has no followers"))
        for target in one.targets:
            if bool(target.source_database) != (one.database == EVERYTHING):
                text = "a subscription to one database has no choice of it"
                if one.database == EVERYTHING:
                    text = "it must name its `database`"
                self.problems.append(Problem((*path, "targets", target.name), text))
        row = self._rows.get(one.name)
        if row is None:
            databases = (one.settings.databases or "all databases") if one.database == EVERYTHING else one.database
            about = f"{databases}{'' if one.table is None else f'.{one.table}'} from {one.endpoint.masked()}"
            do, check = partial(subscriptions.create, wanted=one), partial(_check_creation, one=one)
            yield Action(Verb.CREATE, one.name, about=about, do=do, check=check)
            known: dict[str, Target] = {}
            followed: dict[str, Follower] = {}
        else:
            yield from self._alter(path, one, Subscription.from_row(row))
            followed = {one.name: one for one in self._workspace.of(row).followers.all()}
            known = {target.name: target for target in self._workspace.of(row).targets.databases()}
        if one.paused is not None and one.paused != (row is not None and row.state == State.PAUSED):
            yield _stopped_or_not(one.name, paused=one.paused)
        for target in one.targets:
            if target.name in known:
                yield from self._alter_target((*path, "targets", target.name), one.name, target, known[target.name])
            else:
                about = target.address.masked()
                login = {"address": target.address, "password": target.password, "settings": target.settings}
                said = {**login, "target_name": target.name, "source_database": target.source_database}
                do = partial(targets.add, name=one.name, **said)
                leaving = self._leaving(one, row)
                check = partial(_check_target, name=one.name, one=target, is_new=row is None, leaving=leaving)
                yield Action(Verb.ADD_TARGET, one.name, target.name, about=about, do=do, check=check)
        for name in known.keys() - {target.name for target in one.targets}:
            self.unlisted.append(f"{one.name}.{name}")
            do = partial(_remove_target, name=one.name, target=name)
            check = partial(_check_target_login, target=known[name])
            self.removals.append(Action(Verb.REMOVE_TARGET, one.name, name, do=do, check=check))
        yield from self._lakes(path, one, row)
        for follower in one.followers:
            place = (*path, "followers", follower.name)
            yield from self._follow(place, one, follower, followed.get(follower.name), is_new=row is None)
        for name in sorted(followed.keys() - {follower.name for follower in one.followers}):
            self.unlisted.append(f"{one.name}.{name}")
            do = partial(self._following.unfollow, name=one.name, follower=name)
            check = partial(self._following.check_end, name=one.name, follower=name)
            self.removals.append(Action(Verb.UNFOLLOW, one.name, follower=name, do=do, check=check))

    def _leaving(self, one: WantedSubscription, row: LogRow | None) -> frozenset[str]:
        """The targets and lakes that are removed before others are added."""
        if row is None or not self._prune:
            return frozenset()
        known = {target.name for target in self._workspace.of(row).targets.all()}
        return frozenset(known - {named.name for named in (*one.targets, *one.lakes)})

    def _lakes(self, path: Path, one: WantedSubscription, row: LogRow | None) -> Iterator[Action]:
        """What is in a lake stays where the lake is removed."""
        there = [] if row is None else self._workspace.of(row).targets.lakes()
        known = {lake.name: lake for lake in there}
        for lake in one.lakes:
            place = (*path, "lakes", lake.name)
            if lake.name in {target.name for target in one.targets}:
                self.problems.append(Problem(place, "a target has this name"))
            if lake.name in known:
                yield from self._alter_lake(place, one.name, lake, known[lake.name])
            else:
                values = {"url": lake.url, "options": lake.options, "database": lake.source_database}
                do = partial(lakes.add, name=one.name, lake_name=lake.name, **values)
                check = partial(lakes.check_place, place=lake.url)
                if row is not None:
                    leaving = self._leaving(one, row)
                    check = partial(lakes.check_new, name=one.name, lake_name=lake.name, **values, leaving=leaving)
                yield Action(Verb.ADD_LAKE, one.name, lake.name, about=lake.url, do=do, check=check)
        for name in known.keys() - {lake.name for lake in one.lakes}:
            self.unlisted.append(f"{one.name}.{name}")
            do = partial(lakes.remove, name=one.name, lake_name=name)
            self.removals.append(Action(Verb.REMOVE_LAKE, one.name, name, do=do))

    def _alter_lake(self, path: Path, name: str, one: WantedLake, known: Target) -> Iterator[Action]:
        options = LakeOptions.from_text(known.lake or "{}")
        before, after = asdict(options), asdict(one.options)
        altered = ["keep", "keep_for", "format"]
        if not (options.has_iceberg and one.options.has_iceberg):
            altered += ["iceberg_version", "catalog"]
        fixed = {
            "to": (known.uri, canonical_url(one.url)),
            "database": (known.source_database, one.source_database),
            **{key: (before[key], after[key]) for key in before if key not in altered},
        }
        for key, (old, new) in fixed.items():
            if old != new:
                text = f"{key} of a lake cannot be changed; give it another name and another place"
                self.problems.append(Problem((*path, key), text))
        changes = tuple(
            Change(key, _shown(before[key]), _shown(after[key])) for key in altered if before[key] != after[key]
        )
        if changes:
            values = {key: getattr(one.options, key) for key in altered}
            do = partial(lakes.alter, name=name, lake_name=one.name, **values)
            yield Action(Verb.ALTER_LAKE, name, one.name, changes=changes, do=do)

    def _follow(
        self,
        path: Path,
        subscription: WantedSubscription,
        one: WantedFollower,
        known: Follower | None,
        *,
        is_new: bool,
    ) -> Iterator[Action]:
        """One that is there under the name, whose command was interrupted, is begun again."""
        do = partial(self._following.follow, name=subscription.name, one=one)
        check = partial(self._following.check, name=subscription.name, one=one, is_new=is_new)
        database = one.database or subscription.database
        if known is None or known.stage is FollowerStage.STARTING:
            about = f"database {database} at {one.endpoint.masked()}"
            yield Action(Verb.FOLLOW, subscription.name, follower=one.name, about=about, do=do, check=check)
            return
        if known.stage is not FollowerStage.FOLLOWING:
            self.problems.append(Problem(path, f"it is {known.stage}: type that command again, or remove it here"))
        before, _ = parse_uri(known.uri)
        fixed = {
            "uri": ((before.host.lower(), before.port), (one.endpoint.host.lower(), one.endpoint.port)),
            "database": (known.database, database),
            "relay_address": (known.relay_address, one.relay_address or known.relay_address),
        }
        for key, (old, new) in fixed.items():
            if old != new:
                text = f"{key} of a follower cannot be changed; give it another name, or remove it first"
                self.problems.append(Problem((*path, key), text))
        if changes := self._login("uri", before, known.sealed_password, one.endpoint, one.password):
            yield Action(Verb.ALTER_FOLLOWER, subscription.name, follower=one.name, changes=changes, do=do, check=check)

    def _checked(self, path: Path, one: WantedSubscription) -> WantedSubscription:
        """With places as they are stored."""
        try:
            subscriptions.check_settings(one.settings, one.database, one.table)
            return replace(one, settings=subscriptions.canonical(one.settings))
        except CcprError as error:
            self.problems.append(Problem(path, f"{error.message} ({error.subject})"))
            return one

    def _alter(self, path: Path, one: WantedSubscription, known: Subscription) -> Iterator[Action]:
        fixed = {
            "database": (known.database, one.database),
            "table": (known.table, one.table),
            "publisher": (known.publication.publisher, one.publisher or known.publication.publisher),
            **{
                setting.key: (setting.of(known.settings), setting.of(one.settings))
                for setting in SETTINGS.values()
                if not setting.changeable
            },
        }
        for key, (before, after) in fixed.items():
            if before != after:
                text = f"subscription {one.name} has another ({_shown(before)}), which cannot be changed"
                self.problems.append(Problem((*path, key), text))
        settings, changes = _differences(SETTINGS, known.settings, one.settings)
        publication = one.publication if one.publication not in (None, known.publication.name) else None
        if publication is not None:
            changes.append(Change("publication", known.publication.name, publication))
        login = self._login("upstream", known.endpoint, known.sealed_password, one.endpoint, one.password)
        if login or changes:
            change = subscriptions.SettingsChange(
                one.endpoint if login else None, one.password if login else "", publication, settings
            )
            do = partial(subscriptions.alter, name=one.name, change=change)
            check = partial(subscriptions.checked_change, name=one.name, change=change)
            yield Action(Verb.ALTER, one.name, changes=(*login, *changes), do=do, check=check)

    def _login(self, key: str, before: Endpoint, sealed: str, after: Endpoint, password: str) -> tuple[Change, ...]:
        if before != after:
            options = "" if before.masked() != after.masked() else " with other options of TLS"
            return (Change(key, before.masked(), after.masked() + options),)
        return () if self._opened(sealed, before) == password else (Change("password", "***", "another"),)

    def _opened(self, sealed: str, endpoint: Endpoint) -> str | None:
        """None if it cannot be opened: then it is set again."""
        try:
            return self._workspace.vault.open(sealed, endpoint)
        except StateUnreadable:
            return None

    def _alter_target(self, path: Path, name: str, one: WantedTarget, known: Target) -> Iterator[Action]:
        address = address_of(known)
        if known.state is TargetState.RELEASED:
            self.problems.append(Problem(path, "it was released, so that nothing syncs it; give it another name"))
        if address.database != one.address.database:
            self.problems.append(Problem((*path, "uri"), "the database of a target cannot be changed"))
        if known.source_database != one.source_database:
            self.problems.append(Problem((*path, "database"), "which database a target gets cannot be changed"))
        lost = sorted(set(known.settings.as_text) - set(one.settings.as_text))
        if lost:
            self.problems.append(Problem((*path, "as_text"), f"{', '.join(lost)} are text already and stay so"))
        login = self._login("uri", address.endpoint, known.sealed_password, one.address.endpoint, one.password)
        as_text = tuple(dict.fromkeys((*known.settings.as_text, *one.settings.as_text)))
        after = replace(one.settings, as_text=as_text)
        settings, changes = _differences(TARGET_SETTINGS, known.settings, after)
        if login or changes:
            given = (one.address, one.password) if login else None
            do = partial(targets.alter, name=name, target_name=one.name, login=given, settings=settings)
            check = None if given is None else lambda _: targets.try_login(*given)
            yield Action(Verb.ALTER_TARGET, name, one.name, changes=(*login, *changes), do=do, check=check)


def _stopped_or_not(name: str, *, paused: bool) -> Action:
    if paused:
        return Action(Verb.PAUSE, name, do=lambda workspace: workspace.log.pause(name))
    return Action(Verb.RESUME, name, do=lambda workspace: workspace.log.resume(name))


def _drop(name: str, following: Following) -> Action:
    do = partial(_drop_subscription, name=name, following=following)
    return Action(Verb.DROP, name, do=do, check=partial(_check_drop, name=name, following=following))


def _differences(known: Mapping[str, Setting], before: object, after: object) -> tuple[dict[str, Any], list[Change]]:
    """The settings that have another value after than before, by name, and how they are shown."""
    found = [one for one in known.values() if one.of(before) != one.of(after)]
    changes = [Change(one.label, _shown(one.of(before)), _shown(one.of(after))) for one in found]
    return {one.name: one.of(after) for one in found}, changes


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return "none" if value in (None, "") else str(value)


def _spark(before: StoredSpark, after: StoredSpark) -> Iterator[Action]:
    if after == before:
        return
    changes = [
        Change(name, shown_url(old) or "none", shown_url(new) or "none")
        for name, old, new in (("master", before.master, after.master), ("remote", before.remote, after.remote))
        if old != new
    ]
    for name in sorted(before.config.keys() | after.config.keys()):  # their values may be secrets
        old, new = before.config.get(name), after.config.get(name)
        if old != new:
            changes.append(Change(name, "none" if old is None else "***", "none" if new is None else "another"))

    def keep(workspace: Workspace) -> None:
        after.keep(workspace.home)

    yield Action(Verb.SET_SPARK, changes=tuple(changes), do=keep)


# ---- the steps, as their commands do them. A check asks what the step would ask first, and writes nothing.
# Steps before it may change what it looks at: make a subscription (`is_new`), remove targets and lakes (`leaving`).


def _check_creation(workspace: Workspace, one: WantedSubscription) -> None:
    """With a key of its own: the state folder may have none yet."""
    with tempfile.TemporaryDirectory(prefix="ccpr-") as folder:
        subscriptions.checked(workspace, one, Vault(files.Path(folder) / "key"))


def _check_target(
    workspace: Workspace, name: str, one: WantedTarget, *, is_new: bool, leaving: Collection[str]
) -> None:
    if not is_new:
        targets.check_new(workspace, name, one.name, one.address, one.settings, one.source_database, leaving=leaving)
    targets.try_login(one.address, one.password)


def _check_target_login(workspace: Workspace, target: Target) -> None:
    address = address_of(target)
    targets.try_login(address, workspace.vault.open(target.sealed_password, address.endpoint))


def _remove_target(workspace: Workspace, name: str, target: str) -> None:
    """Its tables become ordinary ones and stay."""
    targets.release(workspace, name, target)
    targets.remove(workspace, name, target)


def _drop_subscription(workspace: Workspace, name: str, following: Following) -> Dropped:
    """Its mirror stays, and so do the tables of its targets, as ordinary ones, and the databases of its followers,
    read-only."""
    for follower in _check_pins(workspace, name):  # before anything is ended
        following.unfollow(workspace, name, follower.name)
    for target in workspace.of(name).targets.databases():
        _remove_target(workspace, name, target.name)
    return drop(workspace, name)


def _check_drop(workspace: Workspace, name: str, following: Following) -> None:
    for follower in _check_pins(workspace, name):
        following.check_end(workspace, name, follower.name)
    for target in workspace.of(name).targets.databases():
        _check_target_login(workspace, target)


def _check_pins(workspace: Workspace, name: str) -> list[Follower]:
    """The followers, if nothing but them needs points. Raises PointsPinned."""
    records = workspace.of(name)
    followers = records.followers.all()
    pins = records.pins.all()
    check_unpinned([pin for pin in pins if not any(follower.has_taken(pin.name) for follower in followers)])
    return followers
