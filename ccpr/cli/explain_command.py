"""`ccpr explain`: what an error's code means and what to do about it. `ccpr help`: all commands by subject.

Nothing is written twice: code, remedy and subject are attributes of the classes, the meaning is their docstring, what
is tried again is in `ccpr.matrixone.client.retry`. The classes are found as subclasses of `CcprError`, once their
modules are imported (docs/requirements.md B12).
"""

import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from textwrap import fill, indent
from typing import Annotated, Any

import typer

from ccpr.cli.arguments import AsJson
from ccpr.cli.defects import CodeUnknown
from ccpr.cli.lazy import registered
from ccpr.cli.output import handle_errors, out, show_json
from ccpr.matrixone.client.retry import Retry, rule_for
from ccpr.matrixone.errors import CcprError, Refused, Terminal, Transient, Unknown

PACKAGE = "ccpr"
_NAMES = ("errors", "defects")  # of modules whose subject is errors
OTHERS = (  # modules that define an error next to the only code that raises it; a test compares with all modules
    "ccpr.cli.state_command",
    "ccpr.mysql.statement_text",
    "ccpr.schema.sync_mark",
    "ccpr.schema.target_types",
)
# a reference for readers of the code, at the end of a sentence
_CITED = re.compile(r" \((?:see )?(?:docs/|requirements?|decisions?) ?[^)]*\)")
WAYS = (Transient, Unknown, Refused, Terminal)
_AREAS = (  # what an error is about, in the order of the page; in "<module> <code>", the last that matches counts
    ("The upstream and iterations", r"\bmatrixone\b|\bpipeline\b|UPSTREAM_"),
    ("Subscriptions, state and service", r"\bstate\b|\bservice\b|STATE_FILE|PASSWORD_NEEDED| UNEXPECTED"),
    ("Commands, settings and files", r"\bcli\.defects\b|\bconfig\b|\bbase\b| BAD_(?!ANSWER|OBJECT)"),
    ("The mirror: points, files, values", r"\bmirror\b|\bmaintenance\b|\bretention\b|objects|POINTS?_|HOLD_|MIRROR_"),
    ("Targets", r"\btargets\b|\bschema\b|\bmatrixone\.sql\b| TARGET_"),
    ("Copies, drills and restores", r" COPY_DI| DRILL_| SCRATCH_| RESTORE"),
    ("Lakes", r" LAKE_| ICEBERG_"),
    ("The relay and followers", r"\brelay\b| RELAY_| FOLLOW| POINTS_PINNED"),
    ("MySQL clients", r"\bmysql\b"),
    ("Spark", r"\bspark\b"),
    ("The simulated upstream", r"emulator| EMULATOR_| LOAD_(?!ED)"),
)


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """An error for people.

    Attributes
    ----------
    kind : ``Transient``, ``Terminal`` or ``Unknown``.
    handling : the same in plain words.
    meaning : sentences; what has happened.
    about : what kind of thing the error names.
    remedy : what the operator does, where the message has nothing more exact.
    again : what the program itself does about it.
    area : the part of the system that it is of, a heading of the page.
    """

    code: str
    kind: str
    handling: str
    meaning: str
    about: str
    remedy: str
    again: str
    area: str


def areas() -> tuple[str, ...]:
    """The areas in the order in which pages and lists show them."""
    return tuple(area for area, _ in _AREAS)


def catalogue() -> dict[str, ErrorEntry]:
    """All errors by code, in order. Imports the modules that define them, which takes one or two seconds."""
    return {entry.code: entry for entry in sorted(map(_entry, error_classes()), key=lambda entry: entry.code)}


def error_classes() -> list[type[CcprError]]:
    """The classes with a code of their own."""
    return [*_defined_in(_error_modules()), *_defined_in(OTHERS)]


def explain_code(text: str) -> ErrorEntry:
    """The entry of a code, however its letters are written. Raises CodeUnknown, which names codes that are close."""
    code = text.strip().upper().replace("-", "_")
    known: dict[str, type[CcprError]] = {}
    for modules in (_error_modules(), OTHERS):  # the others depend on much: they are imported for their own codes only
        known |= {kind.code: kind for kind in _defined_in(modules)}
        if code in known:
            return _entry(known[code])
    near = (
        difflib.get_close_matches(code, known, n=3, cutoff=0.5)
        or [other for other in sorted(known) if code and code in other][:3]
    )
    remedy = f"Did you mean {' or '.join(near)}?" if near else None
    raise CodeUnknown("there is no such code", subject=f"code {text[:80]!r}", remedy=remedy)


def _error_modules() -> tuple[str, ...]:
    """The modules that are named after errors. No room is imported to find them: it may need what is not there."""
    packages = (PACKAGE, *sorted({entry.module.partition(".")[0] for entry in registered()}))
    roots = [(package, Path(folder)) for package in packages for folder in importlib.import_module(package).__path__]
    found = ((package, root, file) for package, root in roots for name in _NAMES for file in root.rglob(f"{name}.py"))
    return tuple(
        ".".join((package, *file.relative_to(root).with_suffix("").parts)) for package, root, file in sorted(found)
    )


def _defined_in(modules: Collection[str]) -> list[type[CcprError]]:
    """The classes with a code of their own that some modules define; imports the modules."""
    for module in modules:
        importlib.import_module(module)
    return [kind for kind in _below(CcprError) if kind.__module__ in modules and "code" in vars(kind)]


def markdown() -> str:
    """The text of docs/reference/errors.md."""
    lines = [
        "# Errors",
        "",
        "Generated from the code by `make reference`; do not edit. `ccpr explain CODE` shows one of them. The",
        "second paragraph says what to do; an error often names something more exact.",
        "",
        "An error without a mark is **terminal**: an operator must act, and a subscription whose iteration it",
        "ended waits for `ccpr run NAME`. **Transient**: the program tries again, for as long as it takes, with",
        "the next attempt at the iteration if nothing else is said; so is every error of a server that no rule",
        "knows. **Unknown**: the outcome of an action is looked up before anything is repeated. **Refused**: a",
        "server says that no retry can help; it is asked by new logins until that is certain (decision",
        "ends-are-confirmed), and the error is terminal then. *5 × 0.2–10 s*: at once 5 attempts, with pauses",
        "of 0.2 s growing to 10 s.",
    ]
    entries = catalogue()
    rules = {kind.code: rule_for(kind) for kind in error_classes()}
    for area in areas():
        lines += ["", f"## {area}"]
        for entry in entries.values():
            if entry.area == area:
                mark = f" *{_mark(entry, rules[entry.code])}*" if entry.kind != Terminal.__name__ else ""
                lines += ["", f"### {entry.code}", "", _escaped(entry.meaning) + mark]
                lines += ["", _escaped(entry.remedy)]
    return "\n".join(lines) + "\n"


def _mark(entry: ErrorEntry, rule: Retry) -> str:
    if entry.kind == Refused.__name__ or rule.attempts == 1:
        return f"{entry.kind}."
    return f"{entry.kind}, {rule.attempts} × {rule.first_pause:g}–{rule.longest_pause:g} s."


def _escaped(text: str) -> str:
    """Text whose angle brackets, stars and double underscores are no markup; what is in backquotes is so already."""
    parts = text.split("`")
    plain = (part.replace("<", "&lt;").replace("*", r"\*").replace("__", r"\_\_") for part in parts[::2])
    parts[::2] = plain
    return "`".join(parts)


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


def _entry(kind: type[CcprError]) -> ErrorEntry:
    way = next(way for way in WAYS if issubclass(kind, way))
    meaning = _CITED.sub("", " ".join(inspect.cleandoc(vars(kind).get("__doc__") or "").split()))
    again, area = _again(kind, way), _area(kind)
    return ErrorEntry(kind.code, way.__name__, way.what_follows, meaning, kind.about, kind.default_remedy, again, area)


def _area(kind: type[CcprError]) -> str:
    where = f"{kind.__module__} {kind.code}"
    return [area for area, pattern in _AREAS if re.search(pattern, where)][-1]


def _again(kind: type[CcprError], way: type[CcprError]) -> str:
    if way is Refused:
        return "until it is confirmed; then, if it ended an iteration, the subscription waits for `ccpr run NAME`"
    if way is Terminal:
        return "no; if it ended an iteration, the subscription waits for `ccpr run NAME`"
    rule = rule_for(kind)
    later = "with the next attempt at the iteration"
    if rule.attempts == 1:
        return later
    pauses = f"{rule.first_pause:g} s to {rule.longest_pause:g} s"
    return f"up to {rule.attempts} attempts at once, with pauses from {pauses}; then {later}"


def codes(incomplete: str) -> list[str]:
    return sorted(code for code in catalogue() if code.startswith(incomplete.upper()))


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            help="An error's code, e.g. SNAPSHOT_GONE; without it all are listed by subject.",
            autocompletion=codes,
        ),
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="All of them, as docs/reference/errors.md.")] = False,
    as_json: AsJson = False,
) -> None:
    """Explain an error: what it means, what the program does about it, and what you can do."""
    if as_markdown:
        sys.stdout.write(markdown())
        return
    if code is None:
        entries = catalogue().values()
        if as_json:
            show_json([asdict(entry) for entry in entries])
        else:
            for area in areas():
                out.print(area, style="bold")
                codes = ", ".join(entry.code for entry in entries if entry.area == area)
                out.print(indent(fill(codes, min(out.width, 80) - 2, break_long_words=False), "  "))
        return
    with handle_errors(as_json=as_json):
        entry = explain_code(code)
    if as_json:
        show_json(asdict(entry))
    else:
        out.tell(entry.code, "bold", f"({entry.handling})")
        out.print(entry.meaning)
        for what, text in (("about", entry.about), ("remedy", entry.remedy), ("tried again", entry.again)):
            out.print(f"  {what + ':':<13}{text}")


def help_(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...", help="What to explain.")] = None,
) -> None:
    """List all commands by subject, or show the help of one."""
    program: Any = context.find_root().command
    if command:
        program.main([*command, "--help"], prog_name="ccpr")
    wide = max(map(len, program.deferred))
    for panel, those in groupby(program.deferred.items(), key=lambda item: item[1].panel):
        out.print(panel, style="bold")
        for name, one in those:
            out.print(f"  {name:<{wide}}  {one.summary}")
    out.print("\n`ccpr help COMMAND` is its --help; `ccpr explain CODE` explains an error.", style="dim")
