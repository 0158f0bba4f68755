"""`ccpr spark`: the warm session, a Spark server of this state folder that stays between runs."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.cli.arguments import AsJson
from ccpr.cli.output import handle_errors, out, seconds_text, show_json
from ccpr.cli.times import time_text

if TYPE_CHECKING:
    from ccpr.pipeline.spark.server import WarmSpark
    from ccpr.pipeline.spark.server_record import Found

spark = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="A Spark session that is there: `ccpr run`, `ccpr serve` and Dagster use it and need not wait for a start.",
)


@spark.command()
def start(
    again: Annotated[bool, typer.Option("--again", help="End the one that runs first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start the warm session, unless it runs, and wait until it is ready. One that runs another version of this
    program, or with other settings, is started again. A new one is warmed up by small jobs for some ten seconds, so
    that the first copies are as quick as later ones.

    It listens on 127.0.0.1 only, and asks for a token that is kept in the state folder.
    """
    with handle_errors(as_json=as_json):
        warm = _warm()
        before = warm.look()
        found = warm.start(again=again, warm_up=True)
    if as_json:
        show_json(_values(warm, found))
    elif before.server is not None and found.server is not None and before.server.pid == found.server.pid:
        out.print(f"the warm session runs already: {_shown(found)}")
    else:
        if before.server is not None:
            out.print(f"the one that ran was ended ({'--again' if again else before.state.value})")
        took = 0.0 if found.server is None else found.server.start_seconds
        out.print(f"the warm session is ready after {seconds_text(took)}: {_shown(found)}")


@spark.command()
def stop(as_json: AsJson = False) -> None:
    """End the warm session, with the jobs that run in it."""
    with handle_errors(as_json=as_json):
        ended = _warm().stop()
    if as_json:
        show_json({"ended": ended})
    else:
        out.print("the warm session was ended" if ended else "there is no warm session")


@spark.command()
def status(as_json: AsJson = False) -> None:
    """Show whether there is a warm session. The exit code is 0 if one is ready, else 1."""
    with handle_errors(as_json=as_json):
        warm = _warm()
        found = warm.look()
    if as_json:
        show_json(_values(warm, found))
    else:
        out.print(f"the warm session is {found.state.value}" if not found.usable else f"ready: {_shown(found)}")
        if found.state.remedy:
            out.print(f"  remedy: {found.state.remedy}", style="dim")
    if not found.usable:
        raise typer.Exit(1)


@spark.command()
def keep(
    on_demand: Annotated[
        bool,
        typer.Option(
            "--on-demand",
            help="Let the first copy that would wait for a session start it, and end it when none has used it for ten "
            "minutes.",
        ),
    ] = False,
) -> None:
    """Keep a warm session until this command is ended (Ctrl-C, SIGTERM): it is started, started again when it dies, and
    ended with the command unless it was there before. For systemd and the like, and for `make ui`.
    """
    import signal

    from ccpr.base.ending import Ending
    from ccpr.pipeline.spark.connect import require_client
    from ccpr.pipeline.spark.supervisor import Supervisor

    with handle_errors(as_json=False):
        warm = _warm()
        if warm.settings.remote is not None:
            out.print(f"Spark runs at {warm.settings.place}; there is no warm session to keep")
            return
        require_client()
        with Ending(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as ending, Supervisor(warm, on_demand=on_demand):
            ending.wait()


def _warm() -> "WarmSpark":
    from ccpr.pipeline.spark.server import WarmSpark
    from ccpr.service.workspace import find_home

    return WarmSpark(find_home())


def _shown(found: "Found") -> str:
    server = found.server
    if server is None:
        return found.state.value
    return f"{server.master}, process {server.pid}, port {server.port}, since {time_text(server.started)}"


def _values(warm: "WarmSpark", found: "Found") -> dict[str, Any]:
    """Never with the token."""
    from importlib.metadata import version

    from ccpr.base.extras import absent

    spark_version = None if absent("pyspark") else version("pyspark")
    values: dict[str, Any] = {"state": found.state.value, "spark": spark_version, "log": str(warm.log)}
    if (server := found.server) is not None:
        values |= {"pid": server.pid, "port": server.port, "address": server.address, "master": server.master}
        values |= {"started": datetime.fromtimestamp(server.started, UTC).isoformat(timespec="seconds")}
        values |= {"seconds_up": round(max(0.0, time.time() - server.started), 1), "code": server.code}
        values |= {"start_seconds": round(server.start_seconds, 1), "supervised": server.supervised}
    return values
