"""`ccpr`: the program. Each command has a module, which is imported when the command is called."""

try:
    import atexit
    import gc
    import sys
    from typing import Any

    import typer

    from ccpr.cli.interrupts import INTERRUPTED, end_soon_when_interrupted
    from ccpr.cli.lazy import HELP, Deferred, LazyGroup
except KeyboardInterrupt:  # in the tenth of a second of the imports
    raise SystemExit(130) from None

_START, _READ, _OUT, _CARE = "Replicate", "Read the replica", "Feed and restore others", "Be sure of it"  # what leads
_OPERATE, _FOLLOW, _DEVELOP = "Operate a subscription", "Other MatrixOnes follow", "Try, and look things up"

_SHORT = frozenset(("run", "status"))  # without DuckDB, which reports what was not collected
_FIRST_COLLECTION = 300_000  # objects that must be made before it: twice what the imports of an iteration make


class Commands(LazyGroup):
    """All commands of `ccpr`. `ccpr --help` shows what leads, `ccpr help` shows all."""

    leading = (_START, _READ, _OUT, _CARE)
    deferred = {  # noqa: RUF012
        "subscribe": Deferred("subscription_commands:subscribe", _START, "Subscribe to a published database."),
        "run": Deferred("run_command:run", _START, "Run one iteration now, and sync the targets."),
        "serve": Deferred("serve_command:serve", _START, "Run all subscriptions whenever they are due, as a service."),
        "status": Deferred("status_command:status", _START, "Show state, lag, what is pending, the last error."),
        "config": Deferred("config_command:config", _START, "All of it as a file: write a first one, apply, export."),
        "query": Deferred("query_command:query", _READ, "Query the tables of a point with SQL, or show first rows."),
        "export": Deferred("export_command:export", _READ, "Write tables to Parquet, CSV, JSON lines or SQL."),
        "diff": Deferred("diff_command:diff", _READ, "Show which rows of a table two points show differently."),
        "points": Deferred("points_command:points", _READ, "List the points that can be read; hold and drop them."),
        "target": Deferred("target_command:target", _OUT, "Databases and lakes that a subscription is synced to."),
        "restore": Deferred("restore_command:restore", _OUT, "Load a point into a server, as a writable database."),
        "copy": Deferred("copy_command:copy", _CARE, "Copy a mirror to another place, and bring the copy up to date."),
        "drill": Deferred("drill_command:drill", _CARE, "Try a restore: a kept point, compared with its record."),
        "verify": Deferred("verify_command:verify", _CARE, "Read the whole mirror again; --repair if need be."),
        "doctor": Deferred("doctor_command:doctor", _CARE, "Check this machine and the upstream; changes nothing."),
        "help": Deferred("explain_command:help_", _CARE, "List all commands by subject, or explain one."),
        "alter": Deferred("subscription_commands:alter", _OPERATE, "Change its interval, address, retention …"),
        "pause": Deferred("subscription_commands:pause", _OPERATE, "Stop it; its replica stays readable."),
        "resume": Deferred("subscription_commands:resume", _OPERATE, "Continue a paused or stopped one."),
        "drop": Deferred("subscription_commands:drop", _OPERATE, "End it, and drop its snapshots upstream."),
        "offers": Deferred("subscription_commands:offers", _OPERATE, "What an upstream publishes to a login."),
        "plan": Deferred("plan_command:plan", _OPERATE, "Show what the next iteration would do; changes nothing."),
        "resync": Deferred("run_command:resync", _OPERATE, "Compare with a full list, and copy what is missing."),
        "tables": Deferred("tables_command:tables", _OPERATE, "List the tables of a point, and their definitions."),
        "snapshots": Deferred(
            "subscription_commands:snapshots", _OPERATE, "List its snapshots upstream; drop leftovers."
        ),
        "state": Deferred("state_command:state", _OPERATE, "Export its state, or import it for its mirror."),
        "key": Deferred("key_command:key", _OPERATE, "Keys of encrypted mirrors: make one, show their numbers."),
        "sql": Deferred("sql_command:sql", _OPERATE, "Do the same by SQL: CREATE SUBSCRIPTION, SHOW SUBSCRIPTIONS …"),
        "follower": Deferred("follower_command:follower", _FOLLOW, "Databases of other MatrixOnes; promote one."),
        "relay": Deferred("serve_command:relay", _FOLLOW, "Serve mirrors to other clusters; their snapshots."),
        "login": Deferred("login_command:login", _FOLLOW, "Who may log in at the relay, and as a MySQL client."),
        "explain": Deferred("explain_command:explain", _DEVELOP, "Explain what an error's code means, and what to do."),
        "emulator": Deferred("emulator", _DEVELOP, "Serve an upstream to try things on."),
        "workload": Deferred("emulator", _DEVELOP, "Change an upstream steadily, and check what is there."),
    }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        from ccpr.cli.former import LIST, translated

        if not ctx.resilient_parsing:
            args, note = translated(args)
            if note:
                from ccpr.cli.output import err

                err.print(f"{note}; the former spelling goes with the next release")
            if args[0] == LIST:
                return LIST, Deferred("former:subscriptions", "", "").load(LIST), args[1:]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    help="Cross-cluster physical replication of MatrixOne databases, from the outside.",
    epilog="`ccpr help` lists all commands. Each has --help, and --json for scripts. Exit codes: 0 done, 1 failed, "
    "2 wrong usage, 3 done but for lagging tables of a target, 4 not confirmed (--yes), 130 interrupted.",
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
    from ccpr.cli.output import show_log

    show_log(verbose=verbose)


def collect_late() -> None:
    """Collect no garbage before so many objects were made, what is there by then never, and at the end of the process
    nothing. From the first collection on all is as usual. To be called once, by a program.

    Imports make 140,000 objects that live as long as the process; to look through them again and again, and twice more
    at its end, takes a third of a small command's time.
    """
    usual = gc.get_threshold()

    def first(phase: str, _: dict[str, Any]) -> None:
        if phase == "stop":
            gc.callbacks.remove(first)
            gc.freeze()
            gc.set_threshold(*usual)

    gc.set_threshold(_FIRST_COLLECTION, *usual[1:])
    gc.callbacks.append(first)
    atexit.register(gc.freeze)


def main() -> None:
    if _SHORT.intersection(sys.argv[1:2]):
        collect_late()
    end_soon_when_interrupted()
    try:
        app()
    except KeyboardInterrupt:  # outside a command: while the last lines are printed
        raise SystemExit(INTERRUPTED) from None
