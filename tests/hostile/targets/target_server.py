"""Hostile targets: a server that breaks the protocol, asks for the password, or asks for files."""

import random
from contextlib import closing

import pyarrow as pa

from ccpr.matrixone.client.endpoint import Endpoint, Tls
from ccpr.matrixone.ddl.definition import ColumnDefinition, ColumnType
from ccpr.matrixone.schema import Column, SqlType
from ccpr.targets.address import Address
from ccpr.targets.encoding import LoadColumn
from ccpr.targets.loading_connection import LoadingConnection
from ccpr.targets.target_session import TargetSession
from tests.hostile.mutate import packed
from tests.hostile.targets.client import OK, SECONDS, SECRET, HostileServers, bad_answer, greeted, packet, result_set

_COLUMN = LoadColumn("a", "a", Column("a", 0, SqlType(23, 64, -1)), ColumnDefinition("a", ColumnType("bigint")))
_ROWS = [pa.table({"a": pa.array([1, 2], pa.int64())})]
_ASKS = 4
_AFTER_LOGIN = 3  # statements that a connection sends by itself
_ODD = (b"\xfb/etc/passwd", b"\xfbccpr-", b"\xfb", OK + b"\0\0", b"\xff\x15\x04#28000no")


class HostileTargets(HostileServers):
    """An input: as of `HostileServers`."""

    name = "target_servers"

    def make(self, chance: random.Random) -> bytes:
        ask = chance.randrange(_ASKS)
        greeting, login = greeted(chance)
        answers = [packet(1, OK)] * _AFTER_LOGIN + [_answer(chance) for _ in range(6)]
        for number in chance.sample(range(len(answers)), chance.randrange(3)):
            odd = packet(1, chance.choice(_ODD))
            answers[number] = odd if chance.random() < 0.3 else bad_answer(answers[number], chance)
        return packed([bytes((ask,)), greeting, login, *answers])

    def talk(self, port: int, ask: int) -> None:
        address = Address(Endpoint("127.0.0.1", port, "sys", "u", tls=Tls("disabled"), account_named=False), "d")
        session = TargetSession(address, SECRET.decode(), "task")
        with session.typed("target"):
            if ask % _ASKS == 0:
                with closing(session):
                    session.open(SECONDS)
                    session.shown("`t`")
                return
            with closing(LoadingConnection(address, SECRET.decode(), connect_seconds=SECONDS)) as connection:
                connection._read_timeout = SECONDS
                if ask % _ASKS == 1:
                    connection.query("SELECT 1")
                elif ask % _ASKS == 2:
                    with connection.cursor() as cursor:
                        cursor.execute("SELECT 1")
                        cursor.fetchall()
                else:
                    connection.load("`t`", (_COLUMN,), _ROWS, "table t")


def _answer(chance: random.Random) -> bytes:
    if chance.random() < 0.4:
        return packet(1, chance.choice((OK, *_ODD)))
    names = tuple(b"abc"[: 1 + chance.randrange(3)][place : place + 1] for place in range(1 + chance.randrange(2)))
    cells = (b"10.11.6-MariaDB", b"1", b"0", b"utf8mb4", None, chance.randbytes(chance.randrange(30)))
    return result_set(names, [tuple(chance.choice(cells) for _ in names) for _ in range(chance.randrange(3))])
