"""`ccpr points`: the points that can be read, why they stay, and those that are held by name."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ccpr.base.wording import size_text
from ccpr.cli import completion
from ccpr.cli.arguments import AsJson, Name
from ccpr.cli.asking import confirm
from ccpr.cli.output import counted, handle_errors, out, show_json, show_table
from ccpr.cli.show import behind_json
from ccpr.cli.shown_times import at_option, clock_text, time_option, utc_text, zone_text

if TYPE_CHECKING:
    from ccpr.service.lakes import LakeTable
    from ccpr.service.point_sizes import PointSize
    from ccpr.service.workspace import Workspace

_LIST = "list"
_HELP = ("-h", "--help")


class _PointsGroup(TyperGroup):
    """`ccpr points NAME` lists; a subscription may be called as a command is."""

    default_command = _LIST

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = len(args) > 1 and args[0] in self.commands and (args[1] in _HELP or not args[1].startswith("-"))
        if args and not named and args[0] not in _HELP:
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


points = typer.Typer(
    cls=_PointsGroup,
    help="List the points that can be read: `ccpr points NAME`, see `ccpr points list --help`. Hold, release and drop "
    "points.",
    no_args_is_help=True,
)
Held = Annotated[
    str,
    typer.Argument(
        metavar="HELD", help="The name under which the point is held.", autocompletion=completion.held_points
    ),
]
PointArgument = Annotated[
    str,
    typer.Argument(
        metavar="POINT",
        help="The point: its lsn, a time (ISO; UTC unless it names a zone), or the name of a held one.",
        autocompletion=completion.points,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before points are dropped.")]


@points.command(_LIST)
def list_(
    name: Name,
    would_expire: Annotated[
        bool, typer.Option("--would-expire", help="Only those that go with the next iteration.")
    ] = False,
    keep: Annotated[
        str | None, typer.Option(help="Look as if this were the subscription's --keep; it stays as it is.")
    ] = None,
    retain: Annotated[int | None, typer.Option(min=0, help="The same for --retain.")] = None,
    retain_for: Annotated[str | None, typer.Option(help="The same for --retain-for.")] = None,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="How much each point shows, and how much goes with it alone.")
    ] = False,
    in_lakes: Annotated[
        bool, typer.Option("--lake", help="The version of each lake table that shows each point; the lakes are read.")
    ] = False,
    drop_before: Annotated[
        int | None,
        typer.Option(
            "--drop-before",
            metavar="LSN",
            min=1,
            help="First drop all points before this one, as `ccpr points drop` does: when files of old points are "
            "damaged, or space is needed at once.",
        ),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List the points that can be read, and why each stays."""
    from ccpr.retention.retention import Retention, take_inventory
    from ccpr.service.workspace import Workspace
    from ccpr.state.quarantine import Quarantine
    from ccpr.state.subscription import Subscription

    changes = _tried(keep, retain, retain_for)
    with handle_errors(as_json=as_json), Workspace() as workspace:
        row = workspace.log.row(name)
        subscription = Subscription.from_row(row)
        settings = replace(subscription.settings, **changes)
        if changes:
            from ccpr.service.subscriptions import check_settings  # imports Arrow, which a list does without

            check_settings(settings, subscription.database, subscription.table)
        if drop_before is not None:
            _drop_before(workspace, name, drop_before, yes=yes, as_json=as_json)
        inventory = take_inventory(workspace.log.engine, row.task_id)
        found, kept_by = inventory.points, Retention.of(settings).kept_by(inventory)
        behind = Quarantine(workspace.log.engine, row.task_id).behind_by_point()
        there = _in_lakes(workspace, name) if in_lakes else {}
        cost = _sizes(workspace, row.task_id, [one.lsn for one in found]) if sizes else {}
    if would_expire:
        found = [point for point in found if not kept_by[point.lsn]]
    held = {point.lsn: [hold for hold in inventory.kept.holds if hold.lsn == point.lsn] for point in found}
    if as_json:
        show_json(
            [
                {
                    "lsn": point.lsn,
                    "snapshot_ts": point.at.physical,
                    "at": utc_text(point.at),
                    "snapshot": point.snapshot,
                    "committed_at": point.committed_at.isoformat(),
                    "tables_changed": point.tables_changed,
                    "objects_copied": point.objects_copied,
                    "bytes_copied": point.bytes_copied,
                    "consistent": point.lsn not in behind,
                    "behind": behind_json(behind.get(point.lsn, {})),
                    "kept_by": kept_by[point.lsn],
                    "held": [hold.to_json() for hold in held[point.lsn]],
                    **({"bytes_shown": cost[point.lsn].shown, "bytes_alone": cost[point.lsn].alone} if sizes else {}),
                    **({"lakes": _lakes_json(there, point.at.physical)} if in_lakes else {}),
                }
                for point in found
            ]
        )
        return
    if in_lakes:
        shown = [
            (point.lsn, lake, table.table, "-" if table.behind else table.version, table.uri)
            for point in found
            for lake, points_there in there.items()
            for table in points_there.get(point.at.physical, ())
        ]
        show_table(("point", "lake", "table", "version", "uri"), shown, empty="no lake shows a point")
        return
    cells = [
        (
            point.lsn,
            clock_text(point.at),
            point.tables_changed,
            point.objects_copied,
            size_text(point.bytes_copied),
            *((size_text(cost[point.lsn].shown), size_text(cost[point.lsn].alone)) if sizes else ()),
            ", ".join(kept_by[point.lsn]) or "-",
            ", ".join(late["table"] for late in behind_json(behind.get(point.lsn, {}))),
        )
        for point in found
    ]
    figures = ("tables changed", "objects copied", "bytes copied", *(("shows", "goes with it") if sizes else ()))
    columns = ("point", f"upstream's clock ({zone_text()})", *figures, "stays by", "lagging tables")
    show_table(columns, cells, empty="no point would expire" if would_expire else "no point yet")


def _tried(keep: str | None, retain: int | None, retain_for: str | None) -> dict[str, Any]:
    """The settings that are looked at as if they were the subscription's. Raises typer.BadParameter."""
    given: dict[str, Any] = {"keep": keep, "retain": retain}
    if retain_for is not None:
        from ccpr.cli.login_options import seconds_option

        given["retain_for"] = seconds_option(retain_for, "--retain-for")
    return {setting: value for setting, value in given.items() if value is not None}


def _sizes(workspace: "Workspace", task_id: str, lsns: list[int]) -> "dict[int, PointSize]":
    from ccpr.service.point_sizes import point_sizes
    from ccpr.state.ledger import Ledger

    return point_sizes(Ledger(workspace.log.engine, task_id), lsns)


def _in_lakes(workspace: "Workspace", name: str) -> "dict[str, dict[int, tuple[LakeTable, ...]]]":
    """By lake and the time of a point, the lake's tables there."""
    from ccpr.service import lakes

    return {lake.name: lakes.versions(lake, workspace, name) for lake in lakes.lake_records(workspace, name).lakes()}


def _lakes_json(there: "dict[str, dict[int, tuple[LakeTable, ...]]]", at: int) -> dict[str, Any]:
    """A table that does not show the point has no version."""
    return {
        lake: {
            table.table: {"uri": table.uri, "version": None if table.behind else table.version}
            for table in found.get(at, ())
        }
        for lake, found in there.items()
    }


@points.command()
def hold(
    name: Name,
    point: PointArgument,
    held_as: Annotated[str | None, typer.Option("--name", help="By which it is read, too: --at NAME.")] = None,
    until: Annotated[
        str | None,
        typer.Option(help="When the hold ends by itself, by the upstream's clock: an ISO time. From 2262 on: never."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Hold a point: no rule lets it go, until it is released. The hold is kept in the mirror."""
    from ccpr.mirror.points import instant_text
    from ccpr.service import held_points
    from ccpr.service.workspace import Workspace

    end = time_option(until, "--until")
    with handle_errors(as_json=as_json), Workspace() as workspace:
        held = held_points.hold(workspace, name, at_option(point), held_as, end)
    if as_json:
        show_json(held.to_json())
    else:
        end = "" if until is None else f" until {'it is released' if held.until is None else instant_text(held.until)}"
        out.print(f"point {held.lsn} of {name} is held as {held.name}{end}", markup=False)


@points.command()
def release(name: Name, held_as: Held, as_json: AsJson = False) -> None:
    """Release a held point: it goes as the rules say."""
    from ccpr.service import held_points
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        held = held_points.release(workspace, name, held_as)
    if as_json:
        show_json(held.to_json())
    else:
        out.print(f"point {held.lsn} of {name} is not held as {held.name} any more", markup=False)


@points.command()
def drop(
    name: Name,
    point: PointArgument,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Drop a point, whatever rules keep it; refused if it is the newest, is held, or something is made from it. Its
    files go when no reader can have them open any more (--retain-files)."""
    from ccpr.service import held_points
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        at = at_option(point)
        assert at is not None
        lsn = workspace.mirror(name).point(at).lsn
        subject = f"point {lsn} of subscription {name}"
        confirm(f"drop {subject}? Nothing brings it back.", subject=subject, yes=yes, as_json=as_json)
        held_points.drop(workspace, name, {lsn})
    if as_json:
        show_json({"lsn": lsn})
    else:
        out.print(f"point {lsn} of {name} is dropped", markup=False)


def _drop_before(workspace: "Workspace", name: str, before: int, *, yes: bool, as_json: bool) -> None:
    """Raises PointsNeeded, NotConfirmed."""
    from ccpr.service import held_points
    from ccpr.state.history import PointHistory

    history = PointHistory(workspace.log.engine, workspace.log.row(name).task_id)
    lsns = [point.lsn for point in history.global_points() if point.lsn < before]
    if lsns:
        subject = f"{counted(len(lsns), 'point')} before {before} of subscription {name}"
        confirm(f"drop {subject}? Nothing brings them back.", subject=subject, yes=yes, as_json=as_json)
        held_points.drop(workspace, name, lsns)
    if not as_json:
        out.print(f"{counted(len(lsns), 'point')} dropped", markup=False)
