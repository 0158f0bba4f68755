"""Ports for servers of tests that have to know theirs before they start."""

import socket


def free_port() -> int:
    """On the loopback address. Another program may take it before it is used."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
