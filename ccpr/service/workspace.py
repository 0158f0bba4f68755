"""The state folder with its catalog database, key and mirrors, and what a run opens from there: iterations and sessions
with an upstream (decisions state-folder, sealed-secrets)."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from ccpr.base.clock import Clock, utc_now, wall_clock
from ccpr.matrixone.errors import CcprError
from ccpr.state.lease import TTL_SECONDS, Executor, Lease
from ccpr.state.log import CcprLog
from ccpr.state.migrations import open_database
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription, check_subscription_name

if TYPE_CHECKING:
    from ccpr.matrixone.client.upstream_session import Session
    from ccpr.mirror.mirror import Mirror, ReadMirror
    from ccpr.mirror.store import Store
    from ccpr.pipeline.committing import Last
    from ccpr.pipeline.iteration import Iteration
    from ccpr.pipeline.options import IterationOptions, Timeouts
    from ccpr.service.open_lineage import LineageEvents
    from ccpr.state.credentials import Vault
    from ccpr.state.log import SubscriptionRecords

HOME_VARIABLE = "CCPR_HOME"
CATALOG_VARIABLE = "CCPR_CATALOG"  # an SQLAlchemy URL; without it SQLite in the state folder
HOME_FOLDER = ".ccpr"


class OfSubscription(Protocol):
    @property
    def task_id(self) -> str: ...


class SyncedUnder(Protocol):
    """What a sync of a target needs of the holder of the subscription's lease: an iteration has it."""

    @property
    def subscription(self) -> Subscription: ...

    @property
    def mirror(self) -> "Mirror": ...

    def confirm(self) -> None:
        """Raises LeaseLost if the subscription is not ours any more."""
        ...


def find_home() -> Path:
    """CCPR_HOME if it is set, else the nearest `.ccpr` in the working directory or above, else one in the working
    directory (made when it is first used)."""
    if named := os.environ.get(HOME_VARIABLE):
        return Path(named).absolute()
    here = Path.cwd()
    return next(
        (folder / HOME_FOLDER for folder in (here, *here.parents) if (folder / HOME_FOLDER).is_dir()),
        here / HOME_FOLDER,
    )


class Workspace:
    """One state folder and everything in it. What is not used is neither opened nor imported: a command that only reads
    the state needs no Arrow and no PyMySQL. Opening a workspace changes nothing. As a context manager it is closed at
    the end.
    """

    def __init__(self, home: Path | None = None, catalog_url: str | None = None, clock: Clock = wall_clock) -> None:
        self.clock = clock
        self.home = home.absolute() if home else find_home()
        self._catalog_url = catalog_url or os.environ.get(CATALOG_VARIABLE) or f"sqlite:///{self.home / 'catalog.db'}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def vault(self) -> "Vault":
        from ccpr.state.credentials import Vault

        return Vault(self.home / "key")

    @cached_property
    def log(self) -> CcprLog:
        return CcprLog(open_database(self._catalog_url), self.clock)

    def of(self, subscription: "str | OfSubscription") -> "SubscriptionRecords":
        """What is recorded of a subscription, by its name, its row, or whatever else is of it. Raises
        SubscriptionMissing."""
        one = self.log.row(subscription) if isinstance(subscription, str) else subscription
        return self.log.of(one.task_id)

    def now(self) -> datetime:
        """By the clock, UTC."""
        return utc_now(self.clock)

    @property
    def has_catalog(self) -> bool:
        """Whether there is a catalog database to read, without creating one. One that is named by a URL counts."""
        return self._catalog_url != f"sqlite:///{self.home / 'catalog.db'}" or (self.home / "catalog.db").exists()

    @cached_property
    def executor(self) -> Executor:
        return Executor(self.home / "executors")

    def mirror(self, name: str, *, published: bool = True) -> "Mirror":
        """The mirror of a subscription. If a crash left a point committed and not published, it is published first;
        but if an executor runs the subscription, it will do that. Raises SubscriptionMissing.
        """
        check_subscription_name(name)
        row = self.log.row(name)
        mirror = self.mirror_of(Subscription.from_row(row))
        if published and not self.log.is_held(row):
            from ccpr.state.publishing import publish_pending

            publish_pending(self.log, name, mirror)
        return mirror

    def mirror_to_read(self, name: str) -> "ReadMirror":
        """As `mirror`, for who reads tables of a point one after another."""
        from ccpr.mirror.mirror import ReadMirror

        return ReadMirror(self.mirror(name).store)

    def mirror_of(self, subscription: Subscription) -> "Mirror":
        """The mirror as it is; nothing is published."""
        from ccpr.mirror.mirror import Mirror

        return Mirror(self.mirror_store(subscription.name, subscription.settings))

    def mirror_store(self, name: str, settings: Settings) -> "Store":
        """The store of a subscription's mirror: the setting `mirror`, or else a folder in the state folder. Raises
        KeyUnusable."""
        from ccpr.mirror.open_store import open_store

        place = settings.mirror or str(self.default_mirror(name))
        return open_store(place, shared=settings.shared, encrypt=settings.encrypt)

    def mirror_place(self, name: str, settings: Settings) -> str:
        """The URL of that place; its key is not needed."""
        from ccpr.mirror.open_store import place_of

        return place_of(settings.mirror or str(self.default_mirror(name)))

    def default_mirror(self, name: str) -> Path:
        """The folder of a subscription's mirror without the setting `mirror`."""
        return self.home / "mirrors" / name

    def connect(self, subscription: Subscription, timeouts: "Timeouts | None" = None) -> "Session":
        from ccpr.matrixone.client.upstream_session import Session
        from ccpr.pipeline.options import DEFAULT_OPTIONS

        timeouts = timeouts or DEFAULT_OPTIONS.timeouts
        return Session(
            subscription.endpoint,
            self.password_of(subscription),
            connect_timeout=timeouts.connect,
            read_timeout=timeouts.read,
            retry=timeouts.retry,
        )

    def password_of(self, subscription: Subscription) -> str | None:
        """Of its upstream."""
        return self.vault.open(subscription.sealed_password, subscription.endpoint)

    @contextmanager
    def lease(self, name: str) -> Iterator[Lease]:
        """The subscription for oneself. Raises SubscriptionBusy, SubscriptionPaused, SubscriptionMissing."""
        claim = self.log.claim(name, self.executor.id, TTL_SECONDS, self.executor.is_dead)
        with self.executor.holding(self.log, claim) as lease:
            yield lease

    @contextmanager
    def iteration(
        self,
        name: str,
        options: "IterationOptions | None" = None,
    ) -> "Iterator[Iteration]":
        """The open or next iteration, with its lease held. A typed failure inside is stored in the log. Raises
        SubscriptionBusy, SubscriptionPaused, SubscriptionMissing.
        """
        with self.lease(name) as lease, self.iteration_under(lease, options) as iteration:
            yield iteration

    @contextmanager
    def iteration_under(
        self,
        lease: Lease,
        options: "IterationOptions | None" = None,
        *,
        session: "Callable[[], Session] | None" = None,
        known: "Last | None" = None,
    ) -> "Iterator[Iteration]":
        """`iteration`, under a lease that the caller holds. For `session` see `Sessions`, for `known` `Iteration`."""
        from ccpr.pipeline.iteration import Iteration
        from ccpr.pipeline.options import DEFAULT_OPTIONS, Sessions
        from ccpr.pipeline.steps.release import fail

        options = options or DEFAULT_OPTIONS
        subscription = Subscription.from_row(lease.claim.row)
        sessions = Sessions(partial(self.connect, subscription, options.timeouts), session)
        mirror = self.mirror_of(subscription)
        iteration = Iteration(lease, mirror, sessions, options, self.clock, self.vault.path, known)
        try:
            yield iteration
        except CcprError as error:
            fail(iteration, error)
            self.lineage.failed(iteration, error)
            raise
        else:
            self.lineage.ended(iteration, lambda: self.of(subscription).history.changed(iteration.lsn).values())
        finally:
            sessions.close()

    @cached_property
    def lineage(self) -> "LineageEvents":
        from ccpr.service.open_lineage import LineageEvents

        return LineageEvents(self.clock)

    def close(self) -> None:
        """Close what was opened. May be called twice."""
        if "executor" in self.__dict__:
            self.executor.close()
        if "log" in self.__dict__:
            self.log.engine.dispose()
