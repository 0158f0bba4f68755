"""How fast a relay serves objects, beside a plain file server. `--json` prints the figures as one JSON object.

A mirror of an object of 250 MB is served by `ccpr relay serve`, and its folder by `python -m http.server`; both on
loopback, each in a process of its own. Four connections at once read the whole object from one of them, then from the
other; what comes is dropped, but for a first round, in which its checksum is compared. Then 30 connections of the
relay read at once.

A figure is that of the best round. The relay has checked the object's SHA-256 before it serves it for the first time;
`first_s` is that read. `memory_mb` is what the relay has for itself at most. The last line
is `ratio=<the relay's rate / the file server's> gb_s=<relay, 4> http_gb_s=<file server, 4> sessions_gb_s=<relay, 30>
first_s=… memory_mb=<after 4> memory_30_mb=<after 30>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import hashlib
import http.client
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pymysql

from benchmarks.get_object import Wire
from benchmarks.large_object import LARGE, ccpr_words, one_large_object
from benchmarks.shared.common import arguments_of
from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.object_answers import CHUNK_BYTES

_ROUNDS = 5
_CONNECTIONS, _SESSIONS = 4, 30
_RECEIVE_BYTES = 4 << 20


def main() -> None:
    arguments = arguments_of(__doc__, _ROUNDS, mb=LARGE)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        figures = measure(Path(scratch), arguments.rounds, arguments.mb)
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"an object of {figures['bytes'] / 1e6:.0f} MB; one-minute load {os.getloadavg()[0]:.1f}")
    names = ("ratio", "gb_s", "http_gb_s", "sessions_gb_s", "first_s", "memory_mb", "memory_30_mb")
    print(" ".join(f"{name}={figures[name]:.{0 if name.endswith('mb') else 2}f}" for name in names))


def measure(folder: Path, rounds: int, megabytes: int) -> dict[str, float]:
    size, _ = one_large_object(folder / "recording", megabytes)
    environment = os.environ | {"CCPR_HOME": str(folder / "home"), "UPSTREAM_PASSWORD": "111"}

    def ccpr(*words: str) -> str:
        return subprocess.run(ccpr_words(*words), env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    with serving(ccpr_words("emulator", "--recording", str(folder / "recording"))) as (_, port):
        source = f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{port}"
        ccpr("subscribe", "big", "--from", source, "--publication", "pub", "--database", "big", "--with-indexes")
        ccpr("run", "big", "--engine", "process")
    password = json.loads(ccpr("relay", "user", "add", "reader", "--json"))["password"]
    (path,) = (path for path in (folder / "home" / "mirrors" / "big" / "objects").rglob("*") if path.is_file())
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    relay = ccpr_words("relay", "serve", "--listen", "127.0.0.1:0")
    files = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(path.parent)]
    with ExitStack() as stack:
        process, port = stack.enter_context(serving(relay, environment))
        _, http_port = stack.enter_context(serving(files))
        texts = [
            upstream_sql.get_object("sys", "big", path.name, 1 + at // CHUNK_BYTES)
            for at in range(0, size, CHUNK_BYTES)
        ]
        login = {"host": "127.0.0.1", "port": port, "user": "sys#reader", "password": password, "autocommit": None}
        with pymysql.connect(**login, use_unicode=False, conv={}) as plain, plain.cursor() as cursor:
            started, taken = time.perf_counter(), hashlib.sha256()
            for text in texts:
                cursor.execute(text)
                for cell, *_ in cursor.fetchall():
                    taken.update(cell)
            first = time.perf_counter() - started
        assert taken.hexdigest() == sha256, "not the bytes of the object"
        sessions = [Wire(stack.enter_context(pymysql.connect(**login))) for _ in range(_SESSIONS)]
        pool = stack.enter_context(ThreadPoolExecutor(_SESSIONS))

        def from_relay(number: int) -> Callable[[], int]:
            return lambda: sum(map(sessions[number].answer, texts))

        def together(readers: list[Callable[[], int]]) -> float:
            """The bytes of a second."""
            started = time.perf_counter()
            read = list(pool.map(lambda reader: reader(), readers))
            assert min(read) >= size, f"{min(read)} bytes of {size} came"
            return size * len(readers) / (time.perf_counter() - started)

        rates: dict[str, list[float]] = {"relay": [], "http": []}
        for _ in range(rounds):
            rates["relay"].append(together([from_relay(number) for number in range(_CONNECTIONS)]))
            rates["http"].append(together([lambda: from_http(http_port, path.name)] * _CONNECTIONS))
        memory = own_memory(process)
        thirty = together([from_relay(number) for number in range(_SESSIONS)])
        return {
            "ratio": max(rates["relay"]) / max(rates["http"]),
            "gb_s": max(rates["relay"]) / 1e9,
            "http_gb_s": max(rates["http"]) / 1e9,
            "sessions_gb_s": thirty / 1e9,
            "first_s": first,
            "memory_mb": memory,
            "memory_30_mb": own_memory(process),
            "bytes": size,
        }


@contextmanager
def serving(words: list[str], environment: dict[str, str] | None = None) -> Iterator[tuple[int, int]]:
    """The process and the port of a server that prints its address first."""
    server = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.search(r"(?:127\.0\.0\.1:| port )(\d+)", line)
        assert found, f"it did not start: {line}"
        yield server.pid, int(found[1])
    finally:
        server.terminate()
        server.wait()


def from_http(port: int, name: str) -> int:
    """Read a file, and keep nothing of it. Returns its bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", f"/{name}")
    answer, buffer, total = connection.getresponse(), bytearray(_RECEIVE_BYTES), 0
    while taken := answer.readinto(buffer):
        total += taken
    connection.close()
    return total


def own_memory(process: int) -> float:
    """Megabytes of a process that are not files."""
    found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


if __name__ == "__main__":
    main()
