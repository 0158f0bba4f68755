"""What is known of a warm session without asking it: what the server's starter recorded, and what a look finds."""

import hashlib
import hmac
import json
import os
from dataclasses import dataclass, fields
from enum import StrEnum

from ccpr.pipeline.spark.session import SparkSettings
from ccpr.pipeline.spark.tasks import LOOPBACK_ADDRESS

_PASSED_ON = ("AWS_", "CCPR_STALL_", "CCPR_OBJECT_LIST_")  # variables that workers read
_REMEDIES = {
    "not running": "`ccpr spark start` starts it.",
    "other code": "It runs another version of this program; `ccpr spark start` starts it again.",
    "other settings": "Master, settings or credentials differ from this shell's; `ccpr spark start` starts it again.",
    "on another machine": "Run `ccpr spark stop` there.",
}


class WarmState(StrEnum):
    """What a look finds."""

    ABSENT = "not running"
    STARTING = "starting"
    READY = "ready"
    OTHER_CODE = "other code"
    OTHER_SETTINGS = "other settings"
    ELSEWHERE = "on another machine"

    @property
    def remedy(self) -> str:
        """What to type; empty where there is nothing to do."""
        return _REMEDIES.get(self, "")


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """A server as its starter recorded it in `spark/server.json`.

    Attributes
    ----------
    boot : the boot of its machine; ``host name`` where the kernel does not say.
    token, session_id : what a client needs.
    code : digest of the program's source when the server was started.
    settings : a keyed digest of master, settings and environment, which hides the values.
    started : Unix seconds.
    start_seconds : what the start took; 0 = not ready yet.
    supervised : a supervisor ends it: it started it, or a copy did.
    """

    pid: int
    port: int
    boot: str
    token: str
    session_id: str
    code: str
    settings: str
    master: str
    started: float
    start_seconds: float = 0.0
    supervised: bool = False

    @property
    def address(self) -> str:
        return f"sc://{LOOPBACK_ADDRESS}:{self.port}"

    @classmethod
    def from_text(cls, text: str) -> "ServerRecord | None":
        """None for a text that is not one of ours, or is incomplete."""
        try:
            values = json.loads(text)
            known = {field.name: values[field.name] for field in fields(cls) if field.name in values}
            server = cls(**known)
        except (ValueError, TypeError):
            return None
        numbers = (server.pid, server.port, server.started, server.start_seconds)
        texts = (server.boot, server.token, server.session_id, server.code, server.settings, server.master)
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers):
            return None
        sound = all(isinstance(value, str) for value in texts) and server.pid > 1 and 0 < server.port < 65536
        return server if sound else None


@dataclass(frozen=True, slots=True)
class Found:
    """A look at the warm session. `server` is what is recorded, if anything can be read."""

    state: WarmState
    server: ServerRecord | None = None

    @property
    def usable(self) -> bool:
        return self.state is WarmState.READY and self.server is not None


def settings_digest(settings: SparkSettings, token: str) -> str:
    """Of master, settings and environment, keyed with the token of the server."""
    environment = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_PASSED_ON) and value}
    text = json.dumps([settings.python, settings.spark_config(), environment], sort_keys=True)
    return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()
