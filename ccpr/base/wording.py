"""Long lists, sizes and times as people read them, commands with the names filled in, and which of many names was
meant."""

import re
import shlex
from collections.abc import Iterable, Mapping

_COMMAND, _PLACEHOLDER = re.compile(r"`ccpr [^`]*`"), re.compile(r"\b[A-Z]{2,}\b")

SPAN = r"^[0-9]{1,11}[smhd]?$"  # seconds, or a number with its unit
NO_SPAN = "not a number of seconds, or one with s, m, h or d"
_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LIKE = 0.75  # of difflib: 1 = the same


def first_names(names: Iterable[str], most: int = 5) -> str:
    """The first of them, for example `a, b and 7 more`."""
    found = list(names)
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def size_text(size: float) -> str:
    """Bytes for people, for example `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def seconds_text(seconds: float) -> str:
    """A time span for people, for example `45 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def filled(text: str, names: Mapping[str, str]) -> str:
    """A remedy whose commands have names for their placeholders: of `ccpr status NAME`, with NAME shop, `ccpr status
    shop`. Placeholders without a name stay."""

    def named(word: re.Match[str]) -> str:
        name = names.get(word[0])
        return shlex.quote(name) if name else word[0]

    return _COMMAND.sub(lambda command: _PLACEHOLDER.sub(named, command[0]), text)


def meant(typed: str, known: Iterable[str], kind: str, *, of: str = "It") -> str:
    """A sentence about a typed name that is not known: those like it, else the first that are. Letter case does not
    count, and of `database.table` the database may be missing. `kind` is the plural of what has the names, `of` where
    they are."""
    from difflib import get_close_matches  # which only mistakes need

    names = sorted(known)
    by_text: dict[str, list[str]] = {}
    for name in names:
        for text in {name.casefold(), name.rpartition(".")[2].casefold()}:
            by_text.setdefault(text, []).append(name)
    wanted = typed.casefold()
    like = [wanted] if wanted in by_text else get_close_matches(wanted, by_text, cutoff=_LIKE)
    if like:
        return f"Did you mean {' or '.join(dict.fromkeys(name for text in like for name in by_text[text][:3]))}?"
    whose = "Its" if of == "It" else f"{of}'s"
    return f"{whose} {kind} are {first_names(names, 10)}." if names else f"{of} has no {kind}."


def seconds_of(span: str) -> int:
    """`90`, `90s`, `15m`, `24h` or `7d` in seconds. Raises ValueError."""
    if not re.fullmatch(SPAN, span):
        raise ValueError(NO_SPAN)
    number = span.rstrip("smhd")
    return int(number) * _UNIT_SECONDS[span[len(number) :]]
