"""The steps of a plan and their checks: each is the function that its command and `ccpr sql` call.

A check asks what the step would ask first, and writes nothing. Steps before it may change what it looks at: make a
subscription (`is_new`), remove targets and lakes (`leaving`).
"""

import pathlib as files
import tempfile
from collections.abc import Collection

from ccpr.config.config_actions import Following
from ccpr.config.wanted import WantedLake, WantedSubscription, WantedTarget
from ccpr.service import lakes, subscriptions, targets
from ccpr.service.drop import Dropped, drop
from ccpr.service.workspace import Workspace
from ccpr.state.credentials import Vault
from ccpr.state.followers import Follower
from ccpr.state.pins import check_unpinned
from ccpr.state.targets import Target
from ccpr.targets.address import address_of


def create(workspace: Workspace, one: WantedSubscription) -> None:
    subscriptions.create(workspace, _wanted(one))


def check_creation(workspace: Workspace, one: WantedSubscription) -> None:
    """With a key of its own: the state folder may have none yet."""
    with tempfile.TemporaryDirectory(prefix="ccpr-") as folder:
        subscriptions.checked(workspace, _wanted(one), Vault(files.Path(folder) / "key"))


def _wanted(one: WantedSubscription) -> subscriptions.Wanted:
    return subscriptions.Wanted(
        one.name,
        one.endpoint,
        one.password,
        one.database,
        one.table,
        one.publication,
        one.publisher,
        one.settings,
    )


def add_target(workspace: Workspace, name: str, one: WantedTarget) -> None:
    targets.add(workspace, name, one.name, one.address, one.password, one.settings, one.source_database)


def check_target(workspace: Workspace, name: str, one: WantedTarget, *, is_new: bool, leaving: Collection[str]) -> None:
    if not is_new:
        targets.check_new(workspace, name, one.name, one.address, one.settings, one.source_database, leaving=leaving)
    check_new_login(workspace, one)


def check_new_login(workspace: Workspace, one: WantedTarget) -> None:
    targets.try_login(one.address, one.password)


def check_target_login(workspace: Workspace, target: Target) -> None:
    address = address_of(target)
    targets.try_login(address, workspace.vault.open(target.sealed_password, address.endpoint))


def add_lake(workspace: Workspace, name: str, one: WantedLake) -> None:
    lakes.add(workspace, name, one.name, one.url, one.options, one.source_database)


def check_lake(workspace: Workspace, name: str, one: WantedLake, *, is_new: bool, leaving: Collection[str]) -> None:
    if is_new:
        lakes.check_place(workspace, one.url)
    else:
        lakes.check_new(workspace, name, one.name, one.url, one.options, one.source_database, leaving=leaving)


def alter_lake(workspace: Workspace, name: str, one: WantedLake) -> None:
    lakes.alter(workspace, name, one.name, one.options.keep, one.options.keep_for)


def remove_lake(workspace: Workspace, name: str, lake: str) -> None:
    """Its tables stay as they are."""
    lakes.remove(workspace, name, lake)


def remove_target(workspace: Workspace, name: str, target: str) -> None:
    """Its tables become ordinary ones and stay."""
    targets.release(workspace, name, target)
    targets.remove(workspace, name, target)


def drop_subscription(workspace: Workspace, name: str, following: Following) -> Dropped:
    """Its mirror stays, and so do the tables of its targets, as ordinary ones, and the databases of its followers,
    read-only."""
    followers = _check_pins(workspace, name)  # before anything is ended
    for follower in followers:
        following.unfollow(workspace, name, follower.name)
    for target in workspace.of(name).targets.databases():
        remove_target(workspace, name, target.name)
    return drop(workspace, name)


def check_drop(workspace: Workspace, name: str, following: Following) -> None:
    for follower in _check_pins(workspace, name):
        following.check_end(workspace, name, follower.name)
    for target in workspace.of(name).targets.databases():
        check_target_login(workspace, target)


def _check_pins(workspace: Workspace, name: str) -> list[Follower]:
    """The followers, if nothing but them needs points. Raises PointsPinned."""
    task_id = workspace.log.row(name).task_id
    followers = workspace.log.of(task_id).followers.all()
    pins = workspace.log.of(task_id).pins.all()
    check_unpinned([pin for pin in pins if not any(follower.has_taken(pin.name) for follower in followers)])
    return followers
