"""Tells a command or a web address that a subscription, a target or a follower has begun to fail, has stopped, or has
recovered: at the first failure, and once for each change, not for each attempt.

What was so when the service started is not a change. What is sent are code, message, subject and remedy of the error,
which never contain a password.
"""

import http.client
import json
import queue
import shlex
import subprocess
import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ccpr.base.clock import Clock, utc_now, wall_clock
from ccpr.base.errors import Failure
from ccpr.base.loops import Loop
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.iteration import IterationRecord
from ccpr.serve.listening import Listener
from ccpr.service.errors import NoticeNotSent
from ccpr.service.follower_status import waits_for_a_person
from ccpr.service.status import next_attempt
from ccpr.service.target_sync import TargetOutcome
from ccpr.state.errors import BadSetting
from ccpr.state.followers import Follower
from ccpr.state.log_rows import LastError, LogRow
from ccpr.state.states import State

COMMAND_SECONDS, WEBHOOK_SECONDS = 60.0, 10.0
MOST_POSTS = 8  # that have not ended in time; as long as there are so many, no other begins
_SUBJECT = "--webhook"
_ATTEMPTS, _PAUSE_SECONDS = 3, 2.0
_MOST_WAITING = 1000
Notice = dict[str, Any]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        return None


class Webhook:
    """An address, http or https. It may contain a secret: no error shows it. Raises BadSetting.

    Nothing is expected of it: neither that it answers in HTTP, nor that an answer ends. Nothing of an answer is read
    but its head, whose lines `http.client` limits. How long all of it takes, from the name's look-up on, is limited
    here: a post is a thread, and one that does not end in time is left to itself.
    """

    def __init__(self, address: str, seconds: float = WEBHOOK_SECONDS) -> None:
        if not address.startswith(("http://", "https://")):
            raise BadSetting("it must start with http:// or https://", subject="the webhook's address")
        self._address, self._seconds = address, seconds
        self._room = threading.BoundedSemaphore(MOST_POSTS)

    def post(self, content: bytes) -> None:
        """Post JSON. Raises NoticeNotSent."""
        if not self._room.acquire(blocking=False):
            raise NoticeNotSent(f"{MOST_POSTS} earlier posts have not come to an end", subject=_SUBJECT)
        ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        try:
            threading.Thread(target=self._post, args=(content, ended), name="webhook", daemon=True).start()
        except RuntimeError as error:  # the system cannot start another thread
            self._room.release()
            raise NoticeNotSent(str(error), subject=_SUBJECT) from error
        try:
            problem = ended.get(timeout=self._seconds)
        except queue.Empty:
            raise NoticeNotSent(f"no whole answer in {self._seconds:.0f} s", subject=_SUBJECT) from None
        if problem:
            raise NoticeNotSent(problem, subject=_SUBJECT)

    def _post(self, content: bytes, ended: "queue.SimpleQueue[str]") -> None:
        problem = "it could not be posted"
        try:
            headers = {"Content-Type": "application/json", "User-Agent": "ccpr"}
            request = urllib.request.Request(self._address, content, headers, method="POST")
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=self._seconds):
                problem = ""
        except urllib.error.HTTPError as error:
            problem = f"it was refused: status {error.code}"
            error.close()
        except (OSError, ValueError, http.client.HTTPException) as error:  # its text may have the address
            problem = f"no answer in HTTP: {type(error).__name__}"
        finally:
            self._room.release()
            ended.put(problem)


class Notifier(Listener):
    """A listener, and a component with a thread that runs the command and calls the address. `command`: gets the notice
    as one line of JSON on its standard input; run without a shell. Empty for none. `webhook`: http(s) address that the
    same JSON is posted to. Empty for none. It may contain a secret: never shown."""

    def __init__(self, command: str = "", webhook: str = "", clock: Clock = wall_clock) -> None:
        """Raises BadSetting."""
        self._clock = clock
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise BadSetting(f"not a command: {error}", subject="--on-failure") from error
        self._webhook = Webhook(webhook) if webhook else None
        self._states: dict[tuple[str, str, str], str] = {}  # of subscription, its target, its follower
        self._lock = threading.Lock()
        self._notices: queue.Queue[Notice | None] = queue.Queue(_MOST_WAITING)
        self.loop = Loop("notify", self._run)

    def start(self) -> None:
        self.loop.start()

    def stop(self) -> None:
        """What is waiting is still sent, for some seconds."""
        self.loop.ending.set()
        self._put(None)
        self.loop.stop(5.0)

    # ---- what happens

    def subscriptions_read(self, rows: list[LogRow]) -> None:
        """What a subscription's state was before this service did anything."""
        for row in rows:
            error = LastError.parse(row.error_message)
            state = "ok" if error is None else "failing" if error.again else "stopped"
            with self._lock:
                self._states.setdefault((row.subscription_name, "", ""), state)
        live = {row.subscription_name for row in rows}
        with self._lock:
            for key in [key for key in self._states if key[0] not in live]:
                del self._states[key]

    def iteration_ended(self, record: IterationRecord, mirror: Mirror, seconds: float) -> None:
        self._change(record.subscription, "", "ok", None)

    def iteration_failed(self, row: LogRow, failure: Failure, seconds: float) -> None:
        state = "stopped" if row.state == State.ERROR else "failing"
        error, upcoming = LastError.parse(row.error_message), next_attempt(row, self._clock(), held=False)
        tried: Notice = {
            "attempts": 1 if error is None else error.attempts,
            "next_attempt": None if upcoming is None else _time(datetime.fromtimestamp(upcoming, UTC)),
        }
        self._change(row.subscription_name, "", state, failure, tried=tried)

    def target_synced(self, row: LogRow, outcome: TargetOutcome) -> None:
        behind = outcome.result.behind if outcome.result is not None else ()
        failure = outcome.failure or (behind[0].failure if behind else None)
        state = "failing" if outcome.failure is not None else "behind" if behind else "ok"
        self._change(row.subscription_name, outcome.target, state, failure)

    def follower_asked(self, row: LogRow, follower: Follower) -> None:
        failing = follower.failing
        state = "ok" if failing is None else "stopped" if waits_for_a_person(follower) else "failing"
        with self._lock:  # more than one attempt at first sight: it failed before this service was started
            key = (row.subscription_name, "", follower.name)
            self._states.setdefault(key, "ok" if failing is None or failing.attempts == 1 else state)
        tried: Notice = {} if failing is None else {"attempts": failing.attempts}
        self._change(row.subscription_name, "", state, failing and failing.failure, follower.name, tried)

    def _change(
        self,
        name: str,
        target: str,
        state: str,
        failure: Failure | None,
        follower: str = "",
        tried: Notice | None = None,
    ) -> None:
        with self._lock:
            before = self._states.get((name, target, follower), "ok")
            self._states[name, target, follower] = state
        if before == state:
            return
        notice: Notice = {"subscription": name, "target": target or None, "follower": follower or None}
        notice |= {"state": state, "before": before}
        notice["at"] = _time(utc_now(self._clock))
        if failure is not None:
            notice |= {"code": failure.code, "message": failure.message}
            notice |= {"subject": failure.subject, "remedy": failure.remedy, **(tried or {})}
        self._put(notice)

    def _put(self, notice: Notice | None) -> None:
        try:
            self._notices.put_nowait(notice)
        except queue.Full:
            dropped = NoticeNotSent(f"{_MOST_WAITING} others are waiting", subject="queue of notices")
            self.loop.failed("a notice was dropped", dropped)

    # ---- the thread

    def _run(self) -> None:
        while (notice := self._notices.get()) is not None:
            if self._words:
                self.loop.attempt("the command of --on-failure", partial(self._run_command, notice))
            if self._webhook is not None:
                self.loop.attempt("the webhook", partial(self._post, notice, self._webhook))

    def _run_command(self, notice: Notice) -> None:
        """What it writes is not read: it may be without end."""
        try:
            done = subprocess.run(
                self._words,
                input=_line(notice),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NoticeNotSent(f"it was ended after {COMMAND_SECONDS:.0f} s", subject="--on-failure") from None
        except OSError as error:
            raise NoticeNotSent(f"it cannot be run: {error.strerror}", subject="--on-failure") from error
        if done.returncode:
            raise NoticeNotSent(f"exit code {done.returncode}", subject="--on-failure")

    def _post(self, notice: Notice, webhook: Webhook) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                webhook.post(_line(notice))
            except NoticeNotSent:
                if attempt == _ATTEMPTS or self.loop.ending.wait(_PAUSE_SECONDS):
                    raise
            else:
                return


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _line(notice: Notice) -> bytes:
    """What is no Unicode in a foreign text is escaped, as JSON does."""
    return json.dumps(notice, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"
