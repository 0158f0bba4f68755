"""Changes what is stored directly: a setting, the time of everything."""

import json
from contextlib import closing

from ccpr.service.workspace import Workspace
from ccpr.state.database import transaction
from ccpr.state.tables import garbage, mo_ccpr_log, points
from tests.support.replica import NAME


def setting(name: str, value: object) -> None:
    log = Workspace().log
    config = json.loads(log.row(NAME).sync_config)
    assert name in config
    with transaction(log.engine) as connection:
        connection.execute(mo_ccpr_log.update().values(sync_config=json.dumps({**config, name: value})))


def upstream_goes_on(hours: float) -> None:
    """So much time passes by the upstream's clock, by which points expire and files are deleted: all that is recorded
    becomes so much older."""
    seconds = round(hours * 3600)
    with closing(Workspace()) as workspace, transaction(workspace.log.engine) as connection:
        connection.execute(points.update().values(snapshot_ts=points.c.snapshot_ts - seconds * 10**9))
        connection.execute(garbage.update().values(due_at=garbage.c.due_at - seconds))
