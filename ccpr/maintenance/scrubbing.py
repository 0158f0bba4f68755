"""Reading all files of a mirror again within a time, a share at once: each round begins with the small files, and goes
through the objects by name. Damaged ones are repaired as `ccpr verify --repair` does."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from ccpr.base.clock import Clock, utc_now
from ccpr.maintenance.verify import Damage
from ccpr.state.care_records import Scrub

_LEAST_SHARE = 0.1  # of the whole time, for what is left: a service that was away reads faster, and not without limit


def next_share(scrub: Scrub | None, total_bytes: int, within: float, passed: float, now: float) -> int:
    """How many bytes to read now, so that the round ends in time.

    Parameters
    ----------
    total_bytes : of all objects.
    within : seconds for a round.
    passed : seconds since the last share.
    now : seconds since 1970.
    """
    began = now if scrub is None else scrub.began_at.timestamp()
    left = within - (now - began) if began <= now else within
    return max(1, round(total_bytes * passed / max(left, _LEAST_SHARE * within)))


def is_waiting(scrub: Scrub | None, within: float, now: float) -> bool:
    """Whether this round is done, and the next one begins later. A clock that was set back ends the wait."""
    if scrub is None or scrub.position or scrub.last_began_at != scrub.began_at:
        return False
    return 0 <= now - scrub.began_at.timestamp() < within


class ShareReader(Protocol):
    """`Verifier` of the mirror, `CopyVerifier` of a copy."""

    def small_files(self) -> list[Damage]: ...

    def objects(self, after: str, most_bytes: int) -> tuple[str, list[Damage]]: ...


def scrub_once(verifier: ShareReader, scrub: Scrub | None, share: int, clock: Clock) -> tuple[Scrub, list[Damage]]:
    """Read a share; with what is damaged in it. Raises what `Verifier.run` raises."""
    if scrub is None or (not scrub.position and scrub.last_began_at == scrub.began_at):
        began = utc_now(clock)
        last = None if scrub is None else scrub.last_began_at
        scrub = _with(Scrub("", began, last), verifier.small_files())
    position, damages = verifier.objects(scrub.position, share)
    scrub = replace(_with(scrub, damages), position=position)
    return (scrub if position else replace(scrub, last_began_at=scrub.began_at)), damages


def scrubbed(damages: Iterable[Damage], now: datetime) -> Scrub:
    """A round that was read at once."""
    return _with(Scrub("", now, now), damages)


def _with(scrub: Scrub, found: Iterable[Damage]) -> Scrub:
    found = list(found)
    damaged: Mapping[str, str] = {one.path: one.reason for one in found if not one.repaired}
    repaired = sum(one.repaired for one in found)
    return replace(scrub, damaged={**scrub.damaged, **damaged}, repaired=scrub.repaired + repaired)
