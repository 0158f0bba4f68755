"""Values of settings by their kinds: at their limits, beyond them, and any; and how each way in writes them."""

from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ccpr.matrixone.sql.quoting import quote_string
from ccpr.schema.choices import MaxDrop
from ccpr.state.setting_entry import FilePart, Setting
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
    SettingKind,
    Span,
    Url,
    Whole,
)
from ccpr.state.settings import SETTINGS

OWN_PARTS = (FilePart.POLICY, FilePart.SUBSCRIPTION, FilePart.TARGET)  # whose keys stand where they are used


def allowed(kind: SettingKind[Any], folder: Path) -> list[tuple[Any, Any]]:
    """What is said and what it means, at the limits."""
    match kind:
        case Flag():
            return [(True, True), (False, False)]
        case Span():
            return [(kind.least, kind.least), (kind.most, kind.most), ("2m", 120)]
        case Whole():
            return [(kind.least, kind.least), (kind.most, kind.most)]
        case Number():
            return [(kind.least, float(kind.least)), (kind.most, float(kind.most)), (2.5, 2.5)]
        case Choice():
            return [(str(value), value) for value in kind.values]
        case Patterns():
            return [("d*", "d*"), ("", "")]
        case DrillPlace():
            return [(str(folder / "drills"), str(folder / "drills"))]
        case CopyPlace():
            copy = (folder / "copy").as_uri()
            return [(copy, copy), (f"{copy}?encrypt=env:KEY", f"{copy}?encrypt=env:KEY"), ("", "")]
        case Url():
            return [((folder / "elsewhere").as_uri(), (folder / "elsewhere").as_uri())]
        case Keep():
            return [("all:2h,daily:14", "all:2h,daily:14"), ("yearly:100000", "yearly:100000"), ("", "")]
        case KeyPlace():
            return [("env:KEY", "env:KEY"), ("command", "command"), (f"file:{folder}/key", f"file:{folder}/key")]
        case Columns():
            return [(["t.a", "t.b"], ("t.a", "t.b"))]
        case Drops():
            return [("half", MaxDrop()), (0, MaxDrop(0)), (MaxDrop.MOST, MaxDrop(MaxDrop.MOST))]
    raise AssertionError(kind)


def refused(kind: SettingKind[Any]) -> list[Any]:
    """What is no value of it, or beyond its limits."""
    match kind:
        case Flag():
            return [1, "true"]
        case Span():
            return [kind.least - 1, kind.most + 1, "2w", "", "-1s", "9" * 12, 1.5]
        case Whole():
            return [kind.least - 1, kind.most + 1, 1.5, "x", ""]
        case Number():
            return [kind.least - 1, kind.most + 1, float("nan"), float("inf"), 10**400, "x", ""]
        case Choice():
            return ["", "other", f"{kind.values[0]} "]
        case Patterns():
            return ["a,,b", ","]
        case DrillPlace():
            return ["mysql://root:secret@h:3306", "mysql://h:x"]
        case Url():
            return ["ftp://x"]
        case Keep():
            return ["daily", "daily:0", "daily:100001", "hourly:2,hourly:3", "all:2w", "fortnightly:2"]
        case KeyPlace():
            return ["/etc/key", "env:", "env:1", "file:"]
        case Columns():
            return [["t"], ["t."], [".a"]]
        case Drops():
            return [-1, MaxDrop.MOST + 1, 1.5, "most", ""]
    raise AssertionError(kind)


def any_of(one: Setting) -> st.SearchStrategy[Any]:
    """Values as they are stored. URLs are the test's to choose."""
    texts = st.text(st.characters(exclude_characters="\0,", exclude_categories=["Cs"]), min_size=1, max_size=8)
    match one.kind:
        case Flag():
            return st.booleans()
        case Whole() | Span():
            return st.integers(one.kind.least, one.kind.most)
        case Number():
            return st.floats(one.kind.least, one.kind.most).map(lambda number: round(number, 6))
        case Choice():
            return st.sampled_from(one.kind.values)
        case Patterns():
            patterns = texts | st.sampled_from(("*_tmp", "${HOME}", "$${", "~", "null", "[a-c]?", "1", "-x", "'"))
            return st.lists(patterns.filter(str.strip), max_size=3).map(",".join)
        case Keep():
            names = st.lists(st.sampled_from(("hourly", "daily", "weekly", "monthly", "yearly")), unique=True)
            return st.tuples(names, st.integers(1, 100_000)).map(
                lambda chosen: ",".join(f"{name}:{chosen[1]}" for name in chosen[0])
            )
        case KeyPlace():
            return st.sampled_from(("", "env:KEY", "command"))
        case DrillPlace():
            return st.sampled_from(("", "/var/drills"))
        case CopyPlace():
            return st.sampled_from(("", "file:///var/copy", "s3://bucket/copy?encrypt=env:KEY"))
    raise AssertionError(one)


def as_options(one: Setting, said: Any, *, later: bool = False) -> list[str]:
    """For `subscribe`, or for `alter` if it is later."""
    if isinstance(one.kind, Flag):
        return [one.option] if said else [one.negative] if later else []
    if one.kind.multiple:
        return [f"{one.option}={each}" for each in said]
    if one.at_creation and not later:
        return [f"{one.at_creation}={said or '*'}"]
    return [f"{one.option}={said}"]


def as_literal(said: Any) -> str:
    """For a statement."""
    if isinstance(said, bool):
        return str(said).upper()
    return quote_string(said) if isinstance(said, str) else format(Decimal(repr(said)), "f")


def as_file(said: dict[str, Any], file: dict[str, Any], name: str) -> dict[str, Any]:
    """A file whose subscription says these settings, too."""
    entry = {**file["subscriptions"][name]}
    sections: dict[str, Any] = {}
    for setting, value in said.items():
        one = SETTINGS[setting]
        written = value.replace("${", "$${") if isinstance(value, str) else value
        if one.part in OWN_PARTS:
            entry[one.key] = written
        else:
            sections.setdefault(one.part.value, {}).setdefault("x", {})[one.key] = written
            entry[one.part.reference] = "x"
    if "databases" in entry:
        entry["databases"] = entry.pop("databases") or "*"
        del entry["database"]
    return {**file, **sections, "subscriptions": {name: entry}}
