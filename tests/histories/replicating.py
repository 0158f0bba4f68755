"""A living upstream's replica: subscribe, iterate, compare the mirror with the engine's rows."""

from datetime import UTC, datetime
from pathlib import Path

from matrixone.upstream.endpoint import parse_uri
from matrixone.upstream.publications import Publication
from replication.copying import copy_in_process
from replication.iteration import Outcome
from replication.subscription import Settings, Subscription
from resources.workspace import PATIENT, Patience, Workspace

NAME = "history"


def subscribed(
    port: int,
    folder: Path,
    database: str,
    *,
    table: str | None = None,
    publisher: tuple[str, int] = ("sys", 0),
    settings: Settings | None = None,
) -> Workspace:
    """A state folder with one subscription, `NAME`, to the publication `p` of an account."""
    workspace = Workspace(folder / "home")
    endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{port}")
    publication = Publication("p", *publisher)
    subscription = Subscription.new(NAME, endpoint, "111", workspace.vault, publication, database, table, settings or Settings())
    workspace.log.insert(subscription.to_row(datetime.now(UTC)))
    return workspace


def iterate(workspace: Workspace, *, allow_resync: bool = False, patience: Patience = PATIENT) -> Outcome:
    """One whole iteration, in this process."""
    with workspace.iteration(NAME, allow_resync=allow_resync, patience=patience) as iteration:
        iteration.take_snapshot()
        iteration.diff_catalog()
        iteration.diff_objects()
        iteration.copy_objects(copy_in_process)
        return iteration.apply()
