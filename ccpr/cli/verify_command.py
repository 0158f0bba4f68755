"""`ccpr verify`: compare the mirror and its second copies with the ledger. With --repair what is damaged is fetched
again, from wherever it still is."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ccpr.base.wording import size_text
from ccpr.cli.arguments import AsJson, Name
from ccpr.cli.output import counted, opened, out, show_json, show_table
from ccpr.cli.progress_bars import byte_bars

if TYPE_CHECKING:
    from ccpr.maintenance.source_defects import DoubledKeys
    from ccpr.maintenance.verify import Damage, Verified
    from ccpr.mirror.mirror import Mirror
    from ccpr.service.verifying import CopyVerified, Mended


def verify(
    name: Name,
    place: Annotated[str, typer.Argument(metavar="[URL]", help="With --copy: only the copy there.")] = "",
    copy: Annotated[bool, typer.Option("--copy", help="Read second copies alone, and not the mirror.")] = False,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Decode every column of every object as well, and look for primary keys that several rows have.",
        ),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Fetch what is damaged or missing again, from the upstream, a second copy or the mirror."
        ),
    ] = False,
    checksums: Annotated[
        bool,
        typer.Option(
            "--checksums",
            help="Give objects that an earlier release copied the checksums that each read compares.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read the whole mirror and its second copies again and compare them with the ledger. Nothing is changed without
    --repair or --checksums. The exit code is 1 if something is, or stays, damaged, or a copy cannot be read."""
    from ccpr.service.verifying import copies_of, copy_verifier, mend_readers, verifier_of, verify_copy
    from ccpr.state.subscription import Subscription

    if place and not copy:
        raise typer.BadParameter("a place is of a copy", param_hint="--copy")
    with (
        opened(as_json=as_json) as workspace,
        byte_bars() as progress,
    ):
        row = workspace.log.row(name)
        copies, ledger = copies_of(workspace, row, place), workspace.of(row).ledger
        task = progress.add_task("verify", total=ledger.stored_bytes() * (len(copies) + (not copy)))
        how = {"repair": repair, "deep": deep, "on_progress": lambda size: progress.advance(task, size)}
        found = None if copy else verifier_of(workspace, row, checksums=checksums, **how).run()
        mended = [] if found is None else mend_readers(workspace, row, found.damages)
        doubled = _doubled_keys(workspace.mirror(name)) if deep and not copy else []
        seconds = [verify_copy(workspace, row, one, copy_verifier(workspace, row, one, **how)) for one in copies]
    sound = (found is None or found.sound) and all(one.sound for one in seconds)
    sound = sound and not any(one.failure for one in mended)
    if as_json:
        about = {"source_defects": [asdict(one) for one in doubled]} if deep and not copy else {}
        mirror = {} if found is None else {**asdict(found), "mended": [asdict(one) for one in mended]}
        show_json(
            {**mirror, "sound": sound, **about, "copies": [{**asdict(one), "sound": one.sound} for one in seconds]}
        )
    else:
        if found is not None:
            _show(found, doubled, repair=repair, checksums=checksums)
            _show_readers(found, mended)
        for one in seconds:
            _show_copy(one)
    if sound:
        return
    if not as_json and not repair:
        out.print(f"fetch again what another place still has with: ccpr verify {name} --repair")
    elif not as_json and found is not None and Subscription.from_row(row).is_logical:
        lost = {
            table for one in found.damages if not one.repaired for tables in one.points.values() for table in tables
        }
        for table in sorted(lost):
            out.print(f"read its rows again, for the points to come, with: ccpr resync {name} --table {table}")
    raise typer.Exit(1)


def _show(found: "Verified", doubled: "list[DoubledKeys]", *, repair: bool, checksums: bool) -> None:
    out.print(
        f"{counted(found.objects, 'object')}, {size_text(found.bytes)}, "
        f"{counted(found.manifests, 'manifest')} and {counted(found.points, 'point')} read again",
    )
    if checksums:
        out.print(f"{counted(found.summed, 'object')} got checksums, which each read compares")
    if found.strays:
        what = "will be deleted" if repair else "can be deleted by --repair"
        out.print(f"{counted(found.strays, 'orphan file')}, which nothing names, {what}")
    cells = [
        (damage.path, damage.reason, _repaired(damage) if damage.repaired else _affected(damage))
        for damage in found.damages
    ]
    show_table(("file", "damage", "affects"), cells, empty="everything is as it was written")
    for one in doubled:
        _show_doubled(one)


def _show_readers(found: "Verified", mended: "list[Mended]") -> None:
    """Who may have taken the damage of objects that no read is compared with, and what became of it."""
    if taken := sorted({table for damage in found.damages for table in damage.read_in}):
        text = f"targets and lakes may have taken the damage of {', '.join(taken)}, as points did that show it"
        out.print(f"{text}; --repair builds the tables anew there, from the newest point")
    if mended:
        rows = [(one.target, one.table, "built anew" if one.failure is None else str(one.failure)) for one in mended]
        show_table(("target", "table", "now"), rows, empty="")


def _show_copy(one: "CopyVerified") -> None:
    if one.found is None:
        out.print(f"second copy {one.place} could not be read: {one.failure}", style="red")
        return
    found = one.found
    read = (
        f"{counted(found.objects, 'object')}, {size_text(found.bytes)} and {counted(found.points, 'point')} read again"
    )
    out.print(f"second copy {one.place}: {read}")
    cells = [(damage.path, damage.reason, _repaired(damage) if damage.repaired else "no") for damage in found.damages]
    show_table(("file", "damage", "repaired"), cells, empty="everything is as it was written")


def _doubled_keys(mirror: "Mirror") -> "list[DoubledKeys]":
    """At the newest point."""
    from ccpr.maintenance.source_defects import doubled_keys
    from ccpr.mirror.errors import MirrorDamaged, PointNotReached

    try:
        return list(doubled_keys(mirror, mirror.point()))
    except (PointNotReached, MirrorDamaged):
        return []  # there is nothing to read, or it is among the damages


def _show_doubled(one: "DoubledKeys") -> None:
    from ccpr.maintenance.source_defects import UPSTREAM_ISSUES

    key = ", ".join(f"{name} = {value:.80}" for name, value in one.example.items())
    text = f"{one.table}: {counted(one.keys, 'primary key')} with several rows, for example {key}. The source has them"
    known = " and ".join(f"matrixone#{number}" for number in UPSTREAM_ISSUES)
    out.print(f"{text}, too: the replica is right ({known}, or LOAD DATA)", style="yellow")


def _repaired(damage: "Damage") -> str:
    return f"repaired from {damage.origin}" if damage.origin else "repaired"


def _affected(damage: "Damage") -> str:
    points = "; ".join(f"point {lsn}: {', '.join(tables)}" for lsn, tables in damage.points.items())
    return points or "no point that is kept"
