"""Which kind of file system a folder is on: SQLite's write-ahead log and file locks need one of this machine."""

from pathlib import Path

# As the kernel names them. The shared memory of SQLite's log does not reach another machine on any of them, and file
# locks only on some (https://sqlite.org/wal.html, "all processes must be on the same host").
_NETWORK = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "gpfs",
        "beegfs",
        "orangefs",
        "pvfs2",
        "ocfs2",
        "gfs2",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.juicefs",
    ]
)
_MOUNTS = Path("/proc/self/mounts")


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
