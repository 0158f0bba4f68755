"""Random statements of an account's administrator, whose database is replicated in logical mode: after each iteration
every table of the point has the rows that SELECT gives at the point's snapshot.

The upstream is simulated, or a real one: CCPR_ACCOUNT=mysql://account#admin:password@host:port. Iterations are killed
in between; CCPR_RESTART, a command, restarts a real one now and then. `make logical-histories` plays more.
"""

import os
import random
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import FIELD_TYPE

import ccpr
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command

DATABASE, NAME = "histories", "h"
SEED, STEPS = int(os.environ.get("SEED", "1")), int(os.environ.get("LOGICAL_HISTORIES", "12"))
LIVE, RESTART = os.environ.get("CCPR_ACCOUNT"), os.environ.get("CCPR_RESTART")
_KILLED, _RESTARTED = 0.2, 0.06  # of the iterations
_WORDS = ("a", "b", "naïve 🦆", "it's", " ends ", "", "x" * 40)
# How a literal of each type is made. Each third value is NULL where it may be.
KINDS: dict[str, Any] = {
    "int": lambda r: str(r.randrange(-5, 60)),
    "tinyint unsigned": lambda r: str(r.randrange(256)),
    "smallint": lambda r: str(r.randrange(-32768, 32768)),
    "bigint unsigned": lambda r: str(r.choice((0, 7, 2**64 - 1))),
    "varchar(40)": lambda r: _quoted(r.choice(_WORDS)),
    "char(9)": lambda r: _quoted(r.choice(("a", "b ", "é"))),
    "decimal(12,2)": lambda r: str(Decimal(r.randrange(-9999, 9999)) / 100),
    "decimal(38,10)": lambda r: f"{r.randrange(-(10**20), 10**20)}.{r.randrange(10**10):010}",
    "double": lambda r: r.choice(("0.1", "-1.5", "1e300", "3")),
    "float": lambda r: r.choice(("0.5", "-1.25", "16777216")),
    "bool": lambda r: r.choice(("true", "false")),
    "date": lambda r: f"'20{r.randrange(10, 30)}-0{r.randrange(1, 10)}-1{r.randrange(10)}'",
    "datetime(6)": lambda r: (
        f"'2026-01-0{r.randrange(1, 10)} 10:00:0{r.randrange(10)}.{r.choice((0, 500000, 250001)):06}'"
    ),
    "timestamp": lambda r: f"'2026-01-0{r.randrange(1, 10)} 10:00:0{r.randrange(10)}'",
    "time(3)": lambda r: f"'{r.randrange(10, 100)}:00:0{r.randrange(10)}.{r.choice((0, 500)):03}'",
    "varbinary(20)": lambda r: r.choice(("x'ff00'", "''", "'text'")),
    "blob": lambda r: r.choice(("x'00ff'", "''")),
    "binary(4)": lambda r: r.choice(("x'00ff'", "'abcd'")),
    "text": lambda r: _quoted(r.choice(_WORDS) * r.randrange(1, 5)),
    "json": lambda r: r.choice(("'{\"a\": [1, null, 2.5]}'", "'\"text\"'", "'7'")),
    "enum('red','it''s','c')": lambda r: r.choice(("'red'", "'it''s'", "'c'")),
    "set('x','y','z')": lambda r: r.choice(("''", "'x'", "'x,z'", "'x,y,z'")),
    "bit(10)": lambda r: str(r.randrange(1024)),
    "year": lambda r: r.choice(("1901", "2026", "2155")),
    "uuid": lambda r: f"'00000000-0000-4000-8000-{r.randrange(50):012}'",
    "vecf64(2)": lambda r: r.choice(("'[0.1,-2]'", "'[1e300,3]'")),
    "vecf32(2)": lambda r: r.choice(("'[1.5,-2]'", "'[0.125,3]'")),
}
_KEYS = ("int", "varchar(40)", "decimal(12,2)", "datetime(6)", "date", "bigint unsigned")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass
class Made:
    """A table: its columns with their types, those of its primary key, and how many there have been before it."""

    columns: dict[str, str]
    key: tuple[str, ...]
    cluster: str = ""

    def create(self, name: str) -> str:
        parts = [f"`{one}` {kind}" for one, kind in self.columns.items()]
        parts += [f"primary key ({', '.join(f'`{one}`' for one in self.key)})"] if self.key else []
        return f"create table `{name}` ({', '.join(parts)})" + (
            f" cluster by (`{self.cluster}`)" if self.cluster else ""
        )


@dataclass
class Writer:
    """Makes random statements for the tables that there are, and runs them: one that the server refuses is nothing."""

    chance: random.Random
    connection: Any
    tables: dict[str, Made] = field(default_factory=dict)
    made: int = 0

    def run(self, *statements: str) -> bool:
        with self.connection.cursor() as cursor:
            for statement in statements:
                try:
                    cursor.execute(statement)
                except (pymysql.err.ProgrammingError, pymysql.err.IntegrityError, pymysql.err.DataError):
                    return False
                except (pymysql.err.OperationalError, pymysql.err.InternalError) as error:
                    if error.args[0] in (2006, 2013):
                        raise
                    return False
        return True

    def step(self) -> None:
        if len(self.tables) < 3:
            self.create()
        act = self.chance.choice([self.insert] * 5 + [self.update] * 4 + [self.delete] * 3 + [self.define] * 2)
        act(self.chance.choice(list(self.tables)))

    def create(self, name: str = "") -> None:
        self.made += 1
        kinds = self.chance.sample(list(KINDS), self.chance.randrange(1, 7))
        columns = {f"c{place}": kind for place, kind in enumerate(kinds)}
        form, key, cluster = self.chance.random(), ("id",), ""
        if form < 0.5:
            columns = {"id": self.chance.choice(_KEYS), **columns}
        elif form < 0.7:
            columns, key = {"id": "int", "k": self.chance.choice(_KEYS), **columns}, ("id", "k")
        else:
            key, cluster = (), "c0" if form > 0.9 and kinds[0] in _KEYS else ""
        made = Made(columns, key, cluster)
        if self.run(made.create(name or f"t{self.made}")):
            self.tables[name or f"t{self.made}"] = made

    def literal(self, table: str, column: str) -> str:
        made = self.tables[table]
        if column not in made.key and self.chance.random() < 0.3:
            return "null"
        return KINDS[made.columns[column]](self.chance)

    def condition(self, table: str) -> str:
        column = self.chance.choice(list(self.tables[table].columns))
        kind = self.tables[table].columns[column]
        if kind in _KEYS and self.chance.random() < 0.8:
            return f"`{column}` {self.chance.choice(('=', '<', '>='))} {KINDS[kind](self.chance)}"
        return f"`{column}` is {self.chance.choice(('', 'not '))}null"

    def insert(self, table: str) -> None:
        columns = self.tables[table].columns
        rows = [[self.literal(table, one) for one in columns] for _ in range(self.chance.choice((1, 3, 30)))]
        verb = self.chance.choice(("insert into", "insert ignore into", "replace into"))
        self.run(f"{verb} `{table}` values " + ", ".join(f"({', '.join(row)})" for row in rows))
        if not self.tables[table].key and self.chance.random() < 0.1:
            self.run(f"insert into `{table}` select * from `{table}` limit 3000")

    def update(self, table: str) -> None:
        column = self.chance.choice(list(self.tables[table].columns))
        self.run(f"update `{table}` set `{column}` = {self.literal(table, column)} where {self.condition(table)}")

    def delete(self, table: str) -> None:
        rare = self.chance.random()
        where = "" if rare < 0.05 else f" where {self.condition(table)}"
        self.run(f"truncate table `{table}`" if rare > 0.95 else f"delete from `{table}`{where}")

    def define(self, table: str) -> None:
        made = self.tables[table]
        free = [column for column in made.columns if column not in made.key and column != made.cluster]
        column = self.chance.choice(free) if free else ""
        form = self.chance.randrange(9)
        if form == 0 and self.run(f"drop table `{table}`"):
            del self.tables[table]
        elif form == 1 and self.run(f"drop table `{table}`"):
            del self.tables[table]
            self.create(table)
        elif form == 2 and self.run(f"rename table `{table}` to `r{self.made}_{table[-2:]}`"):
            self.tables[f"r{self.made}_{table[-2:]}"] = self.tables.pop(table)
        elif form == 3:
            kind, name = self.chance.choice(list(KINDS)), f"n{len(made.columns)}"
            if name not in made.columns and self.run(f"alter table `{table}` add column `{name}` {kind}"):
                made.columns[name] = kind
        elif form == 4 and len(free) > 1 and self.run(f"alter table `{table}` drop column `{column}`"):
            del made.columns[column]
        elif form == 5 and column and made.columns[column] == "varchar(40)":
            self.run(f"alter table `{table}` modify `{column}` varchar({self.chance.randrange(41, 99)})")
        elif form == 6 and column and f"{column}r" not in made.columns:
            if self.run(f"alter table `{table}` rename column `{column}` to `{column}r`"):
                made.columns = {f"{one}r" if one == column else one: kind for one, kind in made.columns.items()}
        elif form == 7 and column:
            self.run(f"create index i{self.chance.randrange(999)} on `{table}` (`{column}`)")
        else:
            self.run(f"alter table `{table}` comment = '{self.chance.randrange(9)}'")


@contextmanager
def upstream() -> Iterator[str]:
    """The URI of an account's administrator."""
    if LIVE:
        yield LIVE
        return
    with SimulatedUpstream() as emulator:
        with connected(f"mysql://dump:111@127.0.0.1:{emulator.port}") as connection, connection.cursor() as cursor:
            cursor.execute("create account acc1 admin_name 'admin' identified by '111'")
        emulator.upgrade("4.2")
        yield f"mysql://acc1#admin:111@127.0.0.1:{emulator.port}"


@contextmanager
def connected(uri: str, database: str | None = None) -> Iterator[Any]:
    endpoint, password = parse_uri(uri)
    connection = pymysql.connect(
        host=endpoint.host, port=endpoint.port, user=endpoint.login, password=password or "", database=database,
        autocommit=True, init_command="SET time_zone = '+00:00'",
    )  # fmt: skip
    with closing(connection):
        yield connection


def iterate(chance: random.Random, *, restarted: bool) -> None:
    """An iteration, in some cases after one that was killed. A server that was restarted may not know for some seconds
    what it has."""
    if chance.random() < _KILLED:
        words = [sys.executable, "-c", "from ccpr.cli.main import main; main()", "run", NAME]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.8 + chance.random())
            process.kill()
    for _ in range(30 if restarted else 0):
        with suppress(AssertionError):
            command("run", NAME)
            return
        time.sleep(2)
    command("run", NAME)


def compared(connection: Any, mirror: ccpr.Mirror) -> int:
    """Every table of the newest point with SELECT at its snapshot; returns how many tables."""
    with connection.cursor() as cursor:
        cursor.execute("select sname from mo_catalog.mo_snapshots order by ts desc limit 1")
        ((snapshot,),) = cursor.fetchall()
        cursor.execute(f"select relname from mo_catalog.mo_tables {{snapshot = '{snapshot}'}} "
                       f"where reldatabase = '{DATABASE}' and relkind = 'r'")  # fmt: skip
        names = {name for (name,) in cursor.fetchall() if not name.startswith("__mo_")}
        assert {table.name for table in mirror.tables() if table.kind == "table"} == {
            f"{DATABASE}.{name}" for name in names
        }
        for name in sorted(names):
            cursor.execute(f"select * from `{DATABASE}`.`{name}` {{snapshot = '{snapshot}'}}")
            bits = [one[1] == FIELD_TYPE.BIT for one in cursor.description]
            theirs = Counter(tuple(map(_value, row, bits)) for row in cursor.fetchall())
            ours = Counter(tuple(map(_value, row.values())) for row in mirror.table(f"{DATABASE}.{name}").to_pylist())
            assert ours == theirs, f"{name}: {list((ours - theirs).items())[:3]} {list((theirs - ours).items())[:3]}"
    return len(names)


def _value(value: Any, is_bits: bool = False) -> Any:
    """What PyMySQL and Arrow give for the same value."""
    if is_bits and value is not None:
        return int.from_bytes(value)
    match value:
        case bool():
            return int(value)
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        case list():
            return tuple(value)
        case str() if value[:1] == "[" and value[-1:] == "]":
            return tuple(float(one) for one in value[1:-1].split(","))
        case Decimal():
            return int(value) if value == value.to_integral_value() else value
    return value


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_every_point_has_the_rows_of_its_snapshot(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    chance = random.Random(seed)
    monkeypatch.setenv("CCPR_HOME", str(tmp_path / "home"))
    states, began = 0, time.monotonic()
    with upstream() as uri:
        with connected(uri) as connection, connection.cursor() as cursor:
            cursor.execute(f"drop database if exists {DATABASE}")
            cursor.execute(f"create database {DATABASE}")
        with connected(uri, DATABASE) as connection:
            writer = Writer(chance, connection)
            for _ in range(4):
                writer.create()
            command("subscribe", NAME, "--from", uri, "--database", DATABASE)
            for step in range(STEPS):
                for _ in range(chance.randrange(1, 8)):
                    writer.step()
                restarted = bool(LIVE and RESTART) and chance.random() < _RESTARTED
                if restarted:
                    subprocess.run(shlex.split(RESTART or ""), check=True, stdout=subprocess.DEVNULL)
                    connection.ping(reconnect=True)
                iterate(chance, restarted=restarted)
                states += compared(connection, ccpr.open_mirror(tmp_path / "home" / "mirrors" / NAME))
                print(f"seed {seed}, step {step}: {states} states of tables in {time.monotonic() - began:.0f} s")
        command("drop", NAME, "--yes")
