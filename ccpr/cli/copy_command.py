"""`ccpr copy`: a second copy of a mirror at another place, and that one in the mirror's place."""

import time
from dataclasses import asdict
from typing import Annotated

import typer

from ccpr.base.wording import seconds_text, size_text
from ccpr.cli.arguments import AsJson, Name
from ccpr.cli.output import answer, counted, opened
from ccpr.cli.progress_bars import byte_bars
from ccpr.mirror.encryption_keys import IN_CLEAR
from ccpr.state.settings import SETTINGS


def copy(
    name: Name,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Bring the copy there to where the mirror is; it may be new. If not given, as the subscription says.",
        ),
    ] = None,
    promote: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Make the copy there the mirror of the subscription, which goes on from it."),
    ] = None,
    forget: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Look after the copy there no more; its files stay."),
    ] = None,
    encrypt: Annotated[
        str,
        typer.Option(
            metavar=SETTINGS["encrypt"].kind.metavar,
            help="Where the copy's key is; if not given, an encrypted mirror's copy has the same.",
        ),
    ] = "",
    in_clear: Annotated[
        bool, typer.Option("--in-clear", help="Do not encrypt the copy, though the mirror is encrypted.")
    ] = False,
    give_up: Annotated[
        int | None,
        typer.Option(
            metavar="LSN",
            help="After COPY_DIVERGED: lose what only the copy has. LSN is its newest point.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy a mirror to another folder or bucket: what is not there yet, point by point. The copy can be read and
    restored from. Type it again to bring it up to date."""
    from ccpr.service import copies, estimates
    from ccpr.state.subscription import Subscription

    if sum(one is not None for one in (to, promote, forget)) > 1:
        raise typer.BadParameter("give one of them", param_hint="--to, --promote, --forget")
    if in_clear and encrypt:
        raise typer.BadParameter("give one of them", param_hint="--encrypt, --in-clear")
    encrypt = IN_CLEAR if in_clear else encrypt
    with opened(as_json=as_json) as workspace:
        if promote is not None:
            adopted = copies.promote(workspace, name, promote, encrypt)
            text = f"the mirror of {name} is {promote}, with {counted(adopted.points, 'point')}"
            answer(
                {"name": name, "mirror": promote, **asdict(adopted)},
                f"{text}; its former one is written no more",
                f"next: ccpr run {name}",
                as_json=as_json,
            )
            return
        if forget is not None:
            known = copies.forget(workspace, name, forget)
            answer(
                {"name": name, "place": forget, "known": known},
                f"{forget} is {'looked after no more' if known else 'not known as a copy'}",
                as_json=as_json,
            )
            return
        to = to or Subscription.from_row(workspace.log.row(name)).settings.copy_to
        if not to:
            raise typer.BadParameter("where to?", param_hint="--to")
        started = time.monotonic()
        with byte_bars() as bars:
            task = bars.add_task("copy", total=None)
            found = copies.copy(workspace, name, to, encrypt, lambda size: bars.advance(task, size), give_up=give_up)
        seconds = time.monotonic() - started
        estimates.record(workspace.home, "copy", found.bytes, seconds)
    told = f"{counted(found.points, 'point')}, {counted(found.objects, 'object')}, {size_text(found.bytes)} copied"
    went = f"; {counted(found.deleted, 'file')} deleted" if found.deleted else ""
    answer(
        {"name": name, "to": to, **asdict(found), "seconds": round(seconds, 3)},
        f"{told}{went}; took {seconds_text(seconds)}",
        f"{to} is at point {found.newest_point}",
        as_json=as_json,
    )
