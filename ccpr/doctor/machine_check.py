"""What `ccpr doctor` checks on this machine."""

import shlex
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ccpr.base.errors import absent
from ccpr.base.file_modes import closed_folder, is_open_to_others
from ccpr.base.wording import first_names
from ccpr.doctor.check import Check, Verdict, checked
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.layout import HEAD
from ccpr.pipeline.spark.java import find_java
from ccpr.service.free_space import LOW_BYTES, TOO_FEW_BYTES, FreeSpace, mirror_space
from ccpr.service.mirror_places import try_writing
from ccpr.service.workspace import Workspace
from ccpr.state.database import place
from ccpr.state.errors import FollowerLoginLost, KeyLost, StateUnreadable
from ccpr.state.followers import open_login, open_password
from ccpr.state.log_rows import LogRow
from ccpr.state.logins import PortLogins
from ccpr.state.subscription import Subscription
from ccpr.targets.address import address_of

# As the kernel names them. The shared memory of SQLite's log does not reach another machine on any of them, and file
# locks only on some (https://sqlite.org/wal.html, "all processes must be on the same host").
_NETWORK = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "orangefs"),
    *("pvfs2", "ocfs2", "gfs2"),
    *(f"fuse.{kind}" for kind in ("sshfs", "glusterfs", "ceph", "s3fs", "rclone", "juicefs")),
}
_MOUNTS = Path("/proc/self/mounts")
_MOST_LOGINS = 20  # that are named


def check_here(workspace: Workspace) -> Iterator[Check]:
    folder = next(path for path in (workspace.home, *workspace.home.parents) if path.exists())
    yield checked("here", "state folder", partial(_writable, workspace.home, folder))
    yield _space(folder)
    file_system = check_file_system(folder)
    if file_system is not None:
        yield file_system
    key = checked("here", "key file", partial(_key, workspace))
    catalog = checked("here", "catalog database", partial(_catalog, workspace))
    yield from (key, catalog)
    if workspace.has_catalog and key.result is catalog.result is Verdict.OK:
        yield checked("here", "stored logins", partial(_logins, workspace))
    yield _state_modes(workspace)
    yield _java(workspace)


def network_file_system(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """The kind of the network file system that the folder is on; None if it is on another, or that is not known."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    place, found = folder.resolve(), ("", "")
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _unescaped(fields[1])
        if place.is_relative_to(point) and len(point) >= len(found[0]):  # the last of equals covers the others
            found = (point, fields[2])
    return found[1] if found[1] in _NETWORK else None


def _unescaped(point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point


def check_file_system(folder: Path, kind_of: Callable[[Path], str | None] = network_file_system) -> Check | None:
    """A warning if the state folder is on a file system where SQLite and file locks may not work."""
    kind = kind_of(folder)
    if kind is None:
        return None
    found = f"{folder} is on {kind}: SQLite's log and file locks do not work between machines there"
    remedy = (
        "Use it from one machine only, or set CCPR_HOME to a local folder; for several machines CCPR_CATALOG to a "
        "MySQL or MariaDB. Mirrors may stay there."
    )
    return Check("here", "file system", Verdict.WARNING, found, remedy)


def check_mirror_store(workspace: Workspace, row: LogRow) -> Check:
    def check() -> str:
        store = workspace.mirror(row.subscription_name, published=False).store
        found = "a mirror is there" if store.size(HEAD) is not None else "no mirror yet"
        if workspace.log.is_held(row):
            return f"{store.url}: {found}; it is in use, so writing was not tried"
        try_writing(store)
        return f"{store.url}: {found}, can be written"

    return checked("here", "mirror", check)


def check_mirror_modes(workspace: Workspace, row: LogRow) -> Check | None:
    """Whether those may read the mirror who should; None where no modes say it, or nothing is there yet."""
    subscription = Subscription.from_row(row)
    store = workspace.mirror_of(subscription).store
    folder = store.folder
    if folder is None or not folder.is_dir():
        return None
    name, place = subscription.name, shlex.quote(str(folder))
    what = "mirror's modes"
    try:
        closed, found = closed_folder(folder / HEAD), list(folder.iterdir())
        readable = [path for path in found if is_open_to_others(path)]
        if not store.shared and readable:
            told = f"other users of this machine can read {folder}"
            remedy = f"chmod -R go= {place}; or, if they are meant to, `ccpr alter {name} --shared`."
            return Check("here", what, Verdict.WARNING, told, remedy)
        if store.shared and closed is not None:
            told = f"the mirror is shared, but other users may not enter {closed}"
            remedy = f"chmod a+x {shlex.quote(str(closed))}; or `ccpr alter {name} --not-shared`."
            return Check("here", what, Verdict.WARNING, told, remedy)
        if store.shared and len(readable) < len(found):
            told = f"the mirror is shared, but other users cannot read all of {folder}"
            return Check("here", what, Verdict.WARNING, told, f"chmod -R a+rX {place}")
    except OSError as error:
        return Check("here", what, Verdict.SKIPPED, f"they cannot be read: {error.strerror}")
    told = "other users of this machine can read it" if store.shared else "other users of this machine cannot read it"
    return Check("here", what, Verdict.OK, told)


def _state_modes(workspace: Workspace) -> Check:
    """A state folder that was made by another program, or by version 0.1.0, may let others read the catalog."""
    files = [path for path in workspace.home.glob("catalog.db*") if path.is_file()]
    try:
        readable = [path.name for path in files if is_open_to_others(path)]
    except OSError as error:
        return Check("here", "file modes", Verdict.SKIPPED, f"they cannot be read: {error.strerror}")
    if readable:
        told = f"other users of this machine can read {', '.join(sorted(readable))} in {workspace.home}"
        remedy = f"chmod go= {shlex.quote(str(workspace.home))}/catalog.db*"
        return Check("here", "file modes", Verdict.WARNING, told, remedy)
    return Check("here", "file modes", Verdict.OK, "other users of this machine cannot read the state")


def _writable(home: Path, folder: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        text = f"it cannot be written: {error.strerror}"
        raise StateUnreadable(text, subject=str(home), remedy="Make it writable, or set CCPR_HOME.") from error
    return f"{home}" if folder == home else f"{home} will be created"


def check_mirror_room(workspace: Workspace, row: LogRow) -> Check | None:
    """How much is free where the mirror is; None for an object store."""
    subscription = Subscription.from_row(row)
    space = mirror_space(workspace, subscription)
    if space is None:
        return None
    return _space_check(
        "mirror's space", space, f"Free space there, or move it: `ccpr alter {subscription.name} --mirror`."
    )


def _space(folder: Path) -> Check:
    space = FreeSpace.of(folder)
    if space is None:
        return Check("here", "space", Verdict.SKIPPED, f"the file system of {folder} does not say")
    return _space_check("space", space, "Free space, or use another place for the mirror: --mirror.")


def _space_check(what: str, space: FreeSpace, remedy: str) -> Check:
    found = f"{space.free / 1e9:.1f} GB free"
    if space.free >= LOW_BYTES:
        return Check("here", what, Verdict.OK, found)
    return Check("here", what, Verdict.FAILED if space.free < TOO_FEW_BYTES else Verdict.WARNING, found, remedy)


def _key(workspace: Workspace) -> str:
    path = workspace.vault.path
    if not path.exists():
        return f"{path} will be created"
    workspace.vault.seal("", None)  # this checks its permissions and content
    return f"{path}, readable by its owner only"


def _catalog(workspace: Workspace) -> str:
    if not workspace.has_catalog:
        return "SQLite, will be created in the state folder"
    rows, bad = workspace.log.all_rows()
    if bad:
        raise bad[0].error
    return f"{place(workspace.log.engine)}, {len(rows)} subscription{'' if len(rows) == 1 else 's'}"


def _logins(workspace: Workspace) -> str:
    if lost := [(what, again) for what, again, opens in _sealed(workspace) if not _works(opens)]:
        raise KeyLost(
            f"the key file does not open that of {first_names((what for what, _ in lost), _MOST_LOGINS)}",
            subject=str(workspace.vault.path),
            remedy=f"Restore the key file that sealed them. Else: "
            f"{first_names(dict.fromkeys(again for _, again in lost), _MOST_LOGINS)}.",
        )
    return "the key file opens all"


def _java(workspace: Workspace) -> Check:
    if absent("pyspark"):
        found = "Spark is not installed; all is copied by this program itself"
        return Check("here", "Java for Spark", Verdict.SKIPPED, found)
    try:
        if workspace.home.is_dir():
            java = find_java(workspace.home / "java")
        else:
            with tempfile.TemporaryDirectory(prefix="ccpr-") as cache:
                java = find_java(Path(cache))
    except CcprError as error:
        found = f"{error.message}; everything but Spark works"
        return Check("here", "Java for Spark", Verdict.WARNING, found, error.remedy, error.code)
    return Check("here", "Java for Spark", Verdict.OK, f"{java.version} ({java.origin})")


def _sealed(workspace: Workspace) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Of each stored login what it is of, what is typed to give it again, and what opens it. Rows that cannot be read
    are skipped: others report them."""
    vault = workspace.vault
    for row in workspace.log.rows():
        name = row.subscription_name
        try:
            known = Subscription.from_row(row)
            targets, followers = workspace.of(row).targets.databases(), workspace.of(row).followers.all()
        except StateUnreadable:
            continue
        opens: Callable[[], object] = partial(vault.open, known.sealed_password, known.endpoint)
        yield f"subscription {name}", f"`ccpr alter {name} --from URI`", opens
        for target in targets:
            opens = partial(vault.open, target.sealed_password, address_of(target).endpoint)
            yield f"target {target.name} of {name}", f"`ccpr target alter {name} {target.name} --to URI`", opens
        for follower in followers:
            what, again = f"follower {follower.name} of {name}", f"ccpr follower add {name} {follower.name} --into URI"
            yield f"{what} (its login at the relay)", f"`{again} --new-login`", partial(open_login, vault, follower)
            yield f"{what} (its cluster)", f"`{again}`", partial(open_password, vault, follower)
    logins = PortLogins(workspace.log.engine, vault)
    for login in logins.all():
        yield (
            f"login {login.name}",
            f"`ccpr login alter {login.name} --password-env VAR`",
            partial(logins.digest, login.name),
        )


def _works(opens: Callable[[], object]) -> bool:
    try:
        opens()
    except (StateUnreadable, FollowerLoginLost):
        return False
    return True
