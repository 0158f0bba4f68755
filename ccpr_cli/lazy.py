"""A group of commands whose modules are imported when they are called: what a command imports is its latency, and help
needs none of it.

Here also ends what no command has dealt with: an interruption, wrong words on the command line, a defect of this
program.
"""

import importlib
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer._click.exceptions import (
    ClickException,
    UsageError,
)  # typer brings a copy of its own and exports only subclasses
from typer.core import TyperCommand, TyperGroup

INTERRUPTED = 130
_AS_JSON = "ccpr.as_json"


@dataclass(frozen=True, slots=True)
class Deferred:
    """A command before its module is imported: `module:name` of a function or a typer.Typer, and what the list of
    commands says of it."""

    where: str
    panel: str
    summary: str

    def load(self, name: str) -> Any:
        """The command itself."""
        module, _, attribute = self.where.partition(":")
        found: typer.Typer | Callable[..., None] = getattr(importlib.import_module(module), attribute)
        if isinstance(found, typer.Typer):
            group: Any = typer.main.get_group(found)
            group.name = name
            return group
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        return typer.main.get_command(alone)


class LazyGroup(TyperGroup):
    """Its commands are `deferred`, in the order in which help lists them."""

    deferred: Mapping[str, Deferred] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, known in self.deferred.items():  # what the list of commands and the shell's completion show
            self.add_command(TyperCommand(name, help=known.summary, rich_help_panel=known.panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else self.deferred[name].load(name), rest

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_AS_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        as_json = ctx.meta[_AS_JSON]
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, typer.Abort):  # the second at a question
            typer.echo("interrupted; nothing is left half done, type it again to go on", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except UsageError as error:
            if not as_json:
                raise
            _report_usage(error)
            raise typer.Exit(error.exit_code) from error
        except (ClickException, typer.Exit, BrokenPipeError):
            raise
        except Exception as error:
            _report_defect(error, as_json=as_json, verbose=bool(ctx.params.get("verbose")))
            raise typer.Exit(1) from error


def _report_usage(error: UsageError) -> None:
    from ccpr_cli.defects import WrongUsage
    from ccpr_cli.output import show_error_json

    asked = error.ctx.command_path if error.ctx else "ccpr"
    show_error_json(WrongUsage(error.format_message(), subject=asked, remedy=f"See `{asked} --help`."))


def _report_defect(error: Exception, *, as_json: bool, verbose: bool) -> None:
    from ccpr_cli.defects import Defect
    from ccpr_cli.output import show_error, show_error_json

    if verbose:
        traceback.print_exception(error, file=sys.stderr)
    (show_error_json if as_json else show_error)(Defect.of(error))
