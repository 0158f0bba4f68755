"""Spellings of commands that have changed. For one release they go on working: they are translated to what is typed
now, and a line on standard error says that. No help shows them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ccpr.cli.arguments import AsJson

if TYPE_CHECKING:
    from ccpr.service.status import SubscriptionStatus, TargetStatus
    from ccpr.state.log_rows import LogRow

LIST = "subscriptions"  # whose document for scripts is another one than that of `ccpr status`
_WITH_VALUE = frozenset(("--at", "--out", "--database", "--dialect", "--limit", "-n"))


def _lake(rest: list[str]) -> list[str]:
    now = ["remove" if word == "drop" and place == 0 else word for place, word in enumerate(rest)]
    return ["target", *now, *(["--kind", "lake"] if rest[:1] in (["list"], ["status"]) else [])]


def _release(rest: list[str]) -> list[str]:
    rest, target = _taken(rest, "--target")
    return ["target", "release", *rest, *target[:1]]


def _schema(rest: list[str]) -> list[str]:
    return ["tables", *rest, *([] if len(_names(rest)) > 1 else ["--ddl"])]


def _head(rest: list[str]) -> list[str]:
    return ["query", *("--limit" + word.removeprefix("--rows") if word.startswith("--rows") else word for word in rest)]


def _dump(rest: list[str]) -> list[str]:
    rest, tables = _taken(rest, "--table")
    return ["export", *rest, *tables, "--format", "sql"]


def _relay_user(rest: list[str]) -> list[str]:
    """Of the words behind `user`."""
    word, rest = (rest[0], rest[1:]) if rest else ("", [])
    now = {"limit": "alter", "drop": "remove"}.get(word, word)
    places = {
        "--publication": "--subscription",
        "--all-publications": "--subscription=",
        "--password": "--password-env",
    }
    found = list[str]()
    for text in rest:
        name, is_attached, value = text.partition("=")
        found.append(places.get(name, name) + is_attached + value)
    found = [text.removeprefix("env:").replace("-env=env:", "-env=") for text in found]
    return ["login", *filter(None, [now]), *found, *(["--role", "relay"] if word == "add" else [])]


NOW: Mapping[str, Callable[[list[str]], list[str]]] = {
    LIST: lambda rest: [LIST, *rest],
    "lake": _lake,
    "release": _release,
    "schema": _schema,
    "history": lambda rest: ["points", "history", *rest],
    "head": _head,
    "dump": _dump,
}
_SAID = {
    LIST: "status",
    "release": "target release",
    "schema": "tables NAME TABLE",
    "history": "points history",
    "head": "query NAME TABLE",
    "dump": "export --format sql",
}


def translated(args: Sequence[str]) -> tuple[list[str], str]:
    """What is typed now for `args`, and a sentence about it; empty if they are spelled so already."""
    first, rest = args[0], list(args[1:])
    if [first, *rest[:1]] == ["relay", "approve"]:
        return ["follower", *rest], f"`ccpr {first} approve` is `ccpr follower approve` now"
    if [first, *rest[:1]] == ["relay", "user"]:
        return _relay_user(rest[1:]), f"`ccpr {first} user` is `ccpr login` now"
    if first not in NOW:
        return list(args), ""
    now = NOW[first](rest)
    was = " ".join([first, *(rest[:1] if first == "lake" else [])])
    return now, f"`ccpr {was}` is `ccpr {_SAID.get(first) or ' '.join(now[:2])}` now"


def _taken(args: list[str], option: str) -> tuple[list[str], list[str]]:
    """The arguments without an option, and the values that it has."""
    rest, values, words = list[str](), list[str](), iter(args)
    for word in words:
        name, is_attached, value = word.partition("=")
        if name != option:
            rest.append(word)
        else:
            values.append(value if is_attached else next(words, ""))
    return rest, values


def _names(args: list[str]) -> list[str]:
    """What is no option and no value of one."""
    found, words = list[str](), iter(args)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            found.append(word)
    return found


def subscriptions(as_json: AsJson = False) -> None:
    """The subscriptions: `ccpr status`, with the document that scripts know."""
    from ccpr.cli.output import handle_errors, out, show_json
    from ccpr.cli.status_command import overview
    from ccpr.pipeline.lag import LagMeter
    from ccpr.service.status import read_all
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        found = read_all(workspace, LagMeter(workspace.clock))
        rows = {row.task_id: row for row in workspace.log.all_rows()[0]}
    if as_json:
        show_json([_described(one, rows.get(one.task_id)) for one in found])
    else:
        out.print(f"state in {workspace.home}", style="dim")
        out.print(overview(found, verbose=True))


def _described(status: "SubscriptionStatus", row: "LogRow | None") -> dict[str, Any]:
    known, error = status.to_json(), status.last_error
    same = ("name", "task_id", "upstream", "publication", "publisher", "tables", "sync_interval", "state")
    more = ("iteration_state", "iteration_lsn", "newest_point", "watermark", "lag_seconds", "clock_skew_seconds")
    values = {key: known[key] for key in (*same, *more, "last_error", "next_attempt")}
    values["database"] = status.databases
    if row is None or status.created_at is None:  # it cannot be read
        told = None if error is None else f"{error.code}: {error.message} [{error.subject}] {error.remedy}"
        unknown = ("iteration_state", "watermark", "targets", "created_at", "updated_at")
        return {**values, **dict.fromkeys(unknown), "error": told}
    targets = [_target(one) for one in status.targets]
    created, updated = (f"{when.replace(tzinfo=None).isoformat()}Z" for when in (row.created_at, row.updated_at))
    times = {"created_at": created, "updated_at": updated}
    return {**values, "error": row.error_message, "targets": targets, **times}


def _target(found: "TargetStatus") -> dict[str, Any]:
    return {
        **{key: getattr(found, key) for key in ("name", "lsn", "lag_seconds", "next_attempt", "verified_at")},
        "state": found.trouble or found.state,
        "tables_behind": len(found.behind),
        "last_error": None if found.last_error is None else asdict(found.last_error),
    }
