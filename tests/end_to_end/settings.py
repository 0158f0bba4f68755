"""Changes a setting directly in the stored row of the subscription."""

import json

from replication.service.workspace import Workspace
from replication.state.database import transaction
from replication.state.tables import mo_ccpr_log
from tests.end_to_end.replica import NAME


def setting(name: str, value: object) -> None:
    log = Workspace().log
    config = json.loads(log.row(NAME).sync_config)
    assert name in config
    with transaction(log.engine) as connection:
        connection.execute(mo_ccpr_log.update().values(sync_config=json.dumps({**config, name: value})))
