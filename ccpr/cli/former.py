"""Spellings of commands that have changed. For one release they go on working: they are translated to what is typed
now, and a line on standard error says that. No help shows them.
"""

from collections.abc import Sequence

import typer

_WORDS = {
    "follow": ("follower", "add"),
    "unfollow": ("follower", "remove"),
    "promote": ("follower", "promote"),
    "init": ("config", "init"),
    "apply": ("config", "apply"),
    "export-config": ("config", "export"),
    "load": ("workload",),
}
_GONE = {  # words and options of the warm Spark session
    "spark": "`ccpr spark` is gone: Spark starts where it copies sooner.\n"
    "A server that stays is named by CCPR_SPARK_REMOTE=sc://host:port.",
    "serve": "`ccpr serve` copies as `ccpr run` does, without --spark and --no-spark",
}
_OF_FOLLOWERS = ("follow", "unfollow", "promote")
_WITH_VALUE = ("-n", "--rows", "--at")  # options of `head`
CONCERNED = frozenset((*_WORDS, *_GONE, "head", "verify"))  # first words


def translated(args: Sequence[str]) -> tuple[list[str], str]:
    """What is typed now for `args`, whose first word is one of CONCERNED, and a sentence about it; empty if they are
    spelled so already. Raises typer.Exit after an error that was shown."""
    first, rest = args[0], list(args[1:])
    if first in _WORDS:
        words = _WORDS[first]
        rest, follower = _taken(rest, ("--downstream",)) if first in _OF_FOLLOWERS else (rest, [])
        named = " NAME FOLLOWER" if follower else ""
        return [*words, *rest, *follower[:1]], f"`ccpr {first}` is `ccpr {' '.join(words)}{named}` now"
    if first == "spark":
        typer.echo(_GONE[first], err=True)
        raise typer.Exit(2)
    if first == "serve":
        kept = [word for word in rest if word not in ("--spark", "--no-spark")]
        return [first, *kept], _GONE[first] if kept != rest else ""
    if first == "verify":
        kept = [word for word in rest if word != "--no-repair"]
        return [first, *kept], "`ccpr verify` only looks, without --no-repair" if kept != rest else ""
    return _head(rest)


def _head(rest: list[str]) -> tuple[list[str], str]:
    now = "`ccpr head` takes the subscription first: ccpr head "
    rest, subscription = _taken(rest, ("-s", "--subscription"))
    names = _names(rest)
    if subscription:
        return ["head", subscription[0], *rest], f"{now}{' '.join((subscription[0], *names))}"
    if len(names) == 1 and not {"-h", "--help"} & set(rest):
        from ccpr.cli.output import handle_errors

        with handle_errors(as_json="--json" in rest):
            name = _only_subscription(names[0], _taken(rest, ("--at",))[1])
        return ["head", name, *rest], f"{now}{name} {names[0]}"
    return ["head", *rest], ""


def _taken(args: list[str], option: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments without an option, and the values that it has."""
    rest, values, words = list[str](), list[str](), iter(args)
    for word in words:
        name, is_attached, value = word.partition("=")
        if name not in option:
            rest.append(word)
        elif is_attached:
            values.append(value)
        else:
            values += [next(words, "")]
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


def _only_subscription(table: str, at: list[str]) -> str:
    """The subscription whose point has the table. Raises TableMissingInMirror."""
    from ccpr.cli.shown_times import at_option
    from ccpr.cli.table_names import full_name
    from ccpr.matrixone.errors import CcprError
    from ccpr.mirror.errors import TableMissingInMirror
    from ccpr.service.workspace import Workspace

    found = []
    with Workspace() as workspace:
        for row in workspace.log.all_rows()[0]:
            try:
                point = workspace.mirror(row.subscription_name).point(at_option(at[0] if at else None))
            except CcprError:
                continue  # another subscription, which has no such point
            known = [ref.qualified_name for ref in point.tables.values()]
            if full_name(table, known) in known:
                found.append(row.subscription_name)
    if len(found) == 1:
        return found[0]
    message = "several subscriptions have it" if found else "no point shows such a table"
    ways = " or ".join(f"ccpr head {name} {table}" for name in found) or f"ccpr head NAME {table}"
    raise TableMissingInMirror(message, subject=f"table {table}", remedy=f"Name the subscription: {ways}.")
