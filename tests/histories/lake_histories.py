"""A simulated upstream's replica published to a lake: iterate, publish, read each table with other programs, and
compare with the mirror and with the engine's rows; at earlier points too."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.catalog.rest import RestCatalog

from ccpr.lake.lake_catalog import POINTS
from ccpr.lake.lake_options import Format, LakeOptions, Mapped
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.service import lakes
from ccpr.service.target_sync import sync_targets
from ccpr.service.workspace import Workspace
from ccpr.state.settings import Settings
from ccpr_emulator.engine.transaction import CreateAt
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories import events
from tests.histories.history import DATABASE, History
from tests.histories.replicating import NAME, iterate, read_mirror, rows
from tests.histories.replicating import subscribed as subscribe
from tests.support.committing_catalog import committing_catalog
from tests.support.lake_readers import READERS, Consumer, assert_same_rows, truth, visible_in_files

ITERATIONS, STEPS = 6, 9
LAKE = "lake"


@dataclass
class Shown:
    """The version of each folder that shows a point."""

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


@dataclass
class Audit:
    """The versions of each folder that were looked at: what they say of changes is so.

    Attributes
    ----------
    copies : of the tables, kept by their feeds.
    moved : how many commits said of files that their rows only moved.
    """

    lake: Path
    seen: dict[str, int] = field(default_factory=dict)
    copies: dict[str, Consumer] = field(default_factory=dict)
    moved: int = 0

    def look(self, *, change_data: bool) -> None:
        for log in self.lake.glob("*/_delta_log"):
            folder = log.parent
            if folder.name == POINTS:
                continue
            newest = max(int(path.stem) for path in log.glob("*.json"))
            for version in range(self.seen.get(folder.name, -1) + 1, newest + 1):
                actions = [json.loads(line) for line in (log / f"{version:020}.json").read_text().splitlines()]
                self._moved(folder, version, actions)
            if change_data and newest > self.seen.get(folder.name, -1):
                copy = self.copies.setdefault(folder.name, Consumer(str(folder)))
                copy.follow()
                copy.assert_is(READERS["delta-rs"](str(folder), newest))
            self.seen[folder.name] = newest

    def _moved(self, folder: Path, version: int, actions: list[dict[str, Any]]) -> None:
        """Of the files that are said to be only rearranged, those before and behind have the same rows."""
        before, after = (
            [one[kind] for one in actions if kind in one and not one[kind]["dataChange"]] for kind in ("remove", "add")
        )
        if (before or after) and not any("metaData" in one for one in actions):  # else the columns have other names
            self.moved += 1
            names = pq.read_schema(folder / (after or before)[0]["path"]).names
            former, now = (visible_in_files(folder, adds, names) for adds in (before, after))
            assert former == now, (folder.name, version, list(former - now)[:3], list(now - former)[:3])


def options_of(seed: int) -> LakeOptions:
    """One of each kind now and then."""
    rng = random.Random(seed + 7)
    mapped = Mapped.NAME if rng.random() < 0.25 else Mapped.NONE
    copy_on_write, change_data = rng.random() < 0.2, rng.random() < 0.5
    kind, version = rng.choice((Format.DELTA, Format.DELTA, Format.ICEBERG, Format.BOTH)), rng.choice((2, 3))
    version = LakeOptions().iceberg_version if kind is Format.DELTA else version
    return LakeOptions(kind, "", mapped, copy_on_write, change_data, iceberg_version=version)


def publish_history(seed: int, folder: Path, create_at: CreateAt = "commit") -> None:
    """A history into a lake. Raises AssertionError, or what the product raises, with the history as a note."""
    history = History(seed, create_at=create_at)
    history.steps += [(4, partial(change, history)) for change in (events.swap_columns, events.replace_column)]
    options = options_of(seed)
    readers = ["delta-rs"] if options.columns is Mapped.NAME else list(READERS)
    publisher = (history.account, history.storage.accounts[history.account])
    shown, audit, rng = Shown(folder / "lake"), Audit(folder / "lake"), random.Random(seed + 8)
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
                target = workspace.of(NAME).targets.lake(LAKE)
                shown.note(point.lsn, lakes.shown(target, workspace, NAME))
                shown.assert_shows(mirror, point, readers)
                if options.has_iceberg:
                    _assert_iceberg(workspace, mirror, point)
                audit.look(change_data=options.change_data and options.columns is Mapped.NONE)
                _assert_as_upstream(workspace, history, point)
            for lsn in rng.sample(sorted(shown.versions), min(3, len(shown.versions))):
                mirror = workspace.mirror(NAME)
                shown.assert_shows(mirror, mirror.point(lsn), readers)
                if options.has_iceberg:
                    _assert_iceberg(workspace, mirror, mirror.point(lsn))
    except Exception as error:
        error.add_note("\n  ".join((f"history of seed {seed}, {options}:", *history.done)))
        raise


def _publish(workspace: Workspace) -> None:
    with workspace.iteration(NAME) as iteration:
        (synced,) = sync_targets(workspace, iteration)
    assert synced.failure is None
    assert synced.result is None or synced.result.behind == ()


def _assert_iceberg(workspace: Workspace, mirror: Mirror, point: Point) -> None:
    """All tables at a point, by pyiceberg, as the catalog pins them."""
    with committing_catalog(workspace.log, NAME, workspace.of(NAME).targets.lake(LAKE)) as at:
        found = RestCatalog("lake", uri=at.uri, token=at.token, warehouse=f"{at.warehouse}@{point.lsn}")
        listed = {".".join(name) for space in found.list_namespaces() for name in found.list_tables(space)}
        assert listed == {ref.qualified_name for ref in point.tables.values() if ref.kind.value == "table"}
        for name in listed:
            what = f"pyiceberg: {name} at lsn {point.lsn}"
            assert_same_rows(found.load_table(name).scan().to_arrow(), truth(mirror, point, name), what)


def _assert_as_upstream(workspace: Workspace, history: History, point: Point) -> None:
    """The mirror's tables are the upstream's, so that what was compared with it is, too."""
    names = {definition.name for _, definition in history.storage.tables_at(point.at, account=history.account)}
    assert {ref.name for ref in point.tables.values() if ref.kind.value == "table"} == names
    for name in names:
        expected = history.storage.rows_at(DATABASE, name, point.at, account=history.account)
        assert Counter(rows(read_mirror(workspace, point, f"{DATABASE}.{name}"))) == Counter(rows(expected))
