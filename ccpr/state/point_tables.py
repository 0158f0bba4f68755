"""The tables of a point as an iteration knows them: how they are named at once, their definitions when they are asked
for. An idle iteration asks for none, and one in which few tables changed for few."""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView

from ccpr.matrixone.schema import Table
from ccpr.mirror.points import TableRef
from ccpr.state.errors import StateUnreadable
from ccpr.state.history import PointHistory
from ccpr.state.point_rows import TablePoint

_ONE_BY_ONE = 16  # definitions that are read singly; with the next one all are


class PointTables(Mapping[int, TablePoint]):
    """By id. Of one iteration, or of those of one process that follow it; one thread uses it.

    The row of a definition stays as long as it is the newest of its table, so that it can be read later than the refs.
    `refs`: how the point names each table. `appendable`: of tables that have live appendable objects, how many.
    """

    def __init__(
        self,
        history: PointHistory,
        lsn: int,
        refs: dict[int, TableRef],
        appendable: dict[int, int],
        known: Mapping[int, TablePoint] | None = None,
    ) -> None:
        self.lsn, self.refs, self.appendable = lsn, refs, appendable
        self._history, self._known, self._single = history, dict(known or {}), 0

    @classmethod
    def read(cls, history: PointHistory, lsn: int) -> "PointTables":
        return cls(history, lsn, *history.refs(lsn))

    def moved(self, lsn: int, points: Iterable[TablePoint]) -> "PointTables":
        """The tables of a later point, with these changes: each is another table, or none any more."""
        refs, appendable, known = dict(self.refs), dict(self.appendable), dict(self._known)
        for point in points:
            number = point.table.id
            for those in (refs, appendable, known):
                those.pop(number, None)
            if point.ref is not None:
                refs[number], known[number] = point.ref, point
                if point.appendable:
                    appendable[number] = point.appendable
        return PointTables(self._history, lsn, refs, appendable, known)

    def __getitem__(self, number: int) -> TablePoint:
        if number not in self._known and number in self.refs:
            self._single += 1
            self._load(None if self._single > _ONE_BY_ONE else [number])
        return self._known[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self.refs)

    def __len__(self) -> int:
        return len(self.refs)

    def __contains__(self, number: object) -> bool:
        return number in self.refs

    def values(self) -> ValuesView[TablePoint]:
        self._load(None)
        return super().values()

    def items(self) -> ItemsView[int, TablePoint]:
        self._load(None)
        return super().items()

    def _load(self, numbers: list[int] | None) -> None:
        """None: all."""
        if len(self._known) == len(self.refs):
            return
        for number, point in self._history.tables(self.lsn, only=numbers).items():
            if self.refs.get(number) == point.ref:
                self._known.setdefault(number, point)
        missing = [number for number in (self.refs if numbers is None else numbers) if number not in self._known]
        if missing:
            raise StateUnreadable(
                "the point is not as it was read before",
                subject=f"task {self._history.task_id}, table {missing[0]}, point {self.lsn}",
                remedy="Restore the catalog database.",
            )


class DefinitionsOf(Mapping[int, Table]):
    """The definitions of a point's tables by id, read like these."""

    def __init__(self, points: PointTables) -> None:
        self._points = points

    def __getitem__(self, number: int) -> Table:
        return self._points[number].table

    def __iter__(self) -> Iterator[int]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)

    def __contains__(self, number: object) -> bool:
        return number in self._points

    def values(self) -> ValuesView[Table]:
        self._points.values()
        return super().values()

    def items(self) -> ItemsView[int, Table]:
        self._points.values()
        return super().items()
