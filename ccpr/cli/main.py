"""`ccpr`: the program. Each command has a module, which is imported when the command is called."""

try:
    import sys
    from typing import Any

    import typer

    from ccpr.base.garbage import collect_late
    from ccpr.cli.exit_codes import INTERRUPTED
    from ccpr.cli.interrupts import end_soon_when_interrupted
    from ccpr.cli.lazy import HELP, Deferred, LazyGroup
except KeyboardInterrupt:  # in the tenth of a second of the imports
    raise SystemExit(130) from None

_WHAT, _RUN, _READ, _CARE = (
    "Subscriptions",
    "Iterations",
    "Reading the replica",
    "When something is wrong, and for trying",
)

_SHORT = frozenset(("run", "status", "subscriptions"))  # without DuckDB, which reports what was not collected


class Commands(LazyGroup):
    """All commands of `ccpr`."""

    deferred = {  # noqa: RUF012
        "subscribe": Deferred(
            "ccpr.cli.subscribe:subscribe", _WHAT, "Subscribe to a published database, or to one table of it."
        ),
        "subscriptions": Deferred("ccpr.cli.show:subscriptions", _WHAT, "List the subscriptions."),
        "alter": Deferred("ccpr.cli.alter:alter", _WHAT, "Change a subscription: interval, address, retention …"),
        "pause": Deferred(
            "ccpr.cli.subscription_commands:pause", _WHAT, "Stop a subscription; its replica stays readable."
        ),
        "resume": Deferred(
            "ccpr.cli.subscription_commands:resume", _WHAT, "Continue a paused or stopped subscription."
        ),
        "drop": Deferred(
            "ccpr.cli.subscription_commands:drop", _WHAT, "End a subscription, and drop its snapshots upstream."
        ),
        "target": Deferred(
            "ccpr.cli.target_command:target", _WHAT, "Databases (MariaDB, MySQL) that a subscription is synced to."
        ),
        "lake": Deferred("ccpr.cli.lake:lake", _WHAT, "Delta Lake tables that a subscription is published to."),
        "release": Deferred("ccpr.cli.release:release", _WHAT, "Make tables in a target ordinary, writable ones."),
        "follower": Deferred(
            "ccpr.cli.follower_command:follower",
            _WHAT,
            "Databases of other MatrixOnes that follow; promote one of them.",
        ),
        "relay": Deferred(
            "ccpr.cli.relay_command:relay", _WHAT, "Serve mirrors to other clusters; its logins and snapshots."
        ),
        "config": Deferred("ccpr.cli.config:config", _WHAT, "All of it as a file: write a first one, apply, export."),
        "sql": Deferred(
            "ccpr.cli.sql_command:sql", _WHAT, "Do the same by SQL: CREATE SUBSCRIPTION, SHOW SUBSCRIPTIONS …"
        ),
        "run": Deferred("ccpr.cli.run_command:run", _RUN, "Run one iteration now, and sync the targets."),
        "serve": Deferred(
            "ccpr.cli.serve_command:serve", _RUN, "Run all subscriptions whenever they are due, as a service."
        ),
        "plan": Deferred("ccpr.cli.plan_command:plan", _RUN, "Show what the next iteration would do; changes nothing."),
        "resync": Deferred("ccpr.cli.resync:resync", _RUN, "Compare with a full list, and copy what is missing."),
        "status": Deferred(
            "ccpr.cli.status_command:status", _RUN, "Show state, step, lag, what is pending, the last error."
        ),
        "points": Deferred(
            "ccpr.cli.points_command:points", _READ, "List the points that can be read; hold, release and drop them."
        ),
        "tables": Deferred("ccpr.cli.show:tables", _READ, "List the tables of a point."),
        "head": Deferred("ccpr.cli.query_command:head", _READ, "Show some rows of a table."),
        "query": Deferred("ccpr.cli.query_command:query", _READ, "Query the tables of a point with SQL."),
        "diff": Deferred(
            "ccpr.cli.diff_command:diff", _READ, "Show which rows of a table two points show differently."
        ),
        "schema": Deferred("ccpr.cli.tables_command:schema", _READ, "Show how tables are defined at a point."),
        "history": Deferred("ccpr.cli.tables_command:history", _READ, "Show when what was copied, and how much."),
        "export": Deferred(
            "ccpr.cli.export_command:export",
            _READ,
            "Write a table, or all, as of a point to Parquet, CSV or JSON lines.",
        ),
        "restore": Deferred(
            "ccpr.cli.restore_command:restore",
            _READ,
            "Load a point into a database server, as a writable database.",
        ),
        "dump": Deferred("ccpr.cli.dump:dump", _READ, "Write a point as SQL that `mysql` loads."),
        "copy": Deferred(
            "ccpr.cli.copy_command:copy", _CARE, "Copy a mirror to another place, and bring the copy up to date."
        ),
        "drill": Deferred(
            "ccpr.cli.drill_command:drill", _CARE, "Try a restore: a kept point, compared with what was recorded."
        ),
        "explain": Deferred(
            "ccpr.cli.explain_command:explain", _CARE, "Explain what an error's code means and what to do about it."
        ),
        "doctor": Deferred(
            "ccpr.cli.doctor_command:doctor", _CARE, "Check this machine and the upstream; changes nothing."
        ),
        "key": Deferred("ccpr.cli.key_command:key", _CARE, "Keys of encrypted mirrors: make one, show their numbers."),
        "verify": Deferred(
            "ccpr.cli.verify_command:verify", _CARE, "Read the whole mirror again; --repair if need be."
        ),
        "snapshots": Deferred(
            "ccpr.cli.snapshots_command:snapshots",
            _CARE,
            "List a subscription's snapshots upstream; drop leftover ones.",
        ),
        "state": Deferred(
            "ccpr.cli.state_command:state", _CARE, "Export a subscription's state, or import it for its mirror."
        ),
        "workload": Deferred("emulator", _CARE, "Change an upstream steadily, and check what must be there."),
        "emulator": Deferred("emulator", _CARE, "Serve an upstream to try things on, without a MatrixOne."),
    }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        from ccpr.cli.former import CONCERNED, translated

        if args[0] in CONCERNED and not ctx.resilient_parsing:
            args, note = translated(args)
            if note:
                typer.echo(f"{note}; the former spelling goes with the next release", err=True)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    help="Cross-cluster physical replication of MatrixOne databases, from the outside.",
    epilog="Each command has --help, and --json for scripts. "
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 (run) tables of a target lag, 4 not confirmed "
    "(--yes), 130 interrupted.",
    no_args_is_help=True,
    context_settings=HELP,
    pretty_exceptions_show_locals=False,  # a local variable may be a password
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"ccpr {version('matrixone-ccpr')}, Python {sys.version.split()[0]}")
        raise typer.Exit


@app.callback()
def options(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log what happens, on standard error; anywhere."),
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_show_version, help="Show the version."),
) -> None:
    from ccpr.cli.logs import show_log

    show_log(verbose=verbose)


def main() -> None:
    if _SHORT.intersection(sys.argv[1:2]):
        collect_late()
    end_soon_when_interrupted()
    try:
        app()
    except KeyboardInterrupt:  # outside a command: while the last lines are printed
        raise SystemExit(INTERRUPTED) from None
