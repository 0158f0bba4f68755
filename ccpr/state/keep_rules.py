"""Keep rules: which points stay by the calendar, as `all:2h,hourly:48,daily:14,weekly:8,monthly:24,yearly:7`.

Times are those of the points, by the upstream's clock, in UTC; weeks begin on Monday. Of each hour, day, week, month or
year the newest point stays, for so many of them that have points. So a point that a rule has let go is never wanted
again: the rules can be applied to what is left, as often as one likes. Source: decision keep-rules.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ccpr.base.wording import seconds_of

ALL = "all"
_MOST = 100_000
_SECOND = 10**9  # nanoseconds
_RULE = re.compile(r"([a-z]+):([0-9a-z]+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_BEFORE_MONDAY = 3  # 1970 began on a Thursday


def _date(at: int) -> datetime:
    return _EPOCH + timedelta(seconds=at // _SECOND)


# By rule: in which hour, day … a time is, nanoseconds since 1970.
_PERIODS: Mapping[str, Callable[[int], int]] = {
    "hourly": lambda at: at // (3600 * _SECOND),
    "daily": lambda at: at // (86400 * _SECOND),
    "weekly": lambda at: (at // (86400 * _SECOND) + _DAYS_BEFORE_MONDAY) // 7,
    "monthly": lambda at: _date(at).year * 12 + _date(at).month,
    "yearly": lambda at: _date(at).year,
}
_NO_RULES = (
    f"not rules as in all:2h,hourly:48,daily:14: each of {', '.join((ALL, *_PERIODS))} at most once, "
    f"all with a time, the others with a number from 1 to {_MOST:,}"
)


@dataclass(frozen=True, slots=True)
class KeepRules:
    """What is kept by the calendar. `span`: points stay that were the newest one at some time during so many seconds; 0
    = none by this rule. `periods`: how many hours, days … have a point, by the names of rules."""

    span: int = 0
    periods: tuple[tuple[str, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.span or self.periods)

    @classmethod
    def parse(cls, text: str) -> "KeepRules":
        """Of what users write; no rules if it is empty. Raises ValueError."""
        found: dict[str, str] = {}
        for part in filter(None, (one.strip() for one in text.split(","))):
            match = _RULE.fullmatch(part)
            if match is None or match[1] not in (ALL, *_PERIODS) or match[1] in found:
                raise ValueError(_NO_RULES)
            found[match[1]] = match[2]
        span = seconds_of(found.pop(ALL)) if ALL in found else 0
        periods = tuple((name, _count(found[name])) for name in _PERIODS if name in found)
        return cls(span, periods)

    def kept(self, points: Sequence[tuple[int, int]]) -> dict[int, list[str]]:
        """The rules by which points stay, by lsn; those of `span` are not looked at. `points`: lsn and time, oldest
        first."""
        found: dict[int, list[str]] = {}
        for name, count in self.periods:
            period, seen = _PERIODS[name], set[int]()
            for lsn, at in reversed(points):
                number = period(at)
                if number in seen:
                    continue
                if len(seen) == count:
                    break
                seen.add(number)
                found.setdefault(lsn, []).append(name)
        return found


def _count(text: str) -> int:
    """Raises ValueError."""
    if not re.fullmatch("[1-9][0-9]{0,5}", text) or int(text) > _MOST:
        raise ValueError(_NO_RULES)
    return int(text)
