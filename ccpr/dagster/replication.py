"""What a Dagster run holds on to: the workspace, and the open iteration with its lease, from the first asset to the
run's end."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dagster as dg
from pydantic import Field, PrivateAttr

from ccpr.base.loops import unexpected
from ccpr.base.wording import filled
from ccpr.dagster.checks import check_by_schema
from ccpr.dagster.keys import prefixed
from ccpr.matrixone.errors import CcprError, Terminal
from ccpr.matrixone.sql.quoting import printable
from ccpr.pipeline.iteration import Iteration
from ccpr.pipeline.options import IterationOptions
from ccpr.service.workspace import Workspace


class Replication(dg.ConfigurableResource):
    """One object a run, as the in-process executor makes it: the assets of a run work on the same iteration under the
    same lease."""

    home: str = Field(default="", description="The state folder; empty for CCPR_HOME, else the nearest .ccpr upwards.")
    allow_resync: bool = Field(
        default=False,
        description="If the upstream has lost the last point's snapshot, compare with a full list and copy what is "
        "named.",
    )

    key_prefix: list[str] = Field(default_factory=list, description="Of the project's keys of our assets.")

    _workspace: Workspace | None = PrivateAttr(default=None)
    _held: ExitStack = PrivateAttr(default_factory=ExitStack)
    _iteration: Iteration | None = PrivateAttr(default=None)

    @property
    def workspace(self) -> Workspace:
        if self._workspace is None:
            self._workspace = Workspace(Path(self.home) if self.home else None)
        return self._workspace

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        self._workspace, self._held, self._iteration = None, ExitStack(), None

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        self._iteration = None
        self._held.close()
        if self._workspace is not None:
            self._workspace.close()

    @contextmanager
    def step(self, subscription: str, *, is_extra: bool = False) -> Iterator[Iteration]:
        """The iteration of this run, to take one step of it. `is_extra`: it is outside of the schedule.

        A failure ends the iteration at once: it is written to the log and the lease is freed. A step that is tried
        again opens the iteration again and goes on where it stopped.
        """
        iteration = self._open(subscription, is_extra)
        try:
            with unexpected():
                yield iteration
        except CcprError as error:
            self._iteration = None
            self._held.__exit__(type(error), error, error.__traceback__)
            raise

    def _open(self, subscription: str, is_extra: bool) -> Iteration:
        if self._iteration is None:
            options = IterationOptions(allow_resync=self.allow_resync, check_list=check_by_schema, is_extra=is_extra)
            self._iteration = self._held.enter_context(self.workspace.iteration(subscription, options))
        return self._iteration


def state_check(
    key: dg.AssetKey,
    name: str,
    description: str,
    prefix: Sequence[str],
    read: Callable[[Workspace], dg.AssetCheckResult],
) -> dg.AssetChecksDefinition:
    """A check that reads the state alone."""

    @dg.asset_check(asset=prefixed(key, prefix), name=name, description=description)
    def check(replication: Replication) -> dg.AssetCheckResult:
        try:
            return read(replication.workspace)
        except CcprError as error:
            raise as_failure(error) from error

    return check


def as_failure(error: CcprError, subscription: str = "") -> dg.Failure:
    """How a typed error looks in Dagster; `subscription` is the NAME in the commands of its remedy."""
    subject, remedy = printable(error.subject), printable(filled(error.remedy, {"NAME": subscription}))
    return dg.Failure(
        description=f"{error.code}: {printable(error.message)}. {remedy}",
        metadata={"code": error.code, "subject": subject, "remedy": remedy},
        allow_retries=not isinstance(error, Terminal),
    )
