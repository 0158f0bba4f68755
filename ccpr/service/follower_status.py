"""The status of a subscription's followers, by the catalog database; no cluster is asked."""

from dataclasses import dataclass

from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.pipeline.lag import Lag
from ccpr.state.followers import Follower, FollowerStage
from ccpr.state.history import GlobalPoint, PointHistory
from ccpr.state.log_rows import LastError, LogRow
from ccpr.state.pins import FORGET_SECONDS, Pin

UNWATCHED_SECONDS = 300.0  # a service or a relay asks each follower every ten
_STATES = {0: "following", 1: "stopped", 2: "paused"}


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """A follower, as its cluster said when the relay asked it last.

    Attributes
    ----------
    state : following, loading (for the first time), paused, stopped, gone, unreachable; before and after that how far
        a command has come with it (`ccpr.state.followers.FollowerStage`).
    task : id of its subscription there.
    watermark : time of the point that it shows, by the source's clock in nanoseconds; 0 before the first.
    lsn : that point; None before the first, and if the point is there no more.
    lag_seconds : age of that point, by the last iteration's snapshot and our clock; None before the first.
    asked_at : when it answered last, seconds since 1970.
    last_error : what is wrong by its answer, or why there was none.
    """

    name: str
    to: str
    database: str
    state: str
    task: str | None
    watermark: int
    lsn: int | None
    lag_seconds: float | None
    asked_at: float | None
    last_error: LastError | None

    @property
    def ok(self) -> bool:
        return self.last_error is None

    @property
    def is_unfinished(self) -> bool:
        return self.state in set(FollowerStage) - {FollowerStage.FOLLOWING}


@dataclass(frozen=True, slots=True)
class ForgottenPin:
    """A snapshot of the relay that is unused for long; it keeps its point and all later ones. `seen_at`: when it
    was last used, seconds since 1970."""

    snapshot: str
    lsn: int
    seen_at: float

    @classmethod
    def among(cls, pins: list[Pin], now: float) -> "tuple[ForgottenPin, ...]":
        found = [cls(pin.name, pin.lsn, pin.seen_at.timestamp()) for pin in pins]
        return tuple(pin for pin in found if now - pin.seen_at > FORGET_SECONDS)


def follower_status(
    found: Follower, history: PointHistory, newest: GlobalPoint | None, row: LogRow, lag: Lag
) -> FollowerStatus:
    watermark = 0 if found.seen is None else found.seen.watermark
    at = history.point_of(watermark) if watermark else None
    return FollowerStatus(
        found.name,
        parse_uri(found.uri)[0].masked(),
        found.database,
        _state(found),
        found.downstream_task,
        watermark,
        None if at is None else at.lsn,
        age(watermark, newest, row, lag) if watermark else None,
        None if found.seen is None else found.seen.asked_at.timestamp(),
        None if found.failing is None else found.failing.last_error,
    )


def age(at: int, newest: GlobalPoint | None, row: LogRow, lag: Lag) -> float | None:
    """How old the point of this time is, in seconds: the newest one is as old as the replica, any other older by what
    has passed upstream since."""
    if newest is not None and at == newest.at.physical:
        return lag.seconds
    return lag.of_older(at, row.watermark)


def _state(found: Follower) -> str:
    seen, failing = found.seen, found.failing
    if found.stage is not FollowerStage.FOLLOWING:
        return found.stage.value
    if failing is not None and failing.failure.code == "FOLLOWER_GONE":
        return "gone"
    if failing is not None and (seen is None or seen.asked_at < failing.last):
        return "unreachable"
    if seen is None or (seen.state == 0 and not seen.iterations):
        return "loading"
    return _STATES.get(seen.state, f"state {seen.state}")


def waits_for_a_person(found: Follower) -> bool:
    """Whether what is wrong with it is not known to pass by itself. What has stopped is resumed all the same."""
    # Of `ccpr.relay.errors`.
    codes = ("FOLLOWER_STOPPED", "FOLLOWER_PAUSED", "FOLLOWER_GONE", "FOLLOWER_DROPS_HELD")
    return found.failing is not None and found.failing.failure.code in codes


def unwatched(found: Follower, now: float) -> str | None:
    """A warning if the relay has not looked after a follower."""
    asked = [] if found.seen is None else [found.seen.asked_at]
    failed = [] if found.failing is None else [found.failing.last]
    last = max([found.created_at, *asked, *failed])
    if now - last.timestamp() <= UNWATCHED_SECONDS:
        return None
    asked = f"follower {found.name} was last asked at {last:%Y-%m-%d %H:%M:%S} UTC"
    return f"{asked}: does `ccpr serve` or `ccpr relay serve` run?"
