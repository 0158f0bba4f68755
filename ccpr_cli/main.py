"""`ccpr`: the program. One module a command."""

import logging
import sys

import structlog
import typer

from ccpr_cli.alter import alter
from ccpr_cli.doctor import doctor
from ccpr_cli.emulator import emulator
from ccpr_cli.explain import explain
from ccpr_cli.export import export
from ccpr_cli.lifecycle import drop, pause, resume
from ccpr_cli.plan import plan
from ccpr_cli.release import release
from ccpr_cli.resync import resync
from ccpr_cli.run import run
from ccpr_cli.show import points, subscriptions, tables
from ccpr_cli.snapshots import snapshots
from ccpr_cli.sql import sql
from ccpr_cli.state import state
from ccpr_cli.status import status
from ccpr_cli.subscribe import subscribe
from ccpr_cli.target import target
from ccpr_cli.verify import verify

app = typer.Typer(
    help="Cross-cluster physical replication of MatrixOne databases, from the outside.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # a local variable may be a password
)
for command in (
    subscribe,
    alter,
    pause,
    resume,
    drop,
    sql,
    subscriptions,
    status,
    plan,
    run,
    resync,
    tables,
    points,
    export,
    verify,
    release,
    snapshots,
    explain,
    doctor,
    emulator,
):
    app.command()(command)
app.add_typer(state, name="state")
app.add_typer(target, name="target")


@app.callback()
def options(verbose: bool = typer.Option(False, "--verbose", "-v", help="Log what happens, on standard error.")) -> None:
    level = logging.DEBUG if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def main() -> None:
    app()
