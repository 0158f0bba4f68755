"""`ccpr verify`: compare the mirror with its ledger. With --repair what is damaged is fetched again, if the upstream or
a second copy still has it."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ccpr.base.wording import size_text
from ccpr.cli.arguments import AsJson, Name
from ccpr.cli.output import counted, handle_errors, out, show_json, show_table
from ccpr.cli.progress import byte_bars

if TYPE_CHECKING:
    from ccpr.maintenance.source_defects import DoubledKeys
    from ccpr.maintenance.verify import Damage
    from ccpr.mirror.mirror import Mirror


def verify(
    name: Name,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Decode every column of every object as well, and look for primary keys that several rows have.",
        ),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Fetch what is damaged or missing again, from the upstream or a second copy."),
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
    """Read the whole mirror again and compare it with the ledger. Nothing is changed without --repair or --checksums.
    The exit code is 1 if something is, or stays, damaged."""
    from ccpr.service.verifying import verifier_of
    from ccpr.service.workspace import Workspace
    from ccpr.state.ledger import Ledger

    with (
        handle_errors(as_json=as_json),
        Workspace() as workspace,
        byte_bars() as progress,
    ):
        row = workspace.log.row(name)
        ledger = Ledger(workspace.log.engine, row.task_id)
        task = progress.add_task("verify", total=ledger.stored_bytes())
        verifier = verifier_of(
            workspace,
            row,
            repair=repair,
            deep=deep,
            checksums=checksums,
            on_progress=lambda size: progress.advance(task, size),
        )
        found = verifier.run()
        doubled = _doubled_keys(workspace.mirror(name)) if deep else []
    if as_json:
        about = {"source_defects": [asdict(one) for one in doubled]} if deep else {}
        show_json({**asdict(found), "sound": found.sound, **about})
    else:
        out.print(
            f"{counted(found.objects, 'object')}, {size_text(found.bytes)}, "
            f"{counted(found.manifests, 'manifest')} and {counted(found.points, 'point')} read again",
            markup=False,
        )
        if checksums:
            out.print(f"{counted(found.summed, 'object')} got checksums, which each read compares", markup=False)
        if found.strays:
            what = "will be deleted" if repair else "can be deleted by --repair"
            out.print(f"{counted(found.strays, 'orphan file')}, which nothing names, {what}", markup=False)
        cells = [
            (damage.path, damage.reason, _repaired(damage) if damage.repaired else _affected(damage))
            for damage in found.damages
        ]
        show_table(("file", "damage", "affects"), cells, empty="everything is as it was written")
        for one in doubled:
            _show_doubled(one)
    if found.sound:
        return
    if not repair and not as_json:
        where = "the upstream or a second copy"
        out.print(f"fetch again what {where} still has with: ccpr verify {name} --repair", markup=False)
    raise typer.Exit(1)


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
    out.print(f"{text}, too: the replica is right ({known}, or LOAD DATA)", style="yellow", markup=False)


def _repaired(damage: "Damage") -> str:
    return f"repaired from {damage.origin}" if damage.origin else "repaired"


def _affected(damage: "Damage") -> str:
    points = "; ".join(f"point {lsn}: {', '.join(tables)}" for lsn, tables in damage.points.items())
    return points or "no point that is kept"
