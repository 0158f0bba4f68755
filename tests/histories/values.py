"""Random values of every column type, as Python values that Arrow converts to the type's Arrow type."""

import datetime
import random
import struct
import uuid
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

DATABASE = "h"
Maker = Callable[[random.Random], Any]
_WIDE = Context(prec=80)  # the default would round
_DAY_ONE = datetime.datetime(1, 1, 1)
_SPAN_US = 3_652_059 * 86_400_000_000 - 1
_WORDS = ("", "a", "zz", "naïve", "日本語", "x" * 23, "y" * 24, "z" * 60, "tab\there", "'quoted'", "🦆")
_LONG_JSON = '{"long": "' + "j" * 90 + '"}'
_JSON = (
    "null",
    "true",
    "1",
    "-7",
    "1.5",
    '"text"',
    "[]",
    "{}",
    "[1, 2, null]",
    '{"a": 1, "b": [true, "x"]}',
    _LONG_JSON,
)


def _integer(bits: int, *, signed: bool) -> Maker:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return lambda rng: rng.choice((low, high, 0, 1, rng.randint(low, high), rng.randint(0, 100)))


def _decimal(precision: int, scale: int) -> Maker:
    bound = 10**precision - 1
    return lambda rng: Decimal(
        rng.choice((0, bound, -bound, rng.randint(-bound, bound), rng.randint(-999, 999)))
    ).scaleb(-scale, _WIDE)


def _float32(rng: random.Random) -> float:
    return struct.unpack("<f", struct.pack("<f", rng.choice((0.0, -1.5, 3.4e38, rng.uniform(-1e6, 1e6)))))[0]


def _bytes(limit: int) -> Maker:
    return lambda rng: rng.randbytes(rng.choice((0, 1, limit // 2, limit)))


def _moment(rng: random.Random) -> datetime.datetime:
    return _DAY_ONE + datetime.timedelta(microseconds=rng.choice((0, _SPAN_US, rng.randint(0, _SPAN_US))))


TYPES: dict[str, Maker] = {
    "bool": lambda rng: rng.random() < 0.5,
    "bit(10)": lambda rng: rng.randint(0, 1023),
    "bit(64)": _integer(64, signed=False),
    "tinyint": _integer(8, signed=True),
    "smallint": _integer(16, signed=True),
    "int": _integer(32, signed=True),
    "bigint": _integer(64, signed=True),
    "tinyint unsigned": _integer(8, signed=False),
    "smallint unsigned": _integer(16, signed=False),
    "int unsigned": _integer(32, signed=False),
    "bigint unsigned": _integer(64, signed=False),
    "float": _float32,
    "double": lambda rng: rng.choice((0.0, 1e300, -2.5, rng.uniform(-1e9, 1e9))),
    "decimal(10,2)": _decimal(10, 2),
    "decimal(30,9)": _decimal(30, 9),
    "decimal(60,5)": lambda rng: format(Decimal(rng.randint(-(10**40), 10**40)).scaleb(-5, _WIDE), "f"),
    "date": lambda rng: _moment(rng).date(),
    "time(6)": lambda rng: datetime.timedelta(microseconds=rng.randint(-3_020_399_000_000, 3_020_399_000_000)),
    "datetime(6)": _moment,
    "timestamp(6)": lambda rng: _moment(rng).replace(tzinfo=datetime.UTC),
    "year": lambda rng: rng.choice((0, 1901, 2155, 2026)),
    "char(60)": lambda rng: rng.choice(_WORDS),
    "varchar(200)": lambda rng: rng.choice(_WORDS) * rng.choice((1, 1, 3)),
    "text": lambda rng: rng.choice(_WORDS) * rng.choice((1, 1, 9)),
    "binary(30)": _bytes(30),
    "varbinary(60)": _bytes(60),
    "blob": _bytes(200),
    "json": lambda rng: rng.choice(_JSON),
    "uuid": lambda rng: str(uuid.UUID(int=rng.getrandbits(128))),
    "enum('red','green','blue')": lambda rng: rng.choice(("red", "green", "blue")),
    "set('x','y','z')": lambda rng: ",".join(member for member in "xyz" if rng.random() < 0.5),
    "vecf32(3)": lambda rng: [_float32(rng) for _ in range(3)],
    "vecf64(2)": lambda rng: [rng.uniform(-9, 9) for _ in range(2)],
    "datalink": lambda rng: rng.choice(("file:///a.txt", "stage://s/b.csv")),
    "geometry": lambda rng: f"POINT({rng.randint(0, 90)} {rng.randint(0, 90)})",
}
# Few values, so that keys collide and are used again.
KEYS: dict[str, Maker] = {
    "int": lambda rng: rng.randint(-40, 40),
    "bigint": lambda rng: rng.choice((-1, 1)) * rng.choice((rng.randint(0, 30), 2**62 + rng.randint(0, 9))),
    "smallint unsigned": lambda rng: rng.randint(0, 60),
    "varchar(20)": lambda rng: rng.choice(("k", "käse", "long-" * 3)) + str(rng.randint(0, 15)),
    "decimal(10,2)": lambda rng: Decimal(rng.randint(-30, 30)).scaleb(-2),
    "decimal(30,9)": lambda rng: Decimal(rng.randint(-30, 30)).scaleb(-9),
    "date": lambda rng: datetime.date(2026, 1, 1) + datetime.timedelta(days=rng.randint(0, 50)),
    "datetime(6)": lambda rng: datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=rng.randint(0, 50)),
    "uuid": lambda rng: str(uuid.UUID(int=rng.randint(0, 40) << 90 | 7)),
    "varbinary(10)": lambda rng: bytes((rng.randint(0, 3), rng.randint(0, 12), 0)),
    "enum('red','green','blue')": lambda rng: rng.choice(("red", "green", "blue")),
    "bool": lambda rng: rng.random() < 0.5,
}
