"""`ccpr config`: what there is to be, in a file."""

import typer

from ccpr.cli.config_command import apply
from ccpr.cli.export_config import export_config
from ccpr.cli.init import init

config = typer.Typer(help="Subscriptions, targets, followers and Spark's settings as a file.", no_args_is_help=True)
config.command("init")(init)
config.command("apply")(apply)
config.command("export")(export_config)
