"""The settings of a subscription, which the column `sync_config` holds, and of a target, each declared once. What those
of a target do: `ccpr.schema.policy`, `ccpr.targets.target_plan`."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from ccpr.matrixone.client.endpoint import AUTO, LOGICAL, PHYSICAL
from ccpr.matrixone.schema import InvalidText, Reading, ZeroDates, integer_of, text_of
from ccpr.schema.choices import DdlPolicy, DuplicateKeys, MaxDrop
from ccpr.state.keep_rules import KeepRules
from ccpr.state.patterns import NamePatterns
from ccpr.state.setting_entry import FilePart, Needs, Setting, entries, setting
from ccpr.state.setting_kinds import (
    Choice,
    Columns,
    CopyPlace,
    DrillPlace,
    Drops,
    Flag,
    Keep,
    KeyPlace,
    Number,
    Patterns,
    Span,
    Url,
    Whole,
)

MOST_SESSIONS = 30  # the upstream serves that many chunks at once, to all clients together
DEFAULT_INTERVAL_SECONDS = 60
SENSOR_SECONDS = 10  # how often Dagster's sensor looks which subscriptions are due
GRACE_SECONDS = 3600  # how long readers may use a file that nothing names any more


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for copying objects. `sessions`: upstream sessions at once, from 1 to MOST_SESSIONS. `mb_s`: megabytes per
    second of all sessions together, on average; 0 = no limit."""

    sessions: int = 4
    mb_s: float = 0.0

    def part(self, number: int, workers: int) -> "Budget":
        """What the worker `number`, from 0, of so many may take of it: its share of the sessions, one at least, and of
        the rate as many parts."""
        sessions = max(1, -(-(self.sessions - number) // workers))
        return Budget(sessions, self.mb_s * sessions / max(self.sessions, workers))


_INVALID_TEXT = Choice(one.value for one in InvalidText)
_ZERO_DATES = Choice(one.value for one in ZeroDates)
_LONGEST = 10**10  # seconds; no longer ones were ever taken
_SEVERAL = Needs(
    ("account",),
    "a subscription to one database stays that",
    "Create another subscription, to several: `ccpr subscribe NAME --database 'PATTERN,…'`.",
)
_WITHOUT_TABLE = Needs(
    ("account", "database"),
    "a subscription to one table has no patterns",
    "Omit the table, or the patterns.",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The `sync_config` of a subscription. How a setting is declared: `setting_entry.Setting`."""

    sync_interval: int = setting(
        DEFAULT_INTERVAL_SECONDS,
        Span(least=1),
        "Time between iterations: seconds, or 90s, 10m.",
        label="interval",
        clause=True,
    )
    retain: int = setting(0, Whole(), "How many points stay readable; 0 keeps all.")  # see `retention.retention`
    retain_for: int = setting(
        0,
        Span(most=_LONGEST),
        "How long points stay readable: 90m, 24h, 7d. The newest that retain keeps stay anyway.",
    )
    keep: str = setting(  # decision keep-rules
        "",
        Keep(),
        "Which points stay by the calendar: all:2h,hourly:48,daily:14,weekly:8,monthly:24,yearly:7.",
        empty="none of them",
    )
    drill_every: int = setting(
        0, Span(), "How often `ccpr serve` tries a restore: 12h, 7d; 0: never. See `ccpr drill`."
    )
    drill_into: str = setting(
        "",
        DrillPlace(),
        "Where drills restore to: a folder, or mysql://user:env:NAME@host:port.",
        empty="the state folder",
    )
    verify_within: int = setting(
        0, Span(), "In which time `ccpr serve` reads all files of the mirror again: 30d; 0: never."
    )
    copy_to: str = setting(
        "",
        CopyPlace(),
        "Where `ccpr serve` keeps a second copy: a folder or s3://bucket/prefix. It is encrypted as the mirror is; "
        "with ?encrypt=env:NAME by that key, with ?encrypt=none not at all. See `ccpr copy`.",
        empty="none",
    )
    copy_every: int = setting(0, Span(), "How often `ccpr serve` brings it to where the mirror is: 10m, 1h; 0: never.")
    retain_files: int = setting(
        GRACE_SECONDS,
        Span(most=_LONGEST),
        "How long files stay that no point names any more, for open readers: 10m, 1h.",
    )
    with_indexes: bool = setting(False, Flag(), "Copy hidden index tables as well.", changeable=False)
    flush: str = setting(  # decision flush-on-demand
        "on_demand",
        Choice(("on_demand", "wait")),
        "on_demand: ask the upstream to flush a snapshot; wait: wait until it does.",
    )
    max_sessions: int = setting(
        Budget().sessions,
        Whole(1, MOST_SESSIONS),
        f"Upstream sessions that copy at the same time, at most {MOST_SESSIONS}.",
    )
    max_mb_s: float = setting(0.0, Number(), "Megabytes per second that copying may use; 0: no limit.")
    mirror: str = setting(
        "",
        Url(),
        "A folder or s3://bucket/prefix for the mirror, instead of the state folder.",
        part=FilePart.MIRROR,
        key="url",
        later="Where the mirror is now: a folder or s3://bucket/prefix.",
        in_file="A folder or s3://bucket/prefix, in which {subscription} is the subscription's name. Without it, the "
        "state folder.",
        empty="the state folder",
    )
    encrypt: str = setting(  # decision encrypted-before-it-leaves
        "",
        KeyPlace(),
        "Encrypt the mirror's files with the key that is there, before they leave this process.",
        part=FilePart.MIRROR,
        later="Where the key of the mirror is now.",
        empty="a mirror that is not encrypted",
    )
    consistency: str = setting(  # docs/requirements.md B4
        "together",
        Choice(("together", "isolated")),
        "together: all tables move to a point or none; isolated: a failing table lags, and the others go on.",
    )
    resync_limit: int = setting(
        0, Whole(most=2**62), "Bytes that may be copied without asking if the base snapshot was lost; 0 asks."
    )
    shared: bool = setting(  # decision sealed-secrets
        False,
        Flag(),
        "Let other users of this machine read the mirror, as the umask says.",
        part=FilePart.MIRROR,
        negative="--not-shared",
        later="Whether other users of this machine may read the mirror's files that are written from now on.",
    )
    invalid_text: str = setting(  # in a target text stays text: there `binary` is `escape`
        InvalidText.ESCAPE.value,
        _INVALID_TEXT,
        f"How export and targets get text that is not UTF-8: {_INVALID_TEXT.either}.",
    )
    zero_dates: str = setting(  # targets have such dates: there only `error` counts
        ZeroDates.NULL.value,
        _ZERO_DATES,
        f"What export gives for the date 0000-00-00: {_ZERO_DATES.either}.",
    )
    max_lag: int = setting(
        0,
        Span(),
        "How old its state may be: 90s, 10m, 24h; 0: two intervals and a minute.",
        part=FilePart.OBJECTIVE,
        required=True,
    )
    objects_from: str = setting(
        "",
        Url(),
        "The upstream's storage, to read objects straight from it: s3://bucket/prefix, gs://bucket/prefix or "
        "file:///data-dir/shared.",
        empty="the upstream itself",
    )
    databases: str = setting(
        "",
        Patterns(),
        "Of a subscription to several databases: those that match one of these patterns; '*': all.",
        part=FilePart.SUBSCRIPTION,
        at_creation="--database",
        needs=_SEVERAL,
        in_file="In place of database several of an account, which have points together: names and patterns joined "
        "by commas, 'shop_*,crm'; '*' for all.",
        empty="all",
    )
    tables: str = setting(
        "",
        Patterns(),
        "Only tables that match: patterns with * and ?, joined by commas, as 'order_*,item'.",
        needs=_WITHOUT_TABLE,
        empty="all",
    )
    exclude_tables: str = setting(
        "",
        Patterns(),
        "Without tables that match one of these patterns: '*_tmp'.",
        needs=_WITHOUT_TABLE,
        empty="none",
    )
    allow_overlap: bool = setting(  # decision one-entry-a-setting
        False,
        Flag(),
        "It may have tables that another subscription has, too.",
        part=FilePart.SUBSCRIPTION,
        negative="--no-overlap",
    )

    mode: str = setting(  # decision logical-mode
        AUTO,
        Choice((AUTO, PHYSICAL, LOGICAL)),
        "physical: copy object files, with a login of account sys; logical: read rows, with a login of the database's "
        "own account; auto: as the login allows.",
    )

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
    @lru_cache(maxsize=4096)
    def from_text(cls, text: str) -> "Settings":
        """Raises TypeError or ValueError for what this program would not have written. Limits are not looked at: an
        earlier release may have had others."""
        value = json.loads(text)
        if not isinstance(value, dict):
            raise TypeError("sync_config is not a JSON object")
        if unknown := value.keys() - SETTINGS.keys():
            raise ValueError(f"sync_config has {min(unknown):.40}, which this release does not know")
        return cls(**{name: _stored(SETTINGS[name], found) for name, found in value.items()})

    def to_text(self) -> str:
        return json.dumps(asdict(self))


def _stored(one: Setting, value: object) -> Any:
    try:
        return one.kind.read(value)
    except ValueError as error:
        raise ValueError(f"{one.name} in sync_config is {value!r:.40}, {error}") from error


SETTINGS: Mapping[str, Setting] = entries(Settings)


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """Each is a column of `ccpr_targets`."""

    ddl_policy: DdlPolicy = setting(
        DdlPolicy.ADDITIVE,
        Choice(DdlPolicy),
        "Which changes of definitions are applied. additive: only what removes nothing; full: everything; manual: "
        "nothing, each change of a definition waits.",
        part=FilePart.TARGET,
    )
    as_text: tuple[str, ...] = setting(
        (),
        Columns(),
        "Columns that are kept as long text, whatever their type. They stay so.",
        part=FilePart.TARGET,
    )
    duplicate_keys: DuplicateKeys = setting(
        DuplicateKeys.ERROR,
        Choice(DuplicateKeys),
        "What happens to a table with two rows of one primary key upstream, after a LOAD DATA there. error: it "
        "waits, with TARGET_DUPLICATE_KEYS; last: the row with the later commit counts.",
        part=FilePart.TARGET,
    )
    max_drop: MaxDrop = setting(
        MaxDrop(),
        Drops(),
        "How many tables it drops at once without being asked: a number, or half (fewer than half of those that it "
        "has, or fewer than three, and not all of several). More wait, with TARGET_DROPS_HELD, for `ccpr target "
        "approve`.",
        part=FilePart.TARGET,
    )

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "TargetSettings":
        """Raises TypeError or ValueError for what `columns` would not have written. Columns that are null are of rows
        from before them."""
        limit = row["max_drop"]
        return cls(
            DdlPolicy(row["ddl_policy"]),
            tuple(map(text_of, json.loads(row["as_text"]))),
            DuplicateKeys(row["duplicate_keys"] or DuplicateKeys.ERROR),
            MaxDrop(None if limit is None else integer_of(limit)),
        )

    def columns(self, names: Iterable[str]) -> dict[str, Any]:
        """Those of these names, as their columns have them."""
        stored = {"as_text": json.dumps(self.as_text, ensure_ascii=False), "max_drop": self.max_drop.tables}
        return {name: stored[name] if name in stored else str(getattr(self, name)) for name in names}


TARGET_SETTINGS: Mapping[str, Setting] = entries(TargetSettings)
