"""What every destination has to do: tests of the promises of `ccpr.targets.base`.

A destination takes part with a `Scene`: it knows how to bring point n of a small history into its destination, and to
read the rows back. What a destination cannot do is declared by its scene; a test asks there what is to be expected, and
is never skipped. A further destination is written by the promises of `base`, gets a `Scene` here, and is complete when
all of these pass. The mirror takes part as well: iterations keep the same promises.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from typing import Any, Protocol

import pytest

from ccpr.matrixone.errors import Terminal, Transient, Unknown
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.state.errors import PointTooOld
from ccpr.targets.errors import TargetBusy

Row = tuple[Any, ...]
HISTORY: list[dict[int, str | None]] = [  # id -> v, with unique v: the points of one table
    {1: "a", 2: "b", 3: None},
    {1: "b", 2: "a", 4: "NULL"},
    {1: "b", 2: "a", 4: "NULL"},
    {4: "d", 5: "\\N"},
]


class Interrupted(Exception):
    """What a scene's rows raise in the middle of an apply."""


def state_at(lsn: int) -> dict[int, str | None]:
    """The history begins again after its last point."""
    return HISTORY[lsn % len(HISTORY)]


def rows_at(lsn: int) -> list[Row]:
    return sorted(state_at(lsn).items())


class Scene(Protocol):
    """A destination with one table.

    `session` gives a new, closed session. `bring` brings a point into an open one, whether the table is there or not,
    and returns whether there was something to do; `cut` makes it break off in the middle with Interrupted. `location`
    is that of a point that was brought, `table_id` that of the table. `rows` is what a reader finds, now or at an older
    point. `bystander` puts something that is not ours at the place of the table, and gives a function that returns
    whether it is as it was. `breaking` is a block in which sessions are lost at the step of a number, before it or
    after it was sent and not answered, and can do nothing more: Interrupted is raised, or the destination's error for a
    lost connection, which is never Terminal. It gives a function that returns whether that has happened. Steps are
    whatever can fail alone, as the statements of a database.

    `reads_old_points`: rows at an older location can still be read. `shares_its_place`: others may have tables there,
    so that a registry says which are ours. `locks_out_others`: a second session is refused; the mirror's writer is
    instead the holder of the subscription's lease. `stride`: each step of so many is broken at; more than 1 where a
    session has many of them.
    """

    reads_old_points: bool
    shares_its_place: bool
    locks_out_others: bool
    stride: int

    @property
    def table_id(self) -> int: ...
    def session(self) -> Any: ...
    def bring(self, destination: Any, lsn: int, *, cut: bool = False) -> bool: ...
    def bring_older(self, destination: Any, lsn: int) -> None: ...
    def location(self, lsn: int) -> Location: ...
    def rows(self, lsn: int | None = None) -> list[Row]: ...
    def bystander(self) -> Callable[[], bool]: ...
    def breaking(self, number: int, *, after: bool) -> AbstractContextManager[Callable[[], bool]]: ...


@contextmanager
def opened(scene: Scene) -> Iterator[Any]:
    destination = scene.session()
    destination.open()
    try:
        yield destination
    finally:
        destination.close()


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

    def test_an_initial_load_that_is_lost_anywhere_is_completed(self, scene: Scene) -> None:
        """Each attempt gets one step further, from what the former ones have left."""
        number = 0
        for number in count():
            destination = scene.session()
            with (
                scene.breaking(number * scene.stride, after=bool(number % 2)),
                suppress(Interrupted, Transient, Unknown),
            ):
                destination.open()
                scene.bring(destination, 0)
            destination.close()
            with opened(scene) as destination:
                reached = destination.points()
                assert list(reached) in ([], [scene.table_id])
                if reached:
                    scene.bring(destination, 0)
                    break
        assert number > 3
        assert scene.rows() == rows_at(0)

    @pytest.mark.parametrize("after", [False, True])
    def test_a_change_that_is_lost_anywhere_has_happened_or_not(self, scene: Scene, after: bool) -> None:
        with opened(scene) as destination:
            scene.bring(destination, 0)
        number = 0
        for number in count():
            destination = scene.session()
            with (
                scene.breaking(number * scene.stride, after=after) as broken,
                suppress(Interrupted, Transient, Unknown),
            ):
                destination.open()
                scene.bring(destination, number + 1)
            destination.close()
            with opened(scene) as destination:
                reached = destination.points()[scene.table_id]
                assert scene.rows() == rows_at(number if reached == scene.location(number) else number + 1), number
                scene.bring(destination, number + 1)
                assert scene.rows() == rows_at(number + 1), number
                assert destination.points() == {scene.table_id: scene.location(number + 1)}
            if not broken():
                break
        assert number > 3

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
        if scene.reads_old_points:
            assert scene.rows(0) == rows_at(0)
        else:
            with pytest.raises((NotImplementedError, Terminal)):
                scene.rows(0)
        assert scene.rows() == rows_at(1)
        destination.close()

    def test_what_is_not_ours_is_not_touched(self, scene: Scene) -> None:
        destination = scene.session()
        if not scene.shares_its_place:
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
        if scene.locks_out_others:
            with pytest.raises(TargetBusy):
                second.open()
        else:
            second.open()
            second.close()
        first.close()
        second.open()
        second.close()
