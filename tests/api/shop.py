"""A published mirror of a simulated upstream, made without wire and iterations: `shop.orders` and what happens to
it."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.mirror.points import Point, TableRef
from ccpr_emulator.engine.storage import Storage
from tests.support.publishing import publish
from tests.support.simulated_mirror import SimulatedMirror

START = datetime(2026, 11, 21, 9, tzinfo=UTC)  # the upstream's clock at the first event; each comes a second later
ORDERS = {"id": "bigint", "customer": "varchar(40)", "total": "decimal(12,2)", "placed": "datetime(6)"}


@dataclass
class Shop:
    """`publish` makes the state of now the next point; the first is lsn 1."""

    root: Path

    def __post_init__(self) -> None:
        self._seconds = count()
        self.storage = Storage(now=self._clock, cn_rows=1000, object_rows=8192)
        self.simulated = SimulatedMirror(self.storage, self.root)
        self.published: list[Point] = []
        self.storage.create_database("shop")

    def wait(self, until: datetime) -> None:
        """The next event comes then."""
        self._seconds = count(int((until - START).total_seconds()))

    def publish(self) -> Point:
        self.simulated.take_points()
        taken = self.simulated.points[-1]
        tables = {table_id: self._counted(ref) for table_id, ref in taken.tables.items()}
        point = Point(len(self.published) + 1, taken.at, taken.snapshot, taken.committed_at, "", tables)
        publish(self.simulated.mirror, point)
        self.published.append(point)
        return point

    def rows(self, point: Point, table: str = "orders") -> pa.Table:
        """The engine's own rows, by the first column."""
        rows = self.storage.rows_at("shop", table, point.at)
        return rows.sort_by(rows.column_names[0])

    def create(self, table: str = "orders") -> None:
        self.storage.create_table("shop", table, dict(ORDERS), primary_key=["id"])

    def insert(self, ids: range, table: str = "orders") -> None:
        with self.storage.begin() as transaction:
            transaction.insert("shop", table, orders(ids))
        self.storage.flush("shop", table)

    def delete(self, condition: pc.Expression, table: str = "orders") -> None:
        with self.storage.begin() as transaction:
            transaction.delete("shop", table, condition)

    def update(self, condition: pc.Expression, table: str = "orders", **values: object) -> None:
        with self.storage.begin() as transaction:
            transaction.update("shop", table, values, condition)

    def _counted(self, ref: TableRef) -> TableRef:
        stats = [listed.stats for listed in self.simulated.mirror.manifest(ref).listed_objects()]
        return replace(ref, rows=sum(one.rows for one in stats), bytes=sum(one.size for one in stats))

    def _clock(self) -> int:
        passed = timedelta(seconds=next(self._seconds), microseconds=250)
        return (START + passed - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000 + 789


def orders(ids: range) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "customer": [None if number % 7 == 0 else f"customer {number % 50}" for number in ids],
            "total": pa.array([Decimal(number).scaleb(-2) for number in ids], pa.decimal128(12, 2)),
            "placed": pa.array([datetime(2026, 1, 1) + timedelta(minutes=number) for number in ids]),
        }
    )


def small_shop(root: Path) -> Shop:
    """Three points, half an hour apart: 2000 orders; 500 more, 10 deleted and 5 changed; a table `customers`, and all
    merged."""
    shop = Shop(root)
    shop.create()
    shop.insert(range(2000))
    shop.publish()
    shop.wait(START + timedelta(minutes=30))
    shop.insert(range(2000, 2500))
    shop.delete(pc.field("id") < 10)
    shop.update(pc.field("id") < 15, customer="changed")
    shop.publish()
    shop.wait(START + timedelta(hours=1))
    shop.storage.create_table("shop", "customers", {"name": "varchar(40)", "since": "date"})
    with shop.storage.begin() as transaction:
        transaction.insert("shop", "customers", [{"name": "customer 1", "since": datetime(2020, 2, 29).date()}])
    shop.storage.flush("shop", "orders")
    shop.storage.merge("shop", "orders")
    shop.publish()
    return shop
