"""How fast the emulator serves objects over loopback, and how fast clients read them. `--json` prints the figures as
one JSON object.

An emulator in another process serves a generated object of 250 MB in the upstream's chunks of 100 MiB. Three readers
take turns, each over one connection: one that only follows the packets and drops their content, which measures the
server; our session with its checks (`get_object`); and unchanged PyMySQL. A figure is that of the best round, in wall
time, because both processes share the machine. `server_cpu_gb_s` is what the server sends in a second of its own CPU
time. The last line is `gb_s=<served> session_gb_s=<read by our session> ratio=<our session's rate / PyMySQL's>`.
"""

import sys

sys.path[0] = __file__.rpartition("/")[0] + "/.."  # the repository, not the folder of this file

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql

from benchmarks.large_object import LARGE, ccpr_words, one_large_object
from benchmarks.shared.common import arguments_of, cpu_seconds
from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.malloc import keep_large_blocks
from ccpr.matrixone.client.object_answers import CHUNK_BYTES, get_object
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.upstream_session import Session

_ROUNDS = 7
_RECEIVE_BYTES = 4 << 20
_PUBLICATION = Publication("pub", "sys", 0)
_PASSWORD = "111"
_HEAD_BYTES, _QUERY = 4, b"\x03"
_READERS = ("wire", "session", "pymysql")


def main() -> None:
    arguments = arguments_of(__doc__, _ROUNDS, mb=LARGE)
    keep_large_blocks()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        folder = Path(scratch)
        size, _ = one_large_object(folder, arguments.mb)
        (path,) = (folder / "objects").iterdir()
        server = subprocess.Popen(ccpr_words("emulator", "--recording", str(folder)), stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            found = re.search(r"127\.0\.0\.1:(\d+)", server.stdout.readline())
            assert found, "the emulator did not start"
            figures = _figures(
                Endpoint("127.0.0.1", int(found[1]), "sys", "dump"), server.pid, path, size, arguments.rounds
            )
        finally:
            server.terminate()
            server.wait()
    if arguments.json:
        print(json.dumps(figures))
        return
    chunks, load = -(-size // CHUNK_BYTES), os.getloadavg()[0]
    print(f"an object of {size / 1e6:.0f} MB in {chunks} chunks; one-minute load {load:.1f}")
    print(f"server_cpu_gb_s={figures['server_cpu_gb_s']:.2f} pymysql_gb_s={figures['pymysql_gb_s']:.2f}")
    print(f"gb_s={figures['gb_s']:.2f} session_gb_s={figures['session_gb_s']:.2f} ratio={figures['ratio']:.2f}")


def _figures(endpoint: Endpoint, server: int, path: Path, size: int, rounds: int) -> dict[str, float]:
    texts = [
        upstream_sql.get_object(_PUBLICATION.publisher, _PUBLICATION.name, path.name, 1 + at // CHUNK_BYTES)
        for at in range(0, size, CHUNK_BYTES)
    ]
    seconds: dict[str, list[float]] = {name: [] for name in _READERS}
    busy: list[float] = []
    login = {
        "host": endpoint.host,
        "port": endpoint.port,
        "user": endpoint.login,
        "password": _PASSWORD,
        "autocommit": None,
    }
    with (
        Session(endpoint, _PASSWORD) as session,
        pymysql.connect(**login, use_unicode=False, conv={}) as plain,
        pymysql.connect(**login) as bare,
    ):
        wire = Wire(bare)
        _compare(path, b"".join(get_object(session, _PUBLICATION, path.name, size)))
        _compare(path, b"".join(_cell(plain, text) for text in texts))
        readers: dict[str, Callable[[], int]] = {
            "wire": lambda: sum(map(wire.answer, texts)),
            "session": lambda: sum(map(len, get_object(session, _PUBLICATION, path.name, size))),
            "pymysql": lambda: sum(len(_cell(plain, text)) for text in texts),
        }
        for _ in range(rounds):
            for name in _READERS:
                worked, started = cpu_seconds(server), time.perf_counter()
                taken = readers[name]()
                seconds[name].append(time.perf_counter() - started)
                if name == "wire":
                    busy.append(cpu_seconds(server) - worked)
                assert taken >= size, f"{taken} bytes of {size} came"
    rates = {name: size / min(values) / 1e9 for name, values in seconds.items()}
    return {
        "gb_s": rates["wire"],
        "session_gb_s": rates["session"],
        "pymysql_gb_s": rates["pymysql"],
        "ratio": rates["session"] / rates["pymysql"],
        "server_cpu_gb_s": size * rounds / max(sum(busy), 1e-9) / 1e9,
        "bytes": size,
    }


def _compare(path: Path, taken: bytes) -> None:
    assert taken == path.read_bytes(), "not the bytes of the object"


def _cell(connection: "pymysql.Connection", text: str) -> bytes:
    with connection.cursor() as cursor:
        cursor.execute(text)
        row = cursor.fetchone()
    assert row is not None
    return row[0]


class Wire:
    """Reads answers from a connection's socket into one buffer, frame by frame, and keeps nothing."""

    def __init__(self, connection: Any) -> None:
        self._sock = connection._sock  # nothing of what follows the login has been read from it
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))

    def answer(self, text: str) -> int:
        """Send a statement and read up to the second end-of-file packet. Returns the bytes of all frames."""
        statement = _QUERY + text.encode()
        self._sock.sendall(len(statement).to_bytes(3, "little") + b"\0" + statement)
        total, ends = 0, 0
        while ends < 2:
            filled = 0
            while filled < _HEAD_BYTES:
                filled += self._receive(self._buffer[filled:], _HEAD_BYTES - filled)
            length = int.from_bytes(self._buffer[:3], "little")
            left = length
            while left:
                left -= self._receive(self._buffer, min(left, _RECEIVE_BYTES))
            assert length == 0 or self._buffer[0] != 0xFF or length > 512, "an error instead of rows"
            ends += length == 5 and self._buffer[0] == 0xFE
            total += length
        return total

    def _receive(self, into: memoryview, size: int) -> int:
        taken = self._sock.recv_into(into, size)
        assert taken, "the emulator closed the connection"
        return taken


if __name__ == "__main__":
    main()
