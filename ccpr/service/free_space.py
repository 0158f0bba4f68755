"""Whether a folder can take more: how much is free where it is or would be, and whether it can be written. Asked of the
file system alone, so that a status needs neither a store nor Arrow."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ccpr.base.wording import size_text
from ccpr.service.workspace import Workspace
from ccpr.state.subscription import Subscription

LOW_BYTES, TOO_FEW_BYTES = 1_000_000_000, 50_000_000


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """`folder`: that was asked about. `there`: whether it is; the figures are of the nearest folder above it otherwise.
    `free`, `total`: bytes of its file system."""

    folder: Path
    there: bool
    writable: bool
    free: int
    total: int

    @classmethod
    def of(cls, folder: Path) -> "FreeSpace | None":
        """None if the file system does not say."""
        try:
            place = next((one for one in (folder, *folder.parents) if one.exists()), Path("/"))
            used = shutil.disk_usage(place)
        except OSError:
            return None
        return cls(folder, place == folder, os.access(place, os.W_OK | os.X_OK), used.free, used.total)

    @property
    def trouble(self) -> str:
        """What is wrong with it for who wants to write there; empty if nothing is."""
        if not self.writable:
            return f"{self.folder} cannot be written"
        return f"only {size_text(self.free)} are free at {self.folder}" if self.free < LOW_BYTES else ""


def mirror_folder(workspace: Workspace, subscription: Subscription) -> Path | None:
    """The folder of its mirror; None if that is in an object store."""
    url = subscription.settings.mirror
    if not url:
        return workspace.default_mirror(subscription.name)
    parts = urlsplit(url)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path)) if parts.scheme else Path(url).absolute()


def mirror_space(workspace: Workspace, subscription: Subscription) -> FreeSpace | None:
    folder = mirror_folder(workspace, subscription)
    return None if folder is None else FreeSpace.of(folder)


def warnings(workspace: Workspace, subscription: Subscription, *, has_points: bool) -> tuple[str, ...]:
    """What is wrong with the places of the mirror and of the state, for a status."""
    mirror, state = mirror_space(workspace, subscription), FreeSpace.of(workspace.home)
    told = []
    if mirror is not None and has_points and not mirror.there:
        alter = f"`ccpr alter {subscription.name} --mirror URL`"
        told.append(f"the mirror's folder {mirror.folder} is not there: mount its disk; if it was moved, {alter}")
    elif mirror is not None and mirror.trouble:
        told.append(f"the mirror can take no more soon: {mirror.trouble}")
    if state is not None and state.trouble:
        told.append(f"the state can take no more soon: {state.trouble}")
    return tuple(told)
