"""Tells a command or a web address that a subscription, a target or a follower has begun to fail, has stopped, or is
well again: once for each change, not for each attempt.

What was so when the service started is not a change. What is sent are code, message, subject and remedy of the error,
which never contain a password.
"""

import json
import logging
import queue
import shlex
import subprocess
import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import Any

from replication.daemon.listening import Ignoring
from replication.errors import BadSetting
from replication.failure import Failure
from replication.mirror.mirror import Mirror
from replication.service.follower_status import waits_for_a_person
from replication.service.last_error import LastError
from replication.service.target_sync import TargetOutcome
from replication.service.whole_iteration import IterationRecord
from replication.state.followers import Follower
from replication.state.log_rows import LogRow
from replication.state.states import State

COMMAND_SECONDS = 60.0
WEBHOOK_SECONDS = 10.0
_ATTEMPTS, _PAUSE_SECONDS = 3, 2.0
_MOST_WAITING = 1000
_log = logging.getLogger(__name__)
Notice = dict[str, Any]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        return None


class Notifier(Ignoring):
    """A listener, and a component with a thread that runs the command and calls the address.

    Parameters
    ----------
    command : gets the notice as one line of JSON on its standard input; run without a shell. Empty for none.
    webhook : http(s) address that the same JSON is posted to. Empty for none. It may contain a secret: never shown.
    """

    def __init__(self, command: str = "", webhook: str = "") -> None:
        """Raises BadSetting."""
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise BadSetting(f"not a command: {error}", subject="--on-failure") from error
        if webhook and not webhook.startswith(("http://", "https://")):
            raise BadSetting("it has to start with http:// or https://", subject="the webhook's address")
        self._webhook = webhook
        self._states: dict[tuple[str, str, str], str] = {}  # of subscription, its target, its follower
        self._lock = threading.Lock()
        self._notices: queue.Queue[Notice | None] = queue.Queue(_MOST_WAITING)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is waiting is still sent, for some seconds."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._put(None)
            self._thread.join(5.0)

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
        self._change(row.subscription_name, "", "stopped" if row.state == State.ERROR else "failing", failure)

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
        self._change(row.subscription_name, "", state, failing and failing.failure, follower.name)

    def _change(self, name: str, target: str, state: str, failure: Failure | None, follower: str = "") -> None:
        with self._lock:
            before = self._states.get((name, target, follower), "ok")
            self._states[name, target, follower] = state
        if before == state:
            return
        notice: Notice = {"subscription": name, "target": target or None, "follower": follower or None}
        notice |= {"state": state, "before": before}
        notice["at"] = datetime.now(UTC).isoformat(timespec="seconds")
        if failure is not None:
            notice |= {"code": failure.code, "message": failure.message}
            notice |= {"subject": failure.subject, "remedy": failure.remedy}
        self._put(notice)

    def _put(self, notice: Notice | None) -> None:
        try:
            self._notices.put_nowait(notice)
        except queue.Full:
            _log.warning("a notice was dropped: too many are waiting")

    # ---- the thread

    def _run(self) -> None:
        while (notice := self._notices.get()) is not None:
            content = json.dumps(notice, ensure_ascii=False).encode() + b"\n"
            if self._words:
                self._run_command(content)
            if self._webhook:
                self._post(content)

    def _run_command(self, content: bytes) -> None:
        try:
            done = subprocess.run(self._words, input=content, capture_output=True, timeout=COMMAND_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            _log.error("the command of --on-failure was ended: it took longer than %d s", COMMAND_SECONDS)
        except OSError as error:
            _log.error("the command of --on-failure cannot be run: %s", error.strerror)
        else:
            if done.returncode:
                _log.error("the command of --on-failure failed: exit code %d", done.returncode)

    def _post(self, content: bytes) -> None:
        for attempt in range(_ATTEMPTS):
            if attempt and self._stopping.wait(_PAUSE_SECONDS):
                return
            try:
                headers = {"Content-Type": "application/json", "User-Agent": "ccpr"}
                request = urllib.request.Request(self._webhook, content, headers, method="POST")
                with urllib.request.build_opener(_NoRedirect).open(request, timeout=WEBHOOK_SECONDS):
                    return
            except urllib.error.HTTPError as error:
                _log.warning("the webhook refused a notice: status %d", error.code)
            except (OSError, ValueError) as error:  # its text may have the address
                _log.warning("the webhook did not answer: %s", type(error).__name__)
