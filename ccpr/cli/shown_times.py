"""Times: how commands show them, and how a point is named by one.

They are shown in UTC, or in the time zone that CCPR_TIMEZONE names: `local`, or a name such as Europe/Berlin. A time
that is typed without a zone is of that zone, too. Documents for scripts are always in UTC.
"""

import os
import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

import typer

from ccpr.base.clock import utc_now

if TYPE_CHECKING:
    from ccpr.matrixone.objects.timestamp import Timestamp

ZONE_VARIABLE = "CCPR_TIMEZONE"
AT_HELP = "A point: its lsn, a time (ISO; UTC unless it names a zone), how long ago (-10m, -2h), or a held one's name."
_AGO = re.compile(r"-\s*(\d{1,9})\s*([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def zone() -> tzinfo | None:
    """The time zone of what is shown and typed; None is this machine's. Raises typer.BadParameter."""
    name = os.environ.get(ZONE_VARIABLE, "UTC")
    if name in ("", "UTC"):
        return UTC
    if name == "local":
        return None
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        text = f"{name!r:.80} is no time zone: write local, UTC, or a name such as Europe/Berlin"
        raise typer.BadParameter(text, param_hint=ZONE_VARIABLE) from error


def zone_text() -> str:
    """The zone of the times in a table, for its head: `UTC`, `Europe/Berlin`, `local`."""
    return os.environ.get(ZONE_VARIABLE) or "UTC"


def time_text(seconds: float) -> str:
    """A time on our clock (seconds since 1970) for people."""
    return _shown(datetime.fromtimestamp(seconds, UTC), "seconds", utc="Z")


def clock_text(at: "Timestamp") -> str:
    """A time on the upstream's clock for people; in UTC without a word about it, which is said beside it."""
    return _shown(_instant(at), "milliseconds", utc="")


def utc_text(at: "Timestamp") -> str:
    """A time on the upstream's clock for scripts, in UTC."""
    return _instant(at).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def _instant(at: "Timestamp") -> datetime:
    return datetime.fromtimestamp(at.physical / 1e9, UTC)


def _shown(instant: datetime, timespec: str, *, utc: str) -> str:
    there = zone()
    text = instant.astimezone(there).isoformat(sep=" ", timespec=timespec)
    return text.removesuffix("+00:00") + utc if there is UTC else text


def at_option(text: str | None) -> int | datetime | str | None:
    """The value of --at: an lsn, a time, how long ago by our clock, or the name of a held point. Raises
    typer.BadParameter."""
    from ccpr.mirror.kept_points import HOLD_NAME

    if text is None:
        return None
    try:
        if found := _AGO.fullmatch(text.strip()):
            return utc_now() - timedelta(**{_UNITS[found[2]]: int(found[1])})
        if text.isdecimal():
            return int(text)
        return text if HOLD_NAME.fullmatch(text) else _typed(text)
    except (ValueError, OverflowError) as error:
        wanted = "an lsn, an ISO time such as 2026-11-21T01:15:00, how long ago, such as -10m, or a held point's name"
        raise typer.BadParameter(wanted, param_hint="--at") from error


def time_option(text: str | None, option: str) -> datetime | None:
    """The value of an option that is a time. Raises typer.BadParameter."""
    try:
        return None if text is None else _typed(text)
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter("an ISO time such as 2026-11-21T01:15:00", param_hint=option) from error


def _typed(text: str) -> datetime:
    """Raises ValueError, OverflowError. It keeps its zone: the last hours of 9999 are no time of UTC."""
    instant, there = datetime.fromisoformat(text), zone()
    if instant.tzinfo is None:
        instant = instant.astimezone() if there is None else instant.replace(tzinfo=there)
    return instant
