"""Ports for servers of tests that have to know theirs before they start, and what comes through a socket."""

import random
import socket

# Below those that a system gives to outgoing connections, and by chance: other processes of these tests take some, too.
_FIRST, _LAST = 10_000, 32_000


def free_port() -> int:
    """On the loopback address. Another program may take it before it is used."""
    chance = random.SystemRandom()  # hypothesis makes Python's own the same in each process
    while True:
        with socket.socket() as probe:
            port = chance.randrange(_FIRST, _LAST)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def all_of(sock: socket.socket) -> bytes:
    """What comes until the other side ends or cuts the connection."""
    received = b""
    try:
        while piece := sock.recv(65536):
            received += piece
    except ConnectionError:
        pass
    return received
