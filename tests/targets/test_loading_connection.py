"""A server that asks for files gets none: the connection serves the rows of its own statement under their random name,
and nothing else."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pymysql
import pytest

from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.targets.address import parse_target_uri
from ccpr.targets.encoding import load_columns
from ccpr.targets.errors import FileRequestRefused
from ccpr.targets.loading_connection import LoadingConnection
from tests.targets.target_database import source_table

pytestmark = pytest.mark.integration

OK = b"\0\0\0\2\0\0\0"
DDL = "CREATE TABLE `t` (`id` int NOT NULL, PRIMARY KEY (`id`))"


def packet(number: int, payload: bytes) -> bytes:
    return struct.pack("<I", len(payload))[:3] + bytes([number]) + payload


def read_packet(file) -> bytes:
    head = file.read(4)
    return file.read(int.from_bytes(head[:3], "little")) if len(head) == 4 else b""


@contextmanager
def rogue(answer: Callable[[bytes], bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """A server that accepts every login and answers each statement with `answer`. Gives its port, and what it received
    after its answers."""
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as file:
                able = struct.pack("<HBHH", 0xF7FF & ~0x800, 45, 2, 0x0008 | 0x0080)
                greeting = b"\x0a8.0.30\0" + struct.pack("<I", 1) + b"a" * 8 + b"\0" + able
                connection.sendall(
                    packet(0, greeting + bytes([21]) + b"\0" * 10 + b"b" * 12 + b"\0mysql_native_password\0")
                )
                read_packet(file)
                connection.sendall(packet(2, OK))
                while statement := read_packet(file):
                    reply = answer(statement[1:])
                    connection.sendall(packet(1, reply))
                    if reply[:1] == b"\xfb":
                        got.append(file.read())
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], got
        thread.join(5)


def ask_for(name: bytes, when: bytes) -> Callable[[bytes], bytes]:
    return lambda statement: b"\xfb" + name if statement.startswith(when) else OK


@pytest.mark.parametrize("when", [b"SET", b"SELECT", b"LOAD"])
def test_a_request_for_a_file_is_refused_in_answer_to_any_statement(when: bytes, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("do not read me")
    with rogue(ask_for(str(secret).encode(), when)) as (port, got):
        address, password = parse_target_uri(f"mysql://u:p@127.0.0.1:{port}/d?ssl-mode=disabled")
        seconds = 1.0 if when == b"SET" else 60.0  # PyMySQL does not check the first answer: it waits in vain

        def use() -> None:
            with closing(LoadingConnection(address, password, connect_seconds=seconds)) as connection:
                connection.query("SELECT 1")
                columns = load_columns(source_table(DDL), parse_create_table(DDL).columns, "", "")
                connection.load("`t`", columns, [pa.table({"id": pa.array([1], pa.int32())})], "table t")

        with pytest.raises((FileRequestRefused, pymysql.err.OperationalError)) as caught:
            use()
    if when != b"SET":
        assert caught.type is FileRequestRefused
        assert got == [b""]
    assert b"do not read me" not in b"".join(got)
