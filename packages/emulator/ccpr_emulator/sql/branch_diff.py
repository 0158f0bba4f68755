"""DATA BRANCH DIFF on a simulated upstream: which rows of a table differ between two snapshots, with what a real one
gets wrong. docs/upstream.md, "Differences of rows".

DATA BRANCH DIFF d.t {snapshot = 'b'} AGAINST d.t {snapshot = 'a'} [OUTPUT COUNT | OUTPUT LIMIT n]
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import Column
from ccpr.matrixone.server.answers import BIGINT, VAR_STRING, ResultColumn, ResultSet, StatementError
from ccpr.matrixone.server.backing import internal
from ccpr.matrixone.server.mo_catalog import BINARY, UTF8
from ccpr.matrixone.server.tokens import Tokens
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.entries import TABLE, VIEW, TableEntry
from ccpr_emulator.errors import NeverAnswered
from ccpr_emulator.sql.dialect import unsupported
from ccpr_emulator.sql.names import table_name
from ccpr_emulator.sql.show import Shown, snapshot_tick, table_at
from ccpr_emulator.sql.text import cells, charset, mysql_type

KIND = "branch_diff"
_PLAIN = re.compile(r"[a-z0-9_.]+")
_MOMENTS = (types.DATETIME, types.TIMESTAMP, types.TIME)
_WITHOUT_CAST = {types.DATE: "DATE", types.DATETIME: "DATETIME", types.YEAR: "YEAR"}
_CAST_WRONG = (types.TIMESTAMP, types.FLOAT32, types.FLOAT64)


@dataclass(frozen=True, slots=True)
class _Side:
    """A table at a snapshot."""

    entry: TableEntry
    definition: Definition
    tick: int

    @property
    def rows(self) -> np.ndarray:
        return self.entry.stored.visible(self.tick)

    def values(self, rows: np.ndarray, columns: Iterable[Column]) -> list[tuple[Any, ...]]:
        """As they are compared: with one zero."""
        table = self.entry.stored.values(rows, list(columns))
        return list(zip(*(map(_compared, column.to_pylist()) for column in table.columns), strict=True))


def _compared(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_compared, value))
    return repr(value or 0.0) if isinstance(value, float) else repr(value)


def kind_of(words: tuple[str, str, str]) -> str | None:
    return KIND if words == ("data", "branch", "diff") else None


def parse(tokens: Tokens, session: Shown) -> Callable[[], ResultSet]:
    """Read the statement; what is returned answers it. Raises StatementError."""
    tokens.expect("data", "branch", "diff")
    target = _named(tokens, session)
    tokens.expect("against")
    base = _named(tokens, session)
    limit, counted = None, False
    if tokens.accept("output"):
        counted = tokens.accept("count")
        if not counted:
            if not tokens.accept("limit"):
                raise unsupported("DATA BRANCH DIFF … OUTPUT AS or FILE")
            limit = tokens.number()

    def answer() -> ResultSet:
        with session.storage.lock:
            result = _difference(_side(session, *target), _side(session, *base), is_old=session.release != "4.2")
        if counted:
            return ResultSet((ResultColumn("COUNT(*)", BIGINT, BINARY),), [(len(result.rows),)])
        return result if limit is None else ResultSet(result.columns, list(result.rows)[:limit])

    return answer


def _named(tokens: Tokens, session: Shown) -> tuple[str, str, int]:
    names = table_name(tokens, session.database)
    tick = snapshot_tick(tokens, session)
    if tick is None:
        raise unsupported("DATA BRANCH DIFF of a table that is not at a snapshot")
    return *names, tick


def _side(session: Shown, database: str, table: str, tick: int) -> _Side:
    entry, definition = table_at(session, database, table, tick, (TABLE, VIEW))
    if entry.kind == VIEW:
        raise internal("panic runtime error: invalid memory address or nil pointer dereference: ")
    return _Side(entry, definition, tick)


def _difference(target: _Side, base: _Side, *, is_old: bool) -> ResultSet:
    columns = target.definition.user_columns
    _check_columns(target, base)
    if is_old:
        _fail_as_before_4_2(target, base, columns)
    names = (f"diff {target.definition.name} against {base.definition.name}", "flag")
    heads = [ResultColumn(name, VAR_STRING, UTF8) for name in names]
    heads += [ResultColumn(column.name.lower(), mysql_type(column), charset(column)) for column in columns]
    rows: list[tuple[Any, ...]] = []
    for side, flag, numbers in _changes(target, base):
        table = side.entry.stored.values(numbers, columns)
        shown = [_cells(column, table.column(place), is_old=is_old) for place, column in enumerate(columns)]
        rows += zip([target.definition.name] * len(numbers), [flag] * len(numbers), *shown, strict=True)
    return ResultSet(tuple(heads), rows)


def _changes(target: _Side, base: _Side) -> Iterator[tuple[_Side, str, np.ndarray]]:
    """Of one table id the changes from the older snapshot to the newer, whichever is named first; of two ids all rows
    that only one side has, each as an INSERT."""
    if target.entry is not base.entry:
        columns = base.definition.user_columns
        for side, other in ((base, target), (target, base)):
            left = Counter(other.values(other.rows, columns))
            yield side, "INSERT", np.array(list(_not_in(left, side, columns)), np.int64)
        return
    older, newer = sorted((target, base), key=lambda side: side.tick)
    gone, come = np.setdiff1d(older.rows, newer.rows), np.setdiff1d(newer.rows, older.rows)
    gone = np.setdiff1d(gone, newer.entry.lost)  # what went with a partition is not told
    key, columns = (newer.definition.key,), newer.definition.user_columns
    old = dict(zip(newer.values(gone, key), newer.values(gone, columns), strict=True))
    new = dict(zip(newer.values(come, key), newer.values(come, columns), strict=True))
    lost, twice = _unfound(newer, gone)
    was_lost = dict(zip(old, lost.tolist(), strict=True))
    yield newer, "DELETE", gone[np.array([one not in new for one in old], bool) & ~lost | _both(old, new) & twice]
    yield newer, "INSERT", come[[one not in old or (was_lost[one] and old[one] != new[one]) for one in new]]
    yield newer, "UPDATE", come[[one in old and not was_lost[one] and old[one] != new[one] for one in new]]


def _both(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> np.ndarray:
    """Which of the old rows were changed and not deleted."""
    return np.array([one in new and new[one] != values for one, values in old.items()], bool)


def _unfound(side: _Side, gone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of the rows that are gone from the newer snapshot are not found at the older one, so that a deleted one
    does not come and a changed one comes as an INSERT; and which ones come as a DELETE too when they were changed.

    They are looked up by the key's text, cast to its types without their scales; without a key by the row's number,
    cast to the type of the first column. Raises 20203 where there is no such cast.
    """
    definition, none = side.definition, np.zeros(len(gone), bool)
    if not definition.primary_key:
        first = definition.user_columns[0].type.oid
        if len(gone) and (word := _WITHOUT_CAST.get(first)):
            raise StatementError(20203, f"invalid argument operator cast, bad value [BIGINT {word}]")
        return none | (first in _CAST_WRONG), none
    moments = [definition.column(name) for name in definition.primary_key]
    moments = [one for one in moments if one.type.oid in _MOMENTS and one.type.scale > 0]
    lost = none
    for column in side.entry.stored.values(gone, moments).columns if moments else ():
        lost = lost | (column.cast(pa.int64()).to_numpy() % 1_000_000 != 0)
    return lost, ~lost & bool(moments)


def _not_in(left: Counter[tuple[Any, ...]], side: _Side, columns: Iterable[Column]) -> Iterator[int]:
    for number, values in zip(side.rows.tolist(), side.values(side.rows, columns), strict=True):
        if left[values]:
            left[values] -= 1
        else:
            yield number


def _check_columns(target: _Side, base: _Side) -> None:
    there = {column.name: column for column in target.definition.user_columns}
    for column in base.definition.user_columns:
        found = there.get(column.name)
        if found is None and target.entry is base.entry:
            renamed = next(one.name for one in there.values() if one.seqnum == column.seqnum)
            raise StatementError(20301, f"invalid input: column 'lca.{renamed}' does not exist")
        if found is None:
            raise internal(f"schema compatibility check: base column '{column.name}' is not present in target schema")
        if (found.type, found.labels) != (column.type, column.labels):
            raise internal(f"schema compatibility check: column '{column.name}' has different type attributes")


def _fail_as_before_4_2(target: _Side, base: _Side, columns: Iterable[Column]) -> None:
    if target.entry.partitions:
        raise StatementError(1105, "internal error: panic not implemented: ")
    named = f"{base.definition.database}.{base.definition.name}"
    if not _PLAIN.fullmatch(named) and len(np.setdiff1d(base.rows, target.rows)):  # they are looked up without quotes
        raise StatementError(1105, f'You have an error in your SQL syntax; syntax error near "{named}"')
    kinds = {column.type.oid for column in columns}
    if types.ENUM in kinds:
        raise NeverAnswered
    if types.YEAR in kinds:
        raise StatementError(1105, "internal error: panic unsupported type: YEAR")


def _cells(column: Column, values: pa.ChunkedArray, *, is_old: bool) -> list[Any]:
    whole = values.combine_chunks()
    if types.is_set(column):
        members = {label: 1 << place for place, label in enumerate(column.labels)}
        texts = [text and [] if is_old else text and text.split(",") for text in whole.to_pylist()]
        return [None if text is None else sum(members[one] for one in text) for text in texts]
    if column.type.oid == types.ENUM:
        return [None if text is None else ("", *column.labels).index(text) for text in whole.to_pylist()]
    if is_old and column.type.oid == types.BIT:
        return [None if value is None else b"" for value in whole.to_pylist()]
    return cells(column, whole)
