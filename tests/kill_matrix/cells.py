"""The cells of the kill matrix, and the processes that play them: each has a server for the targets of its own."""

import logging
import os
import secrets
import tempfile
import traceback
from contextlib import ExitStack
from multiprocessing.util import Finalize
from pathlib import Path
from random import Random

from tests.kill_matrix.places import BY_KEY, Place
from tests.kill_matrix.scene import scene
from tests.kill_matrix.strikes import ROWS, Row
from tests.support.mariadb import MariaDb, find_program, running

NOT_WHOLE = "**not whole**"
_held = ExitStack()
_servers: list[MariaDb] = []


def new_seed() -> str:
    """What is random in the cells follows from it: SEED of the environment, or another each time."""
    return os.environ.get("SEED") or secrets.token_hex(4)


def play(row: Row, place: Place, server: MariaDb, seed: str) -> str:
    """One cell: the outcome of the struck attempt. Raises AssertionError if a plain re-run leaves anything broken."""
    rng = Random(f"{seed} {row.label} {place.key}")
    with (
        tempfile.TemporaryDirectory(prefix="kill-matrix-") as folder,
        scene(Path(folder), server, rng, retain=row.retain, catalog=row.catalog) as at_second_point,
    ):
        outcome = row.strike(at_second_point, place)
        code = at_second_point.run()
        assert code is None, f"{outcome}; the re-run: {code}"
        at_second_point.assert_whole()
        return outcome


def start_process() -> None:
    """Called in each process once."""
    logging.raiseExceptions = False  # a command that ended has left a handler with its closed standard error
    os.environ["COLUMNS"] = "200"
    _servers.append(_held.enter_context(running(find_program())))
    Finalize(None, _held.close, exitpriority=100)  # a process of a pool calls nothing else when it ends


def play_in_process(row: int, place: str, seed: str) -> str:
    """The outcome of a cell, or NOT_WHOLE; then the reason is on standard error."""
    try:
        return play(ROWS[row], BY_KEY[place], _servers[0], seed)
    except Exception:  # noqa: BLE001 - a cell's failure is a result; the others are played all the same
        print(f"not whole: {ROWS[row].label}, {place}", flush=True)
        traceback.print_exc()
        return NOT_WHOLE
