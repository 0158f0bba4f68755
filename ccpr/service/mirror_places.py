"""The places of mirrors: each belongs to one subscription, and a place that has files is not taken over silently."""

import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ccpr.mirror.errors import StoreFailed
from ccpr.mirror.layout import FOLDERS, HEAD, IDENTITY
from ccpr.mirror.open_store import folder_of, place_of
from ccpr.mirror.store import Store
from ccpr.service.errors import MirrorInUse
from ccpr.service.free_space import mirror_folder
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable
from ccpr.state.log_rows import LogRow
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription


def check_place(workspace: Workspace, name: str, settings: Settings, rows: list[LogRow]) -> None:
    """Two subscriptions must not write to one mirror. Raises MirrorInUse."""
    place = workspace.mirror_place(name, settings)
    for other in readable_subscriptions(rows):
        check_apart(place, workspace.mirror_place(other.name, other.settings), f"of subscription {other.name}'s mirror")


def check_places_beside(workspace: Workspace, name: str, settings: Settings, rows: list[LogRow]) -> None:
    """A second copy and drills have places of their own, however these are spelled. Raises BadName, MirrorInUse."""
    drills = settings.drill_into and not settings.drill_into.startswith("mysql://")
    of_a_drill = f"{settings.drill_into}/ccpr_drill" if drills else ""  # which makes a folder of its own there
    for url in filter(None, (settings.copy_to, of_a_drill)):
        place = place_of(url)
        check_apart(place, workspace.mirror_place(name, settings), f"of subscription {name}'s mirror")
        check_free(workspace, name, place, rows)


def check_free(workspace: Workspace, name: str, place: str, rows: list[LogRow]) -> None:
    """Whether a place is apart from the mirrors, lakes and second copies of all subscriptions, but for a copy of this
    one that is there. Raises MirrorInUse."""
    for other in readable_subscriptions(rows):
        whose = f"of subscription {other.name}'s"
        check_apart(place, workspace.mirror_place(other.name, other.settings), f"{whose} mirror")
        for lake in workspace.of(other).targets.lakes():
            check_apart(place, lake.uri, f"{whose} lake {lake.name}")
        for copy in workspace.of(other).copies.all():
            if other.name != name or copy.place != place:
                check_apart(place, copy.place, f"{whose} second copy")


def check_apart(place: str, other: str, what: str) -> None:
    """Raises MirrorInUse if one place is in the other."""
    if is_within(place, other) or is_within(other, place):
        raise MirrorInUse(f"it is the place {what}", subject=place)


def check_empty(workspace: Workspace, name: str, settings: Settings) -> None:
    """Raises MirrorInUse if there are files, for example of a subscription that was dropped."""
    store = workspace.mirror_store(name, settings)
    if _holds_files(store):
        left = workspace.log.dropped_row(name)
        remedy = "Choose another name, or an empty place with --mirror. The files stay readable as they are."
        if left is not None and not settings.mirror:
            remedy = f"`ccpr drop {name} --purge` deletes the files of the dropped subscription. Or: {remedy}"
        raise MirrorInUse("the mirror of another subscription is there", subject=store.url, remedy=remedy)


def check_writable(workspace: Workspace, subscription: Subscription) -> None:
    """Whether a mirror can be made at its place: a small file is written, and deleted. Nothing is left, no folder
    either. Raises StoreFailed."""
    folder = mirror_folder(workspace, subscription)
    if folder is None:
        try_writing(workspace.mirror_of(subscription).store)
        return
    place = next(one for one in (folder, *folder.parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise StoreFailed(
            f"it cannot be written: {error.strerror}",
            subject=str(folder),
            remedy="Make it writable for this user, or choose another place with --mirror.",
        ) from error


def try_writing(store: Store) -> None:
    """Write a small file there, and delete it. Raises StoreFailed."""
    folder = f"work/doctor-{secrets.token_hex(4)}"
    store.put(f"{folder}/probe", [b"written by ccpr doctor\n"])
    store.delete_folder(folder)


def _holds_files(store: Store) -> bool:
    return any(store.size(name) is not None for name in (HEAD, IDENTITY)) or any(
        next(iter(store.names(folder)), None) is not None for folder in FOLDERS
    )


def is_within(url: str, other: str) -> bool:
    """Whether one place is in the other, or is the same, by whatever links, dots and letter case it is named. Options
    of an object store, after '?', do not count."""
    if url.startswith("file:") and other.startswith("file:"):
        inner, outer = (Path(os.path.realpath(folder_of(place))) for place in (url, other))
        return outer.as_posix().casefold() in {one.as_posix().casefold() for one in (inner, *inner.parents)} or (
            outer.exists() and any(one.exists() and one.samefile(outer) for one in (inner, *inner.parents))
        )
    inner, outer = (place.partition("?")[0].rstrip("/") + "/" for place in (url, other))
    return inner.startswith(outer)


def readable_subscriptions(rows: Iterable[LogRow]) -> Iterator[Subscription]:
    """Those whose rows can be read: a bad row does not hinder other subscriptions."""
    for row in rows:
        with suppress(StateUnreadable):
            yield Subscription.from_row(row)
