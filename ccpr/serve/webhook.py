"""Posts to a web address. Nothing is expected of it: neither that it answers in HTTP, nor that an answer ends.

Nothing of an answer is read but its head, whose lines `http.client` limits. How long all of it takes, from the name's
look-up on, is limited here: a post is a thread, and one that does not end in time is left to itself.
"""

import http.client
import queue
import threading
import urllib.error
import urllib.request
from typing import Any

from ccpr.service.errors import NoticeNotSent
from ccpr.state.errors import BadSetting

SECONDS = 10.0
MOST_LEFT = 8  # posts that have not ended in time; as long as there are so many, no other begins
_SUBJECT = "--webhook"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        return None


class Webhook:
    """An address, http or https. It may contain a secret: no error shows it. Raises BadSetting."""

    def __init__(self, address: str, seconds: float = SECONDS) -> None:
        if not address.startswith(("http://", "https://")):
            raise BadSetting("it must start with http:// or https://", subject="the webhook's address")
        self._address, self._seconds = address, seconds
        self._room = threading.BoundedSemaphore(MOST_LEFT)

    def post(self, content: bytes) -> None:
        """Post JSON. Raises NoticeNotSent."""
        if not self._room.acquire(blocking=False):
            raise NoticeNotSent(f"{MOST_LEFT} earlier posts have not come to an end", subject=_SUBJECT)
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
