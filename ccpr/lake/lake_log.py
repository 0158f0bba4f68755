"""The log of a Delta table: what its versions say, and how a new one is added.

A reading takes the newest checkpoint that this program wrote and the commits behind it; a commit that it has not
written, or that it does not understand, is LAKE_CHANGED. A commit is one file, which appears whole and only if its
version does not exist yet. Source: the protocol of Delta Lake; decision lake-commits.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from ccpr.lake.deletion_vectors import unique_id
from ccpr.lake.errors import LakeChanged, LakeConflict, LakeForeign
from ccpr.lake.log_checkpoint import checkpoint_content, checkpoint_path, checkpoint_version, read_checkpoint
from ccpr.lake.stores import LakeStore

Action: TypeAlias = dict[str, Any]
LAST = "_last_checkpoint"


@dataclass(frozen=True, slots=True)
class CommitMark:
    """What a commit says of itself, in `commitInfo.ccpr`.

    Attributes
    ----------
    task : id of the subscription.
    lsn, at : of the point; the time in nanoseconds, by the upstream's clock.
    """

    task: str
    lsn: int
    at: int

    def to_json(self) -> dict[str, Any]:
        return {"task": self.task, "lsn": self.lsn, "at": self.at}


@dataclass
class LakeTableState:
    """A table as a version of its log has it.

    Attributes
    ----------
    version : -1 before the first.
    timestamp : in-commit timestamp of that version, milliseconds.
    mark : of the newest commit.
    live : `add` of each file that the version has, by path.
    removed : `remove` of each file that is still kept for older versions, by path and vector.
    newest : actions of the newest commit; empty if it was read from a checkpoint.
    tail : actions since the newest checkpoint; `checkpoint` is its version, -1 without one.
    """

    version: int = -1
    timestamp: int = -1
    mark: CommitMark | None = None
    protocol: Action | None = None
    metadata: Action | None = None
    txns: dict[str, Action] = field(default_factory=dict)
    live: dict[str, Action] = field(default_factory=dict)
    removed: dict[tuple[str, str], Action] = field(default_factory=dict)
    newest: Sequence[Action] = ()
    tail: int = 0
    checkpoint: int = -1

    def apply(self, actions: Sequence[Action]) -> None:
        """One commit. Removes come first: a changed vector is a remove and an add of one path."""
        for action in actions:
            if "remove" in action:
                one = action["remove"]
                self.live.pop(one["path"], None)
                self.removed[one["path"], unique_id(one.get("deletionVector"))] = one
        for action in actions:
            if "add" in action:
                one = action["add"]
                self.live[one["path"]] = one
                self.removed.pop((one["path"], unique_id(one.get("deletionVector"))), None)
            elif "metaData" in action:
                self.metadata = action["metaData"]
            elif "protocol" in action:
                self.protocol = action["protocol"]
            elif "txn" in action:
                self.txns[action["txn"]["appId"]] = action["txn"]
        self.newest, self.tail = actions, self.tail + len(actions)

    def all_actions(self) -> Iterator[Action]:
        """What a checkpoint of this version has."""
        if self.protocol is not None:
            yield {"protocol": self.protocol}
        if self.metadata is not None:
            yield {"metaData": self.metadata}
        for kind, found in (("txn", self.txns), ("remove", self.removed), ("add", self.live)):
            for one in found.values():
                yield {kind: one}


class LakeLog:
    """The log of the table in a folder of a lake.

    Parameters
    ----------
    task : id of the subscription whose commits are ours.
    """

    def __init__(self, store: LakeStore, folder: str, task: str) -> None:
        self.store, self.folder, self.task = store, folder, task

    @property
    def subject(self) -> str:
        return f"{self.store.url.partition('?')[0]}/{self.folder}"

    def read(self, *, foreign: bool = False) -> LakeTableState:
        """The newest version. `foreign`: commits of others are read, too. Raises LakeChanged; LakeForeign for a table
        that is not ours from its first version on; StoreFailed."""
        try:
            state = self._checkpointed()
            while (content := self.store.read(self._commit_path(state.version + 1))) is not None:
                actions = _actions(content)
                state.mark, state.timestamp = self._marked(actions, state, foreign=foreign)
                state.apply(actions)
                state.version += 1
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            message = f"its log cannot be read: {type(error).__name__} {error!s:.120}"
            raise LakeChanged(message, subject=self.subject) from error
        if state.version < 0 and any(True for _ in self.store.files.names(f"{self.folder}/_delta_log")):
            raise LakeForeign("another table is there", subject=self.subject)
        return state

    def commit(self, state: LakeTableState, actions: Sequence[Action], mark: CommitMark, timestamp: int) -> None:
        """Add the next version; the state becomes that version's. The first action is `commitInfo`. Raises
        LakeConflict if the version exists, StoreFailed: then it exists or not."""
        version = state.version + 1
        if not self.store.create(self._commit_path(version), log_content(actions)):
            raise LakeConflict(f"another writer wrote version {version}", subject=self.subject)
        self.store.files.sync(f"{self.folder}/_delta_log")
        state.apply(actions)
        state.version, state.mark, state.timestamp = version, mark, timestamp

    def commits(self, after: int, state: LakeTableState) -> list[Sequence[Action]] | None:
        """The actions of each version behind one; None if a version is not there any more. Raises LakeChanged,
        StoreFailed."""
        if after == state.version - 1 and state.newest:
            return [state.newest]
        found = []
        for version in range(after + 1, state.version + 1):
            content = self.store.read(self._commit_path(version))
            if content is None:
                return None
            try:
                found.append(_actions(content))
            except ValueError as error:
                raise LakeChanged(f"version {version} of its log cannot be read", subject=self.subject) from error
        return found

    def write_checkpoint(self, state: LakeTableState) -> None:
        """So that readers, and `read`, need only the commits behind it."""
        content = checkpoint_content(state.all_actions(), self._about(state))
        name = checkpoint_path(self.folder, state.version)
        self.store.files.put(name, [content], overwrite=True)
        self.store.files.sync(f"{self.folder}/_delta_log")
        size = sum(1 for _ in state.all_actions())
        last = {"version": state.version, "size": size, "sizeInBytes": len(content), "numOfAddFiles": len(state.live)}
        self.store.files.replace(f"{self.folder}/_delta_log/{LAST}", json.dumps(last).encode())
        state.tail, state.checkpoint = 0, state.version

    def _about(self, state: LakeTableState) -> dict[str, Any]:
        """What a checkpoint has besides its actions, for `read`."""
        assert state.mark is not None
        return {"task": self.task, "timestamp": state.timestamp, "mark": state.mark.to_json()}

    def _checkpointed(self) -> LakeTableState:
        """The state of the newest checkpoint of ours, or that before the first version."""
        hint = self.store.read(f"{self.folder}/_delta_log/{LAST}")
        named = [] if hint is None else [int(json.loads(hint.to_pybytes())["version"])]
        is_whole = hint is None and self.store.files.size(self._commit_path(0)) is not None
        for version in chain(named, () if is_whole else self._checkpoints()):
            found = read_checkpoint(self.store, self.folder, version)
            if found is None or found[1]["task"] != self.task:
                continue  # another program may write checkpoints; they change nothing
            actions, about = found
            state = LakeTableState(version, int(about["timestamp"]), _mark(about["mark"]))
            state.apply(actions)
            state.newest, state.tail, state.checkpoint = (), 0, version
            return state
        return LakeTableState()

    def _checkpoints(self) -> Iterator[int]:
        """Versions that have one, newest first."""
        versions = (checkpoint_version(name) for name in self.store.files.names(f"{self.folder}/_delta_log"))
        yield from sorted((version for version in versions if version is not None), reverse=True)

    def _marked(
        self, actions: Sequence[Action], state: LakeTableState, *, foreign: bool
    ) -> tuple[CommitMark | None, int]:
        about = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        mark = _mark(about["ccpr"]) if "ccpr" in about else None
        if (mark is None or mark.task != self.task) and not (foreign and state.version >= 0):
            if state.version < 0:
                raise LakeForeign("another program or subscription made the table", subject=self.subject)
            who = str(about.get("engineInfo", "an unknown program"))
            what = f"version {state.version + 1} was written by {who:.60}: {about.get('operation', '')!s:.40}"
            raise LakeChanged(what, subject=self.subject)
        return mark or state.mark, int(about.get("inCommitTimestamp", state.timestamp + 1))

    def _commit_path(self, version: int) -> str:
        return commit_path(self.folder, version)


def commit_path(folder: str, version: int) -> str:
    return f"{folder}/_delta_log/{version:020}.json"


def log_content(actions: Sequence[Action]) -> bytes:
    """A commit as its file has it."""
    return "".join(json.dumps(one, separators=(",", ":"), ensure_ascii=False) + "\n" for one in actions).encode()


def _actions(content: Any) -> list[Action]:
    found = [json.loads(line) for line in content.to_pybytes().splitlines() if line.strip()]
    if not all(isinstance(action, dict) for action in found):
        raise ValueError("an action is no object")
    return found


def _mark(value: Mapping[str, Any]) -> CommitMark:
    return CommitMark(str(value["task"]), int(value["lsn"]), int(value["at"]))
