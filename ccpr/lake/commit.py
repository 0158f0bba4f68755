"""What is known of a lake while it is published, and the commit that adds a version to one of its tables."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccpr.base.carrying import Carry, carry_here
from ccpr.lake.deletion_vectors import file_of
from ccpr.lake.delta_table import commit_info
from ccpr.lake.errors import LakeAhead, LakeChanged
from ccpr.lake.lake_log import Action, CommitMark, LakeLog, LakeTableState
from ccpr.lake.lake_options import DEFAULT_RULES, TableRules
from ccpr.lake.stores import LakeStore
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import DEFAULT_READING, Kind, Reading
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import TableRef

MILLISECOND = 1_000_000  # nanoseconds
# Tags of a file in the log: its object, the rows that it hides, and the time of the point whose commit removed it.
OBJECT, ROWS, AT = "ccpr.object", "ccpr.rows", "ccpr.at"


@dataclass(frozen=True, slots=True)
class PointToPublish:
    """
    Attributes
    ----------
    lsn, at, snapshot : as in `ccpr.mirror.points.Point`.
    """

    lsn: int
    at: Timestamp
    snapshot: str

    @property
    def milliseconds(self) -> int:
        return self.at.physical // MILLISECOND


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table is in the lake, and what it showed there last.

    Attributes
    ----------
    folder : below the lake.
    version : of its log, -1 before the first.
    manifest : of the point that it shows, in the mirror; empty before the first.
    at : the time of that point, which can be later than that of the commit; nanoseconds.
    """

    folder: str
    version: int = -1
    manifest: str = ""
    at: int = 0


@dataclass
class Lake:
    """What publishing needs to know of a lake; one for each sync.

    Attributes
    ----------
    task : id of the subscription.
    carry : who publishes objects.
    confirm : raises if the subscription is not ours any more.
    on_rows : called with the rows and bytes of each file that was written.
    """

    store: LakeStore
    mirror: Mirror
    task: str
    rules: TableRules = DEFAULT_RULES
    reading: Reading = DEFAULT_READING
    carry: Carry = carry_here
    confirm: Callable[[], None] = lambda: None
    on_rows: Callable[[int, int], None] = lambda rows, size: None
    states: dict[str, LakeTableState] = field(default_factory=dict)

    def log(self, folder: str) -> LakeLog:
        return LakeLog(self.store, folder, self.task)

    def state(self, place: TablePlace) -> LakeTableState:
        """The newest version of a table. Raises LakeChanged if it is not the one that was written last, or one that an
        interrupted attempt wrote after it."""
        found = self.states.pop(place.folder, None)  # it comes back with the commit; after an error it is read again
        if found is None or found.version != place.version:
            found = self.log(place.folder).read()
        if found.version < place.version:
            what = f"its newest version is {found.version}, and {place.version} was published"
            raise LakeChanged(what, subject=self.log(place.folder).subject)
        return found


def manifest_before(lake: Lake, place: TablePlace, state: LakeTableState) -> Manifest | None:
    """The table as the version before shows it; None if that is not known any more."""
    if not place.manifest or state.version != place.version:
        return None
    ref = TableRef(0, "", place.folder, Kind.TABLE, 0, place.manifest, 0, 0, 0)
    try:
        return lake.mirror.manifest(ref)
    except MirrorDamaged:  # its point is gone
        return None


def shows(state: LakeTableState, point: PointToPublish, log: LakeLog) -> bool:
    """Whether the newest version shows the point. Raises LakeAhead if it shows a later one."""
    if state.mark is None or state.mark.at < point.at.physical:
        return False
    if state.mark.at > point.at.physical:
        what = f"it shows lsn {state.mark.lsn}, which is later than lsn {point.lsn} by the upstream's clock"
        raise LakeAhead(what, subject=log.subject)
    return True


def check_files(lake: Lake, log: LakeLog, state: LakeTableState) -> None:
    """Raises LakeChanged if a file of the newest version is missing."""
    stored = {name.removeprefix(f"{log.folder}/") for name in lake.store.files.names(log.folder)}
    if missing := sorted(files_of_adds(state.live.values()) - stored):
        raise LakeChanged(f"{len(missing)} of its files are missing, {missing[0]} is one", subject=log.subject)


def files_of_adds(found: Iterable[Mapping[str, Any]]) -> set[str]:
    """The files, below the table, that adds or removes name."""
    names = set()
    for one in found:
        names.add(one["path"])
        if (vector := file_of(one.get("deletionVector"))) is not None:
            names.add(vector)
    return names


def visible_rows(add: Mapping[str, Any]) -> int:
    """Of a file as the log has it."""
    vector = add.get("deletionVector")
    return json.loads(add["stats"])["numRecords"] - (vector["cardinality"] if vector else 0)


def removed_at(remove: Mapping[str, Any]) -> int:
    """The time of the point whose commit removed a file; nanoseconds. 0 if another program did."""
    return int((remove.get("tags") or {}).get(AT, 0))


class LakeCommit:
    """The actions of one commit, and the commit."""

    def __init__(
        self, lake: Lake, point: PointToPublish, place: TablePlace, log: LakeLog, state: LakeTableState
    ) -> None:
        self.lake, self.point, self.place, self.log, self.state = lake, point, place, log, state
        self.timestamp = max(point.milliseconds, state.timestamp + 1)

    def write(
        self,
        operation: str,
        *,
        head: Sequence[Action] = (),
        removes: Sequence[Mapping[str, Any]] = (),
        adds: Sequence[Mapping[str, Any]] = (),
        unchanged: frozenset[str] = frozenset(),
        changes: Sequence[Action] = (),
    ) -> int:
        """Returns the bytes of the log.

        Parameters
        ----------
        head : protocol, metadata.
        removes : adds of the version before.
        unchanged : paths of files that are removed or added without a change of rows.
        changes : the files of changed rows.
        """
        point, mark = self.point, CommitMark(self.lake.task, self.point.lsn, self.point.at.physical)
        actions: list[Action] = [
            {"commitInfo": commit_info(operation, self.timestamp, point.lsn, point.snapshot, mark.to_json())},
            *head,
            {"txn": {"appId": f"ccpr-{self.lake.task}", "version": point.at.physical, "lastUpdated": self.timestamp}},
            *({"remove": self._remove(add, data_change=add["path"] not in unchanged)} for add in removes),
            *({"add": {**add, "dataChange": add["path"] not in unchanged}} for add in adds),
            *changes,
        ]
        self.lake.confirm()
        self.log.commit(self.state, actions, mark, self.timestamp)
        self.lake.states[self.place.folder] = self.state
        return sum(len(json.dumps(action)) for action in actions)

    def _remove(self, add: Mapping[str, Any], *, data_change: bool) -> dict[str, Any]:
        kept = {key: add[key] for key in ("path", "partitionValues", "size", "deletionVector") if key in add}
        return {
            **kept,
            "deletionTimestamp": self.timestamp,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "tags": {**add.get("tags", {}), AT: str(self.point.at.physical)},
        }
