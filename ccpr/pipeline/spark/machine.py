"""What the operating system says of this machine: its boot, its ports and processes."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ccpr.pipeline.spark.tasks import LOOPBACK_ADDRESS

_CONNECT_SECONDS = 1.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """The boot of this machine; the host's name where the kernel does not say."""
    try:
        return f"{os.uname().nodename} {_BOOT.read_text().strip()}"
    except OSError:
        return os.uname().nodename


def free_port() -> int:
    """A port on the loopback address; another program may take it before it is used."""
    with socket.socket() as free:
        free.bind((LOOPBACK_ADDRESS, 0))
        return free.getsockname()[1]


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(_CONNECT_SECONDS)
        return probe.connect_ex((LOOPBACK_ADDRESS, port)) == 0


def is_ours(port: int) -> bool:
    """Whether what listens on the port belongs to this user, where the kernel says so (Linux). A token is sent there,
    and what comes from there is unpickled."""
    found = False
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        except OSError:
            return _accepts(port)
        for parts in (line.split() for line in lines):
            if parts[3] == "0A" and parts[1].endswith(f":{port:04X}"):
                if int(parts[7]) != os.getuid():
                    return False
                found = True
    return found


def processes() -> Iterator[tuple[int, str]]:
    """The processes of this machine with their arguments, as far as this user may see them."""
    folder = Path("/proc")
    if not (folder / "self" / "cmdline").exists():  # not Linux
        listed = subprocess.run(["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=False).stdout
        for pid, _, arguments in (line.strip().partition(" ") for line in listed.splitlines()):
            yield int(pid), arguments
        return
    for path in folder.iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                if path.stat().st_uid == os.getuid():
                    yield int(path.name), (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
