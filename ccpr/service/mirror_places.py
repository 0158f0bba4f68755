"""The places of mirrors: each belongs to one subscription, and a place that has files is not taken over silently."""

import secrets
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress

from ccpr.mirror.errors import StoreFailed
from ccpr.mirror.layout import FOLDERS, HEAD, IDENTITY
from ccpr.mirror.store import Store
from ccpr.service.errors import MirrorInUse
from ccpr.service.room import mirror_folder
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable
from ccpr.state.log_rows import LogRow
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription


def check_place(workspace: Workspace, name: str, settings: Settings, rows: list[LogRow]) -> None:
    """Two subscriptions must not write to one mirror. Raises MirrorInUse."""
    place = workspace.mirror_place(name, settings)
    for other in readable_subscriptions(rows):
        ours, theirs = _folded(place), _folded(workspace.mirror_place(other.name, other.settings))
        if is_within(ours, theirs) or is_within(theirs, ours):
            raise MirrorInUse(f"it is the place of subscription {other.name}'s mirror", subject=place)


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


def _folded(url: str) -> str:
    """Folders whose names differ only in letter case are one folder on some file systems."""
    return url.casefold() if url.startswith("file:") else url


def is_within(url: str, other: str) -> bool:
    """Whether one place is in the other, or is the same. Options of an object store, after '?', do not count."""
    inner, outer = (place.partition("?")[0].rstrip("/") + "/" for place in (url, other))
    return inner.startswith(outer)


def readable_subscriptions(rows: Iterable[LogRow]) -> Iterator[Subscription]:
    """Those whose rows can be read: a bad row does not hinder other subscriptions."""
    for row in rows:
        with suppress(StateUnreadable):
            yield Subscription.from_row(row)
