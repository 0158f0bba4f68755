"""Iterations in this process, driven as the command, the service and the sensor drive them.

A test that looks at an open iteration, or kills or supersedes one between two stages, calls `drive(…, until=…)` itself.
"""

from ccpr.pipeline.committing import IterationOutcome
from ccpr.pipeline.copying import CopyEngine, copy_in_process
from ccpr.pipeline.driver import drive
from ccpr.pipeline.options import DEFAULT_OPTIONS, IterationOptions
from ccpr.service.workspace import Workspace


def iterate(
    workspace: Workspace, name: str, options: IterationOptions = DEFAULT_OPTIONS, engine: CopyEngine = copy_in_process
) -> IterationOutcome:
    """One whole iteration of a subscription."""
    with workspace.iteration(name, options) as iteration:
        return drive(iteration, engine).ended
