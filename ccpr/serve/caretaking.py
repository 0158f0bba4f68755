"""Brings second copies to where mirrors are, tries restores and reads files again, as often as the subscriptions want
it, in a thread of its own: one thing after the other, so that iterations have the machine."""

import logging
import secrets
import time
from collections.abc import Callable
from functools import partial

from ccpr.base.loops import Loop
from ccpr.maintenance.scrubbing import is_waiting, next_share, scrub_once
from ccpr.maintenance.verify import Damage
from ccpr.mirror.encryption_keys import without_key
from ccpr.service.copies import copy, known_copies
from ccpr.service.drilling import drill, place_of
from ccpr.service.verifying import copies_of, copy_verifier, mend_readers, verifier_of
from ccpr.service.workspace import Workspace
from ccpr.state.care_records import CopyRecord, Drill, Scrub
from ccpr.state.log_rows import LogRow
from ccpr.state.subscription import Subscription

LOOK_SECONDS = 60.0
_AGAIN_SECONDS = 3600.0  # after one that was not good, if the next one is not due before
_STUCK_SECONDS = 24 * 3600.0  # a drill of a large mirror takes hours
_STOP_SECONDS = 5.0
_log = logging.getLogger(__name__)


class Caretaker:
    """A component of a service (`ccpr.serve.listening.Component`)."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        seconds: float = LOOK_SECONDS,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workspace, self._seconds, self._steady = workspace, seconds, steady
        self._read_at: dict[tuple[str, str], float] = {}
        self._to_mend: dict[str, list[Damage]] = {}
        self.loop = Loop("care", self._run, stuck_seconds=_STUCK_SECONDS)

    def start(self) -> None:
        self.loop.start()

    def stop(self) -> None:
        """A drill that is under way is not waited for: the next one drops what it has made."""
        self.loop.stop(_STOP_SECONDS)

    def _run(self) -> None:
        while not self.loop.ending.wait(self._seconds):
            self.loop.attempt("nothing can be looked after", self._round)

    def _round(self) -> None:
        for row in self._workspace.log.all_rows()[0]:
            if self.loop.ending.is_set():
                return
            if not row.iteration_lsn:  # there is no point yet
                continue
            works = (
                ("copied", self._copy),
                ("tried to restore", self._drill),
                ("read again", self._scrub),
                ("mended", self._mend),
            )
            for what, work in works:
                self.loop.attempt(f"{row.subscription_name} cannot be {what}", partial(work, row))

    def _copy(self, row: LogRow) -> None:
        settings = Subscription.from_row(row).settings
        if not settings.copy_to or not settings.copy_every:
            return
        last = self._workspace.of(row).copies.of(without_key(settings.copy_to)[0])
        if is_due(last, settings.copy_every, self._workspace.clock()):
            copy(self._workspace, row.subscription_name, settings.copy_to)

    def _drill(self, row: LogRow) -> None:
        settings = Subscription.from_row(row).settings
        if not settings.drill_every:
            return
        last, _ = self._workspace.of(row).drills.last()
        if not is_due(last, settings.drill_every, self._workspace.clock()):
            return
        copy = secrets.choice((None, *known_copies(self._workspace, row.task_id)))
        place = place_of(self._workspace, settings.drill_into)
        drill(self._workspace, row.subscription_name, place, copy=copy)

    def _scrub(self, row: LogRow) -> None:
        subscription = Subscription.from_row(row)
        within, now = subscription.settings.verify_within, self._workspace.clock()
        if not within:
            return
        records = self._workspace.of(row)
        total = records.ledger.stored_bytes()
        for second in (None, *copies_of(self._workspace, row)):
            place = "" if second is None else second.place
            scrub = records.scrubs.get(place)
            if is_waiting(scrub, within, now):
                continue
            steady, key = self._steady(), (row.task_id, place)
            passed = steady - self._read_at.get(key, steady - self._seconds)
            self._read_at[key] = steady
            share = next_share(scrub, total, within, passed, now)
            work = partial(self._scrub_share, row, second, scrub, share)
            self.loop.attempt(f"{place or 'the mirror'} of {row.subscription_name} cannot be read again", work)

    def _scrub_share(self, row: LogRow, second: CopyRecord | None, scrub: Scrub | None, share: int) -> None:
        """Of the mirror, or of a second copy."""
        clock, records = self._workspace.clock, self._workspace.of(row).scrubs
        if second is None:
            found, damages = scrub_once(verifier_of(self._workspace, row, repair=True), scrub, share, clock)
            records.put(found)
            self._to_mend.setdefault(row.task_id, []).extend(damages)
        else:
            with copy_verifier(self._workspace, row, second, repair=True) as verifier:
                found, _ = scrub_once(verifier, scrub, share, clock)
            records.put(found, second.place)

    def _mend(self, row: LogRow) -> None:
        """What targets and lakes may have taken of damage that is repaired now; again where it could not be done."""
        damages = self._to_mend.pop(row.task_id, [])
        for one in mend_readers(self._workspace, row, damages):
            how = "built anew, as it may have taken damage" if one.failure is None else f"not built anew: {one.failure}"
            _log.warning("table %s of %s of %s was %s", one.table, one.target, row.subscription_name, how)
            if one.failure is not None:
                self._to_mend[row.task_id] = damages


def is_due(last: Drill | CopyRecord | None, every: float, now: float) -> bool:
    """Whether the next one is due. A clock that was set back ends a wait."""
    if last is None:
        return True
    wait = every if last.good else min(every, _AGAIN_SECONDS)
    return not 0 <= now - last.started_at.timestamp() < wait
