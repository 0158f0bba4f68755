"""The settings of a subscription: what the column `sync_config` holds."""

import json
from dataclasses import dataclass, fields

from ccpr.matrixone.schema import InvalidText, Reading, ZeroDates
from ccpr.state.keep_rules import KeepRules
from ccpr.state.patterns import NamePatterns

MOST_SESSIONS = 30  # the upstream serves that many chunks at once, to all clients together
DEFAULT_INTERVAL_SECONDS = 60
SENSOR_SECONDS = 10  # how often Dagster's sensor looks which subscriptions are due
GRACE_SECONDS = 3600  # how long readers may use a file that nothing names any more


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for copying objects.

    Attributes
    ----------
    sessions : upstream sessions at once, from 1 to MOST_SESSIONS.
    mb_s : megabytes per second of all sessions together, on average; 0 = no limit.
    """

    sessions: int = 4
    mb_s: float = 0.0

    def part(self, number: int) -> "Budget":
        """What each of a number of workers may take of it, one session at least."""
        return Budget(max(1, self.sessions // number), self.mb_s / number)


@dataclass(frozen=True, slots=True)
class Settings:
    """The `sync_config` of a subscription.

    Attributes
    ----------
    sync_interval : seconds between iterations when the sensor runs them.
    retain, retain_for : how many points stay readable, and for how many seconds; see `maintenance.retention.Retention`.
    keep : which points stay by the calendar, see `ccpr.state.keep_rules`; empty for none.
    drill_every : how many seconds after a drill the service makes the next; 0 = it makes none.
    verify_within : in how many seconds the service reads all files of the mirror again; 0 = it does not.
    drill_into : where drills restore to, see `ccpr.service.drilling.place_of`; empty for the state folder.
    retain_files : for how many seconds files stay that no point names any more: readers may still use them.
    with_indexes : also copy the objects of hidden index tables.
    flush : ``on_demand`` asks the upstream to flush a snapshot that is not flushed, ``wait`` waits for it (decision
        flush-on-demand).
    max_sessions, max_mb_s : limits for copying, see `Budget`.
    mirror : URL of the mirror's store; empty for the folder ``mirrors/<name>`` of the state folder.
    encrypt : where the key of the mirror is, if its files are encrypted, see `ccpr.mirror.keys`; empty if not.
    consistency : ``together`` moves all tables to one point or none; ``isolated`` leaves a failing table at an older
        point (quarantine; docs/requirements.md B4).
    resync_limit : how many bytes a full list may fetch without asking, where the upstream has lost the snapshot of the
        last point; 0 = ask first.
    shared : whether other users of this machine may read the files of the mirror, as far as the umask lets them
        (decision private-files).
    invalid_text : how `export` and targets get text that is not UTF-8, see `ccpr.matrixone.schema.InvalidText`. In a
        target text columns stay text, so that ``binary`` is ``escape`` there.
    zero_dates : what `export` gives for `0000-00-00`, see `ccpr.matrixone.schema.ZeroDates`. Targets have such dates,
        so that only ``error`` concerns them.
    objects_from : URL of the upstream's storage, from which objects are read without it; empty to ask the upstream for
        them, see `ccpr.pipeline.storage`.
    databases : patterns joined by commas, see `ccpr.state.patterns`: which databases of the account are
        replicated, if the subscription is to several; empty for all of them.
    tables, exclude_tables : likewise, which tables of the databases.
    allow_overlap : it may have tables that another subscription has, too.
    max_lag : the objective: how many seconds old the replica's state may be; 0 = two intervals and a minute.
    """

    sync_interval: int = DEFAULT_INTERVAL_SECONDS
    retain: int = 0
    retain_for: int = 0
    keep: str = ""
    retain_files: int = GRACE_SECONDS
    drill_every: int = 0
    drill_into: str = ""
    verify_within: int = 0
    with_indexes: bool = False
    flush: str = "on_demand"
    max_sessions: int = Budget().sessions
    max_mb_s: float = 0.0
    mirror: str = ""
    encrypt: str = ""
    consistency: str = "together"
    resync_limit: int = 0
    shared: bool = False
    invalid_text: str = InvalidText.ESCAPE.value
    zero_dates: str = ZeroDates.NULL.value
    max_lag: int = 0
    objects_from: str = ""
    databases: str = ""
    tables: str = ""
    exclude_tables: str = ""
    allow_overlap: bool = False

    @property
    def reading(self) -> Reading:
        return Reading(InvalidText(self.invalid_text), ZeroDates(self.zero_dates))

    @property
    def patterns(self) -> NamePatterns:
        """Raises ValueError."""
        return NamePatterns.of(self.tables, self.exclude_tables)

    @property
    def database_patterns(self) -> NamePatterns:
        """Raises ValueError."""
        return NamePatterns.of(self.databases)

    @property
    def keep_rules(self) -> KeepRules:
        """Raises ValueError."""
        return KeepRules.parse(self.keep)

    @property
    def budget(self) -> Budget:
        return Budget(self.max_sessions, self.max_mb_s)

    @property
    def isolated(self) -> bool:
        return self.consistency == "isolated"

    @classmethod
    def from_text(cls, text: str) -> "Settings":
        """Raises TypeError or ValueError for what this program would not have written."""
        value = json.loads(text)
        if not isinstance(value, dict):
            raise TypeError("sync_config is not a JSON object")
        for setting in fields(cls):
            wanted = float | int if isinstance(setting.default, float) else type(setting.default)
            found = value.get(setting.name, setting.default)
            if not isinstance(found, wanted) or isinstance(found, bool) != isinstance(setting.default, bool):
                raise TypeError(f"{setting.name} in sync_config is {found!r:.40}")
        settings = cls(**value)
        _ = settings.patterns, settings.database_patterns, settings.keep_rules
        return settings
