"""All that the catalog database has of one subscription, by kind."""

from functools import cached_property
from typing import TYPE_CHECKING

import sqlalchemy as sa

from ccpr.state.care_records import CopyRecords, DrillRecords, ScrubRecords
from ccpr.state.followers import FollowerRecords
from ccpr.state.history import PointHistory
from ccpr.state.kept import KeptRecords
from ccpr.state.pins import Pins
from ccpr.state.quarantine import Quarantine
from ccpr.state.recorded_sums import RowSumRecords
from ccpr.state.targets import TargetRecords

if TYPE_CHECKING:  # it imports Arrow
    from ccpr.state.ledger import Ledger


class SubscriptionRecords:
    """The records of one subscription. Threads may share it."""

    def __init__(self, engine: sa.Engine, task_id: str) -> None:
        self.engine, self.task_id = engine, task_id
        self.history = PointHistory(engine, task_id)
        self.quarantine = Quarantine(engine, task_id)
        self.row_sums = RowSumRecords(engine, task_id)
        self.targets = TargetRecords(engine, task_id)
        self.followers = FollowerRecords(engine, task_id)
        self.pins = Pins(engine, task_id)
        self.kept = KeptRecords(engine, task_id)
        self.copies = CopyRecords(engine, task_id)
        self.scrubs = ScrubRecords(engine, task_id)
        self.drills = DrillRecords(engine, task_id)

    @cached_property
    def ledger(self) -> "Ledger":
        from ccpr.state.ledger import Ledger

        return Ledger(self.engine, self.task_id)
