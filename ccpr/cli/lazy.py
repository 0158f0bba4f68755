"""A group of commands whose modules are imported when they are called. What a command imports makes its start slow, and
help needs none of it.

What no command handles is handled here: an interruption, wrong usage of the command line, a defect of this program.
"""

import importlib
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ccpr.cli.interrupts import INTERRUPTED, TEXT, USAGE, is_interrupted
from ccpr.matrixone.errors import CcprError

_AS_JSON = "ccpr.as_json"
_VERBOSE = ("-v", "--verbose")
_OF_ITS_OWN = "status"  # whose -v says something else
_USAGE_ERROR: Any = typer.BadParameter.__base__  # has no public name in all releases of Typer
HELP = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True, slots=True)
class Deferred:
    """A command before its module is imported: `module:name` of a function or a typer.Typer in this room, and the panel
    and the line that show it in the list of commands. A command of another distribution has the extra that brings it in
    the place of the module."""

    where: str
    panel: str
    summary: str

    def load(self, name: str) -> Any:
        """The command itself. Raises ExtraMissing."""
        module, is_ours, attribute = self.where.partition(":")
        found: typer.Typer | Callable[..., None] = (
            getattr(importlib.import_module(f"ccpr.cli.{module}"), attribute)
            if is_ours
            else _registered(name, extra=self.where)
        )
        if isinstance(found, typer.Typer):
            found.info.context_settings = HELP
            group: Any = typer.main.get_group(found)
            group.name = name
            return group
        alone = typer.Typer(add_completion=False)
        alone.command(name, context_settings=HELP)(found)
        return typer.main.get_command(alone)


def registered() -> Any:
    """The commands of other distributions, as entry points. It reads the metadata of all that is installed."""
    from importlib.metadata import entry_points

    return entry_points(group="ccpr.commands")


def _registered(name: str, *, extra: str) -> Any:
    for entry in registered().select(name=name):
        return entry.load()
    from ccpr.base.errors import missing_extra

    raise missing_extra(extra, f"`ccpr {name}` is not installed")


class LazyGroup(TyperGroup):
    """A group with the commands `deferred`, in the order in which help lists them."""

    deferred: Mapping[str, Deferred] = {}
    leading: Collection[str] = ()  # panels that help shows

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, known in self.deferred.items():  # for the list of commands and the shell's completion
            self.add_command(TyperCommand(name, help=known.summary, rich_help_panel=known.panel))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        later = [self.commands[name] for name, one in self.deferred.items() if one.panel not in self.leading]
        for one in later:
            one.hidden = True
        try:
            super().format_help(ctx, formatter)
        finally:  # for the shell's completion nothing is hidden
            for one in later:
                one.hidden = False

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else self.deferred[name].load(name), rest

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = args[: args.index("--")] if "--" in args else args
        ctx.meta[_AS_JSON] = "--json" in words
        verbose = _VERBOSE[1:] if _OF_ITS_OWN in words[:2] else _VERBOSE
        if any(word in verbose for word in words):  # anywhere, also behind the command
            args = ["--verbose", *(word for word in words if word not in verbose), *args[len(words) :]]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        as_json = ctx.meta[_AS_JSON]
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, typer.Abort):  # Abort: at a prompt
            raise _interrupted() from None
        except _USAGE_ERROR as error:
            if not as_json:
                raise
            _report_usage(error)
            raise typer.Exit(USAGE) from error
        except typer.Exit as ended:
            if ended.exit_code and is_interrupted():
                raise _interrupted() from None
            raise
        except BrokenPipeError:
            raise
        except CcprError as error:  # of an option, before its command has begun
            from ccpr.cli.output import handle_errors

            with handle_errors(as_json=as_json):
                raise error
        except Exception as error:
            if is_interrupted():
                raise _interrupted() from error
            _report_defect(error, as_json=as_json, verbose=bool(ctx.params.get("verbose")))
            raise typer.Exit(1) from error


def _interrupted() -> typer.Exit:
    typer.echo(TEXT, err=True)
    return typer.Exit(INTERRUPTED)


def _report_usage(error: Any) -> None:
    from ccpr.cli.defects import WrongUsage
    from ccpr.cli.output import show_error_json

    context = getattr(error, "ctx", None)  # of the command whose usage is wrong, if one is known
    command = "ccpr" if context is None else context.command_path
    show_error_json(WrongUsage(error.format_message(), subject=command, remedy=f"See `{command} --help`."))


def _report_defect(error: Exception, *, as_json: bool, verbose: bool) -> None:
    from ccpr.cli.defects import Defect
    from ccpr.cli.output import show_error, show_error_json

    if verbose:
        traceback.print_exception(error, file=sys.stderr)
    (show_error_json if as_json else show_error)(Defect.of(error))
