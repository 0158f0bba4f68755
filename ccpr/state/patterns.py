"""Which databases, and which tables of them, a subscription is to, by the names that they have (decisions
tables-by-pattern, account-snapshots)."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape
from itertools import product

_EVERYTHING = "*"
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class NamePatterns:
    """Patterns as in a shell: `*` is any text, `?` any character, `[…]` one of several. Letter case does not count.
    `included`: a name has to match one of them; none means all names. `excluded`: and none of these."""

    included: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @classmethod
    def of_name(cls, name: str) -> "NamePatterns":
        """The one name, and no other."""
        return cls((escape(name.lower()),))

    @classmethod
    def of(cls, included: str, excluded: str = "") -> "NamePatterns":
        """From the settings: patterns joined by commas. Raises ValueError."""
        return cls(_patterns(included), _patterns(excluded))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.included or self.excluded)

    def __str__(self) -> str:
        found = [f"tables {', '.join(self.included)}"] if self.included else []
        return " ".join([*found, *([f"without {', '.join(self.excluded)}"] if self.excluded else [])])

    @property
    def names(self) -> tuple[str, ...]:
        """Those of `included` that are names, without a wildcard."""
        return tuple(pattern for pattern in self.included if _fixed(pattern) == pattern)

    def match(self, name: str) -> bool:
        return _any(name, self.included or (_EVERYTHING,)) and not _any(name, self.excluded)

    def may_share(self, other: "NamePatterns") -> bool:
        """Whether a name can match both; in doubt it can."""
        pairs = product(self.included or (_EVERYTHING,), other.included or (_EVERYTHING,))
        return any(
            _may_meet(mine, theirs) and not _covered(mine, other.excluded) and not _covered(theirs, self.excluded)
            for mine, theirs in pairs
        )


ALL_NAMES = NamePatterns()


def _patterns(text: str) -> tuple[str, ...]:
    found = tuple(part.strip().lower() for part in text.split(",")) if text else ()
    if not all(found):
        raise ValueError("not patterns joined by commas: one is empty")
    return found


def _any(name: str, patterns: tuple[str, ...]) -> bool:
    name = name.lower()
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _may_meet(one: str, other: str) -> bool:
    """Patterns whose texts differ before the first wildcard have no name in common."""
    first, second = _fixed(one), _fixed(other)
    if first == one:
        return fnmatchcase(one, other)
    if second == other:
        return fnmatchcase(other, one)
    return first.startswith(second) or second.startswith(first)


def _covered(pattern: str, by: tuple[str, ...]) -> bool:
    """Whether all names that match it certainly match one of the others."""
    fixed = _fixed(pattern)
    return any(
        pattern == one
        or (fixed == pattern and fnmatchcase(pattern, one))
        or (one == f"{_fixed(one)}{_EVERYTHING}" and fixed.startswith(_fixed(one)))
        for one in by
    )


def _fixed(pattern: str) -> str:
    """Its text before the first wildcard."""
    return pattern[: next((at for at, sign in enumerate(pattern) if sign in _WILDCARDS), len(pattern))]
