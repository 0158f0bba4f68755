"""What the shell completes: names of subscriptions, tables, targets, points, and codes of errors. Nothing is written,
and what cannot be read completes nothing.

`ccpr --install-completion` puts it into the shell's configuration, `ccpr --show-completion` prints it.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccpr.service.workspace import Workspace


def subscriptions(incomplete: str) -> list[str]:
    def names(workspace: "Workspace") -> Iterable[str]:
        rows, bad = workspace.log.all_rows()
        return sorted(row.subscription_name for row in (*rows, *bad))

    return _found(incomplete, names)


def tables(ctx: Any, incomplete: str) -> list[str]:
    """Of the newest point, with their database and, behind those, without."""

    def names(workspace: "Workspace") -> Iterable[str]:
        found = sorted(workspace.mirror(_typed(ctx)).point().names())
        return [*found, *(name.partition(".")[2] for name in found)]

    return _found(incomplete, names)


def targets(ctx: Any, incomplete: str) -> list[str]:
    return _found(incomplete, lambda workspace: [one.name for one in workspace.of(_typed(ctx)).targets.all()])


def points(ctx: Any, incomplete: str) -> list[str]:
    """The newest first, and after all the names of held ones."""

    def known(workspace: "Workspace") -> Iterable[str]:
        records = workspace.of(_typed(ctx))
        lsns = (str(one.lsn) for one in reversed(records.history.global_points()))
        return [*lsns, *(hold.name for hold in records.kept.holds())]

    return _found(incomplete, known)


def held_points(ctx: Any, incomplete: str) -> list[str]:
    return _found(incomplete, lambda workspace: [hold.name for hold in workspace.of(_typed(ctx)).kept.holds()])


def _typed(ctx: Any) -> str:
    """The subscription that stands in the line; empty if none does yet. While the value of an option is missing, what
    stands in the line is not read."""
    return ctx.params.get("name") or next((word for word in ctx.args if not word.startswith("-")), "")


def _found(incomplete: str, names: "Callable[[Workspace], Iterable[str]]") -> list[str]:
    from ccpr.matrixone.errors import CcprError
    from ccpr.service.workspace import Workspace

    with Workspace() as workspace:
        if not workspace.has_catalog:
            return []
        try:
            return [name for name in names(workspace) if name.startswith(incomplete)]
        except CcprError:
            return []
