"""`ccpr points`: the points that can be read, why they stay, those that are held by name, and what each brought."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ccpr.base.wording import first_names, seconds_text, size_text
from ccpr.cli import completion
from ccpr.cli.arguments import AsJson, Name, Yes
from ccpr.cli.asking import confirm
from ccpr.cli.output import answer, counted, err, opened, out, show_json, show_table
from ccpr.cli.shown_times import at_option, clock_text, time_option, time_text, utc_text, zone_text
from ccpr.cli.tables_command import behind_json
from ccpr.matrixone.schema import Kind

if TYPE_CHECKING:
    from ccpr.mirror.kept_points import Hold
    from ccpr.mirror.points import LaggingTable
    from ccpr.service.lakes import LakeTable
    from ccpr.service.workspace import Workspace
    from ccpr.state.history import GlobalPoint
    from ccpr.state.ledger import PointSize

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
_POINT = "The point: its lsn, a time (ISO; UTC unless it names a zone), or the name of a held one."
PointArgument = Annotated[str, typer.Argument(metavar="POINT", help=_POINT, autocompletion=completion.points)]


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
    drop_before: Annotated[int | None, typer.Option("--drop-before", min=1, hidden=True)] = None,  # a former spelling
    yes: Annotated[bool, typer.Option("--yes", "-y", hidden=True)] = False,
    as_json: AsJson = False,
) -> None:
    """List the points that can be read, and why each stays."""
    changes = _tried(keep, retain, retain_for)
    with opened(as_json=as_json) as workspace:
        if drop_before is not None:
            lsns = _drop_before(workspace, name, drop_before, yes=yes, as_json=as_json)
            err.print(f"now: ccpr points drop {name} --before {drop_before}")
            if not as_json:
                out.print(f"{counted(len(lsns), 'point')} dropped")
        found = _Listed.of(workspace, name, changes, sizes=sizes, in_lakes=in_lakes)
    if would_expire:
        found = replace(found, points=[one for one in found.points if not found.kept_by[one.lsn]])
    if as_json:
        show_json([found.json_of(point) for point in found.points])
    elif in_lakes:
        shown = [row for point in found.points for row in found.lake_rows(point)]
        columns = ("point", "lake", "table", "version", "uri")
        show_table(columns, shown, empty="no lake shows a point", fold="uri")
    else:
        found.show(empty="no point would expire" if would_expire else "no point yet")


@dataclass(frozen=True, slots=True)
class _Listed:
    """Points, with what is known of them by their lsn. `sizes`, `lakes`: None if they are not asked for."""

    points: "Sequence[GlobalPoint]"
    kept_by: Mapping[int, list[str]]
    holds: "Sequence[Hold]"
    behind: "Mapping[int, Mapping[int, LaggingTable]]"
    sizes: "Mapping[int, PointSize] | None"
    lakes: "Mapping[str, Mapping[int, tuple[LakeTable, ...]]] | None"

    @classmethod
    def of(
        cls, workspace: "Workspace", name: str, changes: dict[str, Any], *, sizes: bool, in_lakes: bool
    ) -> "_Listed":
        """`changes`: settings that are looked at as if they were the subscription's. Raises BadSetting."""
        from ccpr.retention.retention import Retention, take_inventory
        from ccpr.state.subscription import Subscription

        row = workspace.log.row(name)
        subscription = Subscription.from_row(row)
        settings = replace(subscription.settings, **changes)
        if changes:
            from ccpr.service.subscriptions import check_settings  # imports Arrow, which a list does without

            check_settings(settings, subscription.database, subscription.table)
        records = workspace.of(row)
        inventory = take_inventory(records)
        return cls(
            inventory.points,
            Retention.of(settings).kept_by(inventory),
            inventory.kept.holds,
            records.quarantine.behind_by_point(),
            records.ledger.point_sizes([one.lsn for one in inventory.points]) if sizes else None,
            _in_lakes(workspace, name) if in_lakes else None,
        )

    def json_of(self, point: "GlobalPoint") -> dict[str, Any]:
        size = None if self.sizes is None else self.sizes[point.lsn]
        return {
            "lsn": point.lsn,
            "snapshot_ts": point.at.physical,
            "at": utc_text(point.at),
            "snapshot": point.snapshot,
            "committed_at": point.committed_at.isoformat(),
            "tables_changed": point.tables_changed,
            "objects_copied": point.objects_copied,
            "bytes_copied": point.bytes_copied,
            "consistent": point.lsn not in self.behind,
            "behind": behind_json(self.behind.get(point.lsn, {})),
            "kept_by": self.kept_by[point.lsn],
            "held": [hold.to_json() for hold in self.holds if hold.lsn == point.lsn],
            **({} if size is None else {"bytes_shown": size.shown, "bytes_alone": size.alone}),
            **({} if self.lakes is None else {"lakes": _lakes_json(self.lakes, point.at.physical)}),
        }

    def lake_rows(self, point: "GlobalPoint") -> "Iterator[tuple[object, ...]]":
        for lake, points_there in (self.lakes or {}).items():
            for table in points_there.get(point.at.physical, ()):
                yield point.lsn, lake, table.table, "-" if table.behind else table.version, table.uri

    def show(self, *, empty: str) -> None:
        cells = [
            (
                point.lsn,
                clock_text(point.at),
                point.tables_changed,
                point.objects_copied,
                size_text(point.bytes_copied),
                *self._sizes_of(point.lsn),
                ", ".join(self.kept_by[point.lsn]) or "-",
                ", ".join(late["table"] for late in behind_json(self.behind.get(point.lsn, {}))) or "-",
            )
            for point in self.points
        ]
        sizes = () if self.sizes is None else ("shows", "alone")
        columns = ("point", f"at ({zone_text()})", "tables", "objects", "bytes", *sizes, "stays by", "lagging")
        show_table(columns, cells, empty=empty, right=range(4, 5 + len(sizes)), dense=True)

    def _sizes_of(self, lsn: int) -> tuple[str, ...]:
        return () if self.sizes is None else (size_text(self.sizes[lsn].shown), size_text(self.sizes[lsn].alone))


def _tried(keep: str | None, retain: int | None, retain_for: str | None) -> dict[str, Any]:
    """The settings that are looked at as if they were the subscription's. Raises typer.BadParameter."""
    given: dict[str, Any] = {"keep": keep, "retain": retain}
    if retain_for is not None:
        from ccpr.cli.arguments import seconds_option

        given["retain_for"] = seconds_option(retain_for, "--retain-for")
    return {setting: value for setting, value in given.items() if value is not None}


def _in_lakes(workspace: "Workspace", name: str) -> "dict[str, dict[int, tuple[LakeTable, ...]]]":
    """By lake and the time of a point, the lake's tables there."""
    from ccpr.service import lakes

    return {lake.name: lakes.versions(lake, workspace, name) for lake in workspace.of(name).targets.lakes()}


def _lakes_json(there: "Mapping[str, Mapping[int, tuple[LakeTable, ...]]]", at: int) -> dict[str, Any]:
    """A table that does not show the point has no version."""
    return {
        lake: {
            table.table: {"uri": table.uri, "version": None if table.behind else table.version}
            for table in found.get(at, ())
        }
        for lake, found in there.items()
    }


@points.command()
def history(
    name: Name,
    count: Annotated[int, typer.Option("--last", "-n", min=1, help="How many points.")] = 20,
    whole: Annotated[bool, typer.Option("--all", help="Hidden index tables, too; --json lists them anyway.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what the last iterations brought: when, which tables, how much, and how long each took from its snapshot to
    its commit. Iterations that found nothing new make no point and are not listed."""
    with opened(as_json=as_json) as workspace:
        points = workspace.of(name).history
        found = sorted(points.global_points(), key=lambda point: -point.lsn)[:count]
        changed = {
            point.lsn: sorted(
                {
                    one.table.qualified_name
                    for one in points.changed(point.lsn).values()
                    if one.changed_lsn == point.lsn and (whole or as_json or one.table.kind is not Kind.INDEX)
                }
            )
            for point in found
        }
    # Two clocks: ours and the upstream's. What is less than nothing is their offset.
    seconds = {one.lsn: max(0.0, one.committed_at.timestamp() - one.at.physical / 1e9) for one in found}
    if as_json:
        show_json(
            [
                {
                    "lsn": point.lsn,
                    "at": utc_text(point.at),
                    "committed_at": point.committed_at.isoformat(),
                    "seconds": round(seconds[point.lsn], 3),
                    "tables": changed[point.lsn],
                    "objects_copied": point.objects_copied,
                    "bytes_copied": point.bytes_copied,
                }
                for point in found
            ]
        )
        return
    cells = [
        (
            point.lsn,
            time_text(point.committed_at.timestamp()),
            seconds_text(seconds[point.lsn]),
            f"{point.objects_copied:,}",
            size_text(point.bytes_copied),
            first_names(changed[point.lsn]),
        )
        for point in found
    ]
    columns = ("point", "committed", "took", "objects", "bytes", "tables that changed")
    show_table(columns, cells, empty="no point yet", right=(2, 3, 4))


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

    when = time_option(until, "--until")
    with opened(as_json=as_json) as workspace:
        held = held_points.hold(workspace, name, at_option(point), held_as, when)
    end = "" if until is None else f" until {'it is released' if held.until is None else instant_text(held.until)}"
    answer(held.to_json(), f"point {held.lsn} of {name} is held as {held.name}{end}", as_json=as_json)


@points.command()
def release(name: Name, held_as: Held, as_json: AsJson = False) -> None:
    """Release a held point: it goes as the rules say."""
    from ccpr.service import held_points

    with opened(as_json=as_json) as workspace:
        held = held_points.release(workspace, name, held_as)
    answer(held.to_json(), f"point {held.lsn} of {name} is not held as {held.name} any more", as_json=as_json)


@points.command()
def drop(
    name: Name,
    point: Annotated[
        str | None, typer.Argument(metavar="[POINT]", help=_POINT, autocompletion=completion.points)
    ] = None,
    before: Annotated[
        int | None,
        typer.Option(
            metavar="LSN",
            min=1,
            help="All points before this one: when files of old points are damaged, or space is needed at once.",
        ),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Drop a point, whatever rules keep it; refused if it is the newest, is held, or something is made from it. Its
    files go when no reader can have them open any more (--retain-files)."""
    from ccpr.service import held_points

    if (point is None) == (before is None):
        raise typer.BadParameter("give a point, or --before", param_hint="POINT")
    with opened(as_json=as_json) as workspace:
        if before is not None:
            lsns = _drop_before(workspace, name, before, yes=yes, as_json=as_json)
            about, text = {"lsns": lsns}, f"{counted(len(lsns), 'point')} dropped"
        else:
            at = at_option(point)
            assert at is not None
            lsn = workspace.mirror(name).point(at).lsn
            subject = f"point {lsn} of subscription {name}"
            confirm(f"drop {subject}? Nothing brings it back.", subject=subject, yes=yes, as_json=as_json)
            held_points.drop(workspace, name, {lsn})
            about, text = {"lsn": lsn}, f"point {lsn} of {name} is dropped"
    answer(about, text, as_json=as_json)


def _drop_before(workspace: "Workspace", name: str, before: int, *, yes: bool, as_json: bool) -> list[int]:
    """Which ones. Raises PointsNeeded, NotConfirmed."""
    from ccpr.service import held_points

    history = workspace.of(name).history
    lsns = [point.lsn for point in history.global_points() if point.lsn < before]
    if lsns:
        subject = f"{counted(len(lsns), 'point')} before {before} of subscription {name}"
        confirm(f"drop {subject}? Nothing brings them back.", subject=subject, yes=yes, as_json=as_json)
        held_points.drop(workspace, name, lsns)
    return lsns
