"""What a subscription remembers between iterations: the `context` column of `mo_ccpr_log`. Source:
docs/requirements.md N3, decision snapshot-names-first."""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ccpr.matrixone.client.capabilities import Capabilities
from ccpr.matrixone.client.snapshot_ref import SnapshotRef, account_snapshot, list_snapshot
from ccpr.matrixone.schema import integer_of, text_of
from ccpr.mirror.points import TableRef
from ccpr.state.errors import BAD_ROW_REMEDY, StateUnreadable

MOST_UNREPLICATED = 200
LATE_SECONDS = 3_900  # for so long a CREATE SNAPSHOT that was given up may wait upstream: its limit is an hour


@dataclass(frozen=True, slots=True)
class Settled:
    """`digest`: `settled_digest` of the point. `zero_dates`: of its tables, see
    `ccpr.matrixone.schema.zero_dates_of`."""

    digest: str
    zero_dates: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Settled":
        """Raises KeyError, TypeError, ValueError or AttributeError for what was not written from one."""
        zero_dates = {
            text_of(table): {text_of(column): integer_of(count) for column, count in columns.items()}
            for table, columns in value["zero_dates"].items()
        }
        return cls(text_of(value["digest"]), zero_dates)


def settled_digest(inputs: str, refs: Mapping[int, TableRef]) -> str:
    """Of what the catalog follows from besides the last point, and of the point's tables: each of their states has a
    manifest of its own."""
    digest = hashlib.sha256(inputs.encode())
    digest.update("".join(f"\n{number} {refs[number].manifest}" for number in sorted(refs)).encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Doubt:
    """An end that the upstream has said and that its present does not confirm (decision ends-are-confirmed). `code`: of
    the error. `first`: when it was said first, in seconds since 1970 by our clock. `times`: how often in a row."""

    code: str
    first: int
    times: int

    @classmethod
    def from_json(cls, value: dict[str, object]) -> "Doubt":
        """Raises KeyError or TypeError for what was not written from one."""
        return cls(text_of(value["code"]), integer_of(value["first"]), integer_of(value["times"]))


@dataclass(frozen=True, slots=True)
class Context:
    """The snapshots that a subscription has upstream, and what that upstream can do.

    Attributes
    ----------
    open : the snapshot of the iteration that has not ended.
    current, previous : those of the last two iterations, kept upstream (O6).
    to_drop : names that are no longer needed and have not been dropped yet; nothing else is ever dropped.
    attempts : how many names the present lsn has used.
    capabilities : what was found out about the upstream; None in a row that 0.1.0 wrote, until the next iteration.
    list_rows : how long the database's full list of objects was when it was read last.
    unreplicated : name and kind of what the database has and is not replicated, as of the last iteration; the first
        MOST_UNREPLICATED of it.
    relations : says which views and sequences the last point was made with; empty for none.
    copied_last : how many objects the last iteration that copied any did, and how many of them straight from storage.
    doubt : the end that the last iterations were told, if it does not count yet.
    late : names that are not needed and for which the upstream was asked without an answer, with the time in seconds
        since 1970 on our clock: it may make such a snapshot later (docs/upstream.md 4.3).
    row_rules : tables of the last point with row rules of a role upstream, as they were known last; the first
        MOST_UNREPLICATED of them.
    by_rows : whether the last iteration was in logical mode (decision logical-mode).
    """

    open: SnapshotRef | None = None
    current: SnapshotRef | None = None
    previous: SnapshotRef | None = None
    to_drop: tuple[str, ...] = ()
    attempts: int = 0
    capabilities: Capabilities | None = None
    list_rows: int = 0
    unreplicated: tuple[tuple[str, str], ...] = ()
    copied_last: tuple[int, int] = (0, 0)
    relations: str = ""
    doubt: Doubt | None = None
    late: tuple[tuple[str, int], ...] = ()
    settled: Settled | None = None
    row_rules: tuple[str, ...] = ()
    by_rows: bool = False

    def opened(self, uid: str, lsn: int, *, of_account: bool = False) -> "Context":
        """With an open snapshot under a new name. A random part keeps it new where the row was restored from a copy."""
        name = _new_name(uid, lsn, self.attempts)
        name = account_snapshot(name) if of_account else name
        return replace(self, open=SnapshotRef(name, lsn, self.attempts), attempts=self.attempts + 1)

    def with_temporary(self, uid: str, now: float) -> tuple["Context", SnapshotRef]:
        """A snapshot that is needed for the open one's list only: it is to be dropped from the start."""
        assert self.open is not None
        lsn, attempt = self.open.lsn, self.open.attempt
        temporary = SnapshotRef(_new_name(uid, lsn, attempt), lsn, attempt)
        return self._asked([temporary.name], now), temporary

    def with_lists(self, database_ids: Iterable[int], now: float) -> tuple["Context", list[SnapshotRef]]:
        """The snapshots of databases from which the open one's list is made; to be dropped from the start. They have
        the same names each time, so that a run that takes the iteration up finds them."""
        assert self.open is not None
        lsn, attempt = self.open.lsn, self.open.attempt
        refs = [SnapshotRef(list_snapshot(self.open.name, number), lsn, attempt) for number in database_ids]
        known = set(self.to_drop)
        return self._asked([ref.name for ref in refs if ref.name not in known], now), refs

    def abandoned(self, now: float) -> "Context":
        """Without the open snapshot: it will be dropped, and the next attempt uses a new name."""
        if self.open is None:
            return self
        if self.open.physical is None:
            return replace(self._asked([self.open.name], now), open=None)
        return replace(self, open=None, to_drop=(*self.to_drop, self.open.name))

    def _asked(self, names: Iterable[str], now: float) -> "Context":
        """With names that are to be dropped and have not been answered for."""
        found = list(names)
        late = (*self.late, *((name, round(now)) for name in found))
        return replace(self, to_drop=(*self.to_drop, *found), late=late)

    def committed(self) -> "Context":
        """Open becomes current, current becomes previous, and previous is to be dropped."""
        due = () if self.previous is None else (self.previous.name,)
        return replace(
            self,
            open=None,
            current=self.open,
            previous=self.current,
            to_drop=(*self.to_drop, *due),
            attempts=0,
            doubt=None,
        )

    def released(self) -> "Context":
        """Every recorded name is to be dropped."""
        return Context(to_drop=tuple(self.recorded()))

    def dropped(self, names: set[str], now: float, answered: set[str]) -> "Context":
        """Without the names that were dropped upstream; but for those that may be made there later, being not among
        the `answered`."""
        late = tuple(
            (name, asked)
            for name, asked in self.late
            if name not in names or (name not in answered and 0 <= now - asked <= LATE_SECONDS)
        )
        return replace(self, to_drop=tuple(name for name in self.to_drop if name not in names), late=late)

    def recorded(self) -> dict[str, str]:
        """Every name that may exist upstream, with its role: open, current, previous or orphan."""
        refs = {"open": self.open, "current": self.current, "previous": self.previous}
        orphans = (*self.to_drop, *(name for name, _ in self.late))
        return {ref.name: role for role, ref in refs.items() if ref} | dict.fromkeys(orphans, "orphan")

    def to_text(self) -> str:
        return json.dumps(_flat(self), default=_flat)

    @classmethod
    def from_text(cls, text: str | None) -> "Context":
        """Raises StateUnreadable for what `to_text` would not have written."""
        try:
            value = json.loads(text or "{}")
            if not isinstance(value, dict):
                raise TypeError("it is not a JSON object")
            refs = {key: _ref(value[key]) for key in ("open", "current", "previous") if value.get(key)}
            known, (copied, direct) = value.get("capabilities"), value.get("copied_last", (0, 0))
            doubt, settled = value.get("doubt"), value.get("settled")
            return cls(
                **refs,
                to_drop=tuple(map(text_of, value.get("to_drop", ()))),
                attempts=integer_of(value.get("attempts", 0)),
                list_rows=integer_of(value.get("list_rows", 0)),
                unreplicated=tuple((text_of(name), text_of(kind)) for name, kind in value.get("unreplicated", ())),
                copied_last=(integer_of(copied), integer_of(direct)),
                relations=text_of(value.get("relations", "")),
                capabilities=None if known is None else Capabilities.from_json(known),
                doubt=None if doubt is None else Doubt.from_json(doubt),
                late=tuple((text_of(name), integer_of(asked)) for name, asked in value.get("late", ())),
                settled=None if settled is None else Settled.from_json(settled),
                row_rules=tuple(map(text_of, value.get("row_rules", ()))),
                by_rows=value.get("by_rows") is True,
            )
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            raise StateUnreadable(
                f"the context of a subscription cannot be read: {error}",
                subject="mo_ccpr_log.context",
                remedy=BAD_ROW_REMEDY,
            ) from error


def _new_name(uid: str, lsn: int, attempt: int) -> str:
    return f"xr_{uid}_{lsn}_{attempt}_{secrets.token_hex(3)}"


def _flat(value: Any) -> dict[str, object]:
    """A dataclass by the names of its fields: not by `asdict`, whose copies cost more than the text."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _ref(value: object) -> SnapshotRef:
    """Raises TypeError, ValueError or KeyError for what `to_text` would not have written."""
    if not isinstance(value, dict):
        raise TypeError("a snapshot is not a JSON object")
    return SnapshotRef.from_json(value)
