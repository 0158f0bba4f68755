"""Every error that this project raises on purpose, with what it means and what to do: requirement B12.

Nothing is written twice: code, remedy and subject stand in the classes, the meaning is their docstring, what is tried
again is in `matrixone.upstream.retry`. `ccpr explain` and docs/errors.md show what is collected here.

For one code only the modules are imported in whose text it stands: all of them, with what they stand on, take seconds.
"""

import difflib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ccpr_cli.defects import CodeUnknown
from matrixone.errors import CcprError, Terminal, Transient, Unknown
from matrixone.upstream.retry import BACK_OFF, rule_for

PACKAGES = ("matrixone", "emulator", "replication", "resources", "ccpr_assets", "sensors", "ccpr_cli")
_CITED = re.compile(r" \((?:see )?(?:requirements?|architecture|decisions?) [^)]*\)")  # for readers of the code
_GIVEN = re.compile(r'^    code(?:: [^=\n]+)? = "([A-Z][A-Z0-9_]*)"$', re.M)
WAYS = (Transient, Unknown, Terminal)


@dataclass(frozen=True, slots=True)
class Entry:
    """An error for people.

    Attributes
    ----------
    kind : ``Transient``, ``Terminal`` or ``Unknown``.
    handling : the same in plain words.
    meaning : sentences; what has happened.
    about : what kind of thing the error names.
    remedy : what a person does, where the message has nothing more exact.
    again : what the program itself does about it.
    """

    code: str
    kind: str
    handling: str
    meaning: str
    about: str
    remedy: str
    again: str


def catalogue() -> dict[str, Entry]:
    """All errors by code, in order. The modules of all packages are imported to find them, which takes about a second."""
    entries = [_entry(kind) for kind in error_classes()]
    return {entry.code: entry for entry in sorted(entries, key=lambda entry: entry.code)}


def error_classes() -> list[type[CcprError]]:
    """The classes with a code of their own, in the modules of PACKAGES."""
    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    return _classes()


def _classes() -> list[type[CcprError]]:
    """Those of the modules that are imported."""
    return [
        kind
        for kind in _below(CcprError)
        if kind.code != CcprError.code and kind.__module__.partition(".")[0] in PACKAGES
    ]


def explain_code(text: str) -> Entry:
    """The entry of a code, however its letters are written. Raises CodeUnknown, which names codes that are close."""
    places = _places()
    code = text.strip().upper().replace("-", "_")
    for module in places.get(code, ()):
        importlib.import_module(module)
    if code in places:
        return next(_entry(kind) for kind in _classes() if kind.code == code)
    near = (
        difflib.get_close_matches(code, places, n=3, cutoff=0.5)
        or [known for known in sorted(places) if code and code in known][:3]
    )
    remedy = f"Did you mean {' or '.join(near)}?" if near else None
    raise CodeUnknown("there is no such code", subject=f"code {text[:80]!r}", remedy=remedy)


def _places() -> dict[str, list[str]]:
    """The modules in which each code is given to a class, by their text."""
    places: dict[str, list[str]] = {}
    for package in PACKAGES:
        for root in map(Path, importlib.import_module(package).__path__):
            for file in sorted(root.rglob("*.py")):
                module = ".".join((package, *file.relative_to(root).with_suffix("").parts))
                for code in _GIVEN.findall(file.read_text("utf-8")):
                    places.setdefault(code, []).append(module)
    places.pop(CcprError.code, None)
    return places


def markdown() -> str:
    """The text of docs/errors.md."""
    lines = [
        "# Errors",
        "",
        "Made by `make errors-doc` from the code; do not edit. `ccpr explain CODE` shows one of them.",
        "",
        "An error is one of three kinds. **Transient**: trying again may help, and the program does it by itself.",
        "**Unknown**: it is not known whether something happened; it is looked up before anything is repeated. **Terminal**: a person has",
        "to act. The remedy below is what is said where the error knows nothing more exact; often it names the statement to run.",
        "",
        "What a failed iteration leaves stands in `mo_ccpr_log.error_message`: `R:<failures in a row>:<first>:<last>:<text>` for what is",
        f"tried again (after the interval, doubled each time, at most {BACK_OFF.longest / 60:.0f} minutes), `N:<when>:<text>` for what",
        "has stopped the subscription. `ccpr status NAME` shows it with the time of the next attempt.",
    ]
    entries = catalogue().values()
    for way in WAYS:
        lines += ["", f"## {way.__name__}: {way.describe}", ""]
        for entry in entries:
            if entry.kind == way.__name__:
                lines += [
                    f"### {entry.code}",
                    "",
                    entry.meaning,
                    "",
                    f"* about: {entry.about}",
                    f"* remedy: {entry.remedy}",
                ]
                lines += [f"* tried again: {entry.again}", ""]
        lines.pop()
    return "\n".join(lines) + "\n"


def _below(kind: type[CcprError]) -> Iterator[type[CcprError]]:
    """All subclasses, each once, whatever ways lead to it."""
    found: dict[type[CcprError], None] = {}
    pending = list(kind.__subclasses__())
    while pending:
        current = pending.pop()
        if current not in found:
            found[current] = None
            pending += current.__subclasses__()
    return iter(found)


def _entry(kind: type[CcprError]) -> Entry:
    way = next(way for way in WAYS if issubclass(kind, way))
    meaning = _CITED.sub("", " ".join(inspect.cleandoc(vars(kind).get("__doc__") or "").split()))
    return Entry(kind.code, way.__name__, way.describe, meaning, kind.about, kind.default_remedy, _again(kind, way))


def _again(kind: type[CcprError], way: type[CcprError]) -> str:
    if way is Terminal:
        return "no; if it ended an iteration, the subscription waits for `ccpr run NAME`"
    rule = rule_for(kind)
    later = "with the next attempt at the iteration"
    if rule.attempts == 1:
        return later
    return f"up to {rule.attempts} attempts at once, with pauses from {rule.first_pause:g} s to {rule.longest_pause:g} s; then {later}"
