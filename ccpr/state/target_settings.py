"""The settings of a target, each declared once. What they do: `ccpr.schema.policy`, `ccpr.targets.target_plan`."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ccpr.matrixone.schema import integer_of, text_of
from ccpr.schema.choices import DdlPolicy, DuplicateKeys, MaxDrop
from ccpr.state.setting_entry import FilePart, Setting, entries, setting
from ccpr.state.setting_kinds import Choice, Columns, Drops


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
