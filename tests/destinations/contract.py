"""What every destination has to do, asked of each: promises of `replication.destinations.base`.

A destination takes part with a `Scene`: it knows how to bring point n of a small history into its destination, and to read the rows back.
What a destination cannot do it declares in its capabilities; a test asks there what is to be expected, and is never skipped.
"""

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from matrixone.errors import Terminal
from replication.checkpoint_store import Location
from replication.destinations.base import Destination
from replication.destinations.errors import TargetBusy
from replication.errors import PointTooOld

Row = tuple[Any, ...]
HISTORY: list[dict[int, str | None]] = [  # id -> v, with v unique: the points of one table
    {1: "a", 2: "b", 3: None},
    {1: "b", 2: "a", 4: "NULL"},
    {1: "b", 2: "a", 4: "NULL"},
    {4: "d", 5: "\\N"},
]


class Interrupted(Exception):
    """What a scene's rows raise in the middle of an apply."""


def rows_at(lsn: int) -> list[Row]:
    return sorted(HISTORY[lsn].items())


class Scene(Protocol):
    """A destination with one table.

    `session` gives a new, closed session. `bring` brings a point into an open one, whether the table is there or not, and tells whether
    there was something to do; `cut` makes it break off in the middle with Interrupted. `location` is that of a point which was brought,
    `table_id` that of the table. `rows` is what a reader finds, now or at an older point. `bystander` puts something that is not ours
    where the table is to come, and gives a function that tells whether it is as it was.
    """

    @property
    def table_id(self) -> int: ...
    def session(self) -> Destination: ...
    def bring(self, destination: Destination, lsn: int, *, cut: bool = False) -> bool: ...
    def bring_older(self, destination: Destination, lsn: int) -> None: ...
    def location(self, lsn: int) -> Location: ...
    def rows(self, lsn: int | None = None) -> list[Row]: ...
    def bystander(self) -> Callable[[], bool]: ...


class Contract:
    """Subclasses give the fixture `scene`."""

    def test_rows_and_location_move_together(self, scene: Scene) -> None:
        destination = scene.session()
        destination.open()
        assert destination.points() == {}
        for lsn in range(len(HISTORY)):
            scene.bring(destination, lsn)
            assert scene.rows() == rows_at(lsn)
            assert destination.points() == {scene.table_id: scene.location(lsn)}
        destination.close()

    def test_points_in_between_may_be_left_out(self, scene: Scene) -> None:
        destination = scene.session()
        destination.open()
        scene.bring(destination, 0)
        scene.bring(destination, 3)
        assert scene.rows() == rows_at(3)
        destination.close()

    def test_twice_is_once(self, scene: Scene) -> None:
        destination = scene.session()
        destination.open()
        for lsn in (0, 1):
            assert scene.bring(destination, lsn)
            assert not scene.bring(destination, lsn)
            assert scene.rows() == rows_at(lsn)
        destination.close()

    def test_an_older_location_is_refused(self, scene: Scene) -> None:
        destination = scene.session()
        destination.open()
        scene.bring(destination, 0)
        scene.bring(destination, 1)
        with pytest.raises(PointTooOld):
            scene.bring_older(destination, 0)
        assert scene.rows() == rows_at(1)
        assert destination.points() == {scene.table_id: scene.location(1)}
        destination.close()

    def test_a_new_session_finds_what_the_last_one_left(self, scene: Scene) -> None:
        destination = scene.session()
        destination.open()
        scene.bring(destination, 0)
        destination.close()
        destination.close()
        destination = scene.session()
        destination.open()
        assert destination.points() == {scene.table_id: scene.location(0)}
        assert destination.tables()[scene.table_id].location == scene.location(0)
        scene.bring(destination, 1)
        assert scene.rows() == rows_at(1)
        destination.close()

    def test_rows_that_break_off_leave_everything_as_it_was(self, scene: Scene) -> None:
        destination = scene.session()
        destination.open()
        with pytest.raises(Interrupted):
            scene.bring(destination, 0, cut=True)
        assert destination.points() == {}
        scene.bring(destination, 0)
        with pytest.raises(Interrupted):
            scene.bring(destination, 1, cut=True)
        assert scene.rows() == rows_at(0)
        assert destination.points() == {scene.table_id: scene.location(0)}
        scene.bring(destination, 1)
        assert scene.rows() == rows_at(1)
        destination.close()

    def test_the_global_point_follows(self, scene: Scene) -> None:
        destination = scene.session()
        destination.open()
        for lsn in (0, 1):
            scene.bring(destination, lsn)
            assert destination.advance(scene.location(lsn)) == scene.location(lsn)
            assert destination.global_point() == scene.location(lsn)
        destination.close()
        destination.open()
        assert destination.global_point() == scene.location(1)
        destination.close()

    def test_older_points_can_be_read_where_that_is_declared(self, scene: Scene) -> None:
        destination = scene.session()
        destination.open()
        scene.bring(destination, 0)
        scene.bring(destination, 1)
        if destination.capabilities.reads_old_points:
            assert scene.rows(0) == rows_at(0)
        else:
            with pytest.raises((NotImplementedError, Terminal)):
                scene.rows(0)
        assert scene.rows() == rows_at(1)
        destination.close()

    def test_what_is_not_ours_is_not_touched(self, scene: Scene) -> None:
        destination = scene.session()
        if not destination.capabilities.shares_its_place:
            with pytest.raises(Terminal):
                scene.bystander()
            return
        untouched = scene.bystander()
        destination.open()
        with pytest.raises(Terminal):
            scene.bring(destination, 0)
        assert destination.points() == {}
        assert untouched()
        destination.close()

    def test_there_is_one_writer(self, scene: Scene) -> None:
        first, second = scene.session(), scene.session()
        first.open()
        if not first.capabilities.takes_rows:  # the mirror's writer is who holds the subscription's lease
            second.open()
            second.close()
        else:
            with pytest.raises(TargetBusy):
                second.open()
        first.close()
        second.open()
        second.close()
