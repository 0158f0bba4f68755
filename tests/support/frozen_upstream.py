"""The simulated upstream of a fixture (tests/fixtures/README.md), made again: the same statements at the same times,
so that its tables have the ids, and its objects the names, that the fixture's mirrors know.

`upstream.sql` has the statements, in steps. `upstream.json` has the time of the first step, the seed of the names, rows
that no statement makes here, and the snapshots that there were when the fixture was written.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pymysql

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream

STEP_NS = 60 * 10**9
_STATEMENT = re.compile(r"(?P<account>\w+): (?P<sql>.+)")


@dataclass
class FrozenUpstream:
    """
    Attributes
    ----------
    clock : nanoseconds; what the storage takes for the present.
    steps : statements of each step, with their accounts.
    done : how many steps have been taken.
    """

    folder: Path
    about: Mapping[str, Any]
    steps: list[list[tuple[str, str]]]
    clock: int
    storage: Storage = field(init=False)
    emulator: SimulatedUpstream = field(init=False)
    done: int = 0

    def __post_init__(self) -> None:
        self.storage = Storage(
            now=lambda: self.clock,
            seed=self.about["seed"],
            cn_rows=8192,
            flush_rows=100_000,
            create_at="commit",
            abort_column=False,
            wkb=False,
        )
        self.emulator = SimulatedUpstream(self.storage, password="111")

    @classmethod
    def of(cls, folder: Path) -> "FrozenUpstream":
        about = json.loads((folder / "upstream.json").read_text())
        return cls(folder, about, _steps(folder / "upstream.sql"), _nanoseconds(about["first"]))

    def take_step(self) -> None:
        """The next step, and the snapshots that were made between it and the one after."""
        start = _nanoseconds(self.about["first"]) + self.done * STEP_NS
        self.clock = start
        with ExitStack() as opened:
            cursors: dict[str, Any] = {}
            for account, sql in self.steps[self.done]:
                if account not in cursors:
                    cursors[account] = opened.enter_context(self._cursor(account))
                cursors[account].execute(sql)
        if not self.done:
            self.storage.functions += map(tuple, self.about["functions"])
            self.storage.role_privileges += map(tuple, self.about["role_privileges"])
        self.storage.flush_ids([entry.id for entry in self.storage.tables])
        self.done += 1
        for taken in sorted(self.about["snapshots"], key=lambda taken: taken["at"]):
            if start <= taken["at"] < start + STEP_NS:
                self.clock = taken["at"]
                scope = (taken["name"], taken["level"], taken["database"], taken["table"])
                made = self.storage.create_snapshot(*scope, account=taken["account"], caller=taken["caller"])
                assert self.storage.clock.time(made.tick) == Timestamp(taken["at"]), taken["name"]

    @contextmanager
    def _cursor(self, account: str) -> Iterator[Any]:
        login = {"user": f"{account}#dump", "password": "111"}
        with (
            pymysql.connect(host="127.0.0.1", port=self.emulator.port, **login, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            yield cursor


def _steps(file: Path) -> list[list[tuple[str, str]]]:
    steps: list[list[tuple[str, str]]] = []
    for line in file.read_text().splitlines():
        if line.startswith("-- step "):
            steps.append([])
        elif found := _STATEMENT.fullmatch(line):
            steps[-1].append((found["account"], found["sql"]))
    return steps


def _nanoseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * 10**9
