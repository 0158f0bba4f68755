"""Which subscriptions, targets, followers and tables there are, as a value that can be kept: what definitions are made
of (`ccpr.dagster.table_specs`). Our own project reads it when it is loaded; a component keeps it as its state."""

import json
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

from ccpr.dagster.health import objective_of, objective_seconds
from ccpr.dagster.tables import DescribedColumn, copy_database, has_copy, shown_columns
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import Kind, Table, integer_of, text_of
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.points import TableRef
from ccpr.service.care_status import with_care
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LogRow
from ccpr.state.patterns import ALL_NAMES, NamePatterns
from ccpr.state.subscription import Subscription
from ccpr.state.targets import Target, TargetState
from ccpr.targets.address import address_of


@dataclass(frozen=True, slots=True)
class KnownTarget:
    """A target. `kind`: its dialect, or `delta`; `uri`: without a password."""

    name: str
    kind: str
    is_lake: bool
    uri: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Where a table is in a target."""

    target: str
    database: str


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A replicated table. `columns`: empty where only keys were asked for."""

    database: str
    name: str
    columns: tuple[DescribedColumn, ...]
    copies: tuple[Copy, ...]

    @property
    def qualified_name(self) -> str:
        return f"{self.database}.{self.name}"

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "KnownTable":
        copies = tuple(Copy(text_of(one["target"]), text_of(one["database"])) for one in value["copies"])
        if "definition" in value:  # as 0.2.0 wrote it
            table = Table.from_json(value["definition"])
            return cls(table.database, table.name, shown_columns(table), copies)
        columns = tuple(
            DescribedColumn(text_of(name), text_of(kind), text_of(says), bool(nullable))
            for name, kind, says, nullable in value["columns"]
        )
        return cls(text_of(value["database"]), text_of(value["name"]), columns, copies)

    def to_json(self) -> dict[str, Any]:
        columns = [[one.name, one.type, one.says, one.nullable] for one in self.columns]
        copies = [asdict(one) for one in self.copies]
        return {"database": self.database, "name": self.name, "columns": columns, "copies": copies}


@dataclass(frozen=True, slots=True)
class KnownSubscription:
    """
    Attributes
    ----------
    objective : how old its data may be, in seconds.
    followers : names and databases.
    tables : those for which there was room.
    left_out : how many there are besides.
    has_care : whether there are, or are to be, drills, scrubs or second copies.
    """

    name: str
    objective: float
    mirror: str
    destinations: tuple[KnownTarget, ...]
    followers: tuple[tuple[str, str], ...]
    tables: tuple[KnownTable, ...] = ()
    left_out: int = 0
    has_care: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**asdict(replace(self, tables=())), "tables": [table.to_json() for table in self.tables]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "KnownSubscription":
        return cls(
            text_of(value["name"]),
            float(value["objective"] if "objective" in value else objective_seconds(float(value["interval"]))),
            text_of(value["mirror"]),
            tuple(
                KnownTarget(text_of(one["name"]), text_of(one["kind"]), bool(one["is_lake"]), text_of(one["uri"]))
                for one in value["destinations"]
            ),
            tuple((text_of(name), text_of(database)) for name, database in value["followers"]),
            tuple(map(KnownTable.from_json, value["tables"])),
            integer_of(value["left_out"]),
            bool(value.get("has_care", False)),
        )


@dataclass(frozen=True, slots=True)
class Inventory:
    """`trouble`: what could not be read or done, with what to do; empty if nothing. The rest is there all the same."""

    known: tuple[KnownSubscription, ...] = ()
    trouble: str = ""

    def to_text(self) -> str:
        return json.dumps({"known": [one.to_json() for one in self.known], "trouble": self.trouble})

    @classmethod
    def of(cls, text: str) -> "Inventory":
        """Raises ValueError, KeyError or TypeError for what `to_text` has not written; 0.2.0 wrote a list."""
        value = json.loads(text)
        known = tuple(map(KnownSubscription.from_json, value if isinstance(value, list) else value["known"]))
        return cls(known, "" if isinstance(value, list) else text_of(value["trouble"]))

    def within(self, room: int) -> "Inventory":
        """With as many tables of all as there is room for."""
        found: list[KnownSubscription] = []
        for one in self.known:
            kept = one.tables[:room]
            found.append(replace(one, tables=kept, left_out=one.left_out + len(one.tables) - len(kept)))
            room -= len(kept)
        return replace(self, known=tuple(found))

    def after(self, before: "Inventory") -> "Inventory":
        """With what was known before of those that could not be read now."""
        names = {one.name for one in self.known}
        lost = tuple(one for one in before.known if one.name not in names) if self.trouble else ()
        return replace(self, known=self.known + lost)


def read_inventory(
    workspace: Workspace | None = None, *, room: int, chosen: NamePatterns = ALL_NAMES, columns: bool = True
) -> Inventory:
    """What there is now, as far as the state can be read. `room`: for tables of all subscriptions. `chosen`: which
    tables, by name or by `database.table`. `columns`: of the tables, too."""
    with closing(workspace or Workspace()) as opened:
        if not opened.has_catalog:
            return Inventory()
        known, troubles = list[KnownSubscription](), list[str]()
        try:
            rows, bad = opened.log.all_rows()
            troubles += [_trouble(row.error) for row in bad]
            cared_for = {row.task_id for row in with_care(opened, rows)}
        except CcprError as error:
            return Inventory((), _trouble(error))
        for row in rows:
            try:
                targets = opened.of(row).targets.all()
                one = _subscription(opened, row, targets, has_care=row.task_id in cared_for)
                known.append(_with_tables(opened, row, one, targets, room, chosen, columns=columns))
            except CcprError as error:
                troubles.append(_trouble(error))
            else:
                room -= len(known[-1].tables)
        return Inventory(tuple(known), "; ".join(troubles))


def _trouble(error: CcprError) -> str:
    return printable(str(error))


def _subscription(workspace: Workspace, row: LogRow, targets: list[Target], *, has_care: bool) -> KnownSubscription:
    subscription = Subscription.from_row(row)
    return KnownSubscription(
        row.subscription_name,
        objective_of(subscription.settings),
        printable(workspace.mirror_store(subscription.name, subscription.settings).url),
        tuple(map(_destination, targets)),
        tuple((one.name, one.database) for one in workspace.of(row).followers.all()),
        has_care=has_care,
    )


def _destination(target: Target) -> KnownTarget:
    if target.dialect is None:
        return KnownTarget(target.name, "delta", True, printable(target.uri))
    return KnownTarget(target.name, target.dialect.server, False, printable(address_of(target).masked()))


def _with_tables(
    workspace: Workspace,
    row: LogRow,
    one: KnownSubscription,
    targets: list[Target],
    room: int,
    chosen: NamePatterns,
    *,
    columns: bool,
) -> KnownSubscription:
    """With the first tables by name for which there is room: the same ones whatever changes."""
    history = workspace.of(row).history
    newest = history.newest() if room else None
    found = [] if newest is None else history.refs(newest.lsn)[0].values()
    named = {ref.table_id: ref for ref in found if ref.kind is not Kind.INDEX and _is_chosen(ref, chosen)}
    ids = sorted(named, key=lambda number: (named[number].qualified_name, number))[:room]
    points = {} if newest is None or not columns else history.tables(newest.lsn, only=ids)
    active = [target for target in targets if target.state is TargetState.ACTIVE]
    tables = tuple(
        KnownTable(
            ref.database,
            ref.name,
            shown_columns(points[ref.table_id].table) if points else (),
            tuple(Copy(target.name, copy_database(target, ref.database)) for target in active if has_copy(target, ref)),
        )
        for ref in (named[number] for number in ids)
    )
    return replace(one, tables=tables, left_out=history.count_tables() - len(tables))


def _is_chosen(ref: TableRef, chosen: NamePatterns) -> bool:
    return chosen.match(ref.name) or chosen.match(ref.qualified_name)
