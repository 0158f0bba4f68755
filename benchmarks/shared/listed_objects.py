"""A simulated upstream whose lists have, besides the objects of its tables, very many that are made up. They are in no
file, and are made while they are sent: a million of them would take a gigabyte."""

import struct
import sys
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, overload

from ccpr.matrixone.objects.stats import STATS_SIZE
from ccpr.matrixone.server.answers import Cell
from ccpr.matrixone.server.backing import Snapshot
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import EngineBacking, SimulatedUpstream

ROW_COUNT, SIZE = 1000, 8256
_CREATED = "1000000000000000000-1"  # nanoseconds: in 2001
_FACTS = struct.pack("<BIIIII", 1, SIZE - 64 - 100, 100, 200, ROW_COUNT, 1)
_TAIL = bytes(64) + struct.pack("<IIB", SIZE, 2 * SIZE, 0)
_SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835  # odd: different numbers have different products modulo 2**128


class MadeUp(Sequence[Sequence[Cell]]):
    """So many rows of a list, of merged objects in `t0`, `t1` …, behind those that there are."""

    def __init__(self, real: Sequence[Sequence[Cell]], database: str, objects: int, tables: int) -> None:
        self._real, self._database, self._objects, self._tables = real, database, objects, tables

    def __len__(self) -> int:
        return len(self._real) + self._objects

    def __iter__(self) -> Iterator[Sequence[Cell]]:
        yield from self._real
        for number in range(self._objects):
            yield self._row(number)

    @overload
    def __getitem__(self, place: int) -> Sequence[Cell]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Sequence[Cell]]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        return self._real[place] if place < len(self._real) else self._row(place - len(self._real))

    def _row(self, number: int) -> Sequence[Cell]:
        segment = uuid.UUID(int=(number + 1) * _SPREAD % 2**128)
        stats = segment.bytes + bytes(2) + f"{segment}_00000".encode() + _FACTS + _TAIL
        table = number * self._tables // self._objects
        return self._database, f"t{table}", stats, _CREATED, "0-0", 0


class ManyObjects(EngineBacking):
    """See `ccpr.matrixone.server.backing.Backing`."""

    def __init__(self, storage: Storage, database: str, objects: int, tables: int) -> None:
        super().__init__(storage)
        self._made_up = database, objects, tables

    def object_list(self, account: str, target: Snapshot, base: Snapshot | None) -> Sequence[Sequence[Cell]]:
        real = super().object_list(account, target, base)
        return MadeUp(real, *self._made_up) if base is None else real


def serve(database: str, publication: str, objects: int, tables: int) -> None:
    """Print the port, and serve until the standard input ends."""
    storage = Storage(flush_after=60.0)
    storage.create_database(database)
    for number in range(tables):
        storage.create_table(database, f"t{number}", {"n": "int not null"}, primary_key=["n"])
    storage.create_publication(publication, database)
    server = SimulatedUpstream(storage)
    server._upstream.backing = ManyObjects(storage, database, objects, tables)
    with server:
        print(server.port, flush=True)
        sys.stdin.read()


assert len(MadeUp([], "d", 1, 1)[0][2]) == STATS_SIZE  # pyright: ignore[reportArgumentType]
