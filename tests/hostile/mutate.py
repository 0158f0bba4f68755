"""Damage to bytes and to JSON, drawn from a seeded generator: the same seed gives the same damage."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

# Ends of ranges, the longest inline value (0x17) and the next, and the markers of MySQL's lengths (0xFB to 0xFF).
_BYTES = (0, 1, 0x17, 0x18, 0x7F, 0x80, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF)
_MOST_EDITS = 6
_MOST_ADDED = 300


def boundary(width: int, chance: random.Random, near: int = 0) -> int:
    """An unsigned number of `width` bytes where code tends to go wrong: an end of a range, or a number close to the
    present value `near`."""
    top = 1 << 8 * width
    choice = chance.randrange(6)
    if choice == 0:
        return chance.choice((0, 1, 2, 7, 8))
    if choice == 1:
        return (top - chance.choice((1, 2, 8))) % top
    if choice == 2:
        return (top // 2 - chance.choice((0, 1, 2))) % top
    if choice == 3:
        return (near + chance.choice((-1, 1, -8, 8, -24, 24, 64))) % top
    if choice == 4:
        return (1 << chance.randrange(8 * width)) - chance.choice((0, 1)) & top - 1
    return chance.randrange(top)


def set_number(data: bytearray, at: int, width: int, chance: random.Random) -> None:
    """Overwrite the little-endian number at a place with a boundary value. Does nothing where it does not fit."""
    if 0 <= at <= len(data) - width:
        near = int.from_bytes(data[at : at + width], "little")
        data[at : at + width] = boundary(width, chance, near).to_bytes(width, "little")


def _flip(data: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _byte(data: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    data[chance.randrange(len(data))] = chance.choice(_BYTES)


def _number(data: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    width = chance.choice((2, 4, 4, 8))
    set_number(data, chance.randrange(len(data)), width, chance)


def _cut(data: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    del data[chance.randrange(len(data)) :]


def _cut_out(data: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    at = chance.randrange(len(data))
    del data[at : at + chance.choice((1, 2, 4, 8, 24, 64))]


def _add(data: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    at = chance.choice((len(data), chance.randrange(len(data) + 1)))
    data[at:at] = chance.choice((bytes, lambda n: b"\xff" * n, chance.randbytes))(chance.randrange(1, _MOST_ADDED))


def _repeat(data: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    at = chance.randrange(len(data))
    piece = data[at : at + chance.choice((1, 4, 8, 24, 124, 500))]
    data[at:at] = piece * chance.choice((1, 1, 2, 5))


def _splice(data: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    if others:
        other = chance.choice(others)
        data[chance.randrange(len(data)) :] = other[chance.randrange(len(other) + 1) :]


def _graft(data: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    """A piece of another input over a piece of this one, of the same length."""
    if others:
        other = chance.choice(others)
        length = chance.choice((4, 8, 24, 64, 200))
        at, start = chance.randrange(len(data)), chance.randrange(len(other) + 1)
        data[at : at + length] = other[start : start + length]


_GENTLE: tuple[Callable[[bytearray, random.Random, Sequence[bytes]], None], ...] = (_flip, _byte, _number)
_ALL = (*_GENTLE * 3, _cut, _cut_out, _add, _repeat, _splice, _graft)


def mutated(data: bytes, chance: random.Random, others: Sequence[bytes] = (), *, gentle: bool = False) -> bytes:
    """`data` after one to six edits; `gentle` ones keep its length."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, _MOST_EDITS))):
        if not out:
            break
        chance.choice(_GENTLE if gentle else _ALL)(out, chance, others)
    return bytes(out)


_ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63),
    10**30,
    0.5,
    1e300,
    "",
    "0",
    "\0",
    "../x",
    "é" * 90,
    [],
    {},
    [None],
    {"": 0},
)


def mutated_json(value: Any, chance: random.Random) -> Any:
    """A copy of a JSON value with some nodes replaced, removed, renamed or exchanged."""
    out = json.loads(json.dumps(value))
    for _ in range(chance.choice((1, 1, 2, 4))):
        places = list(_places(out))
        if not places:
            return chance.choice(_ODD)
        holder, key = chance.choice(places)
        other, other_key = chance.choice(places)
        edit = chance.randrange(6)
        if edit == 0:
            del holder[key]
        elif edit == 1:
            holder[key] = json.loads(json.dumps(other[other_key]))
        elif edit == 2 and isinstance(holder, dict):
            holder[chance.choice(("", "x", "0", "-1", "٣", "1e9", "9" * 30))] = holder.pop(key)
        elif edit == 3 and isinstance(holder[key], int):
            holder[key] += chance.choice((-1, 1, 2**32, -(2**40)))
        else:
            holder[key] = json.loads(json.dumps(chance.choice(_ODD)))
    return out


def _places(value: Any) -> list[tuple[Any, Any]]:
    keys: list[Any] = (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )
    found = [(value, key) for key in keys]
    for key in keys:
        found += _places(value[key])
    return found


def packed(parts: Sequence[bytes]) -> bytes:
    """Several byte strings as one, so that an input of many parts is one file of the corpus."""
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def unpacked(data: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        parts.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return parts
