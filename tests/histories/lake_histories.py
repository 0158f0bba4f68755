"""A simulated upstream's replica published to a lake: iterate, publish, read each table with other programs, and
compare with the mirror and with the engine's rows; at earlier points too."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ccpr.emulator.engine.transaction import CreateAt
from ccpr.emulator.simulated_upstream import SimulatedUpstream
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.service import lakes
from ccpr.service.target_sync import sync_targets
from ccpr.service.workspace import Workspace
from ccpr.state.settings import Settings
from ccpr.targets.lake.columns import Mapped
from ccpr.targets.lake.options import LakeOptions
from tests.histories.history import DATABASE, History
from tests.histories.replicating import NAME, iterate, read_mirror, rows
from tests.histories.replicating import subscribed as subscribe
from tests.support.lake_readers import READERS, assert_same_rows, truth

ITERATIONS, STEPS = 6, 9
LAKE = "lake"


@dataclass
class Shown:
    """Which version of which folder shows which point."""

    lake: Path
    versions: dict[int, dict[str, tuple[str, int]]] = field(default_factory=dict)  # by lsn and table

    def note(self, lsn: int, found: lakes.LakeShown) -> None:
        self.versions[lsn] = {
            table.table: (table.uri.rpartition("/")[2], table.version) for table in found.tables if not table.behind
        }

    def assert_shows(self, mirror: Mirror, point: Point, readers: Sequence[str]) -> None:
        wanted = {ref.qualified_name for ref in point.tables.values() if ref.kind.value == "table"}
        found = self.versions[point.lsn]
        assert set(found) == wanted
        for name, (folder, version) in found.items():
            expected = truth(mirror, point, name)
            for reader in readers:
                what = f"{reader}: {name} at lsn {point.lsn}, version {version} of {folder}"
                assert_same_rows(READERS[reader](str(self.lake / folder), version), expected, what)


def options_of(seed: int) -> LakeOptions:
    """One of each kind now and then."""
    rng = random.Random(seed + 7)
    mapped = Mapped.NAME if rng.random() < 0.25 else Mapped.NONE
    return LakeOptions(columns=mapped, copy_on_write=rng.random() < 0.2)


def publish_history(seed: int, folder: Path, create_at: CreateAt = "commit") -> None:
    """A history into a lake. Raises AssertionError, or what the product raises, with the history as a note."""
    history = History(seed, create_at=create_at)
    options = options_of(seed)
    readers = ["delta-rs"] if options.columns is Mapped.NAME else list(READERS)
    publisher = (history.account, history.storage.accounts[history.account])
    shown, rng = Shown(folder / "lake"), random.Random(seed + 8)
    try:
        with (
            SimulatedUpstream(history.storage) as emulator,
            subscribe(emulator.port, folder, DATABASE, publisher=publisher, settings=Settings()) as workspace,
        ):
            lakes.add(workspace, NAME, LAKE, shown.lake.as_uri(), options)
            for _ in range(ITERATIONS):
                for _ in range(history.rng.randint(0, STEPS)):
                    history.step()
                outcome = iterate(workspace)
                history.done.append(f"iteration {outcome.lsn}: point {outcome.point} at {outcome.at}")
                if rng.random() < 0.2:  # the lake is late
                    continue
                _publish(workspace)
                mirror = workspace.mirror(NAME)
                point = mirror.point()
                target = lakes.lake_records(workspace, NAME).lake(LAKE)
                shown.note(point.lsn, lakes.shown(target, workspace, NAME))
                shown.assert_shows(mirror, point, readers)
                _assert_as_upstream(workspace, history, point)
            for lsn in rng.sample(sorted(shown.versions), min(3, len(shown.versions))):
                mirror = workspace.mirror(NAME)
                shown.assert_shows(mirror, mirror.point(lsn), readers)
    except Exception as error:
        error.add_note("\n  ".join((f"history of seed {seed}, {options}:", *history.done)))
        raise


def _publish(workspace: Workspace) -> None:
    with workspace.iteration(NAME) as iteration:
        (synced,) = sync_targets(workspace, iteration)
    assert synced.failure is None
    assert synced.result is None or synced.result.behind == ()


def _assert_as_upstream(workspace: Workspace, history: History, point: Point) -> None:
    """The mirror's tables are the upstream's, so that what was compared with it is, too."""
    names = {definition.name for _, definition in history.storage.tables_at(point.at, account=history.account)}
    assert {ref.name for ref in point.tables.values() if ref.kind.value == "table"} == names
    for name in names:
        expected = history.storage.rows_at(DATABASE, name, point.at, account=history.account)
        assert Counter(rows(read_mirror(workspace, point, f"{DATABASE}.{name}"))) == Counter(rows(expected))
