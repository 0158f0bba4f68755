"""Random statements of an account's administrator, whose database is replicated in logical mode, and by account sys in
physical mode: after each iteration every table of both mirrors has the rows that SELECT gives at the point's snapshot.

The upstream is simulated, or a real one: CCPR_ACCOUNT=mysql://account#admin:password@host:port, and CCPR_SYS, a login
of account sys there, without which only logical mode is played. Iterations are killed in between; CCPR_RESTART, a
command, restarts a real one now and then. `make logical-histories` plays more.
"""

import os
import random
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
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

DATABASE, LOGICAL, PHYSICAL = "hist-ö~ry", "logical", "physical"
SEED, STEPS = int(os.environ.get("SEED", "1")), int(os.environ.get("LOGICAL_HISTORIES", "12"))
LIVE, SYS, RESTART = (os.environ.get(f"CCPR_{name}", "") for name in ("ACCOUNT", "SYS", "RESTART"))
_KILLED, _RESTARTED = 0.2, 0.06  # of the iterations
_WORDS = ("a", "b", "naïve 🦆", "it's", " ends ", "", "x" * 40)
_NAMES = ("c", "c d`", "Ü", "select", "c'", "flag", "blank ", "a.b", "n" * 60)  # of columns; a number follows
_TABLES = ("t", "t", "t", "T x~é", "%_", "n" * 60)
_LARGE = 1_000_000
_NO_NUMBERS = ("'NaN'", "'inf'", "'-inf'")
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
    "decimal(18,0)": lambda r: r.choice(("0", "-1", "999999999999999999")),
    "bigint": lambda r: r.choice(("0", "-9223372036854775808", "9223372036854775807")),
    "double": lambda r: r.choice((*_NO_NUMBERS, "0.1", "3", "0e0", "-0e0", "5e-324", "1.7976931348623157e308")),
    "float": lambda r: r.choice((*_NO_NUMBERS, "0.5", "-1.25", "16777216", "0", "-0e0")),
    "bool": lambda r: r.choice(("true", "false")),
    "date": lambda r: f"'20{r.randrange(10, 30)}-0{r.randrange(1, 10)}-1{r.randrange(10)}'",
    "datetime(6)": lambda r: (
        f"'2026-01-0{r.randrange(1, 10)} 10:00:0{r.randrange(10)}.{r.choice((0, 500000, 250001)):06}'"
    ),
    "datetime": lambda r: r.choice(("'0001-01-01'", "'1969-12-31 23:59:59'", "'9999-12-31 23:59:59'")),
    "timestamp(6)": lambda r: r.choice(("'1970-01-01 00:00:01'", "'2038-01-19 03:14:08.000001'")),
    "time": lambda r: r.choice(("'-838:59:59'", "'00:00:00'", "'838:59:59'")),
    "timestamp": lambda r: f"'2026-01-0{r.randrange(1, 10)} 10:00:0{r.randrange(10)}'",
    "time(3)": lambda r: f"'{r.randrange(10, 100)}:00:0{r.randrange(10)}.{r.choice((0, 500)):03}'",
    "varbinary(20)": lambda r: r.choice(("x'ff00'", "''", "'text'")),
    "blob": lambda r: r.choice(("x'00ff'", "''")),
    "binary(4)": lambda r: r.choice(("x'00ff'", "'abcd'")),
    "text": lambda r: _quoted(r.choice(_WORDS) * r.randrange(1, 5)),
    "json": lambda r: r.choice(("'{\"a\": [1, null, 2.5]}'", "'\"text\"'", "'7'")),
    "enum('red','it''s','c')": lambda r: r.choice(("'red'", "'it''s'", "'c'")),
    "set('x','y','z')": lambda r: r.choice(("''", "'x'", "'x,z'", "'x,y,z'")),
    "bit(64)": lambda r: str(r.choice((0, 2**63, 2**64 - 1))),
    "bit(10)": lambda r: str(r.randrange(1024)),
    "year": lambda r: r.choice(("1901", "2026", "2155")),
    "uuid": lambda r: f"'00000000-0000-4000-8000-{r.randrange(50):012}'",
    "vecf64(2)": lambda r: r.choice(("'[0.1,-2]'", "'[1e300,3]'", "'[NaN,-1]'")),
    "vecf32(2)": lambda r: r.choice(("'[1.5,-2]'", "'[0.125,3]'")),
}
_KEYS = ("int", "varchar(40)", "decimal(12,2)", "datetime(6)", "date", "bigint unsigned", "double", "uuid", "char(9)")
_PARTS = (
    "hash({0}) partitions 3",
    "range({0}) (partition p0 values less than (10), partition p1 values less than (40))",
    "list({0}) (partition p0 values in (1, 3, 5, 7, 9, 11, 13), partition p1 values in (2, 4, 6, 8, 10))",
)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass
class Made:
    """A table: its columns with their types, those of its primary key, and how many there have been before it."""

    columns: dict[str, str]
    key: tuple[str, ...]
    cluster: tuple[str, ...] = ()
    partitions: str = ""
    extra: str = ""
    numbered: bool = False

    def create(self, name: str) -> str:
        parts = [f"{_name(one)} {kind}" for one, kind in self.columns.items()]
        parts[0] += " auto_increment" if self.numbered else ""
        parts += [f"primary key ({', '.join(map(_name, self.key))})"] if self.key else []
        clustered = f" cluster by ({', '.join(map(_name, self.cluster))})" if self.cluster else ""
        parted = f" partition by {self.partitions.format('`id`')}" if self.partitions else ""
        return f"create table {_name(name)} ({', '.join(parts)}{self.extra}){clustered}{parted}"


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
        acts = [self.insert] * 5 + [self.update] * 4 + [self.delete] * 3 + [self.define] * 3
        if self.chance.random() < 0.1 and self.run("begin"):
            for _ in range(3):
                self.chance.choice(acts[:12])(self.chance.choice(list(self.tables)))
            self.run(self.chance.choice(("commit", "commit", "rollback")))
        self.chance.choice(acts)(self.chance.choice(list(self.tables)))

    def create(self, name: str = "") -> None:
        self.made += 1
        kinds = self.chance.sample(list(KINDS), self.chance.randrange(1, 7))
        columns = {f"{self.chance.choice(_NAMES)}{place}": kind for place, kind in enumerate(kinds)}
        form, key, cluster, parts, extra = self.chance.random(), ("id",), (), "", ""
        if form < 0.5:
            columns = {"id": self.chance.choice(_KEYS), **columns}
        elif form < 0.7:
            columns, key = {"id": "int", "K": self.chance.choice(_KEYS), **columns}, ("id", "K")
        else:
            key = ()
            if form > 0.85:
                cluster = tuple(one for one, kind in columns.items() if kind in _KEYS)[:2]
            elif form > 0.8:
                columns = {"id": "int", **columns}
        if columns.get("id") == "int" and self.chance.random() < 0.5:
            parts = self.chance.choice(_PARTS)
        elif columns.get("id") == "int" and self.chance.random() < 0.3:
            parent = self.chance.choice([*self.tables, "none"])
            extra = f", foreign key (`id`) references {_name(parent)} (`id`) on delete cascade"
        name = name or f"{self.chance.choice(_TABLES)}{self.made}"
        numbered = columns.get("id") == "int" and "id" in key and self.chance.random() < 0.3
        made = Made(columns, key, cluster, parts, extra, numbered)
        if self.run(made.create(name)):
            self.tables[name] = made

    def literal(self, table: str, column: str) -> str:
        made = self.tables[table]
        if (column not in made.key or (made.numbered and column == "id")) and self.chance.random() < 0.3:
            return "null"
        kind = made.columns[column]
        if kind in ("text", "blob") and self.chance.random() < 0.02:
            return _quoted("ö" * (_LARGE // 2) if kind == "text" else "x" * _LARGE)
        return KINDS[kind](self.chance)

    def condition(self, table: str) -> str:
        column = self.chance.choice(list(self.tables[table].columns))
        kind = self.tables[table].columns[column]
        if kind in _KEYS and self.chance.random() < 0.8:
            return f"{_name(column)} {self.chance.choice(('=', '<', '>='))} {KINDS[kind](self.chance)}"
        return f"{_name(column)} is {self.chance.choice(('', 'not '))}null"

    def insert(self, table: str) -> None:
        columns = self.tables[table].columns
        rows = [[self.literal(table, one) for one in columns] for _ in range(self.chance.choice((1, 3, 30)))]
        verb = self.chance.choice(("insert into", "insert ignore into", "replace into"))
        names = ", ".join(map(_name, columns))
        self.run(f"{verb} {_name(table)} ({names}) values " + ", ".join(f"({', '.join(row)})" for row in rows))
        if not self.tables[table].key and self.chance.random() < 0.1:
            self.run(f"insert into {_name(table)} select * from {_name(table)} limit 3000")

    def update(self, table: str) -> None:
        column = self.chance.choice(list(self.tables[table].columns))
        value, where = self.literal(table, column), self.condition(table)
        self.run(f"update {_name(table)} set {_name(column)} = {value} where {where}")

    def delete(self, table: str) -> None:
        rare, limit = self.chance.random(), self.chance.choice(("", "", " limit 2"))
        where = "" if rare < 0.05 else f" where {self.condition(table)}{limit}"
        self.run(f"truncate table {_name(table)}" if rare > 0.95 else f"delete from {_name(table)}{where}")

    def define(self, table: str) -> None:
        made, place = self.tables[table], _name(table)
        free = [column for column in made.columns if column not in (*made.key, *made.cluster, "id")]
        column = self.chance.choice(free) if free else ""
        form = self.chance.randrange(16)
        if form == 0 and self.run(f"drop table {place}"):
            del self.tables[table]
        elif form == 1 and self.run(f"drop table {place}"):
            del self.tables[table]
            self.create(table)
        elif form == 2 and self.run(f"rename table {place} to `r{self.made}_{table[-1]}`"):
            self.tables[f"r{self.made}_{table[-1]}"] = self.tables.pop(table)
        elif form == 3:
            kind, name = self.chance.choice(list(KINDS)), f"n{len(made.columns)}"
            where = self.chance.choice(("", " first", f" default {KINDS[kind](self.chance)}"))
            if name not in made.columns and self.run(f"alter table {place} add column `{name}` {kind}{where}"):
                made.columns = {name: kind, **made.columns} if where == " first" else {**made.columns, name: kind}
        elif form == 4 and len(free) > 1 and self.run(f"alter table {place} drop column {_name(column)}"):
            del made.columns[column]
        elif form == 5 and column and made.columns[column] == "varchar(40)":
            self.run(f"alter table {place} modify {_name(column)} varchar({self.chance.randrange(41, 99)})")
        elif form == 6 and column and f"{column}r" not in made.columns:
            if self.run(f"alter table {place} rename column {_name(column)} to {_name(column + 'r')}"):
                made.columns = {f"{one}r" if one == column else one: kind for one, kind in made.columns.items()}
        else:
            self.redefine(table, form, column)

    def redefine(self, table: str, form: int, column: str) -> None:
        """Indexes, partitions, copies, keys and views."""
        made, place = self.tables[table], _name(table)
        if form == 7 and column:
            kind, of = self.chance.choice(("", "", "unique ", "fulltext ")), f"on {place} ({_name(column)})"
            if made.columns[column].startswith("vec"):
                using = self.chance.choice((f"ivfflat {of} lists = 1", f"hnsw {of}"))
                kind, of = "", f"using {using} op_type 'vector_l2_ops'"
            self.run(f"create {kind}index i{self.chance.randrange(999)} {of}")
        elif form == 8 and made.partitions:
            self.run(f"alter table {place} {self.chance.choice(('truncate', 'drop'))} partition p0")
        elif form == 9 and made.partitions:
            bound = "less than (70)" if made.partitions.startswith("range") else "in (0, 15, 17)"
            self.run(f"alter table {place} add partition (partition p2 values {bound})")
        elif form in (10, 11):
            self.made += 1
            if self.run(f"create table `k{self.made}` {('clone', 'like')[form - 10]} {place}"):
                self.tables[f"k{self.made}"] = replace(made, columns=dict(made.columns))
        elif form == 12 and column and made.columns[column] == "int":
            if self.run(f"alter table {place} modify {_name(column)} bigint"):
                made.columns[column] = "bigint"
        elif form == 13 and self.run(
            f"alter table {place} {'drop primary key' if made.key else 'add primary key (`id`)'}"
        ):
            made.key = () if made.key else ("id",)
        elif form == 14:
            self.run(f"create or replace view `v` as select * from {place}", f"update {place} set `id` = `id` + 1")
        else:
            self.run(f"alter table {place} comment = '{self.chance.randrange(9)}'")


@contextmanager
def upstream() -> Iterator[tuple[str, str]]:
    """The URIs of an account's administrator and of a login of account sys."""
    if LIVE:
        yield LIVE, SYS
        return
    with SimulatedUpstream() as emulator:
        sys_login = f"mysql://sys#dump:111@127.0.0.1:{emulator.port}"
        with connected(sys_login) as connection, connection.cursor() as cursor:
            cursor.execute("create account acc1 admin_name 'admin' identified by '111'")
        emulator.upgrade("4.2")
        yield f"mysql://acc1#admin:111@127.0.0.1:{emulator.port}", sys_login


@contextmanager
def connected(uri: str, database: str | None = None) -> Iterator[Any]:
    endpoint, password = parse_uri(uri)
    connection = pymysql.connect(
        host=endpoint.host, port=endpoint.port, user=endpoint.login, password=password or "", database=database,
        autocommit=True, init_command="SET time_zone = '+00:00'",
    )  # fmt: skip
    with closing(connection):
        yield connection


def iterate(name: str, chance: random.Random, *, restarted: bool) -> None:
    """An iteration, in some cases after one that was killed. A server that was restarted may not know for some seconds
    what it has."""
    if chance.random() < _KILLED:
        words = [sys.executable, "-c", "from ccpr.cli.main import main; main()", "run", name]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.8 + chance.random())
            process.kill()
    for _ in range(30 if restarted else 0):
        with suppress(AssertionError):
            command("run", name)
            return
        time.sleep(2)
    command("run", name)


def compared(connection: Any, mirrors: Collection[ccpr.Mirror]) -> int:
    """Every table of the newest points with SELECT at the snapshot of the first mirror's; returns how many tables."""
    with connection.cursor() as cursor:
        cursor.execute("select sname from mo_catalog.mo_snapshots order by ts desc limit 1")
        ((snapshot,),) = cursor.fetchall()
        cursor.execute(f"select relname from mo_catalog.mo_tables {{snapshot = '{snapshot}'}} "
                       f"where reldatabase = '{DATABASE}' and relkind = 'r'")  # fmt: skip
        names = {name for (name,) in cursor.fetchall() if not name.startswith(("__mo_", "%!%"))}
        for mirror in mirrors:
            shown = {table.name for table in mirror.tables() if table.kind == "table"}
            assert shown == {f"{DATABASE}.{name}" for name in names}
        for name in sorted(names):
            cursor.execute(f"select * from `{DATABASE}`.{_name(name)} {{snapshot = '{snapshot}'}}")
            bits = [one[1] == FIELD_TYPE.BIT for one in cursor.description]
            theirs = Counter(tuple(map(_value, row, bits)) for row in cursor.fetchall())
            for mirror in mirrors:
                rows = mirror.table(f"{DATABASE}.{name}").to_pylist()
                ours = Counter(tuple(map(_value, row.values())) for row in rows)
                assert ours == theirs, f"{name}: {[*(ours - theirs).items()][:3]} {[*(theirs - ours).items()][:3]}"
    return len(names) * len(mirrors)


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
            return tuple(map(_value, value))
        case str() if value[:1] == "[" and value[-1:] == "]":
            return tuple(_value(float(one)) for one in value[1:-1].split(","))
        case float() if value != value:
            return "NaN"
        case Decimal():
            return int(value) if value == value.to_integral_value() else value
    return value


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_every_point_has_the_rows_of_its_snapshot(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    chance = random.Random(seed)
    monkeypatch.setenv("CCPR_HOME", str(tmp_path / "home"))
    states, began, names = 0, time.monotonic(), [LOGICAL]
    with upstream() as (account, sys_login):
        with connected(account) as connection, connection.cursor() as cursor:
            for statement in (
                "drop publication if exists histories",
                f"drop database if exists `{DATABASE}`",
                f"create database `{DATABASE}`",
                f"create publication histories database `{DATABASE}` account sys",
            ):
                cursor.execute(statement)
        with connected(account, DATABASE) as connection:
            writer = Writer(chance, connection)
            writer.run("set experimental_ivf_index = 1", "set experimental_hnsw_index = 1")
            for _ in range(4):
                writer.create()
            command("subscribe", LOGICAL, "--from", account, "--database", DATABASE)
            if sys_login:
                names.append(PHYSICAL)
                of = ("--database", DATABASE, "--publication", "histories", "--account", parse_uri(account)[0].account)
                command("subscribe", PHYSICAL, "--from", sys_login, *of, "--allow-overlap")
            for step in range(STEPS):
                for _ in range(chance.randrange(1, 8)):
                    writer.step()
                restarted = bool(LIVE and RESTART) and chance.random() < _RESTARTED
                if restarted:
                    subprocess.run(shlex.split(RESTART), check=True, stdout=subprocess.DEVNULL)
                    connection.ping(reconnect=True)
                for name in names:
                    iterate(name, chance, restarted=restarted)
                mirrors = [ccpr.open_mirror(tmp_path / "home" / "mirrors" / name) for name in names]
                states += compared(connection, mirrors)
                print(f"seed {seed}, step {step}: {states} states of tables in {time.monotonic() - began:.0f} s")
        for name in names:
            command("drop", name, "--yes")
