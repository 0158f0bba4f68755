"""The settings of a subscription: what the column `sync_config` holds."""

import json
from dataclasses import dataclass, fields

MOST_SESSIONS = 30  # the upstream serves that many chunks at once, to everybody
DEFAULT_INTERVAL_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Budget:
    """What copying may take of the upstream and of the line.

    Attributes
    ----------
    sessions : upstream sessions at once, from 1 to MOST_SESSIONS.
    mb_s : megabytes a second of all sessions together, on average; 0 = as fast as it comes.
    """

    sessions: int = 4
    mb_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The `sync_config` of a subscription.

    Attributes
    ----------
    sync_interval : seconds between iterations when the sensor runs them.
    retain, retain_for : how many points stay readable, and for how many seconds the younger ones do; see
        `retention.Retention`.
    with_indexes : copy the objects of hidden index tables, too (architecture 13).
    max_sessions, max_mb_s : what copying may take, see `Budget`.
    mirror : URL of the mirror's store; empty for the folder ``mirrors/<name>`` of the state folder.
    flush : ``on_demand`` asks the upstream to flush a snapshot that is not, ``wait`` waits (architecture 5).
    consistency : ``together`` moves all tables to one point or none; ``isolated`` leaves a failing table behind
        (quarantine, B4).
    resync_limit : bytes that a full list may fetch by itself where the upstream has lost the last point's snapshot; 0
        = ask first.
    """

    sync_interval: int = DEFAULT_INTERVAL_SECONDS
    retain: int = 0
    retain_for: int = 0
    with_indexes: bool = False
    flush: str = "on_demand"
    max_sessions: int = Budget().sessions
    max_mb_s: float = 0.0
    mirror: str = ""
    consistency: str = "together"
    resync_limit: int = 0

    @property
    def budget(self) -> Budget:
        return Budget(self.max_sessions, self.max_mb_s)

    @property
    def isolated(self) -> bool:
        return self.consistency == "isolated"

    @classmethod
    def from_text(cls, text: str) -> "Settings":
        """Raises TypeError or ValueError for what was not written here."""
        value = json.loads(text)
        if not isinstance(value, dict):
            raise TypeError("sync_config is not a JSON object")
        for setting in fields(cls):
            wanted = float | int if isinstance(setting.default, float) else type(setting.default)
            found = value.get(setting.name, setting.default)
            if not isinstance(found, wanted) or isinstance(found, bool) != isinstance(setting.default, bool):
                raise TypeError(f"{setting.name} in sync_config is {found!r:.40}")
        return cls(**value)
